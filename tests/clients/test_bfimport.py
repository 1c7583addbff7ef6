#!/usr/bin/python3
"""scripts/bfimport: a set becomes a filter; interrupted runs go on; what can't be done is said and
changes nothing.
"""
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import redis

from proxy import Proxy
from result import run_tests
from server import RESP2, die_with_parent

PORT = int(os.environ["PORT"])
URL = f"redis://127.0.0.1:{PORT}/0"
SCRIPT = os.path.join(os.path.dirname(__file__), "..", "..", "scripts", "bfimport")
N = 20000
URLS = [f"https://example.com/page/{i}" for i in range(N)]


class ImportTest(unittest.TestCase):
    def setUp(self):
        self.redis = redis.Redis(port=PORT, socket_timeout=60, **RESP2)
        self.redis.flushall()
        self.redis.config_resetstat()
        self.dir = tempfile.TemporaryDirectory()
        self.state = os.path.join(self.dir.name, "state")

    def tearDown(self):
        self.dir.cleanup()
        self.redis.close()

    def run_script(self, *args, status=0, env=None):
        done = subprocess.run(
            [SCRIPT, *args],
            cwd=self.dir.name,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **(env or {})},
        )
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def all_found(self, items, key="seen"):
        return all(self.redis.execute_command("BF.MEXISTS", key, *items))

    def calls_of(self, command):
        return self.redis.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]

    def test_a_set_of_urls(self):
        self.redis.sadd("urls", *URLS)
        done = self.run_script("-u", URL, "urls", "seen", "--verify")
        self.assertIn(f"{N} elements read", done.stdout)
        self.assertIn("100%", done.stderr)
        self.assertTrue(self.all_found(URLS))
        self.assertEqual(self.redis.execute_command("BF.INFO", "seen", "CAPACITY"), [N])
        self.assertEqual(self.redis.scard("urls"), N)
        self.assertEqual(os.listdir(self.dir.name), [])
        others = self.redis.execute_command("BF.MEXISTS", "seen", *(url + "?" for url in URLS))
        # The seed is random, the promise 0.001: 20 on average, 60 with a probability below
        # exp(-20) * (20 * e / 60)^60 < 1e-11.
        self.assertLess(sum(others), N * 0.001 * 3)

    def test_a_set_of_fingerprints_into_an_existing_filter(self):
        fingerprints = [hashlib.sha1(url.encode()).digest() for url in URLS[:3000]]
        self.redis.sadd("spider:dupefilter", *fingerprints)
        self.redis.execute_command("BF.RESERVE", "seen", "0.0001", 1000, "EXPANSION", 4)
        self.redis.execute_command("BF.ADD", "seen", fingerprints[0])
        done = self.run_script("-u", URL, "spider:dupefilter", "seen", "--batch", "100")
        self.assertIn("3000 elements read", done.stdout)
        self.assertTrue(self.all_found(fingerprints))
        self.assertEqual(self.redis.execute_command("BF.INFO", "seen", "EXPANSION"), [4])

    def test_into_another_database(self):
        self.redis.sadd("urls", *URLS[:100])
        self.run_script(
            "-p",
            str(PORT),
            "urls",
            "seen",
            "--error",
            "0.0001",
            "--capacity",
            "5000",
            env={"BF_TO": f"redis://127.0.0.1:{PORT}/3"},
        )
        self.assertEqual(self.redis.exists("seen"), 0)
        other = redis.Redis(port=PORT, db=3, **RESP2)
        self.assertEqual(other.execute_command("BF.INFO", "seen", "CAPACITY"), [5000])
        self.assertTrue(all(other.execute_command("BF.MEXISTS", "seen", *URLS[:100])))
        other.close()

    def test_twice_adds_nothing(self):
        self.redis.sadd("urls", *URLS[:1000])
        self.run_script("-u", URL, "urls", "seen")
        done = self.run_script("-u", URL, "urls", "seen")
        self.assertIn("1000 elements read, 0 added, 1000 were known", done.stdout)

    def half_way(self):
        """What a run leaves that was killed half way: the filter, and the position in the set."""
        self.redis.sadd("urls", *URLS)
        self.redis.execute_command("BF.RESERVE", "seen", "0.001", N)
        cursor = nread = nnew = 0
        while nread < N / 2:
            cursor, elements = self.redis.sscan("urls", cursor, count=1000)
            nread += len(elements)
            nnew += sum(self.redis.execute_command("BF.MADD", "seen", *elements))
        with open(self.state, "w", encoding="ascii") as file:
            json.dump(
                {
                    "run_id": self.redis.info("server")["run_id"],
                    "cursor": cursor,
                    "nread": nread,
                    "nnew": nnew,
                },
                file,
            )
        return nread

    def test_a_run_that_fails_says_how_to_go_on(self):
        self.redis.sadd("urls", *URLS)
        # A filter that fills up stops the run on its way.
        self.redis.execute_command("BF.RESERVE", "seen", "0.001", N // 2, "NONSCALING")
        done = self.run_script("-u", URL, "urls", "seen", "--state", self.state, status=2)
        self.assertIn("non scaling filter is full", done.stderr)
        self.assertIn("the same command continues from there", done.stderr)
        with open(self.state, encoding="ascii") as file:
            nread = json.load(file)["nread"]
        self.assertTrue(N // 4 < nread < N, nread)

    def test_an_interrupted_run_goes_on(self):
        nread = self.half_way()
        self.redis.config_resetstat()
        done = self.run_script("-u", URL, "urls", "seen", "--state", self.state)
        self.assertIn(f"continuing after {nread:,} elements", done.stderr)
        self.assertIn(f"{N} elements read", done.stdout)
        # What was read before is not read again.
        self.assertLess(self.calls_of("sscan"), N / 1000 * 0.8)
        self.assertTrue(self.all_found(URLS))
        self.assertFalse(os.path.exists(self.state))
        # From the beginning on request.
        self.redis.flushall()
        self.half_way()
        self.redis.config_resetstat()
        self.run_script("-u", URL, "urls", "seen", "--state", self.state, "--restart", "--verify")
        self.assertGreater(self.calls_of("sscan"), N / 1000)

    def test_a_position_is_no_use_without_its_filter(self):
        for leave in ("nothing", "another filter"):
            self.half_way()
            self.redis.delete("seen")
            if leave == "another filter":
                self.redis.execute_command("BF.ADD", "seen", "x")
            done = self.run_script("-u", URL, "urls", "seen", "--state", self.state, "--verify")
            self.assertIn("the filter is not the one from the last run: starting over", done.stderr)
            self.assertIn(f"{N} elements read", done.stdout)
            self.redis.flushall()

    def run_with_hook(self, hook):
        """A run at the tenth batch of which something happens to it; hook gets its process."""
        self.redis.sadd("urls", *URLS)
        started = threading.Event()
        proxy = Proxy(PORT, b"BF.INSERT", 10, lambda: started.wait() and hook(process))
        self.addCleanup(proxy.close)
        process = subprocess.Popen(
            [SCRIPT, "-p", str(proxy.port), "urls", "seen", "--state", self.state],
            cwd=self.dir.name,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        started.set()
        out, err = process.communicate(timeout=120)
        self.assertNotIn("Traceback", err)
        return process.returncode, out, err

    def test_ctrl_c_says_how_to_go_on(self):
        code, out, err = self.run_with_hook(lambda process: process.send_signal(signal.SIGINT))
        self.assertEqual((code, out), (130, ""), err)
        self.assertIn("the same command continues from there", err)
        done = self.run_script("-p", str(PORT), "urls", "seen", "--state", self.state, "--verify")
        self.assertIn("continuing after", done.stderr)
        self.assertIn(f"{N} elements read", done.stdout)

    def test_a_filter_that_vanishes_on_the_way(self):
        code, out, err = self.run_with_hook(lambda process: self.redis.delete("seen"))
        self.assertEqual(code, 0, err)
        self.assertIn("the filter vanished, with everything added so far: starting over", err)
        self.assertIn(f"{N} elements read", out)
        self.assertEqual(self.redis.execute_command("BF.INFO", "seen", "CAPACITY"), [N])
        self.assertTrue(self.all_found(URLS))

    def test_a_position_of_another_server_is_not_used(self):
        self.redis.sadd("urls", *URLS)
        with open(self.state, "w", encoding="ascii") as file:
            json.dump({"run_id": "0" * 40, "cursor": 1, "nread": 5, "nnew": 5}, file)
        done = self.run_script("-u", URL, "urls", "seen", "--state", self.state)
        self.assertIn("starting over", done.stderr)
        self.assertIn(f"{N} elements read", done.stdout)
        self.assertTrue(self.all_found(URLS))

    def test_verify_fails_if_an_element_is_missing(self):
        # The position says that all but the end was read, which is not so.
        self.redis.sadd("urls", *URLS)
        cursor, nread = 0, 0
        while nread < N * 0.9:
            cursor, elements = self.redis.sscan("urls", cursor, count=1000)
            nread += len(elements)
        with open(self.state, "w", encoding="ascii") as file:
            json.dump(
                {
                    "run_id": self.redis.info("server")["run_id"],
                    "cursor": cursor,
                    "nread": nread,
                    "nnew": 0,
                },
                file,
            )
        done = self.run_script(
            "-u", URL, "urls", "seen", "--state", self.state, "--verify", status=1
        )
        self.assertRegex(done.stderr, r"[0-9]+ elements are not in the filter", done.stderr)

    def test_what_cannot_be_done_is_said(self):
        self.redis.set("string", "x")
        self.redis.sadd("urls", "a")
        for args, word in [
            (("none", "seen"), "there is no set none"),
            (("string", "seen"), "string is not a set"),
            (("urls", "string"), "string is not a filter"),
            (("urls", "seen", "--error", "7"), "--error"),
            (("urls", "seen", "--capacity", "0"), "--capacity"),
            (("urls", "seen", "--batch", "0"), "--batch"),
            (("urls", "seen", "--to", "nonsense"), "not the URL of a server"),
            (
                ("urls", "seen", "--to", "redis://127.0.0.1:1"),
                "no connection to 127.0.0.1:1: Connection refused",
            ),
        ]:
            done = self.run_script("-p", str(PORT), *args, status=2)
            self.assertIn(word, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        with open(self.state, "w", encoding="ascii") as file:
            file.write("rubbish")
        self.assertIn(
            "not a state file",
            self.run_script("-u", URL, "urls", "seen", "--state", self.state, status=2).stderr,
        )
        self.assertIn("progress bar", self.run_script("--help").stdout)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
