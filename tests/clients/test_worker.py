#!/usr/bin/python3
"""examples/worker: what it prints; several share the work; no line is lost, however it ends."""

import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time

import server
from faults import Faults
from result import run_tests
from worker import WORKER, Talk

TOTALS = re.compile(
    rb"(\d+) lines, (\d+) new, (\d+) seen"
    rb"(?:, (\d+) empty)?(?:, (\d+) too long)?(?:, (\d+) refused)?"
)


def totals(err):
    """Lines, and of these: new, seen, empty, too long, refused. They are all there is."""
    numbers = [int(number or 0) for number in TOTALS.search(err).groups()]
    assert numbers[0] == sum(numbers[1:]), err
    return tuple(numbers)


class WorkerTest(Talk):
    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)

    def reserve(self, key="seen"):
        """A filter without chance hits."""
        self.server.redis.execute_command("BF.RESERVE", key, 1e-9, 10**6, "SEED", 1)

    def card(self, key="seen"):
        return self.server.redis.execute_command("BF.CARD", key)

    def start(self, *arguments, port=None, **options):
        pipes = {
            "stdin": subprocess.PIPE,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **options,
        }
        # Without preexec_fn, which can deadlock where there are threads: it ends with its input.
        return subprocess.Popen([WORKER, "--port", str(port or self.server.port), *arguments],
                                **pipes)

    def run_worker(self, data, *arguments, port=None):
        worker = self.start(*arguments, port=port)
        out, err = worker.communicate(data, timeout=60)
        return worker.returncode, out, err

    def proxy(self):
        proxy = Faults(self.server.port)
        self.addCleanup(proxy.close)
        return proxy


class Lines(WorkerTest):
    def test_prints_each_line_once(self):
        code, out, err = self.run_worker(b"a\nb\na\n\nc\nb\nd")
        self.assertEqual((code, out), (0, b"a\nb\nc\nd\n"))
        self.assertEqual(
            err,
            b"worker: there is no filter 'seen' yet; creating it for 10000000 lines with an error"
            b" rate of 1e-6\n",
        )
        self.assertEqual(self.run_worker(b"d\ne\na\n"), (0, b"e\n", b""))
        self.assertEqual(self.card(), 5)

    def test_quiet(self):
        self.assertEqual(self.run_worker(b"a\n", "-q"), (0, b"a\n", b""))

    def test_lines_are_bytes_of_any_length(self):
        lines = [b"\x00\xff", b" blank ", b"c\rr", b"x" * 3_000_000, "ü".encode(), b"%s %n"]
        code, out, _ = self.run_worker(b"\n".join(lines), "--key", "bytes")
        self.assertEqual((code, out.split(b"\n")), (0, lines + [b""]))

    def test_lines_of_another_world(self):
        """A file from Windows has the same URLs: \\r is part of a line's end, even of the last."""
        self.reserve()
        code, out, err = self.run_worker(b"a\r\nb\r\n\r\na\nb\r\nc\r\r\nd\r", "--progress")
        self.assertEqual((code, out), (0, b"a\nb\nc\r\nd\n"))
        self.assertEqual(totals(err), (7, 4, 2, 1, 0, 0))

    def test_makes_the_filter_as_told_once(self):
        self.run_worker(b"a\n", "--key", "k", "--capacity", "1234", "--error", "0.001")
        self.run_worker(b"b\n", "--key", "k", "--capacity", "99")
        self.assertEqual(self.server.redis.execute_command("BF.INFO", "k", "CAPACITY"), [1234])

    def test_no_input(self):
        self.assertEqual(self.run_worker(b""), (0, b"", b""))

    def test_batches_of_every_size(self):
        lines = [b"line %d" % (i % 700) for i in range(1000)]
        for batch in ("1", "7", "699", "10000"):
            code, out, _ = self.run_worker(
                b"\n".join(lines), "--key", "k" + batch, "--batch", batch
            )
            self.assertEqual((code, out.split(b"\n")[:-1]), (0, lines[:700]))

    def test_a_trickle_is_answered_at_once(self):
        worker = self.start()
        for n in range(3):
            self.feed(worker, b"line %d" % n)
            self.assertEqual(worker.stdout.readline(), b"line %d\n" % n)
        worker.communicate(timeout=30)
        self.assertEqual(worker.returncode, 0)

    def test_progress(self):
        _, _, err = self.run_worker(b"a\nb\n\na\n", "--progress")
        self.assertEqual(totals(err), (4, 2, 1, 1, 0, 0))

    def test_calls_that_are_wrong(self):
        for arguments in (
            ["--batch", "0"],
            ["--port", "x"],
            ["--nonsense"],
            ["file"],
            ["-e", "2"],
            ["-e", "x"],
            ["-c", "0"],
            ["-m", "1g"],
            ["-n", "-1"],
        ):
            code, out, err = self.run_worker(b"a\n", *arguments)
            self.assertEqual((code, out), (2, b""), arguments)
            self.assertTrue(err)
        for option in ("-h", "--help"):
            code, out, _ = self.run_worker(b"", option)
            self.assertEqual(code, 0)
            self.assertIn(b"--capacity", out)
            self.assertIn(b"--cacert", out)


class LongLines(WorkerTest):
    def test_too_long_ones_are_passed_over_with_a_message(self):
        self.reserve()
        lines = [b"a", b"b" * 10, b"c" * 11, b"", b"d" * 10 + b"\r"]
        lines += [b"e" * 500_000, b"a", b"f" * 11 + b"\r", b"g" * 12]
        for end, nlong in ((b"", 4), (b"\n", 4)):
            self.server.redis.delete("seen")
            self.reserve()
            code, out, err = self.run_worker(b"\n".join(lines) + end, "--max-line", "10")
            self.assertEqual((code, out), (1, b"a\n" + b"b" * 10 + b"\n" + b"d" * 10 + b"\n"))
            self.assertEqual(
                [int(n) for n in re.findall(rb"line (\d+) was skipped", err)], [3, 6, 8, 9]
            )
            self.assertEqual(totals(err), (9, 3, 1, 1, nlong, 0))
            self.assertEqual(self.card(), 3)

    def test_only_the_first_ones_get_a_message(self):
        code, out, err = self.run_worker(b"xx\n" * 1000, "--max-line", "1", "--batch", "7")
        self.assertEqual((code, out, err.count(b"was skipped")), (1, b"", 10))
        self.assertEqual(totals(err), (1000, 0, 0, 0, 1000, 0))

    def test_a_line_of_50_mb(self):
        self.reserve()
        line = bytes(range(32, 127)) * (50_000_000 // 95)
        code, out, err = self.run_worker(line + b"\n" + line + b"x\n" + line)
        self.assertEqual((code, err, len(out)), (0, b"", 2 * len(line) + 3))
        self.assertEqual(out, line + b"\n" + line + b"x\n")

    def test_one_above_the_limit_of_the_server_takes_little_memory(self):
        """600 MB without an end of line; the worker may have 400 MB."""
        self.reserve()

        def limit():
            server.die_with_parent()
            resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))

        worker = subprocess.Popen([WORKER, "--port", str(self.server.port)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit)
        piece = b"x" * (1 << 20)
        worker.stdin.write(b"first\n")
        for _ in range(600):
            worker.stdin.write(piece)
        out, err = worker.communicate(b"\nlast\n", timeout=60)
        self.assertEqual((worker.returncode, out), (1, b"first\nlast\n"))
        self.assertEqual(totals(err), (3, 2, 0, 0, 1, 0))


class Vanished(WorkerTest):
    """A filter that goes away under a worker comes back as asked for, and the worker says so."""

    def vanish(self, remove):
        worker = self.start("--capacity", "54321", "--error", "1e-9")
        self.feed(worker, b"a", b"b")
        self.assertEqual([worker.stdout.readline() for _ in range(2)], [b"a\n", b"b\n"])
        remove()
        self.feed(worker, b"b", b"c", b"c")
        self.assertEqual([worker.stdout.readline() for _ in range(2)], [b"b\n", b"c\n"])
        out, err = worker.communicate(timeout=60)
        self.assertEqual((worker.returncode, out), (0, b""))
        self.assertEqual(err.count(b"there is no filter 'seen' yet"), 1)
        self.assertEqual(err.count(b"filter 'seen' vanished after 2 lines"), 1, err)
        self.assertEqual(self.server.redis.execute_command("BF.INFO", "seen", "CAPACITY"), [54321])
        self.assertEqual(self.card(), 2)

    def test_deleted(self):
        self.vanish(lambda: self.server.redis.delete("seen"))

    def test_flushed(self):
        self.vanish(self.server.redis.flushall)

    def test_expired(self):
        def expire():
            self.server.redis.pexpire("seen", 1)
            end = time.monotonic() + server.WAIT
            while self.server.redis.exists("seen") and time.monotonic() < end:
                time.sleep(0.001)

        self.vanish(expire)

    def test_restarted_without_persistence(self):
        def restart():
            self.server.kill()
            self.server.start()

        self.vanish(restart)

    def test_again_and_again_in_a_full_run(self):
        lines = [b"http://example.com/%d" % n for n in range(300_000)]
        worker = self.start("-e", "1e-9", "-c", "1000000")
        feeding = threading.Thread(target=lambda: (self.feed(worker, *lines), worker.stdin.close()))
        feeding.start()
        printed = set()
        for n, line in enumerate(worker.stdout):
            printed.add(line[:-1])
            if n % 50_000 == 20_000:
                self.assertEqual(self.server.redis.delete("seen"), 1)
        feeding.join()
        err = worker.stderr.read()
        self.assertEqual(worker.wait(60), 0, err)
        self.assertEqual(printed, set(lines))
        self.assertEqual(err.count(b" vanished after"), 6)
        self.assertEqual(
            self.server.redis.execute_command("BF.INFO", "seen", "CAPACITY"), [1000000]
        )


class Interrupted(WorkerTest):
    def check_end(self, worker, out, err):
        """Exactly what is marked was printed, and the totals say so."""
        self.assertEqual(worker.returncode, 130, err)
        printed = out.split()
        self.assertEqual(len(printed), len(set(printed)))
        self.assertEqual(len(printed), self.card())
        self.assertIn(b"worker: interrupted after", err)
        self.assertEqual(totals(err)[1], len(printed))

    def test_in_the_middle_of_the_work(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            self.server.redis.delete("seen")
            self.reserve()
            worker = self.start("--batch", "100")
            feeding = threading.Thread(target=self.pour, args=(worker,))
            feeding.start()
            out = b"".join(worker.stdout.readline() for _ in range(5000))
            worker.send_signal(number)
            out += worker.stdout.read()
            err = worker.stderr.read()
            worker.wait(60)
            feeding.join()
            self.check_end(worker, out, err)
            self.assertEqual(out.split(), [b"%d" % n for n in range(len(out.split()))])
            self.assertEqual(totals(err)[0], totals(err)[1])

    def pour(self, worker):
        """Lines without end; the worker stops reading at some time."""
        try:
            for n in range(10**9):
                worker.stdin.write(b"%d\n" % n)
        except BrokenPipeError:
            pass

    def test_while_it_waits_for_input(self):
        self.reserve()
        worker = self.start()
        self.feed(worker, b"a", b"b", b"a")
        out = worker.stdout.readline() + worker.stdout.readline()
        worker.send_signal(signal.SIGINT)
        rest, err = worker.stdout.read(), worker.stderr.read()
        worker.wait(60)
        self.check_end(worker, out + rest, err)
        self.assertEqual(out + rest, b"a\nb\n")

    def test_while_an_answer_is_on_its_way(self):
        self.reserve()
        proxy = self.proxy()
        proxy.hold()
        worker = self.start(port=proxy.port)
        self.feed(worker, *(b"%d" % n for n in range(500)))
        self.assertTrue(proxy.held.wait(server.WAIT))
        worker.send_signal(signal.SIGINT)
        proxy.release()
        out, err = worker.stdout.read(), worker.stderr.read()
        worker.wait(60)
        self.check_end(worker, out, err)

    def test_when_no_answer_comes(self):
        """The second signal ends the wait. The server has marked the lines, so they are printed."""
        self.reserve()
        proxy = self.proxy()
        proxy.hold()
        worker = self.start(port=proxy.port)
        self.feed(worker, b"a", b"b", b"a", b"", b"c")
        self.assertTrue(proxy.held.wait(server.WAIT))
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
        out, err = worker.stdout.read(), worker.stderr.read()
        worker.wait(60)
        self.check_end(worker, out, err)
        self.assertEqual(out, b"a\nb\nc\n")
        self.assertEqual(totals(err), (5, 3, 1, 1, 0, 0))
        self.assertIn(b"3 of the new ones may have been printed before", err)

    def test_while_the_server_is_away(self):
        self.reserve()
        proxy = self.proxy()
        worker = self.start(port=proxy.port)
        self.feed(worker, b"a")
        self.assertEqual(worker.stdout.readline(), b"a\n")
        proxy.hold()
        self.feed(worker, b"b", b"c")
        self.assertTrue(proxy.held.wait(server.WAIT))
        proxy.close()  # b and c are marked, and the answer is gone
        self.wait_for(worker, b"trying again")
        worker.send_signal(signal.SIGINT)
        out, err = worker.stdout.read(), worker.stderr.read()
        worker.wait(60)
        self.assertEqual((worker.returncode, out, self.card()), (130, b"b\nc\n", 3))
        self.assertEqual(totals(err), (3, 3, 0, 0, 0, 0))

    def test_lines_that_were_never_sent_are_not_printed(self):
        self.reserve()
        worker = self.start()
        self.feed(worker, b"a")
        self.assertEqual(worker.stdout.readline(), b"a\n")
        self.server.redis.execute_command("REPLICAOF", "127.0.0.1", 1)  # refuses to write
        self.feed(worker, b"b")
        said = self.wait_for(worker, b"trying again")
        self.assertIn(b"READONLY", said)
        worker.send_signal(signal.SIGTERM)
        out, err = worker.stdout.read(), worker.stderr.read()
        worker.wait(60)
        self.assertEqual((worker.returncode, out, self.card()), (130, b"", 1))
        self.assertEqual(totals(err), (1, 1, 0, 0, 0, 0))


class Refused(WorkerTest):
    def test_what_a_full_filter_refuses_is_told(self):
        self.server.redis.execute_command("BF.RESERVE", "full", 0.01, 2, "NONSCALING", "SEED", 1)
        code, out, err = self.run_worker(b"a\n\nb\nc\na\nd\n", "--key", "full")
        self.assertEqual((code, out), (2, b"a\nb\n"))
        self.assertIn(b"line 4 was refused: full: non scaling filter is full", err)
        self.assertEqual(totals(err), (6, 2, 1, 1, 0, 2))

    def test_answers_that_it_will_take_a_while(self):
        proxy = self.proxy()
        self.reserve()
        proxy.answer(
            "-LOADING Redis is loading the dataset in memory",
            "-TRYAGAIN a shard is on its way",
            "-BUSY a script is running",
            "-CLUSTERDOWN the cluster is down",
        )
        code, out, err = self.run_worker(b"a\na\nb\n", port=proxy.port)
        self.assertEqual((code, out, err.count(b"trying again")), (0, b"a\nb\n", 4))

    def test_a_replica_that_becomes_the_primary(self):
        self.reserve()
        worker = self.start()
        self.feed(worker, b"a")
        self.assertEqual(worker.stdout.readline(), b"a\n")
        self.server.redis.execute_command("REPLICAOF", "127.0.0.1", 1)
        self.feed(worker, b"b")
        self.wait_for(worker, b"trying again")
        self.server.redis.execute_command("REPLICAOF", "NO", "ONE")
        out, err = worker.communicate(b"c\n", timeout=60)
        self.assertEqual((worker.returncode, out), (0, b"b\nc\n"), err)

    def test_loading_is_waited_for_as_long_as_it_takes(self):
        proxy = self.proxy()
        self.reserve()
        worker = self.start(port=proxy.port)
        proxy.answer(*["-LOADING Redis is loading the dataset in memory"] * 8)
        out, err = worker.communicate(b"a\n", timeout=60)
        self.assertEqual((worker.returncode, out, err.count(b"trying again")), (0, b"a\n", 8))

    def test_no_memory(self):
        self.reserve()
        worker = self.start("--batch", "2")
        self.feed(worker, b"a", b"b")
        self.assertEqual(worker.stdout.readline() + worker.stdout.readline(), b"a\nb\n")
        self.server.redis.config_set("maxmemory", 1)
        out, err = worker.communicate(b"c\nd\n", timeout=60)
        self.assertEqual((worker.returncode, out, self.card()), (2, b"", 2))
        self.assertIn(b"OOM", err)
        self.assertEqual(totals(err), (2, 2, 0, 0, 0, 0))

    def test_a_lost_shard(self):
        self.run_worker(b"a\nb\n")
        self.server.redis.delete(*self.server.redis.keys("bf:{seen}*"))
        code, out, err = self.run_worker(b"a\n")  # the same shard again
        self.assertEqual((code, out), (2, b""))
        self.assertIn(b"SHARDLOST", err)
        self.assertEqual(totals(err), (0, 0, 0, 0, 0, 0))

    def test_an_error_after_a_lost_answer(self):
        """Lines are marked, the answer is lost, the next is an error: they are printed anyway."""
        self.reserve()
        proxy = self.proxy()
        proxy.cut()
        worker = self.start(port=proxy.port)
        self.feed(worker, b"a", b"b")
        self.wait_for(worker, b"trying again")
        self.server.redis.config_set("maxmemory", 1)
        out, err = worker.communicate(timeout=60)
        self.assertEqual((worker.returncode, out), (2, b"a\nb\n"))
        self.assertIn(b"OOM", err)
        self.assertEqual(totals(err), (2, 2, 0, 0, 0, 0))


class Output(WorkerTest):
    def test_that_can_not_be_written_ends_it(self):
        self.reserve()
        with open("/dev/full", "wb") as full:
            worker = subprocess.run(
                [WORKER, "--port", str(self.server.port)],
                input=b"a\nb\na\n",
                stdout=full,
                stderr=subprocess.PIPE,
                timeout=60,
            )
        self.assertEqual(worker.returncode, 2)
        self.assertIn(b"cannot write: No space left on device", worker.stderr)
        self.assertIn(
            b"2 new lines of 1 to 3 are marked as seen and were not written", worker.stderr
        )

    def test_that_nobody_reads_any_more(self):
        self.reserve()
        worker = self.start()
        self.feed(worker, b"a", b"b")
        self.assertEqual(worker.stdout.readline() + worker.stdout.readline(), b"a\nb\n")
        worker.stdout.close()
        self.feed(worker, b"c", b"d")
        err = worker.stderr.read()
        worker.wait(60)
        self.assertEqual(worker.returncode, 2)
        self.assertIn(b"worker: the output was closed before everything was written", err)
        self.assertEqual(totals(err), (2, 2, 0, 0, 0, 0))
        self.assertEqual(self.card(), 2)  # c and d were not marked


class Together(WorkerTest):
    def nwaiting(self):
        return sum(client["cmd"] == "bf.insert" for client in self.server.redis.client_list())

    def share(self, nworkers, disturb=None):
        """Several workers, each with all lines in an order of its own. Returns what was printed."""
        lines = [b"http://example.com/%d" % n for n in range(20000)]
        outputs = [None] * nworkers
        self.reserve()

        def run(number):
            mine = lines + lines[:5000]
            random.Random(number).shuffle(mine)
            outputs[number] = self.run_worker(b"\n".join(mine), "--batch", "50")

        # All begin at the same moment, when each has a batch on its way.
        self.server.redis.execute_command("CLIENT", "PAUSE", 1000 * server.WAIT, "WRITE")
        threads = [threading.Thread(target=run, args=(number,)) for number in range(nworkers)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + server.WAIT
        while self.nwaiting() < nworkers and time.monotonic() < end:
            time.sleep(0.001)
        self.server.redis.execute_command("CLIENT", "UNPAUSE")
        if disturb:
            disturb()
        for thread in threads:
            thread.join()
        self.assertEqual(
            [code for code, _, _ in outputs], [0] * nworkers, [err for _, _, err in outputs]
        )
        printed = [line for _, out, _ in outputs for line in out.split()]
        return lines, printed, outputs

    def test_several_share_the_work(self):
        lines, printed, outputs = self.share(4)
        self.assertEqual(sorted(printed), sorted(lines))
        self.assertTrue(all(out for _, out, _ in outputs), "one worker did it all")

    def test_a_crash_of_the_server_loses_nothing(self):
        self.server.keep_aof()

        def crash():
            end = time.monotonic() + 30
            while (
                time.monotonic() < end
                and self.server.redis.execute_command("BF.CARD", "seen") < 2000
            ):
                time.sleep(0.001)
            self.server.kill()
            self.server.start()

        lines, printed, outputs = self.share(3, crash)
        self.assertEqual(set(printed), set(lines))
        # A batch of each worker may be in doubt.
        self.assertLessEqual(len(printed), len(lines) + 3 * 50)

    def test_an_answer_that_gets_lost(self):
        self.reserve()
        proxy = self.proxy()
        proxy.cut(2)
        code, out, err = self.run_worker(b"a\nb\na\nc\n", "--batch", "2", port=proxy.port)
        self.assertEqual((code, out), (0, b"a\nb\na\nc\n"))  # the second a is in doubt, not lost
        self.assertEqual(totals(err), (4, 4, 0, 0, 0, 0))
        self.assertIn(b"2 of the new ones may have been printed before", err)

    def test_an_answer_that_gets_lost_and_the_filter_too(self):
        proxy = self.proxy()
        worker = self.start("--batch", "2", "-c", "77777", port=proxy.port)
        self.feed(worker, b"a", b"b")
        self.assertEqual(worker.stdout.readline() + worker.stdout.readline(), b"a\nb\n")
        proxy.cut()
        self.feed(worker, b"c", b"d")
        self.wait_for(worker, b"trying again")
        self.server.redis.flushall()
        out, err = worker.communicate(timeout=60)
        self.assertEqual((worker.returncode, out), (0, b"c\nd\n"))
        self.assertIn(b"vanished after", err)
        self.assertEqual(self.server.redis.execute_command("BF.INFO", "seen", "CAPACITY"), [77777])


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
