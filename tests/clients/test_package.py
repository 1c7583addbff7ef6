#!/usr/bin/python3
"""The Python package: Filter, and that it can be installed without a network."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import redis

import server
from proxy import Proxy
from result import run_tests

sys.path.insert(0, os.path.join(server.ROOT, "python"))

from shardbloom import Address, Failure, Filter, NotAdded  # noqa: E402

PORT = int(os.environ["PORT"])


class FilterTest(unittest.TestCase):
    def setUp(self):
        self.client = Address(port=PORT).client()
        self.client.flushall()
        self.addCleanup(self.client.close)
        self.records = []
        handler = logging.Handler()
        handler.emit = self.records.append
        logger = logging.getLogger("shardbloom")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        self.addCleanup(logger.removeHandler, handler)

    def filter(self, name="seen", **options):
        return Filter(self.client, name, **{"error": 1e-6, "capacity": 5000, **options})

    def calls_of(self, command):
        return self.client.info("commandstats").get("cmdstat_" + command, {"calls": 0})["calls"]

    def test_adding_and_asking(self):
        for client in (self.client, Address(port=PORT).client(decode_responses=True)):
            client.flushall()
            seen = Filter(client, "seen", error=1e-6, capacity=5000)
            self.assertFalse(seen.exists("a"))
            self.assertEqual(seen.count(), 0)
            self.assertIs(seen.add("a"), True)
            self.assertIs(seen.add("a"), False)
            self.assertEqual(seen.add_many(["a", b"b", "b", 7]), [False, True, False, True])
            self.assertEqual(seen.exists_many(["b", "c", "7"]), [True, False, True])
            self.assertTrue("a" in seen and "c" not in seen)
            self.assertEqual(seen.count(), 3)
            info = seen.info()
            self.assertEqual(
                (info["items"], info["capacity"], info["layers"], info["expansion"]),
                (3, 5000, 1, 2),
            )
            self.assertEqual((seen.add_many([]), seen.exists_many([])), ([], []))

    def test_batches(self):
        seen = self.filter(batch=100)
        self.client.config_resetstat()
        self.assertEqual(seen.add_many(range(1000)), [True] * 1000)
        self.assertEqual(seen.exists_many(range(1000)), [True] * 1000)
        self.assertEqual(
            (self.calls_of("bf.insert"), self.calls_of("bf.mexists")), (11, 10)
        )  # the first met no filter

    def test_creation_with_its_own_parameters(self):
        created = []
        seen = self.filter(b"se\xffen", options=("EXPANSION", 4), on_created=created.append)
        self.assertTrue(seen.create())
        self.assertFalse(seen.create())
        self.assertFalse(self.filter(b"se\xffen").create())
        self.assertEqual((created, seen.ncreated, seen.nvanished), ([seen], 1, 0))
        info = seen.info()
        self.assertEqual((info["capacity"], info["expansion"]), (5000, 4))
        self.assertEqual([record.levelno for record in self.records], [logging.INFO])

    def test_a_filter_that_vanishes(self):
        """Deleted, expired, flushed or renamed: it comes back as it was asked for, and that is
        told.
        """
        created = []
        seen = self.filter(on_created=created.append)
        seen.add("a")
        for n, remove in enumerate(
            (
                lambda: self.client.delete("seen"),
                self.client.flushall,
                lambda: self.client.pexpireat("seen", 1),
                lambda: self.client.rename("seen", "other"),
            ),
            start=1,
        ):
            remove()
            self.assertEqual(
                (seen.add("a"), seen.add("a")) if n % 2 else seen.add_many("aa"),
                (True, False) if n % 2 else [True, False],
            )
            self.assertEqual((seen.ncreated, seen.nvanished, len(created)), (n + 1, n, n + 1))
            self.assertEqual(seen.info()["capacity"], 5000)
        self.assertEqual(
            [record.levelno for record in self.records], [logging.INFO] + [logging.WARNING] * 4
        )
        self.assertIn("seen had vanished", self.records[-1].getMessage())

    def test_a_filter_that_vanishes_between_the_two_commands(self):
        """Another program creates it meanwhile, and it vanishes again: no item is lost, and each
        gap is told.
        """
        seen = self.filter()
        seen.add("a")
        self.client.delete("seen")
        other = redis.Redis(port=PORT)
        # What another program does between NOCREATE and CAPACITY.
        proxy = Proxy(
            PORT, b"CAPACITY", 1, lambda: other.execute_command("BF.RESERVE", "seen", "1e-6", 5000)
        )
        self.addCleanup(proxy.close)
        self.addCleanup(other.close)
        behind = Filter(Address(port=proxy.port).client(), "seen", error=1e-6, capacity=5000)
        self.assertEqual(behind.add_many("ab"), [True, True])
        self.assertEqual(behind.ncreated, 1)
        self.assertEqual(seen.add_many("abc"), [False, False, True])

    def test_a_full_filter(self):
        """What was added before the error is told: nobody else will get these items as new ones."""
        options = ("NONSCALING", "SEED", 1)
        small = self.filter("small", error=0.01, capacity=3, options=options, batch=2)
        with self.assertRaises(NotAdded) as caught:
            small.add_many("abcdea")
        self.assertEqual(caught.exception.answers, [True, True, True, None, None, False])
        self.assertIn("full", str(caught.exception))
        with self.assertRaisesRegex(redis.ResponseError, "full"):
            small.add("z")
        self.assertIs(small.add("a"), False)

    def test_a_connection_that_breaks(self):
        """Answers that came before are not lost, and no command is sent twice."""
        proxy = Proxy(PORT, b"BF.INSERT", 4, lambda: self.client.client_kill_filter(skipme=True))
        self.addCleanup(proxy.close)
        behind = Filter(
            Address(port=proxy.port).client(), "seen", error=1e-6, capacity=5000, batch=2
        )
        self.client.config_resetstat()
        with self.assertRaises(NotAdded) as caught:
            behind.add_many("abcdefgh")
        self.assertEqual(caught.exception.answers, [True] * 4 + [None] * 4)
        self.assertIsInstance(caught.exception.cause, redis.ConnectionError)
        self.assertLessEqual(self.calls_of("bf.insert"), 4)
        answers = behind.add_many("abcdefgh")
        self.assertEqual((answers[:4], answers[6:]), ([False] * 4, [True] * 2))

    def test_keys_of_other_types(self):
        self.client.set("string", "x")
        with self.assertRaisesRegex(redis.ResponseError, "WRONGTYPE"):
            self.filter("string").add("x")
        with self.assertRaisesRegex(NotAdded, "WRONGTYPE"):
            self.filter("string").add_many("xy")
        for wrong in ({"error": 0}, {"error": 1}, {"capacity": 0}, {"batch": 0}):
            with self.assertRaises(ValueError):
                self.filter(**wrong)

    def test_urls(self):
        self.assertEqual(Address.from_url("redis://"), Address())
        self.assertEqual(
            Address.from_url("rediss://u:p%20w@[::1]:7/3"),
            Address(host="::1", port=7, db=3, user="u", password="p w", tls=True),
        )
        self.assertEqual(str(Address.from_url("redis://[::1]:7")), "[::1]:7")
        self.assertEqual(Address.from_url("unix:///a%20b?db=2"), Address(path="/a b", db=2))
        self.assertNotIn("secret", repr(Address.from_url("redis://u:secret@h")))
        for wrong in (
            "",
            "host",
            "http://h",
            "redis://h:x",
            "redis://h/x",
            "redis://h?x=1",
            "unix://",
        ):
            with self.assertRaises(Failure):
                Address.from_url(wrong)


class InstallTest(unittest.TestCase):
    def test_pip_without_a_network(self):
        """The commands of an installed package do what those of the checkout do."""
        with tempfile.TemporaryDirectory() as directory:
            source, target = os.path.join(directory, "source"), os.path.join(directory, "target")
            shutil.copytree(
                os.path.join(server.ROOT, "python"),
                source,
                ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"),
            )
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--no-index",
                    "--no-build-isolation",
                    "--no-deps",
                    "--target",
                    target,
                    source,
                ],
                check=True,
                timeout=300,
                env={
                    **os.environ,
                    "PIP_BREAK_SYSTEM_PACKAGES": "1",
                    "PIP_ROOT_USER_ACTION": "ignore",
                },
            )
            for tool in ("bfstat", "bfcopy", "bfimport", "bforphans", "bfread"):
                done = subprocess.run(
                    [os.path.join(target, "bin", tool), "-h"],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    cwd=directory,
                    env={**os.environ, "PYTHONPATH": target},
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("exit status:", done.stdout)
            done = subprocess.run(
                [os.path.join(target, "bin", "bfstat"), "-p", str(PORT), "--json"],
                timeout=60,
                capture_output=True,
                env={**os.environ, "PYTHONPATH": target},
                cwd=directory,
            )
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertTrue(os.path.exists(os.path.join(target, "shardbloom", "py.typed")))


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
