#!/usr/bin/python3
"""examples/worker with --partitions: the same keys and plan as the Python package, on one server
and in a cluster whose slots move and whose primaries die; and no line is lost.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import server
from cluster import Cluster
from faults import Faults
from result import run_tests
from worker import WORKER, Talk

from shardbloom import PartitionedFilter
from shardbloom.cluster import slot_of
from shardbloom.plan import Plan, partition_keys, partition_of

# A filter for many more items than it gets: one wrong answer among 60,000, the most in a test here,
# has a probability below 1e-9.
EXACT = ("-e", "1e-14", "-c", "1000000")
TOTALS = re.compile(rb"(?:stopped|interrupted) after (\d+) lines, (\d+) new, (\d+) seen")


def urls(first, last):
    return [b"https://example.com/%d" % n for n in range(first, last)]


def text_of(lines):
    return b"".join(line + b"\n" for line in lines)


class WorkerTest(Talk):
    def start(self, port, *arguments, stdin=subprocess.PIPE):
        # Without preexec_fn, which can deadlock where there are threads: it ends with its input.
        worker = subprocess.Popen(
            [WORKER, "--port", str(port), *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.addCleanup(self.end, worker)
        return worker

    @staticmethod
    def end(worker):
        if worker.poll() is None:
            worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout, worker.stderr):
            with contextlib.suppress(BrokenPipeError):
                if pipe:
                    pipe.close()

    def run_worker(self, lines, port, *arguments):
        """From a file: what comes by a pipe, in pieces of 4 kB, may become several batches."""
        with tempfile.TemporaryFile() as file:
            file.write(text_of(lines))
            file.seek(0)
            worker = self.start(port, *arguments, stdin=file)
        out, err = worker.communicate(timeout=server.WAIT)
        return worker.returncode, out.splitlines(), err


class OneServer(WorkerTest):
    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)
        self.ask = self.server.redis.execute_command

    def work(self, lines, *arguments, partitions=8):
        return self.run_worker(
            lines, self.server.port, "--partitions", str(partitions), *arguments
        )

    def keys(self, npartitions):
        return partition_keys(b"seen", npartitions)

    def test_each_line_once_in_the_order_of_the_input(self):
        lines = urls(0, 3000)
        mixed = [line for n, line in enumerate(lines) for line in (line, lines[n // 2])]
        for batch in ("1000", "7"):
            code, out, err = self.work(mixed, *EXACT, "-b", batch)
            self.assertEqual((code, out), (0, lines), err)
            self.assertIn(b"there is no filter 'seen' yet; creating it with 8 partitions", err)
            self.assertEqual(self.work(mixed, *EXACT), (0, [], b""))
            self.server.redis.flushall()

    def test_keys_and_capacities_are_those_of_the_python_package(self):
        """Many numbers of partitions, also such that do not divide the slots."""
        for n, error, capacity in (
            (1, "0.01", 1),
            (2, "1e-6", 12345),
            (3, "0.001", 10**9),
            (7, "0.25", 10**12),
            (64, "1e-4", 10**10),
            (1000, "1e-5", 999_999_999),
            (1024, "0.0125", 2**40),
        ):
            code, _, err = self.work([b"a"], "-q", "-e", error, "-c", str(capacity), partitions=n)
            self.assertEqual((code, err), (0, b""))
            plan = Plan.of(n, float(error), capacity)
            self.assertTrue(Plan.parse(b"seen", self.ask("GET", "seen")).is_like(plan))
            self.assertEqual(self.ask("GET", "seen").decode(), str(plan))
            keys = self.keys(n)
            found = [key for key in self.server.redis.keys("seen*") if key != b"seen"]
            self.assertEqual(sorted(found), sorted(keys))
            for key in {keys[0], keys[n // 2], keys[-1]}:
                self.assertEqual(self.ask("BF.INFO", key, "CAPACITY"), [plan.partition_capacity()])
            self.server.redis.flushall()

    def test_each_item_is_in_the_partition_that_its_checksum_names(self):
        """binascii.crc_hqx decides in Python. Lines of all bytes but the ends of lines."""
        rng = random.Random(1)
        alphabet = [byte for byte in range(256) if byte not in b"\r\n"]
        lines = [bytes(rng.choices(alphabet, k=rng.randrange(1, 80))) for _ in range(3000)]
        lines = list(dict.fromkeys([b"123456789", b"\x00", b"\xff" * 300, *lines]))
        code, out, err = self.work(lines, *EXACT, partitions=1024)
        self.assertEqual((code, out), (0, lines), err)
        members = {}
        for line in lines:
            members.setdefault(partition_of(line, 1024), []).append(line)
        keys = self.keys(1024)
        for p, items in members.items():
            self.assertEqual(self.ask("BF.CARD", keys[p]), len(items))
            self.assertEqual(self.ask("BF.MEXISTS", keys[p], *items), [1] * len(items))
        # The check value of CRC-16/XMODEM, 0x31C3, by hand.
        self.assertIn(b"123456789", members[0x31C3 * 1024 >> 16])

    def test_shared_with_the_python_package(self):
        options = {"partitions": 8, "error": 1e-14, "capacity": 1000000}
        one = PartitionedFilter(self.server.redis, "seen", **options)
        self.assertEqual(one.add_many(urls(0, 100)), [True] * 100)
        self.assertEqual(self.work(urls(0, 200), *EXACT), (0, urls(100, 200), b""))
        self.assertEqual(one.count(), 200)
        self.assertEqual(one.add_many(urls(50, 210)), [False] * 150 + [True] * 10)

    def refused(self, words, *arguments, partitions=8):
        code, out, err = self.work([b"a"], *arguments, partitions=partitions)
        self.assertEqual((code, out), (2, []))
        self.assertIn(words, err.decode())
        self.assertIn(b"stopped after 0 lines", err)

    def test_another_plan_than_the_one_there(self):
        self.assertEqual(self.work([b"a"], "-q", "-e", "0.001", "-c", "5000")[0], 0)
        there = (
            "filter 'seen' has 8 partitions, a capacity of 5000, an error rate of 0.001;"
            " requested: "
        )
        self.refused(there + "9 partitions\n", partitions=9)
        self.refused(there + "8 partitions, a capacity of 5001\n", "-c", "5001")
        self.refused(there + "8 partitions, an error rate of 0.002\n", "-e", "0.002")
        self.refused(there + "8 partitions, WINDOW 60 SLICES 3 SLIDING\n",
                     "--window", "60", "--slices", "3", "--sliding")
        # What is not said is taken as it is; the same number may be written differently.
        self.assertEqual(self.work([b"a", b"b"]), (0, [b"b"], b""))
        self.assertEqual(self.work([b"c"], "-e", "1e-3", "-c", "5000"), (0, [b"c"], b""))

    def test_options_of_a_plan_are_kept(self):
        one = PartitionedFilter(self.server.redis, "seen", partitions=8, error=0.001,
                                capacity=800, options=("EXPANSION", 4))
        one.create()
        key = self.keys(8)[partition_of(b"a", 8)]
        self.server.redis.delete(key)
        code, out, err = self.work([b"a"])
        self.assertEqual((code, out), (0, [b"a"]))
        self.assertIn(b"1 of the 8 partitions of filter 'seen' were missing", err)
        self.assertEqual(self.ask("BF.INFO", key, "EXPANSION"), [4])

    def test_keys_that_are_something_else(self):
        for make, words in (
            (["BF.ADD", "seen", "a"], "seen is not a partitioned filter\n"),
            (["SET", "seen", "x"], "seen can't be used: it is not a partitioned filter\n"),
            (["SET", "seen", "partitioned-filter 2 8"], "seen can't be used: it was made by a new"),
            *(
                (["SET", "seen", "partitioned-filter 1" + rest], "seen can't be used: it")
                for rest in ("", " 8", " 8 0.1", " 0 0.1 9", " 8 0 9", " 8 0.1 -9", " 8  0.1 9",
                             " 8 0.1 9 ", " 1025 0.1 9", " 8 nan 9", " 8 0.1 9\0", " x 0.1 9",
                             " 8 0.1 99999999999999999999", " 8 0.1 9" + " A" * 17)
            ),
        ):
            self.ask(*make)
            self.refused(words)
            self.assertEqual(self.server.redis.keys("seen:*"), [])
            self.server.redis.flushall()
        self.ask("SET", "seen", "partitioned-filter 1 8 0.1 9")
        code, out, err = self.run_worker([b"a"], self.server.port)
        self.assertEqual((code, out), (2, []))
        self.assertIn(b"seen is a partitioned filter: give --partitions 8\n", err)

    def test_calls_that_are_wrong(self):
        for arguments in (["--partitions", "0"], ["--partitions", "1025"], ["--partitions", "x"],
                          ["--partitions", "8", "-k", "a{b}"], ["--partitions", "8", "-k", "a}"],
                          ["--partitions", "8", "-k", ""], ["--slices", "2"], ["--sliding"],
                          ["--window", "0"]):
            code, out, err = self.run_worker([b"a"], self.server.port, *arguments)
            self.assertEqual((code, out), (2, []), arguments)
            self.assertTrue(err)
        self.assertEqual(self.server.redis.keys("*"), [])

    def test_options_that_the_server_does_not_take_leave_nothing_behind(self):
        self.refused("", "--window", str(2**40))
        self.assertEqual(self.server.redis.keys("*"), [])

    def test_what_vanishes_is_made_again_and_told(self):
        keys = self.keys(8)
        lines = urls(0, 400)
        gone = partition_of(lines[0], 8)
        of_gone = [line for line in lines if partition_of(line, 8) == gone]
        worker = self.start(self.server.port, "--partitions", "8", *EXACT)
        self.feed(worker, *lines)
        self.assertEqual([worker.stdout.readline()[:-1] for _ in lines], lines)
        self.server.redis.delete(keys[gone], "seen")
        self.feed(worker, *lines)
        self.assertEqual([worker.stdout.readline()[:-1] for _ in of_gone], of_gone)
        self.server.redis.flushall()
        out, err = worker.communicate(text_of(lines), timeout=server.WAIT)
        self.assertEqual((worker.returncode, out.splitlines()), (0, lines))
        self.assertIn(b"1 of the 8 partitions of filter 'seen' vanished", err)
        self.assertIn(b"8 of the 8 partitions of filter 'seen' vanished", err)
        plan = Plan.of(8, 1e-14, 1000000)
        self.assertEqual(self.ask("GET", "seen").decode(), str(plan))
        self.assertEqual(self.ask("BF.INFO", keys[gone], "CAPACITY"), [plan.partition_capacity()])

    def test_another_plan_in_the_place_of_one_that_vanished(self):
        worker = self.start(self.server.port, "--partitions", "8", *EXACT)
        self.feed(worker, b"a")
        self.assertEqual(worker.stdout.readline(), b"a\n")
        self.server.redis.flushall()
        self.ask("SET", "seen", "partitioned-filter 1 16 1e-14 1000000")
        out, err = worker.communicate(b"b\n", timeout=server.WAIT)
        self.assertEqual((worker.returncode, out), (2, b""))
        self.assertIn(b"has 16 partitions", err)
        self.assertIn(b"requested: 8 partitions", err)
        self.assertEqual(TOTALS.search(err).groups(), (b"1", b"1", b"0"))

    def test_a_user_who_may_only_add(self):
        self.assertEqual(self.work(urls(0, 10), *EXACT)[:2], (0, urls(0, 10)))
        self.ask("ACL", "SETUSER", "adder", "on", ">x", "~seen*", "+bf.insert", "+get")
        self.assertEqual(
            self.work(urls(5, 20), "--user", "adder", "-a", "x"), (0, urls(10, 20), b"")
        )
        self.refused(" does not permit it: ", "--user", "adder", "-a", "x", "-k", "other")

    def test_several_begin_at_once(self):
        lines = urls(0, 3000)
        outputs = [None] * 4

        def run(number):
            mine = list(lines)
            random.Random(number).shuffle(mine)
            outputs[number] = self.work(mine, "-q", "-b", "100", *EXACT)

        threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([(code, err) for code, _, err in outputs], [(0, b"")] * 4)
        self.assertEqual(sorted(line for _, out, _ in outputs for line in out), sorted(lines))


class Doubt(WorkerTest):
    """What is not known to be answered is printed; what was not asked for is not counted."""

    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)
        self.proxy = Faults(self.server.port)
        self.addCleanup(self.proxy.close)
        self.lines = urls(0, 200)
        self.arguments = ("--partitions", "4", *EXACT)
        self.keys = partition_keys(b"seen", 4)
        self.run_worker([], self.server.port, "-q", *self.arguments)

    def count(self):
        return sum(self.server.redis.execute_command("BF.CARD", key) for key in self.keys)

    def test_answers_that_get_lost(self):
        """Of four commands, the second is carried out unanswered, those behind it not at all."""
        self.proxy.cut(2)
        code, out, err = self.run_worker(self.lines * 2, self.proxy.port, *self.arguments)
        self.assertEqual((code, out), (0, self.lines), err)
        lost = sum(partition_of(line, 4) == 1 for line in self.lines)
        self.assertIn(b"%d of the new ones may have been printed before" % lost, err)
        self.assertEqual(self.count(), 200)

    def test_answers_that_it_will_take_a_while(self):
        self.proxy.answer(
            "-TRYAGAIN a shard is on its way",
            "-CLUSTERDOWN the cluster is down",
            "-LOADING Redis is loading the dataset in memory",
            "-BUSY a script is running",
        )
        code, out, err = self.run_worker(self.lines, self.proxy.port, *self.arguments)
        self.assertEqual((code, out), (0, self.lines), err)
        self.assertEqual(err.count(b"trying again"), 1)
        self.assertNotIn(b"may have been printed before", err)

    def test_interrupted_when_no_answer_comes(self):
        """The second signal ends the wait. What the server may have marked is printed."""
        self.proxy.hold()
        worker = self.start(self.proxy.port, *self.arguments)
        self.feed(worker, *self.lines)
        self.assertTrue(self.proxy.held.wait(server.WAIT))
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
        out, err = worker.stdout.read(), worker.stderr.read()
        self.assertEqual((worker.wait(server.WAIT), out.splitlines()), (130, self.lines), err)
        self.assertEqual(TOTALS.search(err).groups(), (b"200", b"200", b"0"))

    def test_interrupted_at_work_loses_no_line(self):
        worker = self.start(self.server.port, "-b", "50", *self.arguments)

        def pour():
            try:
                for n in range(10**9):
                    worker.stdin.write(b"%d\n" % n)
            except BrokenPipeError:
                pass

        feeding = threading.Thread(target=pour)
        feeding.start()
        out = b"".join(worker.stdout.readline() for _ in range(2000))
        worker.send_signal(signal.SIGINT)
        out += worker.stdout.read()
        self.assertEqual(worker.wait(server.WAIT), 130)
        feeding.join()
        printed = out.split()
        self.assertEqual(printed, [b"%d" % n for n in range(len(printed))])
        self.assertEqual(self.count(), len(printed))
        self.assertEqual(int(TOTALS.search(worker.stderr.read())[1]), len(printed))

    def test_a_partition_that_fails_does_not_take_lines_of_others_with_it(self):
        """It stops; what others marked is printed. Continued where it says, each line came once."""
        first = self.lines[:4] + [b"", self.lines[0]]
        self.assertEqual(self.run_worker(first, self.server.port, *self.arguments)[1], first[:4])
        bad = partition_of(self.lines[100], 4)
        self.server.redis.execute_command("BF.ADD", self.keys[bad], "before")
        shards = self.server.redis.keys(b"bf:{%s*" % self.keys[bad].split(b"{")[1])
        kept = {shard: self.server.redis.dump(shard) for shard in shards}
        self.assertTrue(kept)
        self.server.redis.delete(*shards)
        # The lines of that partition come behind 120 others, and between them.
        good = [line for line in self.lines[4:] if partition_of(line, 4) != bad]
        lines = good[:60] + [b""] + good[60:100] + [
            line for line in self.lines[4:] if partition_of(line, 4) == bad] + good[100:]
        code, out, err = self.run_worker(lines, self.server.port, *self.arguments)
        self.assertEqual(code, 2)
        self.assertIn(b"SHARDLOST", err)
        self.assertEqual(out, good)
        self.assertEqual(TOTALS.search(err).groups(), (b"101", b"100", b"0"))
        self.assertIn(b"%d new lines after line 102 are printed as well" % (len(good) - 100), err)
        for shard, value in kept.items():
            self.server.redis.restore(shard, 0, value)
        code, rest, err = self.run_worker(lines[101:], self.server.port, *self.arguments)
        self.assertEqual(code, 0)
        self.assertEqual(sorted(first[:4] + out + rest), sorted(self.lines))

    def test_lines_that_a_full_partition_refuses(self):
        self.server.redis.flushall()
        PartitionedFilter(self.server.redis, "seen", partitions=4, error=0.01, capacity=4,
                          options=["NONSCALING"]).create()
        code, out, err = self.run_worker(self.lines, self.server.port, "--partitions", "4")
        self.assertEqual(code, 2)
        self.assertRegex(err, rb"line \d+ was refused: seen:\d\{\d+\}: non scaling filter is full")
        self.assertEqual(len(out), self.count())

    def test_a_server_that_restarts(self):
        self.server.keep_aof()
        worker = self.start(self.server.port, *self.arguments)
        self.feed(worker, *self.lines[:100])
        self.assertEqual([worker.stdout.readline()[:-1] for _ in range(100)], self.lines[:100])
        self.server.kill()
        self.feed(worker, *self.lines)
        self.wait_for(worker, b"trying again")
        self.server.start()
        out, err = worker.communicate(timeout=server.WAIT)
        printed = out.splitlines()
        self.assertEqual(worker.returncode, 0, err)
        # The connection was lost before the lines were sent or with them: then all are in doubt.
        self.assertIn(printed, (self.lines, self.lines[100:]))

    def test_no_server(self):
        code, out, err = self.run_worker([b"a"], server.free_port(), *self.arguments)
        self.assertEqual((code, out, err.count(b"trying again")), (2, [], 6))
        self.assertIn(b"Connection refused", err)


class InCluster(WorkerTest):
    """Three primaries; the first one has a replica."""

    def setUp(self):
        self.cluster = Cluster(replicas=1)
        self.addCleanup(self.cluster.stop)
        self.keys = partition_keys(b"seen", 16)
        self.arguments = ("--partitions", "16", *EXACT)

    def test_any_node_will_do(self):
        """Also for a user who may not ask for the slots."""
        seen = 0
        for number, node in enumerate(self.cluster.nodes + self.cluster.replicas):
            node.redis.execute_command("ACL", "SETUSER", "adder", "on", ">x", "~seen*",
                                       "+bf.insert", "+bf.reserve", "+get", "+set")
        for number, node in enumerate(self.cluster.nodes + self.cluster.replicas):
            user = ("--user", "adder", "-a", "x") if number % 2 == 0 else ()
            lines = urls(0, 500 * (number + 1))
            code, out, err = self.run_worker(lines, node.port, "-q", *self.arguments, *user)
            self.assertEqual((code, out), (0, lines[seen:]), err)
            seen = len(lines)
        counts = [self.cluster.of(key).redis.execute_command("BF.CARD", key) for key in self.keys]
        self.assertEqual(sum(counts), seen)
        self.assertEqual(len({self.cluster.of(key) for key in self.keys}), 3)

    def test_a_slot_that_moves(self):
        """ASK and TRYAGAIN on the way, then MOVED; the other partitions go on."""
        lines = urls(0, 400)
        worker = self.start(self.cluster.nodes[0].port, *self.arguments)
        self.feed(worker, *lines[:200])
        self.assertEqual([worker.stdout.readline()[:-1] for _ in range(200)], lines[:200])
        key = self.keys[partition_of(lines[250], 16)]
        source, target = self.cluster.begin_migration(key)
        found = source.redis.execute_command("CLUSTER", "GETKEYSINSLOT", slot_of(key), 100)
        self.assertGreater(len(found), 1)
        self.cluster.migrate(source, target, [key])
        self.feed(worker, *lines[:300])
        self.wait_for(worker, b"TRYAGAIN")
        self.cluster.migrate(source, target, [one for one in found if one != key])
        self.assertEqual([worker.stdout.readline()[:-1] for _ in range(100)], lines[200:300])
        self.cluster.end_migration(key, source, target)
        out, err = worker.communicate(text_of(lines), timeout=server.WAIT)
        self.assertEqual((worker.returncode, out.splitlines()), (0, lines[300:]), err)
        self.assertNotIn(b"vanished", err)
        members = [line for line in lines if partition_of(line, 16) == partition_of(lines[250], 16)]
        self.assertEqual(target.redis.execute_command("BF.CARD", key), len(members))

    def test_a_primary_that_dies(self):
        """What its replica has got is known afterwards; what was on its way is printed."""
        lines = urls(0, 800)
        primary, replica = self.cluster.nodes[0], self.cluster.replicas[0]
        worker = self.start(primary.port, *self.arguments)
        self.feed(worker, *lines[:400])
        self.assertEqual([worker.stdout.readline()[:-1] for _ in range(400)], lines[:400])
        offset = primary.redis.info("replication")["master_repl_offset"]
        self.cluster.wait(
            lambda: replica.redis.info("replication")["slave_repl_offset"] >= offset
        )
        primary.kill()
        self.feed(worker, *lines[400:])
        said = self.wait_for(worker, b"trying again")
        self.cluster.promote(replica)
        self.feed(worker, *lines)
        out, err = worker.communicate(timeout=server.WAIT)
        self.assertEqual((worker.returncode, out.splitlines()), (0, lines[400:]), said + err)
        self.assertNotIn(b"vanished", err)
        # One that comes later enters by another node and finds all.
        port = self.cluster.nodes[1].port
        self.assertEqual(self.run_worker(lines, port, *self.arguments), (0, [], b""))

    def test_several_at_work_while_a_primary_dies(self):
        """Every line is printed, and by one worker, but for those in doubt and those that the
        replica had not got.
        """
        lines = urls(0, 20000)
        workers = [
            self.start(node.port, "-q", "-b", "200", *self.arguments)
            for node in self.cluster.nodes
        ]
        outputs = [[], [], []]
        killed = threading.Event()

        def feed(number):
            mine = list(lines)
            random.Random(number).shuffle(mine)
            self.feed(workers[number], *mine[:10000])
            self.assertTrue(killed.wait(server.WAIT))
            self.feed(workers[number], *mine[10000:])
            workers[number].stdin.close()

        def read(number):
            outputs[number].extend(workers[number].stdout)

        threads = [
            threading.Thread(target=what, args=(number,))
            for number in range(3)
            for what in (feed, read)
        ]
        for thread in threads:
            thread.start()
        self.cluster.wait(lambda: sum(map(len, outputs)) > 1000)
        self.cluster.nodes[0].kill()
        killed.set()
        self.cluster.promote(self.cluster.replicas[0])
        for thread in threads:
            thread.join(server.WAIT)
        said = [worker.stderr.read() for worker in workers]
        self.assertEqual([worker.wait(server.WAIT) for worker in workers], [0] * 3, said)
        self.assertEqual({line[:-1] for output in outputs for line in output}, set(lines), said)


class Demo(unittest.TestCase):
    def test_a_cluster_that_changes(self):
        """Slots move, a primary dies, and every page is fetched. Of those on their way some may be
        fetched twice.
        """
        program = os.path.join(server.ROOT, "examples", "demo", "cluster.py")
        done = subprocess.run(
            [sys.executable, program, "--json", "--pages", "1000", "--timeout", "300"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=400,
        )
        self.assertEqual(done.returncode, 0, done.stdout)
        summary = json.loads(done.stdout)
        self.assertEqual((summary["pages"], summary["moved_slots"]), (1000, 600))
        self.assertGreater(summary["took_over_seconds"], 0)
        self.assertGreaterEqual(summary["fetched"], 1000 - 3)
        self.assertTrue(all(worker["fetched"] for worker in summary["workers"]))


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
