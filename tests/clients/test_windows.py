#!/usr/bin/python3
"""Filters that forget, as the tools, the Python package and the Scrapy filter see them. Time passes
when a test says so.
"""

import json
import os
import sys
import time
import unittest

import redis
import scrapy
from scrapy.exceptions import NotConfigured

import server
import tool
from cluster import Cluster
from proxy import Proxy
from result import run_tests
from test_scrapy import Crawler

sys.path.insert(0, os.path.join(server.ROOT, "python"))

from shardbloom import Address, Filter  # noqa: E402
from shardbloom.cluster import slot_of  # noqa: E402
from shardbloom.format import Descriptor  # noqa: E402
from shardbloom.scrapy import BloomDupeFilter  # noqa: E402

HOUR, DAY = 3600, 86400
NOW = 20_000 * DAY * 1000  # a midnight, in milliseconds since 1970


class WindowTest(unittest.TestCase):
    """A window of 4 days in 4 slices, and SEED 0: a new piece of time begins every midnight."""

    def setUp(self):
        self.server = self.start()
        self.redis = self.server.redis

    def start(self):
        one = server.Server(clock_ms=NOW)
        self.addCleanup(one.stop)
        return one

    def wait_days(self, days):
        self.server.set_clock(round(self.server.clock_ms + days * DAY * 1000))

    def reserve(self, *words, name="seen", error="1e-9"):
        self.redis.execute_command(
            *("BF.RESERVE", name, error, 1000, "WINDOW", 4 * DAY, "SLICES", 4, "SEED", 0, *words)
        )

    def add(self, *items, name="seen"):
        return self.redis.execute_command("BF.MADD", name, *items)

    def has(self, *items, name="seen", client=None):
        return (client or self.redis).execute_command("BF.MEXISTS", name, *items)

    def run_tool(self, name, *arguments, code=0):
        status, out, err = tool.run(name, "-p", str(self.server.port), *arguments)
        self.assertEqual(status, code, out + err)
        return out, err

    def wait_for_keys(self, pattern, wanted, client=None):
        """Until the sweeper has removed what it must."""
        end = time.monotonic() + server.WAIT
        while sorted((client or self.redis).keys(pattern)) != sorted(wanted):
            self.assertLess(time.monotonic(), end, (client or self.redis).keys(pattern))
            time.sleep(0.01)

    def descriptor(self, name="seen"):
        return Descriptor(self.redis.execute_command("BF.DESCRIPTOR", name))


class Package(WindowTest):
    def filter(self, **options):
        client = Address(port=self.server.port).client()
        self.addCleanup(client.close)
        return Filter(client, "seen", error=1e-9, capacity=1000, **options)

    def test_an_item_is_new_again_after_the_window(self):
        seen = self.filter(window=4 * DAY, slices=4)
        self.assertTrue(seen.add("a"))
        self.wait_days(3.9)
        self.assertFalse(seen.add("a"))
        self.assertEqual(seen.count(), 1)
        self.wait_days(1.2)
        self.assertFalse(seen.exists("a"))
        self.assertEqual(seen.count(), 0)
        self.assertTrue(seen.add("a"))

    def test_a_sliding_window(self):
        seen = self.filter(window=4 * DAY, slices=4, sliding=True)
        self.assertTrue(seen.add("a"))
        for _ in range(5):
            self.wait_days(3.9)
            self.assertFalse(seen.add("a"))
        self.wait_days(5.1)
        self.assertTrue(seen.add("a"))

    def test_info(self):
        seen = self.filter(window=4 * DAY, sliding=True, options=("SEED", 0))
        seen.create()
        self.wait_days(0.25)
        info = seen.info()
        self.assertEqual(
            (info["window"], info["slices"], info["sliding"], info["age"], info["capacity"]),
            (4 * DAY, 8, 1, DAY // 4, 1000),
        )
        plain = Filter(seen.client, "plain", error=1e-3, capacity=10)
        plain.create()
        self.assertNotIn("window", plain.info())

    def test_a_filter_that_vanished_comes_back_with_its_window(self):
        seen = self.filter(window=4 * DAY, slices=2)
        seen.add("a")
        self.redis.delete("seen")
        self.assertTrue(seen.add("a"))
        self.assertEqual(seen.nvanished, 1)
        self.assertEqual((seen.info()["window"], seen.info()["slices"]), (4 * DAY, 2))

    def test_calls_that_are_wrong(self):
        for options in ({"slices": 4}, {"sliding": True}, {"window": 0}, {"window": 1.5}):
            with self.assertRaises(ValueError):
                self.filter(**options)
        with self.assertRaises(redis.ResponseError):
            self.filter(window=10, slices=33).create()


class Scrapy(WindowTest):
    def filter(self, **settings):
        url = "redis://127.0.0.1:%d" % self.server.port
        bloom = BloomDupeFilter.from_crawler(Crawler(BLOOM_URL=url, **settings))
        self.addCleanup(bloom.close, "test")
        return bloom

    def info(self):
        reply = self.redis.execute_command("BF.INFO", "news:seen")
        return dict(zip(reply[10::2], reply[11::2]))

    def test_a_page_is_fetched_again_after_the_window(self):
        bloom = self.filter(BLOOM_WINDOW=str(30 * DAY))
        bloom.open()
        self.assertEqual(
            tuple(self.info()[name] for name in (b"Window", b"Slices", b"Sliding")),
            (30 * DAY, 8, 0),
        )
        page = scrapy.Request("http://a/")
        self.assertFalse(bloom.request_seen(page))
        self.wait_days(29.9)
        self.assertTrue(bloom.request_seen(page))
        self.wait_days(30 / 8 + 0.2)
        self.assertFalse(bloom.request_seen(page))

    def test_all_settings(self):
        self.filter(BLOOM_WINDOW=HOUR, BLOOM_SLICES=12, BLOOM_SLIDING=True).open()
        info = self.info()
        self.assertEqual((info[b"Window"], info[b"Slices"], info[b"Sliding"]), (HOUR, 12, 1))

    def test_settings_that_are_wrong(self):
        for settings in ({"BLOOM_SLIDING": True}, {"BLOOM_SLICES": 3}, {"BLOOM_WINDOW": "month"}):
            with self.assertRaises(NotConfigured):
                self.filter(**settings)


class Bfstat(WindowTest):
    def json(self):
        out, err = self.run_tool("bfstat", "--json")
        return {one["key"]: one for one in json.loads(out)["filters"]}

    def test_window_and_age(self):
        self.reserve("SLIDING")
        self.redis.execute_command("BF.ADD", "plain", "x")
        for day in range(8):
            self.add(*("%d %d" % (day, i) for i in range(10)))
            self.wait_days(1)
        self.wait_days(-0.5)
        one = self.json()["seen"]
        self.assertEqual(
            (one["window"], one["slices"], one["sliding"], one["age"]),
            (4 * DAY, 4, True, 4.5 * DAY),
        )
        # The slices of days 3 to 7 count; the others are gone.
        self.assertEqual([layer["number"] for layer in one["layers"]], [3, 4, 5, 6, 7])
        self.assertEqual(
            [layer["age"] for layer in one["layers"]], [(4.5 - i) * DAY for i in range(5)]
        )
        self.assertEqual(
            (one["items"], [layer["items"] for layer in one["layers"]]), (50, [10] * 5)
        )
        self.assertEqual([layer["existing"] for layer in one["layers"]], [1] * 5)
        self.assertEqual(self.json()["plain"]["window"], None)

    def test_slices_that_are_over_but_not_dropped(self):
        self.reserve()
        for day in range(5):
            self.add("day %d" % day)
            self.wait_days(1)
        self.wait_days(1.5)  # nobody writes
        one = self.json()["seen"]
        self.assertEqual((one["items"], one["age"]), (3, 4.5 * DAY))
        self.assertEqual([layer["number"] for layer in one["layers"]], [2, 3, 4])
        self.wait_days(100)
        one = self.json()["seen"]
        self.assertEqual((one["items"], one["age"], one["layers"], one["error"]), (0, 0, [], 0))

    def test_the_columns(self):
        self.redis.execute_command("BF.ADD", "plain", "x")
        self.assertNotIn("WINDOW", self.run_tool("bfstat", "--once")[0])
        self.reserve()
        self.wait_days(1.25)
        head, titles, *rows = self.run_tool("bfstat", "--once")[0].splitlines()
        self.assertTrue(titles.endswith("WINDOW    AGE LOST"), titles)
        row = {line.split()[0]: line for line in rows}
        self.assertTrue(row["seen"].endswith("    4d  1.25d    0"), row)
        self.assertTrue(row["plain"].endswith("     -      -    0"), row)
        self.assertIn("began 1.25d ago", "\n".join(rows))

    def test_prometheus(self):
        self.reserve()
        self.redis.execute_command("BF.ADD", "plain", "x")
        self.wait_days(0.5)
        lines = self.run_tool("bfstat", "--prometheus")[0].splitlines()
        self.assertIn('shardbloom_filter_window_seconds{db="0",filter="seen"} 345600', lines)
        self.assertIn(
            'shardbloom_filter_oldest_slice_age_seconds{db="0",filter="seen"} 43200', lines
        )
        self.assertFalse([line for line in lines if "window" in line and "plain" in line])

    def test_a_user_who_may_not_see_descriptors(self):
        self.reserve()
        for day in range(7):
            self.add("day %d" % day)
            self.wait_days(1)
        self.redis.execute_command(
            *"ACL SETUSER watcher on >secret ~* +info +scan +bf.info +bf.shards".split()
        )
        out, _ = self.run_tool("bfstat", "--json", "--user", "watcher", "-a", "secret")
        one = json.loads(out)["filters"][0]
        self.assertEqual((one["window"], one["items"]), (4 * DAY, 4))


class Bfcopy(WindowTest):
    def setUp(self):
        super().setUp()
        self.target = self.start()
        self.reserve()
        for day in range(5):
            self.add(*("%d %d" % (day, i) for i in range(100)))
            self.wait_days(1)
        self.wait_days(-0.5)
        self.target.set_clock(self.server.clock_ms)

    def copy(self, *arguments, port=None, code=0):
        words = ("-p", str(port or self.server.port), "--to")
        words += ("redis://127.0.0.1:%d" % self.target.port, "seen", *arguments)
        status, out, err = tool.run("bfcopy", *words)
        self.assertEqual(status, code, out + err)
        return out, err

    def test_the_copy_is_as_old_as_the_filter(self):
        self.copy()
        every = ["%d %d" % (day, i) for day in range(5) for i in range(100)]
        self.assertEqual(self.has(*every, client=self.target.redis), [1] * 500)
        self.target.set_clock(self.target.clock_ms + DAY * 1000)
        self.assertEqual(self.has(*every, client=self.target.redis), [0] * 100 + [1] * 400)
        info = self.target.redis.execute_command("BF.INFO", "seen")
        self.assertEqual(info[11::2][:3], [4 * DAY, 4, 0])

    def test_a_filter_whose_slices_are_over(self):
        self.wait_days(2)
        out, _ = self.copy()  # the target's clock is two days behind
        self.assertIn("verified", out)
        self.target.set_clock(self.server.clock_ms)
        self.assertEqual(self.has("1 1", "2 1", client=self.target.redis), [0, 1])

    def turned(self, *arguments, code):
        """A copy in the course of which the filter begins a new slice, and drops the oldest."""

        def turn():
            self.wait_days(1)
            self.add("turn")

        proxy = Proxy(self.server.port, b"BF.SCANDUMP", 3, turn)
        self.addCleanup(proxy.close)
        return self.copy(*arguments, port=proxy.port, code=code)

    def test_a_turn_on_the_way(self):
        out, err = self.turned(code=0)
        self.assertIn("attempt 1 of 3", err)
        self.assertIn("verified", out)
        self.assertEqual(self.has("turn", "0 1", "1 1", client=self.target.redis), [1, 0, 1])

    def test_attempts_are_bounded(self):
        out, err = self.turned("--attempts", "1", code=2)
        self.assertIn("not copied", err)
        self.wait_for_keys("*", [], self.target.redis)


class Bfimport(WindowTest):
    def setUp(self):
        super().setUp()
        self.redis.sadd("set", *range(500))
        os.chdir(self.server.dir)
        self.addCleanup(os.chdir, server.ROOT)

    def test_a_window(self):
        words = ("--error", "1e-12", "--verify", "--window", str(4 * DAY), "--slices", "4")
        out, _ = self.run_tool("bfimport", "set", "seen", *words, "--sliding")
        self.assertIn("500 added", out)
        self.assertEqual(self.redis.execute_command("BF.INFO", "seen")[11::2][:3], [4 * DAY, 4, 1])
        self.wait_days(5.1)
        self.assertEqual(sum(self.has(*range(500))), 0)
        out, _ = self.run_tool("bfimport", "set", "seen", *words)
        self.assertIn("500 added", out)

    def test_calls_that_are_wrong(self):
        for words in (("--slices", "4"), ("--sliding",), ("--window", "0"), ("--window", "x")):
            self.run_tool("bfimport", "set", "seen", *words, code=2)
        self.assertFalse(self.redis.exists("seen"))


class Bforphans(WindowTest):
    def setUp(self):
        super().setUp()
        self.reserve()
        self.id = self.descriptor().id
        self.strings = {}
        for day in range(8):
            self.add("day %d" % day)
            self.strings[day] = self.redis.get(self.shard(day))
            self.wait_days(1)
        self.wait_days(-0.5)
        self.wait_for_keys("bf:*", self.kept())

    def shard(self, layer, name="seen"):
        return b"bf:{%s}:%016x:%d:0" % (name.encode(), self.id, layer)

    def kept(self):
        return [self.shard(layer) for layer in range(3, 8)]

    def hunt(self, *arguments, code):
        return self.run_tool("bforphans", "--quiet", "--wait", "0", *arguments, code=code)[0]

    def bring_back(self, layer, client=None):
        """As a slot migration does that carries a dropped slice's string along."""
        (client or self.redis).set(self.shard(layer), self.strings[layer])

    def test_strings_of_dropped_slices(self):
        self.assertIn("5 shards seen, 0 orphans", self.hunt(code=0))
        self.bring_back(1)
        self.bring_back(2)
        self.assertIn("7 shards seen, 2 orphans", self.hunt(code=1))
        out = self.hunt("--remove", code=0)
        self.assertIn("2 orphans", out)
        self.assertIn("2 removed", out)
        self.assertEqual(sorted(self.redis.keys("bf:*")), sorted(self.kept()))
        self.assertEqual(self.has("day 3", "day 7"), [1, 1])

    def test_slices_that_count_are_not_touched(self):
        self.wait_days(100)  # all are over, but the filter has not dropped them
        self.assertIn("5 shards seen, 0 orphans", self.hunt("--remove", code=0))

    def test_a_filter_under_another_name(self):
        self.redis.rename("seen", "other")
        self.bring_back(0)
        self.assertIn("1 removed", self.hunt("--remove", code=0))
        self.assertEqual(self.has("day 3", name="other"), [1])

    def test_the_same_name_in_another_database(self):
        """There is no filter with this id there; what it has dropped here says nothing."""
        self.bring_back(1, self.server.client(db=3))
        self.hunt("--remove", "-n", "3", code=0)
        self.assertEqual(self.server.client(db=3).dbsize(), 1)

    def test_a_user_who_may_not_see_descriptors(self):
        self.bring_back(1)
        self.redis.execute_command(
            *"ACL SETUSER cleaner on >secret ~* +@all -bf.descriptor".split()
        )
        out = self.hunt("--user", "cleaner", "-a", "secret", code=0)
        self.assertIn("0 orphans", out)
        self.assertIn("note: 1 filters could not be checked for dropped slices", out)


class BforphansInCluster(unittest.TestCase):
    def test_a_slot_on_the_move_is_left_alone(self):
        cluster = Cluster(clock_ms=NOW)
        self.addCleanup(cluster.stop)
        node = cluster.of("seen")
        words = ("WINDOW", 4 * DAY, "SLICES", 4, "SEED", 0)
        node.redis.execute_command("BF.RESERVE", "seen", "1e-9", 1000, *words)
        node.redis.execute_command("BF.ADD", "seen", "old")
        shard = node.redis.execute_command("BF.SHARDS", "seen")[0][1]
        string = node.redis.get(shard)
        node.set_clock(NOW + 10 * DAY * 1000)
        node.redis.execute_command("BF.ADD", "seen", "new")
        end = time.monotonic() + server.WAIT
        while node.redis.exists(shard):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        node.redis.set(shard, string)
        source, target = cluster.begin_migration("seen")
        hunt = ("bforphans", "-p", str(node.port), "--quiet", "--wait", "0", "--remove")
        code, out, err = tool.run(*hunt)
        self.assertEqual((code, source.redis.exists(shard)), (2, 1), out + err)
        self.assertIn("1 shards were skipped because their slots are moving", out)
        for one in (source, target):
            one.redis.execute_command("CLUSTER", "SETSLOT", slot_of("seen"), "STABLE")
        code, out, err = tool.run(*hunt)
        self.assertEqual((code, source.redis.exists(shard)), (0, 0), out + err)
        self.assertEqual(source.redis.execute_command("BF.MEXISTS", "seen", "old", "new"), [0, 1])


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
