#!/usr/bin/python3
"""r.bf() of redis-py, as Debian packages it: every method gives what its documentation says."""
import os
import sys
import unittest

import redis

from result import run_tests

PORT = int(os.environ["PORT"])


class BloomTest(unittest.TestCase):
    options = {}

    def setUp(self):
        self.redis = redis.Redis(port=PORT, socket_timeout=60, **self.options)
        self.redis.flushall()
        self.bf = self.redis.bf()

    def tearDown(self):
        self.redis.close()

    def test_create(self):
        self.assertIs(self.bf.create("a", 0.01, 100), True)
        self.assertIs(self.bf.create("b", 0.01, 100, expansion=4), True)
        self.assertIs(self.bf.create("c", 0.01, 100, noScale=True), True)
        with self.assertRaisesRegex(redis.ResponseError, "^item exists$"):
            self.bf.create("a", 0.01, 100)

    def test_add_and_exists(self):
        self.assertEqual(self.bf.exists("k", "a"), 0)
        self.assertEqual(self.bf.add("k", "a"), 1)
        self.assertEqual(self.bf.add("k", "a"), 0)
        self.assertEqual(self.bf.exists("k", "a"), 1)
        self.assertEqual(self.bf.exists("k", "b"), 0)

    def test_madd_and_mexists(self):
        self.assertEqual(self.bf.madd("k", "a", "b", "a"), [1, 1, 0])
        self.assertEqual(self.bf.mexists("k", "a", "c"), [1, 0])
        self.assertEqual(self.bf.mexists("none", "a", "b"), [0, 0])

    def test_insert(self):
        # Seven hashes in blocks of 512 bits: c is taken for a or b with a probability of
        # (14 / 512)^7 < 1e-10.
        self.assertEqual(
            self.bf.insert("k", ["a", "b"], capacity=1000, error=0.001, expansion=2), [1, 1]
        )
        self.assertEqual(self.bf.insert("k", ["a", "c"], noCreate=True), [0, 1])
        self.assertEqual(self.bf.insert("l", ["a"], noScale=True), [1])
        with self.assertRaisesRegex(redis.ResponseError, "not found"):
            self.bf.insert("none", ["a"], noCreate=True)

    def test_info(self):
        self.bf.create("k", 0.001, 1000, expansion=3)
        self.bf.madd("k", "a", "b")
        info = self.bf.info("k")
        self.assertEqual(
            (info.capacity, info.filterNum, info.insertedNum, info.expansionRate), (1000, 1, 2, 3)
        )
        self.assertGreater(info.size, 100)  # two items in a table
        self.bf.create("fixed", 0.01, 10, noScale=True)
        self.assertIsNone(self.bf.info("fixed").expansionRate)
        with self.assertRaisesRegex(redis.ResponseError, "not found"):
            self.bf.info("none")

    def test_debug(self):
        # What redis-py's own tests compare before and after a copy.
        self.bf.create("k", 0.001, 1000)
        self.bf.madd("k", "a", "b")
        lines = [str(line) for line in self.bf.execute_command("bf.debug", "k")]
        self.assertIn("size:2", lines[0])
        self.assertRegex(
            lines[1],
            "bytes:[0-9]+ bits:[0-9]+ hashes:[0-9]+ hashwidth:64 capacity:1000 size:2 ratio:",
        )

    def test_card(self):
        # Debian's version has no method for it, newer ones do.
        card = getattr(self.bf, "card", lambda key: self.redis.execute_command("BF.CARD", key))
        self.assertEqual(card("k"), 0)
        self.bf.madd("k", "a", "b", "a")
        self.assertEqual(card("k"), 2)

    def test_errors(self):
        self.redis.set("string", "x")
        with self.assertRaisesRegex(redis.ResponseError, "WRONGTYPE"):
            self.bf.add("string", "a")
        self.redis.execute_command("BF.RESERVE", "k", 0.001, 1, "NONSCALING", "SEED", 1)
        self.assertEqual(self.bf.add("k", "a"), 1)
        with self.assertRaisesRegex(redis.ResponseError, "non scaling filter is full"):
            self.bf.add("k", "b")

    def test_bytes(self):
        item = bytes(range(256))
        self.assertEqual(self.bf.add("k", item), 1)
        self.assertEqual(self.bf.exists("k", item), 1)
        self.assertEqual(self.bf.exists("k", item[:-1]), 0)

    def test_pipeline(self):
        with self.redis.pipeline() as pipe:
            bf = pipe.bf()
            bf.add("k", "a")
            bf.madd("k", "a", "b")
            bf.exists("k", "b")
            self.assertEqual(pipe.execute(), [1, [0, 1], 1])

    def test_scandump_and_loadchunk(self):
        if not has_command(self.redis, "BF.SCANDUMP"):
            self.skipTest("the module has no BF.SCANDUMP")
        items = [f"item{i}" for i in range(2000)]
        self.bf.create("from", 0.001, 500)
        self.bf.madd("from", *items)
        at = 0
        while True:
            at, chunk = self.bf.scandump("from", at)
            if at == 0:
                break
            self.assertIsInstance(chunk, bytes)
            self.assertIn(self.bf.loadchunk("to", at, chunk), ("OK", b"OK"))
        self.assertEqual(self.bf.mexists("to", *items), [1] * len(items))
        self.assertEqual(self.bf.info("to").insertedNum, self.bf.info("from").insertedNum)
        self.assertEqual(
            self.bf.execute_command("bf.debug", "to"), self.bf.execute_command("bf.debug", "from")
        )


class DecodingBloomTest(BloomTest):
    """The same with replies decoded to str."""

    options = {"decode_responses": True}


def has_command(client, name):
    return name in {str(key).upper() for key in client.command()}


if __name__ == "__main__":
    print(f"  redis-py {redis.__version__}")
    sys.exit(run_tests(sys.modules[__name__]))
