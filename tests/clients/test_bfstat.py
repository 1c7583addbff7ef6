#!/usr/bin/python3
"""scripts/bfstat: what it says of filters of every kind and condition, beside what the server says."""

import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import time
import unittest

import server
from result import run_tests

BFSTAT = os.path.join(server.ROOT, "scripts", "bfstat")


class Bfstat(unittest.TestCase):
    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)
        self.redis = self.server.redis

    def run_it(self, *arguments):
        done = subprocess.run([BFSTAT, "--port", str(self.server.port), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def json(self, *arguments, code=0):
        status, out, err = self.run_it("--json", *arguments)
        self.assertEqual((status, err), (code, ""))
        return {(one["db"], one["key"]): one for one in json.loads(out)["filters"]}

    def fill(self, key, n):
        for at in range(0, n, 1000):
            self.redis.execute_command("BF.MADD", key, *("item %d" % i for i in range(at, min(n, at + 1000))))

    def test_no_filters(self):
        self.redis.set("string", "x")
        self.assertEqual(self.json(), {})
        code, out, _ = self.run_it("--once")
        self.assertEqual(code, 0)
        self.assertIn("0 filters", out)

    def test_says_what_the_server_says(self):
        self.redis.execute_command("BF.RESERVE", "seen", "0.001", 1000, "SEED", 1)
        self.fill("seen", 5000)
        self.server.client(db=5).execute_command("BF.RESERVE", b"\xff\x1b[2Jname", "0.01", 77, "NONSCALING")
        found = self.json()
        self.assertEqual(set(found), {(0, "seen"), (5, "\\xff\\x1b[2Jname")})
        seen = found[0, "seen"]
        info = self.redis.execute_command("BF.INFO", "seen")
        info = dict(zip(info[::2], info[1::2]))
        self.assertEqual(seen["items"], info[b"Number of items inserted"])
        self.assertEqual(seen["capacity"], info[b"Capacity"])
        self.assertEqual(seen["bytes"], info[b"Size"])
        self.assertEqual(len(seen["layers"]), info[b"Number of filters"])
        self.assertEqual(sum(layer["items"] for layer in seen["layers"]), seen["items"])
        self.assertAlmostEqual(seen["promised"], 0.001)
        self.assertEqual(seen["lost"], [])
        self.assertTrue(0.3 < seen["layers"][0]["fill"] < 0.6)
        empty = found[5, "\\xff\\x1b[2Jname"]
        self.assertEqual((empty["items"], empty["error"], empty["expansion"]), (0, 0, None))

    def test_the_error_rate_is_the_one_that_is_measured(self):
        self.redis.execute_command("BF.RESERVE", "f", "0.02", 20000, "SEED", 3)
        self.fill("f", 20000)
        nasked, nfound = 100000, 0
        for at in range(0, nasked, 1000):
            nfound += sum(self.redis.execute_command("BF.MEXISTS", "f", *("other %d" % i for i in range(at, at + 1000))))
        expected = self.json()[0, "f"]["error"]
        self.assertTrue(0.8 < nfound / nasked / expected < 1.25, (nfound / nasked, expected))

    def test_adopted_filters(self):
        self.redis.execute_command("BF.ADOPT", "a", "BITS", 9, "BLOCKS", 2, "PREFIX", "bits")
        self.fill("a", 300)
        one = self.json()[0, "a"]
        self.assertGreater(len(one["layers"]), 1)
        self.assertEqual(one["layers"][0]["kind"], 3)
        self.assertEqual(one["layers"][1]["kind"], 1)
        self.assertTrue(0 < one["layers"][0]["error"] < 0.01)
        self.assertIn("adopted", self.run_it("--once")[1])

    def test_filters_of_redisbloom(self):
        with open(os.path.join(server.ROOT, "tests", "assets", "redisbloom-growing.dump"), "rb") as file:
            data = file.read()
        while data:
            iterator, nbytes = struct.unpack_from("<QQ", data)
            if nbytes:
                self.redis.execute_command("BF.LOADCHUNK", "moved", iterator, data[16:16 + nbytes])
            data = data[16 + nbytes:]
        one = self.json()[0, "moved"]
        self.assertGreater(len(one["layers"]), 1)
        self.assertEqual({layer["kind"] for layer in one["layers"]}, {2})
        self.assertEqual(sum(layer["items"] for layer in one["layers"]), one["items"])
        self.assertTrue(0 < one["error"] < 0.2, one["error"])

    def test_half_loaded_filters(self):
        self.fill("seen", 100)
        iterator, chunk = self.redis.execute_command("BF.SCANDUMP", "seen", 0)
        self.redis.execute_command("BF.LOADCHUNK", "half", iterator, chunk)
        found = self.json()
        self.assertEqual(set(found), {(0, "half"), (0, "seen")})
        self.assertEqual(found[0, "seen"]["problem"], None)
        self.assertEqual(self.run_it("--once")[0], 0)

    def test_lost_shards(self):
        self.redis.execute_command("BF.RESERVE", "seen", "0.001", 10000, "SHARDSIZE", "4096", "SEED", 1)
        self.fill("seen", 5000)
        shard = self.redis.execute_command("BF.SHARDS", "seen")[2][1]
        self.redis.delete(shard)
        self.assertEqual(self.json(code=1)[0, "seen"]["lost"], [shard.decode()])
        code, out, _ = self.run_it("--once")
        self.assertEqual(code, 1)
        self.assertIn("LOST " + shard.decode(), out)

    def test_selection(self):
        for key in ("a:1", "a:2", "b:1"):
            self.redis.execute_command("BF.ADD", key, "x")
        self.server.client(db=2).execute_command("BF.ADD", "a:3", "x")
        self.assertEqual(set(self.json("--match", "a:*")), {(0, "a:1"), (0, "a:2"), (2, "a:3")})
        self.assertEqual(set(self.json("--db", "2")), {(2, "a:3")})

    def test_many_filters(self):
        pipeline = self.redis.pipeline(transaction=False)
        for n in range(300):
            pipeline.execute_command("BF.ADD", "filter %d" % n, "x")
            pipeline.set("string %d" % n, "x")
        pipeline.execute()
        self.assertEqual(len(self.json()), 300)
        self.assertEqual(len(self.run_it("--once")[1].splitlines()), 2 + 2 * 300)

    def test_a_user_who_may_not_see_descriptors(self):
        self.redis.execute_command("BF.ADD", "seen", "x")
        self.redis.acl_setuser("watcher", enabled=True, passwords=["+secret"], keys=["*"],
                               commands=["+info", "+scan", "+bf.info", "+bf.shards"])
        one = self.json("--user", "watcher", "--password", "secret")[0, "seen"]
        self.assertEqual((one["items"], one["error"], one["promised"]), (1, None, None))

    def test_a_server_that_is_not_there(self):
        self.server.kill()
        code, out, err = self.run_it("--once")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("bfstat:", err)

    def test_calls_that_are_wrong(self):
        self.assertEqual(self.run_it("--interval", "0")[0], 2)
        self.assertEqual(self.run_it("--json", "--once")[0], 2)
        code, out, _ = self.run_it("--help")
        self.assertEqual(code, 0)
        self.assertIn("--json", out)

    def test_live(self):
        """On a terminal it goes on, shows what changes, and ends cleanly at Ctrl-C."""
        self.redis.execute_command("BF.RESERVE", "seen", "0.001", 1000)
        master, slave = pty.openpty()
        process = subprocess.Popen([BFSTAT, "--port", str(self.server.port), "--interval", "0.1"], stdin=slave,
                                   stdout=slave, stderr=slave, preexec_fn=server.die_with_parent)
        os.close(slave)
        self.addCleanup(os.close, master)
        shown = b""

        def wait_for(words):
            nonlocal shown
            end = time.monotonic() + server.WAIT
            while words not in shown:
                self.assertLess(time.monotonic(), end, shown)
                if select.select([master], [], [], 0.2)[0]:
                    shown += os.read(master, 65536)

        wait_for(b"0 of 1000")
        self.redis.execute_command("BF.MADD", "seen", *range(500))
        wait_for(b"50%")
        process.send_signal(signal.SIGINT)
        end = time.monotonic() + server.WAIT
        while process.poll() is None and time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    os.read(master, 65536)
                except OSError:
                    break
        self.assertEqual(process.wait(server.WAIT), 0)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
