#!/usr/bin/python3
"""BF.ADOPT against the recipe that writes such bitmaps: both work on one server, and each must see
what the other did, down to the last bit and the length of the strings."""

import hashlib
import random
import sys
import unittest

import server
from recipe import Recipe
from result import run_tests

# What people have: recipe parameters, and how BF.ADOPT is told of them.
VARIANTS = {
    "default": (dict(), []),
    "blocks": (dict(blocks=5, bits=20), ["BLOCKS", 5, "BITS", 20]),
    "all_blocks": (
        dict(prefix="seen:", blocks=256, bits=12),
        ["PREFIX", "seen:", "BLOCKS", 256, "BITS", 12],
    ),
    "one_block": (dict(blocks=1, bits=18), ["BLOCKS", 1, "BITS", 18]),
    "plugin": (
        dict(prefix="spider:bloomfilter", bits=22, seeds=range(6), md5=False),
        ["PREFIX", "spider:bloomfilter", "BITS", 22, "SEEDS", 6, *range(6), "DIGEST", "NONE"],
    ),
    "odd_seeds": (
        dict(bits=16, seeds=(0, 3, 2**31, 2**63 + 1, 2**64 - 1)),
        ["BITS", 16, "SEEDS", 5, 0, 3, 2**31, 2**63 + 1, 2**64 - 1],
    ),
}


def items_for(recipe, n, tag):
    urls = ["http://%s.example/%d?q=ü%x" % (tag, i, i * i) for i in range(n)]
    return urls if recipe.md5 else [hashlib.sha1(u.encode()).hexdigest() for u in urls]


class Adopt(unittest.TestCase):
    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)
        self.redis = self.server.redis

    def recipes(self, name):
        """The recipe on the real strings, how to adopt them, and the recipe on a shadow of them
        that nobody else writes.
        """
        parameters, words = VARIANTS[name]
        shadow = dict(parameters, prefix="shadow:" + parameters.get("prefix", "bloomfilter"))
        return Recipe(self.redis, **parameters), words, Recipe(self.redis, **shadow)

    def assert_same_bits(self, real, shadow):
        numbers = [""] if real.blocks is None else range(real.blocks)
        for number in numbers:
            a, b = (self.redis.get("%s%s" % (r.prefix, number)) for r in (real, shadow))
            self.assertTrue(
                a == b, "string %s: %s and %s bytes" % (number, a and len(a), b and len(b))
            )

    def both_directions(self, name, n=100):
        real, words, shadow = self.recipes(name)
        before, old, new = (items_for(real, n, tag) for tag in ("before", "old", "new"))
        for item in before:
            real.insert(item)
            shadow.insert(item)
        self.redis.execute_command("BF.ADOPT", "f", *words)
        self.assertEqual(self.redis.execute_command("BF.MEXISTS", "f", *before), [1] * n)
        # Old and new workers in turn; each answer must be the recipe's, false positives included.
        for a, b in zip(old, new):
            expected = int(not shadow.contains(b))
            self.assertEqual(self.redis.execute_command("BF.ADD", "f", b), expected)
            shadow.insert(b)
            self.assertTrue(real.contains(b))
            self.assertEqual(
                self.redis.execute_command("BF.EXISTS", "f", a), int(shadow.contains(a))
            )
            real.insert(a)
            shadow.insert(a)
            self.assertEqual(self.redis.execute_command("BF.EXISTS", "f", a), 1)
            self.assertEqual(self.redis.execute_command("BF.ADD", "f", a), 0)
        self.assert_same_bits(real, shadow)
        batch = items_for(real, n, "batch")
        for item in batch:
            shadow.insert(item)
        self.redis.execute_command("BF.MADD", "f", *batch)
        self.assert_same_bits(real, shadow)

    def test_blocks(self):
        self.both_directions("blocks")

    def test_all_blocks(self):
        self.both_directions("all_blocks")

    def test_one_block(self):
        self.both_directions("one_block")

    def test_plugin_with_fingerprints(self):
        self.both_directions("plugin")

    def test_odd_seeds(self):
        self.both_directions("odd_seeds")

    def test_default(self):
        """Strings of 256 MB, once: few items, and no copy of them over the wire."""
        real, words, shadow = self.recipes("default")
        old, new = (items_for(real, 10, tag) for tag in ("old", "new"))
        for item in old:
            real.insert(item)
        self.redis.execute_command("BF.ADOPT", "f", *words)
        self.assertEqual(self.redis.execute_command("BF.MEXISTS", "f", *old), [1] * 10)
        self.assertEqual(self.redis.execute_command("BF.MADD", "f", *new), [1] * 10)
        self.assertTrue(all(real.contains(item) for item in new))
        positions = {p for item in old + new for p in real.place(item)[1]}
        self.assertEqual(self.redis.bitcount("bloomfilter"), len(positions))
        self.assertEqual(self.redis.strlen("bloomfilter"), max(positions) // 8 + 1)

    def test_answers_of_a_crowded_bitmap_are_the_recipes(self):
        """Far beyond capacity both must be wrong about the same items."""
        real, words, shadow = self.recipes("one_block")
        real.bits = shadow.bits = 12
        for item in items_for(real, 400, "crowd"):
            real.insert(item)
        self.redis.execute_command("BF.ADOPT", "f", "BLOCKS", 1, "BITS", 12)
        asked = items_for(real, 1000, "ask")
        expected = [int(real.contains(item)) for item in asked]
        self.assertGreater(sum(expected), 10)
        self.assertEqual(self.redis.execute_command("BF.MEXISTS", "f", *asked), expected)

    def test_missing_strings_are_made_as_setbit_makes_them(self):
        real, words, shadow = self.recipes("blocks")
        self.redis.execute_command("BF.ADOPT", "f", *words)
        self.assertEqual(self.redis.dbsize(), 1)
        for item in items_for(real, 3, "few"):
            self.assertEqual(self.redis.execute_command("BF.EXISTS", "f", item), 0)
            self.assertEqual(self.redis.execute_command("BF.ADD", "f", item), 1)
            shadow.insert(item)
            self.assert_same_bits(real, shadow)

    def test_the_empty_item_is_the_recipes(self):
        real, words, shadow = self.recipes("blocks")
        self.redis.execute_command("BF.ADOPT", "f", *words)
        shadow.insert("")
        for expected in (1, 0, 0):
            self.assertEqual(self.redis.execute_command("BF.ADD", "f", ""), expected)
            self.assertEqual(
                self.redis.execute_command("BF.EXISTS", "f", ""), int(real.contains(""))
            )
        self.assertEqual(self.redis.execute_command("BF.CARD", "f"), 1)
        self.assert_same_bits(real, shadow)

    def test_bits_survive_a_crash(self):
        real, words, shadow = self.recipes("blocks")
        rng = random.Random(1)
        self.server.keep_aof()
        self.redis.execute_command("BF.ADOPT", "f", *words)
        for item in items_for(real, 300, "x"):
            shadow.insert(item)
            if rng.random() < 0.5:
                real.insert(item)
            else:
                self.redis.execute_command("BF.ADD", "f", item)
        card = self.redis.execute_command("BF.CARD", "f")
        self.server.kill()
        self.server.start()
        self.redis = self.server.redis
        self.assertEqual(self.redis.execute_command("BF.CARD", "f"), card)
        self.assert_same_bits(real, shadow)
        self.redis.execute_command("BF.ADD", "f", "one more")
        self.assertEqual(self.redis.execute_command("BF.CARD", "f"), card + 1)

    def test_the_estimate_is_near_the_truth(self):
        real, words, _ = self.recipes("blocks")
        for item in items_for(real, 1000, "n"):
            real.insert(item)
        self.redis.execute_command("BF.ADOPT", "f", *words)
        self.assertTrue(950 <= self.redis.execute_command("BF.CARD", "f") <= 1050)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
