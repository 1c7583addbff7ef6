#!/usr/bin/python3
"""docs/recipes.md: runs the code of the page, and compares its table with BF.PLAN."""

import os
import re
import sys
import threading
import unittest

import redis

import server
import tool  # noqa: F401  (the path to the package)
from faults import Faults
from result import run_tests

with open(os.path.join(server.ROOT, "docs", "recipes.md"), encoding="utf-8") as page:
    PAGE = page.read()


def recipe(name):
    code = re.search(r"<!-- recipe: %s -->\n```python\n(.*?)```" % name, PAGE, re.S).group(1)
    names = {"redis": redis}
    exec(compile(code, "recipes.md:" + name, "exec"), names)
    return names


class Recipes(unittest.TestCase):
    def setUp(self):
        self.server = server.Server(clock_ms=20_000 * 86_400_000)  # for recipes with a window
        self.addCleanup(self.server.stop)
        self.r = self.server.redis

    def test_every_recipe_of_the_page_is_here(self):
        names = {"frontier", "partitioned", "again", "active", "visitors", "blacklist", "guard"}
        self.assertEqual(set(re.findall(r"<!-- recipe: (\w+) -->", PAGE)), names)
        self.assertEqual(PAGE.count("```python"), 7)

    def test_frontier(self):
        """Workers crawl a made-up site of 2000 pages; one dies with URLs in its hands."""
        page = recipe("frontier")
        npages, fetched, lock = 2000, [], threading.Lock()

        def links(n):
            return [
                "/%d" % (t % npages) for t in (3 * n + 1, 3 * n + 2, 3 * n + 3, n * 7, n * n, 0, n)
            ]

        with self.assertLogs(level="WARNING"):
            self.assertEqual(page["offer"](self.r, ["/0", "/0"], 100000, "1e-9"), 1)
        self.assertEqual(page["offer"](self.r, []), 0)
        self.assertEqual(page["take"](self.r, "dead"), b"/0")
        page["give_back"](self.r, "dead")

        def work(name):
            client = self.server.client()
            while True:
                url = page["take"](client, name)
                if url is None:
                    return
                with lock:
                    fetched.append(url)
                page["offer"](client, links(int(url[1:])), 100000, "1e-9")
                page["done"](client, name, url)

        workers = [threading.Thread(target=work, args=("w%d" % n,)) for n in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.assertEqual(sorted(fetched), sorted(b"/%d" % n for n in range(npages)))
        self.assertEqual(self.r.keys("*busy*") + self.r.keys("*frontier*"), [])

    def test_frontier_whose_filter_vanishes(self):
        page = recipe("frontier")
        with self.assertLogs(level="WARNING"):
            self.assertEqual(page["offer"](self.r, ["/0"], 54321), 1)
        self.r.delete("{crawl}seen")
        with self.assertLogs(level="WARNING"):
            self.assertEqual(page["offer"](self.r, ["/0", "/1"], 54321), 2)
        self.assertEqual(page["offer"](self.r, ["/0", "/1"], 54321), 0)
        self.assertEqual(self.r.execute_command("BF.INFO", "{crawl}seen", "CAPACITY"), [54321])

    def test_frontier_with_a_filter_that_refuses(self):
        """A full NONSCALING one: what it can't mark goes to the frontier, rather than nowhere."""
        page = recipe("frontier")
        self.r.execute_command("BF.RESERVE", "{crawl}seen", 0.001, 1, "NONSCALING", "SEED", 1)
        self.assertEqual(page["offer"](self.r, ["/0", "/1", "/0"]), 2)
        self.assertEqual(self.r.lrange("{crawl}frontier", 0, -1), [b"/0", b"/1"])

    def test_partitioned(self):
        """What is in doubt is fetched; what another worker has is not."""
        page = recipe("partitioned")
        seen = page["open_seen"](self.r, 10**7)  # of so large ones, shards are exact at first
        urls = ["/%d" % n for n in range(1000)]
        self.assertEqual(page["new_urls"](seen, urls[:500]), urls[:500])
        self.assertEqual(page["new_urls"](page["open_seen"](self.r, 10**7), urls), urls[500:])
        faults = Faults(self.server.port)
        self.addCleanup(faults.close)
        seen = page["open_seen"](redis.Redis(port=faults.port, **server.RESP2), 10**7)
        self.assertEqual(page["new_urls"](seen, urls), [])
        more = ["/more/%d" % n for n in range(1000)]
        for fetched in (1000, None):  # all are new; then, of those that are known, the doubtful
            faults.cut(30)
            with self.assertLogs(level="WARNING") as logged:
                found = page["new_urls"](seen, more)
            self.assertIn("URLs in doubt", logged.output[-1])
            if fetched:
                self.assertEqual(found, more)
            else:
                self.assertTrue(0 < len(found) < 1000)

    def wait_seconds(self, seconds):
        self.server.set_clock(self.server.clock_ms + round(1000 * seconds))

    def test_again(self):
        due, day = recipe("again")["due"], 86400
        self.assertEqual(due(self.r, ["/a", "/b", "/a"], 1000, "1e-9"), ["/a", "/b"])
        self.wait_seconds(15 * day)
        self.assertEqual(due(self.r, ["/a", "/c"], 1000, "1e-9"), ["/c"])
        self.wait_seconds(14.9 * day)
        self.assertEqual(due(self.r, ["/a", "/b", "/c"], 1000, "1e-9"), [])
        self.wait_seconds(3.9 * day)
        self.assertEqual(due(self.r, ["/a", "/b", "/c"], 1000, "1e-9"), ["/a", "/b"])

    def test_active(self):
        page = recipe("active")
        self.assertTrue(page["visit_now"](self.r, "ann"))
        self.assertTrue(page["visit_now"](self.r, "bob"))
        self.wait_seconds(3500)
        self.assertFalse(page["visit_now"](self.r, "ann"))
        self.assertEqual(page["nactive"](self.r), 2)
        self.wait_seconds(450)  # 65 minutes and more since bob was here
        self.assertEqual([page["is_active"](self.r, one) for one in ("ann", "bob")], [True, False])
        self.assertEqual(page["nactive"](self.r), 1)
        self.assertTrue(page["visit_now"](self.r, "bob"))

    def test_visitors(self):
        page = recipe("visitors")
        for visitor in ["ann", "bob", "ann", "eve", "bob"]:
            page["visit"](self.r, "2024-05-01", visitor)
        self.assertFalse(page["visit"](self.r, "2024-05-01", "eve"))
        self.assertTrue(page["visit"](self.r, "2024-05-02", "eve"))
        self.assertEqual(page["visitors"](self.r, "2024-05-01"), 3)
        self.assertEqual(page["visitors"](self.r, "2024-05-02"), 1)
        self.assertEqual(page["visitors"](self.r, "2024-05-03"), 0)
        self.assertTrue(0 < self.r.ttl("visitors:2024-05-01") <= 40 * 86400)
        self.r.expire("visitors:2024-05-01", 100)
        page["visit"](self.r, "2024-05-01", "zoe")
        # Later visits do not prolong it.
        self.assertLessEqual(self.r.ttl("visitors:2024-05-01"), 100)

    def test_visitors_are_counted_within_the_error(self):
        page = recipe("visitors")
        n = 20000
        pipeline = self.r.pipeline(transaction=False)
        page["visit"](self.r, "day", "0")
        for visitor in range(n):
            pipeline.execute_command("BF.INSERT", "visitors:day", "ITEMS", visitor)
        pipeline.execute()
        self.assertTrue(0.998 * n <= page["visitors"](self.r, "day") <= n)

    def test_blacklist(self):
        page = recipe("blacklist")
        bad = ["bad%d.example" % n for n in range(3000)]
        good = ["good%d.example" % n for n in range(60000)]
        page["load_blacklist"](self.r, bad, good)
        # The seed is random. Some 28 mistakes are to be expected (measured), at most 60 by the
        # promise of 0.001: none has a probability of exp(-28) < 1e-12, 200 have one below
        # exp(-60) * (60 * e / 200)^200 < 1e-43.
        self.assertGreater(self.r.scard("whitelist"), 0)
        self.assertLess(self.r.scard("whitelist"), 200)
        self.assertTrue(all(page["blocked"](self.r, host) for host in bad[:200]))
        mistaken = [host.decode() for host in self.r.smembers("whitelist")]
        self.assertFalse(any(page["blocked"](self.r, host) for host in good[:200] + mistaken))
        page["load_blacklist"](self.r, [], [])
        self.assertFalse(page["blocked"](self.r, bad[0]))

    def test_guard(self):
        page = recipe("guard")

        class Database(dict):
            searches = 0

            def get(self, key):
                self.searches += 1
                return super().get(key)

        database = Database()
        page["build"](self.r, database)
        for n in range(100):
            page["store"](self.r, database, "key%d" % n, n)
        self.assertEqual(
            [page["look_up"](self.r, database, "key%d" % n) for n in range(100)], list(range(100))
        )
        database.searches = 0
        self.assertEqual(
            [page["look_up"](self.r, database, "absent%d" % n) for n in range(1000)], [None] * 1000
        )
        # The seed is random, the promise 0.01: 10 on average, 50 with a probability below
        # exp(-10) * (10 * e / 50)^50 < 1e-17.
        self.assertLess(database.searches, 50)
        # Lost: nothing is denied, and storing does not make one that knows too little.
        self.r.delete("{keys}")
        page["store"](self.r, database, "key100", 100)
        self.assertEqual(
            [page["look_up"](self.r, database, "key%d" % n) for n in range(101)], list(range(101))
        )
        page["build"](self.r, database)
        database.searches = 0
        self.assertEqual(
            [page["look_up"](self.r, database, "absent%d" % n) for n in range(1000)], [None] * 1000
        )
        self.assertLess(database.searches, 50)
        self.assertEqual(
            [page["look_up"](self.r, database, "key%d" % n) for n in range(101)], list(range(101))
        )
        self.server.kill()
        self.assertEqual(page["look_up"](self.r, database, "key7"), 7)

    def test_guard_while_it_is_built(self):
        """A key that is stored at any moment of build() is not denied afterwards."""
        page = recipe("guard")
        database = {"key%d" % n: n for n in range(3000)}

        class Meanwhile:
            """The client of build(); before each of its commands somebody else stores a key."""

            def __init__(self, r):
                self.r, self.nstored = r, 0

            def __getattr__(self, name):
                page["store"](self.r, database, "new%d" % self.nstored, self.nstored)
                self.nstored += 1
                return getattr(self.r, name)

        meanwhile = Meanwhile(self.r)
        page["build"](meanwhile, database)
        self.assertGreaterEqual(meanwhile.nstored, 6)
        self.assertTrue(all(self.r.execute_command("BF.MEXISTS", "{keys}", *database)))

    def test_sizes(self):
        rows = re.findall(
            r"^\| 10\^(\d+) \| (\S+) \| (\S+) \| (\d+) \| (\S+) \| (\S+) (\wB) \| (\S+) (\wB) \|$",
            PAGE,
            re.M,
        )
        self.assertEqual(len(rows), 20)
        units = {"MB": 1e6, "GB": 1e9, "TB": 1e12}
        for power, error, nbits, nprobes, per_url, memory, unit, as_set, set_unit in rows:
            reply = self.r.execute_command("BF.PLAN", error, 10 ** int(power))
            plan = dict(zip(reply[::2], reply[1::2]))
            nbytes = plan[b"Total bytes when full"]
            self.assertAlmostEqual(float(nbits) / (8 * nbytes), 1, delta=0.01)
            self.assertEqual(int(nprobes), plan[b"Hashes per item"])
            self.assertAlmostEqual(float(per_url), float(plan[b"Bits per item"]), delta=0.06)
            self.assertAlmostEqual(float(memory) * units[unit] / nbytes, 1, delta=0.01)
            self.assertAlmostEqual(float(as_set) * units[set_unit] / 10 ** int(power), 96, delta=1)

    def test_a_set_takes_as_much_as_the_page_says(self):
        """On the server that the page names; others store sets in their own ways."""
        if not self.r.info("server")["redis_version"].startswith("7.0."):
            self.skipTest("another server")
        n = 100000
        for at in range(0, n, 1000):
            url = "https://www.example%03d.com/section/%02d/article-%08d.html"
            numbers = range(at, at + 1000)
            self.r.sadd("set", *(url % (i % 500, i % 97, i) for i in numbers))
        nbytes = self.r.memory_usage("set", samples=0) / n
        self.assertTrue(86 <= nbytes <= 106, nbytes)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
