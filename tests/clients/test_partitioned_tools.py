#!/usr/bin/python3
"""The tools and partitioned filters: copied, filled, shown as one, and not mistaken for rubbish."""

import json
import os
import sys
import unittest

import redis

import server
from cluster import Cluster
from result import run_tests
from tool import run

from shardbloom import PartitionedFilter
from shardbloom.plan import partition_keys, partition_of

ITEMS = [b"https://example.com/%d" % n for n in range(3000)]
OPTIONS = {"partitions": 8, "error": 1e-12, "capacity": 5000}


class Tools(unittest.TestCase):
    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)
        self.redis = self.server.redis
        self.many = PartitionedFilter(self.redis, "seen", **OPTIONS)
        self.many.add_many(ITEMS)

    def run_it(self, tool, *arguments, code=0, port=None):
        status, out, err = run(tool, "-p", str(port or self.server.port), *arguments)
        self.assertEqual(status, code, out + err)
        return out + err

    def shown(self, *arguments, code=0):
        return json.loads(self.run_it("bfstat", "--json", *arguments, code=code))["filters"]

    # ---- bfstat ----

    def test_bfstat_shows_one_line(self):
        self.redis.execute_command("BF.RESERVE", "plain:0{1}", 0.01, 100)
        text = self.run_it("bfstat", "--once")
        self.assertIn(" 2 filters,", text)
        lines = [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]
        self.assertEqual(lines[1:], ["FILTER", "seen", "plain:0{1}"])
        fewest, most = (
            choose(part["items"] for part in self.many.parts().values()) for choose in (min, max)
        )
        self.assertIn("  8 partitions, %d to %d items each" % (fewest, most), text)
        [seen] = [one for one in self.shown() if one["key"] == "seen"]
        info = self.many.info()
        self.assertEqual(
            [seen[name] for name in ("items", "capacity", "bytes", "partitions", "promised")],
            [3000, info["capacity"], info["size"], 8, 1e-12],
        )
        self.assertEqual([layer["items"] for layer in seen["layers"]], [3000])
        self.assertTrue(0 <= seen["error"] < 1e-12)
        self.assertNotIn("parts", seen)
        self.assertNotIn("partitions", [one for one in self.shown() if one["key"] != "seen"][0])

    def test_bfstat_shows_parts_on_demand(self):
        text = self.run_it("bfstat", "--once", "--parts")
        for key in self.many.keys:
            self.assertIn("\n%s " % key.decode(), text)
        [seen] = self.shown("--parts")
        self.assertEqual([part["key"].encode() for part in seen["parts"]], self.many.keys)
        self.assertEqual(sum(part["items"] for part in seen["parts"]), 3000)
        metrics = self.run_it("bfstat", "--prometheus")
        self.assertIn('shardbloom_filter_items{db="0",filter="seen"} 3000\n', metrics)
        self.assertIn('shardbloom_filter_partitions{db="0",filter="seen"} 8\n', metrics)
        self.assertEqual(metrics.count("shardbloom_filter_items{"), 1)
        self.assertNotIn("shardbloom_partition_", metrics)
        metrics = self.run_it("bfstat", "--prometheus", "--parts")
        self.assertEqual(metrics.count("shardbloom_filter_items{"), 1)
        self.assertEqual(metrics.count("shardbloom_partition_items{"), 8)

    def test_bfstat_names_what_is_missing(self):
        self.redis.delete(self.many.keys[3])
        text = self.run_it("bfstat", "--once", code=1)
        self.assertIn("1 of 8 partitions are missing", text)
        [seen] = self.shown(code=1)
        self.assertEqual(seen["partitions"], 8)
        self.assertIn(
            'shardbloom_filter_damaged{db="0",filter="seen"} 1',
            self.run_it("bfstat", "--prometheus"),
        )
        self.many.add_many(ITEMS)
        shard = self.redis.execute_command("BF.SHARDS", self.many.keys[5])[0][1]
        self.redis.delete(shard)
        self.assertIn("LOST " + shard.decode(), self.run_it("bfstat", "--once", code=1))
        # Without the plan they are filters like others.
        self.redis.delete("seen")
        self.assertEqual(
            sorted(one["key"].encode() for one in self.shown(code=1)), sorted(self.many.keys)
        )

    def test_bfstat_by_a_pattern(self):
        other = PartitionedFilter(self.redis, "seen2", **OPTIONS)
        other.create()
        self.redis.execute_command("BF.RESERVE", "seen:x{1}", 0.01, 100)
        for pattern, names in (
            ("seen", ["seen"]),
            ("seen*", ["seen", "seen2", "seen:x{1}"]),
            ("seen?", ["seen2"]),
            ("seen:3*", [self.many.keys[3].decode()]),
            ("nothing", []),
        ):
            self.assertEqual(
                sorted(one["key"] for one in self.shown("--match", pattern)), sorted(names), pattern
            )

    def test_bfstat_in_other_databases(self):
        PartitionedFilter(self.server.client(db=2), "seen", **{**OPTIONS, "partitions": 4}).create()
        found = {(one["db"], one["key"]): one["partitions"] for one in self.shown()}
        self.assertEqual(found, {(0, "seen"): 8, (2, "seen"): 4})

    # ---- bforphans ----

    def test_bforphans_knows_whose_shards_they_are(self):
        """Partitions of several filters share tags, and so does what is left of a deleted one."""
        other = PartitionedFilter(self.redis, "other", **OPTIONS)
        other.add_many(ITEMS)
        nshards = int(self.redis.info("bf")["bf_shards"])
        self.assertIn(
            "%d shards seen, 0 orphans" % nshards, self.run_it("bforphans", "--wait", "0")
        )
        shard = self.redis.execute_command("BF.SHARDS", self.many.keys[2])[0][1]
        data = bytearray(self.redis.get(shard))
        tag = self.many.keys[2].partition(b"{")[2][:-1]
        data[8:16] = bytes(8)  # the header has the filter's id
        orphan = b"bf:{%s}:%s:0:0" % (tag, b"0" * 16)
        self.redis.set(orphan, bytes(data))
        text = self.run_it("bforphans", "--wait", "0", "--remove")
        self.assertIn("%s  %d bytes  removed" % (orphan.decode(), len(data)), text)
        self.assertIn("%d shards seen, 1 orphans" % (nshards + 1), text)
        for one in (self.many, other):
            self.assertEqual(one.exists_many(ITEMS), [True] * 3000)

    # ---- bfimport ----

    def test_bfimport(self):
        self.redis.sadd("urls", *ITEMS)
        state = ["--state", os.path.join(self.server.dir, "state")]
        words = ["--partitions", "4", "--error", "1e-12", "--verify", *state]
        text = self.run_it("bfimport", "urls", "new", *words)
        self.assertIn("created new in 4 partitions for 3,000 items, error rate 1e-12", text)
        self.assertEqual(self.redis.get("new"), b"partitioned-filter 1 4 1e-12 3000")
        self.assertEqual(
            PartitionedFilter.open(self.redis, "new").exists_many(ITEMS), [True] * 3000
        )
        # Again, with a set that has grown: what is not said is as the plan has it.
        self.redis.sadd("urls", "one more")
        text = self.run_it("bfimport", "urls", "new", "--verify", *state)
        self.assertIn("3001 elements read, 1 added, 3000 were known", text)
        text = self.run_it("bfimport", "urls", "new", "--partitions", "5", *state, code=2)
        self.assertIn("found 'partitioned-filter 1 4 1e-12 3000', expected", text)
        text = self.run_it("bfimport", "urls", "new", "--error", "0.1", *state, code=2)
        self.assertIn("expected '", text)
        text = self.run_it("bfimport", "urls", "a{b}", "--partitions", "5", *state, code=2)
        self.assertIn("no braces", text)
        self.run_it("bfimport", "urls", "new", "--partitions", "0", code=2)
        # A filter that is an ordinary one stays one.
        self.redis.execute_command("BF.RESERVE", "plain", 0.01, 5000)
        text = self.run_it("bfimport", "urls", "plain", "--partitions", "4", *state, code=2)
        self.assertIn("plain is not a partitioned filter", text)

    # ---- bfcopy ----

    def test_bfcopy(self):
        target = server.Server()
        self.addCleanup(target.stop)
        to = ["--to", "redis://127.0.0.1:%d" % target.port]
        # Not a part of it is a part of the copy that one could use too early.
        shard = self.redis.execute_command("BF.SHARDS", self.many.keys[4])[0][1]
        kept = self.redis.get(shard)
        self.redis.delete(shard)
        text = self.run_it("bfcopy", "seen", *to, code=2)
        self.assertIn("seen: 1 partitions were not copied, so neither is the plan", text)
        self.assertFalse(target.redis.exists("seen"))
        self.redis.set(shard, kept)
        text = self.run_it("bfcopy", "seen", "--missing", *to)
        self.assertIn("seen: 3,000 items in 8 partitions", text)
        self.assertIn("2 copied, 0 failed", text)
        copy = PartitionedFilter(target.redis, "seen", **OPTIONS)
        self.assertEqual((copy.create(), copy.add_many(ITEMS)), (False, [False] * 3000))
        self.assertEqual(copy.info()["size"], self.many.info()["size"])
        # There already; again; with what came since.
        self.assertIn("exists at the target", self.run_it("bfcopy", "seen", *to, code=2))
        self.assertIn("9 of 9", self.run_it("bfcopy", "seen", "--missing", *to))
        self.many.add("more")
        self.redis.expire("seen", 1000)
        self.run_it("bfcopy", "seen", "--replace", *to)
        self.assertTrue(copy.exists("more"))
        self.assertTrue(0 < target.redis.ttl("seen") <= 1000)
        # Under another name, and by a pattern that partitions match too.
        self.run_it("bfcopy", "seen", "--as", "known", *to)
        self.assertEqual(
            PartitionedFilter.open(target.redis, "known").exists_many(ITEMS), [True] * 3000
        )
        self.assertIn("no braces", self.run_it("bfcopy", "seen", "--as", "{a}", *to, code=2))
        self.redis.set("text", "hello")
        target.redis.flushall()
        self.assertIn("9 copied, 0 failed", self.run_it("bfcopy", "*", *to))
        self.assertEqual(sorted(target.redis.scan_iter("seen*")), sorted([b"seen", *copy.keys]))
        self.assertFalse(target.redis.exists("text"))

    def test_bfcopy_does_not_mix_plans(self):
        target = server.Server()
        self.addCleanup(target.stop)
        to = ["--to", "redis://127.0.0.1:%d" % target.port]
        PartitionedFilter(target.redis, "seen", **{**OPTIONS, "partitions": 4}).create()
        for how in ([], ["--replace"], ["--missing"]):
            text = self.run_it("bfcopy", "seen", *how, *to, code=2)
            self.assertIn("there is 'partitioned-filter 1 4 1e-12 5000', and the source has", text)
        self.assertEqual(len(list(target.redis.scan_iter("*"))), 5)

    # ---- bfread ----

    def test_bfread_reads_a_partition(self):
        item = ITEMS[0]
        key = self.many.keys[partition_of(item, 8)]
        self.assertEqual(self.run_it("bfread", key.decode(), item.decode(), "other"), "1\n0\n")
        self.assertIn("seen is a partitioned filter", self.run_it("bfread", "seen", "a", code=2))


class ToolsInCluster(unittest.TestCase):
    def test_all_of_them(self):
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        single = server.Server()
        self.addCleanup(single.stop)
        entry = ["-p", str(cluster.nodes[0].port)]
        many = PartitionedFilter(redis.Redis(port=cluster.nodes[2].port), "seen", **OPTIONS)
        many.add_many(ITEMS)
        status, out, err = run("bfstat", "--json", *entry)
        self.assertEqual(status, 0, err)
        [seen] = json.loads(out)["filters"]
        self.assertEqual((seen["key"], seen["items"], seen["partitions"]), ("seen", 3000, 8))
        status, out, err = run("bforphans", "--quiet", *entry)
        self.assertEqual(status, 0, out)
        # Out of the cluster and into it.
        to = ["--to", "redis://127.0.0.1:%d" % single.port]
        status, out, err = run("bfcopy", "seen", *to, *entry)
        self.assertEqual(status, 0, err)
        copy = PartitionedFilter.open(single.redis, "seen")
        self.assertEqual(copy.exists_many(ITEMS), [True] * 3000)
        to = ["--to", "redis://127.0.0.1:%d" % cluster.nodes[0].port]
        status, out, err = run("bfcopy", "seen", "--as", "back", *to, "-p", str(single.port))
        self.assertEqual(status, 0, err)
        back = PartitionedFilter.open(many.client, "back")
        self.assertEqual(back.add_many(ITEMS), [False] * 3000)
        single.redis.sadd("urls", *ITEMS, "more")
        state = os.path.join(single.dir, "state")
        words = ["urls", "back", "--verify", "--state", state, "-p", str(single.port)]
        status, out, err = run("bfimport", *words, *to)
        self.assertEqual(status, 0, err)
        self.assertIn("3001 elements read, 1 added", out)
        # A node that is down is an error, and not damage of the filter.
        cluster.nodes[1].kill()
        status, out, err = run("bfstat", "--once", *entry)
        self.assertEqual(status, 2, err)
        self.assertNotIn("partitions are missing", out)
        self.assertEqual(partition_keys(b"seen", 8), many.keys)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
