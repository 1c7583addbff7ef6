#!/usr/bin/python3
"""examples/scrapy: the duplicate filter alone, and in real Scrapy processes that crawl a real site together."""

import json
import logging
import os
import subprocess
import sys
import threading
import time
import unittest

import redis
import scrapy
from redis.exceptions import TryAgainError
from scrapy.exceptions import NotConfigured
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter

import server
from result import run_tests

sys.path.insert(0, os.path.join(server.ROOT, "examples", "scrapy"))

from bloom_dupefilter import BloomDupeFilter  # noqa: E402


class Engine:
    def __init__(self):
        self.closed = []

    def close_spider(self, spider, reason):
        self.closed.append(reason)


class Crawler:
    """As much of Scrapy's as a duplicate filter sees."""

    def __init__(self, port, **settings):
        self.settings = Settings({"BLOOM_URL": "redis://127.0.0.1:%d/0" % port, "BLOOM_RETRIES": 2,
                                  "REQUEST_FINGERPRINTER_IMPLEMENTATION": "2.7", **settings})
        self.stats = MemoryStatsCollector(type("C", (), {"settings": self.settings})())
        self.request_fingerprinter = RequestFingerprinter(self)
        self.spider = scrapy.Spider("news")
        self.engine = Engine()


class DupeFilter(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.server = server.Server()
        self.addCleanup(self.server.stop)

    def filter(self, **settings):
        crawler = Crawler(self.server.port, **settings)
        bloom = BloomDupeFilter.from_crawler(crawler)
        self.addCleanup(bloom.close, "test")
        return bloom, crawler

    def count(self, crawler, name):
        return crawler.stats.get_value("bloom/" + name, 0)

    def test_new_then_seen(self):
        bloom, crawler = self.filter()
        bloom.open()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/?x=1&y=2")))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/?y=2&x=1#part")))
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/?x=1&y=2", method="POST")))
        self.assertEqual([self.count(crawler, n) for n in ("new", "seen", "errors")], [2, 1, 0])

    def test_one_round_trip_per_request(self):
        bloom, _ = self.filter()
        bloom.open()
        calls = self.server.redis.info("commandstats")
        for n in range(10):
            bloom.request_seen(scrapy.Request("http://a/%d" % (n % 4)))
        after = self.server.redis.info("commandstats")
        changed = {name: stats["calls"] - calls.get(name, {"calls": 0})["calls"] for name, stats in after.items()
                   if stats["calls"] != calls.get(name, {"calls": 0})["calls"]}
        changed.pop("cmdstat_info", None)
        self.assertEqual(changed, {"cmdstat_bf.add": 10})

    def test_created_once_with_the_settings(self):
        first, _ = self.filter(BLOOM_CAPACITY=5000, BLOOM_ERROR_RATE=0.001)
        second, _ = self.filter(BLOOM_CAPACITY=77)
        first.open()
        second.open()
        first.open()
        self.assertEqual(self.server.redis.execute_command("BF.INFO", "news:seen", "CAPACITY"), [5000])
        self.assertFalse(first.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(second.request_seen(scrapy.Request("http://a/")))

    def test_key_templates(self):
        for template, key in (("crawl:%(spider)s:df", b"crawl:news:df"), ("all", b"all")):
            bloom, _ = self.filter(BLOOM_KEY=template)
            bloom.open()
            self.assertIn(key, self.server.redis.keys("*"))

    def test_url_of_scrapy_redis_is_taken(self):
        bloom, _ = self.filter(BLOOM_URL=None, REDIS_URL="redis://127.0.0.1:%d/3" % self.server.port)
        bloom.open()
        self.assertEqual(self.server.client(db=3).keys("*"), [b"news:seen"])

    def test_batches(self):
        bloom, crawler = self.filter()
        bloom.open()
        bloom.request_seen(scrapy.Request("http://a/1"))
        urls = ["http://a/%d" % n for n in (1, 2, 2, 3, 1)] + ["http://b/%d" % n for n in range(1200)]
        always = scrapy.Request("http://a/1", dont_filter=True)
        found = list(bloom.unseen([always] + [scrapy.Request(url) for url in urls]))
        self.assertEqual(sorted(r.url for r in found), sorted(["http://a/1", "http://a/2", "http://a/3"] + urls[5:]))
        self.assertTrue(all(r.dont_filter for r in found))
        self.assertEqual(list(bloom.unseen(scrapy.Request(url) for url in urls)), [])
        self.assertEqual(self.count(crawler, "new"), 1203)

    def test_a_restart_is_survived(self):
        self.server.keep_aof()
        bloom, crawler = self.filter(BLOOM_RETRIES=8)
        bloom.open()
        for n in range(100):
            bloom.request_seen(scrapy.Request("http://a/%d" % n))
        self.server.kill()
        answers = []
        asker = threading.Thread(target=lambda: answers.append(bloom.request_seen(scrapy.Request("http://a/new"))))
        asker.start()
        end = time.monotonic() + server.WAIT
        while self.count(crawler, "errors") == 0 and time.monotonic() < end:
            time.sleep(0.01)
        self.server.start()
        asker.join()
        self.assertEqual(answers, [False])
        self.assertTrue(all(bloom.request_seen(scrapy.Request("http://a/%d" % n)) for n in range(100)))
        self.assertGreater(self.count(crawler, "errors"), 0)
        self.assertEqual(crawler.engine.closed, [])

    def test_a_doubtful_answer_is_crawled(self):
        """The connection breaks behind a BF.ADD that was carried out: the repeated one says seen."""
        bloom, crawler = self.filter()
        bloom.open()
        execute, broken = bloom.client.execute_command, []

        def execute_and_break(*command):
            answer = execute(*command)
            if not broken:
                broken.append(True)
                raise redis.ConnectionError("broken")
            return answer

        bloom.client.execute_command = execute_and_break
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
        broken.clear()
        urls = ["http://b/1", "http://b/2", "http://b/1"]
        found = [r.url for r in bloom.unseen(scrapy.Request(url) for url in urls)]
        self.assertEqual(found, urls[:2])
        self.assertEqual(self.count(crawler, "doubtful"), 3)

    def test_try_again_is_tried_again(self):
        bloom, crawler = self.filter()
        bloom.open()
        execute, replies = bloom.client.execute_command, [TryAgainError("TRYAGAIN"), redis.BusyLoadingError("LOADING")]

        def execute_later(*command):
            if replies:
                raise replies.pop()
            return execute(*command)

        bloom.request_seen(scrapy.Request("http://a/"))
        bloom.client.execute_command = execute_later
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))  # not doubtful: nothing had been done
        self.assertEqual((self.count(crawler, "errors"), self.count(crawler, "doubtful")), (2, 0))

    def test_lost_server_closes_the_spider(self):
        bloom, crawler = self.filter()
        bloom.open()
        self.server.kill()
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://b/")))
        self.assertEqual(list(bloom.unseen([scrapy.Request("http://c/")])), [])
        self.assertEqual(crawler.engine.closed, ["bloom_lost"])
        self.assertGreaterEqual(self.count(crawler, "errors"), 3)

    def test_lost_server_may_be_tolerated(self):
        bloom, crawler = self.filter(BLOOM_ON_LOST="crawl")
        bloom.open()
        bloom.request_seen(scrapy.Request("http://a/"))
        self.server.kill()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertEqual(len(list(bloom.unseen([scrapy.Request("http://a/")]))), 1)
        self.assertEqual(crawler.engine.closed, [])
        self.server.start()
        bloom.open()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://c/")))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://c/")))

    def test_lost_before_the_start(self):
        self.server.kill()
        bloom, _ = self.filter(BLOOM_RETRIES=1)
        with self.assertRaises(redis.ConnectionError):
            bloom.open()
        bloom, _ = self.filter(BLOOM_RETRIES=1, BLOOM_ON_LOST="crawl")
        bloom.open()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))

    def test_errors_of_the_server_close_the_spider(self):
        bloom, crawler = self.filter(BLOOM_KEY="full")
        self.server.redis.execute_command("BF.RESERVE", "full", 0.01, 1, "NONSCALING")
        bloom.open()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://b/")))
        self.assertEqual(crawler.engine.closed, ["bloom_lost"])
        self.assertEqual(self.count(crawler, "errors"), 1)

    def test_settings_that_are_wrong(self):
        with self.assertRaises(NotConfigured):
            self.filter(BLOOM_ON_LOST="whatever")
        self.server.redis.set("news:seen", "x")
        bloom, _ = self.filter()
        with self.assertRaises(redis.ResponseError):
            bloom.open()

    def test_an_adopted_bitmap_serves(self):
        bloom, _ = self.filter(BLOOM_KEY="adopted")
        self.server.redis.execute_command("BF.ADOPT", "adopted", "PREFIX", "news:bloomfilter", "BITS", 20, "SEEDS", 6,
                                          0, 1, 2, 3, 4, 5, "DIGEST", "NONE")
        bloom.open()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(self.server.redis.exists("news:bloomfilter"))


class Together(unittest.TestCase):
    def test_workers_fetch_every_page_once(self):
        demo = subprocess.run([os.path.join(server.ROOT, "examples", "demo", "demo.py"), "--json", "--pages", "400",
                               "--workers", "3", "--timeout", "300"], stdout=subprocess.PIPE, timeout=400, text=True)
        self.assertEqual(demo.returncode, 0, demo.stdout)
        summary = json.loads(demo.stdout)
        self.assertEqual((summary["fetched"], summary["fetches"], summary["twice"], summary["missing"]),
                         (400, 400, [], []))
        self.assertEqual(len(summary["workers"]), 3)
        self.assertEqual(sum(worker["fetched"] for worker in summary["workers"]), 400)
        self.assertEqual(sum(worker["new"] for worker in summary["workers"]), 400)
        self.assertGreater(sum(worker["seen"] for worker in summary["workers"]), 400)
        self.assertEqual({worker["reason"] for worker in summary["workers"]}, {"finished"})
        self.assertGreater(sum(worker["fetched"] > 0 for worker in summary["workers"]), 1)
        self.assertLess(summary["filter_bytes"], summary["redis_set_bytes"])


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
