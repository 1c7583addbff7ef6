#!/usr/bin/python3
"""examples/worker.c: what it prints, that several share the work, and that nothing is lost when the server goes away."""

import os
import random
import subprocess
import sys
import threading
import time
import unittest

import server
from result import run_tests

WORKER = os.path.join(server.ROOT, "build", "worker")


class Worker(unittest.TestCase):
    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)

    def start(self, *arguments):
        return subprocess.Popen([WORKER, "--port", str(self.server.port), *arguments], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=server.die_with_parent)

    def run_worker(self, data, *arguments):
        worker = self.start(*arguments)
        out, err = worker.communicate(data, timeout=60)
        return worker.returncode, out, err

    def test_prints_each_line_once(self):
        code, out, err = self.run_worker(b"a\nb\na\n\nc\nb\nd")
        self.assertEqual((code, out, err), (0, b"a\nb\nc\nd\n", b""))
        code, out, _ = self.run_worker(b"d\ne\na\n")
        self.assertEqual((code, out), (0, b"e\n"))
        self.assertEqual(self.server.redis.execute_command("BF.CARD", "seen"), 5)

    def test_lines_are_bytes_of_any_length(self):
        lines = [b"\x00\xff", b" blank ", b"cr\r", b"x" * 3_000_000, "ü".encode(), b"%s %n"]
        code, out, _ = self.run_worker(b"\n".join(lines), "--key", "bytes")
        self.assertEqual((code, out.split(b"\n")), (0, lines + [b""]))

    def test_makes_the_filter_as_told_once(self):
        self.run_worker(b"a\n", "--key", "k", "--capacity", "1234", "--error", "0.001")
        self.run_worker(b"b\n", "--key", "k", "--capacity", "99")
        self.assertEqual(self.server.redis.execute_command("BF.INFO", "k", "CAPACITY"), [1234])

    def test_no_input(self):
        self.assertEqual(self.run_worker(b""), (0, b"", b""))

    def test_batches_of_every_size(self):
        lines = [b"line %d" % (i % 700) for i in range(1000)]
        for batch in ("1", "7", "699", "10000"):
            code, out, _ = self.run_worker(b"\n".join(lines), "--key", "k" + batch, "--batch", batch)
            self.assertEqual((code, out.split()), (0, b"\n".join(lines[:700]).split()))

    def test_a_trickle_is_answered_at_once(self):
        worker = self.start()
        for n in range(3):
            worker.stdin.write(b"line %d\n" % n)
            worker.stdin.flush()
            self.assertEqual(worker.stdout.readline(), b"line %d\n" % n)
        worker.communicate(timeout=30)
        self.assertEqual(worker.returncode, 0)

    def test_progress(self):
        _, _, err = self.run_worker(b"a\nb\na\n", "--progress")
        self.assertIn(b"3 lines, 2 new", err)

    def test_calls_that_are_wrong(self):
        for arguments in (["--batch", "0"], ["--port", "x"], ["--nonsense"], ["file"]):
            code, out, err = self.run_worker(b"a\n", *arguments)
            self.assertEqual((code, out), (2, b""))
            self.assertTrue(err)
        code, out, _ = self.run_worker(b"", "--help")
        self.assertEqual(code, 0)
        self.assertIn(b"--capacity", out)

    def test_errors_of_the_server_end_it(self):
        self.server.redis.set("string", "x")
        code, out, err = self.run_worker(b"a\n", "--key", "string")
        self.assertEqual((code, out), (1, b""))
        self.assertIn(b"WRONGTYPE", err)
        self.server.redis.execute_command("BF.RESERVE", "full", 0.01, 2, "NONSCALING")
        code, out, err = self.run_worker(b"a\nb\nc\n", "--key", "full")
        self.assertEqual((code, out), (1, b"a\nb\n"))
        self.assertIn(b"full", err)

    def test_output_that_can_not_be_written_ends_it(self):
        with open("/dev/full", "wb") as full:
            worker = subprocess.run([WORKER, "--port", str(self.server.port)], input=b"a\n", stdout=full,
                                    stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(worker.returncode, 1)
        self.assertIn(b"write", worker.stderr)

    def share(self, nworkers, disturb=None):
        """Several workers, each with all lines in an order of its own. Returns what each printed."""
        lines = [b"http://example.com/%d" % n for n in range(20000)]
        outputs = [None] * nworkers
        self.server.redis.execute_command("BF.RESERVE", "seen", 1e-9, 10**6, "SEED", 1)  # no chance hits

        def run(number):
            mine = lines + lines[:5000]
            random.Random(number).shuffle(mine)
            outputs[number] = self.run_worker(b"\n".join(mine), "--batch", "50")

        threads = [threading.Thread(target=run, args=(number,)) for number in range(nworkers)]
        for thread in threads:
            thread.start()
        if disturb:
            disturb()
        for thread in threads:
            thread.join()
        self.assertEqual([code for code, _, _ in outputs], [0] * nworkers, [err for _, _, err in outputs])
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
            while time.monotonic() < end and self.server.redis.execute_command("BF.CARD", "seen") < 2000:
                time.sleep(0.001)
            self.server.kill()
            self.server.start()

        lines, printed, outputs = self.share(3, crash)
        self.assertEqual(set(printed), set(lines))
        self.assertLessEqual(len(printed), len(lines) + 3 * 50)  # a batch of each worker may be in doubt

    def test_no_server(self):
        self.server.kill()
        code, out, err = self.run_worker(b"a\n")
        self.assertEqual((code, out), (1, b""))
        self.assertIn(b"no answer", err)
        self.assertEqual(err.count(b"trying again"), 6)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
