#!/usr/bin/python3
"""shardbloom.scrapy: the duplicate filter alone, and in Scrapy processes that crawl one site."""

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import redis
import scrapy
from redis.exceptions import TryAgainError
from scrapy.exceptions import CloseSpider, NotConfigured
from scrapy.settings import Settings
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter

import server
from faults import Faults
from result import run_tests

sys.path.insert(0, os.path.join(server.ROOT, "python"))

from shardbloom import PlanError  # noqa: E402
from shardbloom.plan import partition_of  # noqa: E402
from shardbloom.scrapy import BloomDupeFilter, unseen  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
CLASS = "shardbloom.scrapy.BloomDupeFilter"
# Or scrapy_redis.scheduler.Scheduler, where that is installed.
SCHEDULER = os.environ.get("SCRAPY_SCHEDULER") or "redis_scheduler.RedisScheduler"
OLDER = {"REQUEST_FINGERPRINTER_IMPLEMENTATION": "2.7"} if scrapy.version_info < (2, 12) else {}


class Engine:
    def __init__(self):
        self.closed = []

    def close_spider(self, spider, reason):
        self.closed.append(reason)


class Crawler:
    """As much of Scrapy's as a duplicate filter sees."""

    def __init__(self, **settings):
        self.settings = Settings({"BLOOM_RETRIES": 2, **OLDER, **settings})
        self.stats = MemoryStatsCollector(self)
        self.request_fingerprinter = RequestFingerprinter(self)
        self.spider = scrapy.Spider("news")
        self.spider.crawler = self
        self.engine = Engine()


class DupeFilterTest(unittest.TestCase):
    def setUp(self):
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.server = server.Server()
        self.addCleanup(self.server.stop)

    def url(self, db=0):
        return "redis://127.0.0.1:%d/%d" % (self.server.port, db)

    def filter(self, **settings):
        crawler = Crawler(**{"BLOOM_URL": self.url(), **settings})
        bloom = BloomDupeFilter.from_crawler(crawler)
        self.addCleanup(bloom.close, "test")
        return bloom, crawler

    def count(self, crawler, name):
        return crawler.stats.get_value("bloom/" + name, 0)

    def capacity(self, key="news:seen"):
        return self.server.redis.execute_command("BF.INFO", key, "CAPACITY")[0]


class DupeFilter(DupeFilterTest):
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
        changed = {
            name: stats["calls"] - calls.get(name, {"calls": 0})["calls"]
            for name, stats in after.items()
            if stats["calls"] != calls.get(name, {"calls": 0})["calls"]
        }
        changed.pop("cmdstat_info", None)
        self.assertEqual(changed, {"cmdstat_bf.insert": 10})

    def test_created_once_with_the_settings(self):
        first, _ = self.filter(BLOOM_CAPACITY=5000, BLOOM_ERROR_RATE=0.001)
        second, _ = self.filter(BLOOM_CAPACITY=77)
        first.open()
        second.open()
        first.open()
        self.assertEqual(
            self.server.redis.execute_command("BF.INFO", "news:seen", "CAPACITY"), [5000]
        )
        self.assertFalse(first.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(second.request_seen(scrapy.Request("http://a/")))

    def test_key_templates(self):
        for template, key in (("crawl:%(spider)s:df", b"crawl:news:df"), ("all", b"all")):
            bloom, _ = self.filter(BLOOM_KEY=template)
            bloom.open()
            self.assertIn(key, self.server.redis.keys("*"))

    def test_options(self):
        bloom, _ = self.filter(BLOOM_OPTIONS="EXPANSION 4")
        bloom.request_seen(scrapy.Request("http://a/"))
        self.assertEqual(
            self.server.redis.execute_command("BF.INFO", "news:seen", "EXPANSION"), [4]
        )

    def test_batches(self):
        bloom, crawler = self.filter()
        bloom.open()
        bloom.request_seen(scrapy.Request("http://a/1"))
        urls = ["http://a/%d" % n for n in (1, 2, 2, 3, 1)]
        urls += ["http://b/%d" % n for n in range(1200)]
        always = scrapy.Request("http://a/1", dont_filter=True)
        found = list(bloom.unseen([always] + [scrapy.Request(url) for url in urls]))
        self.assertEqual(
            sorted(r.url for r in found),
            sorted(["http://a/1", "http://a/2", "http://a/3"] + urls[5:]),
        )
        self.assertEqual(list(bloom.unseen(scrapy.Request(url) for url in urls)), [])
        self.assertEqual(self.count(crawler, "new"), 1203)

    def test_what_unseen_found_is_asked_for_once(self):
        """The scheduler lets it through; but not what was made of it: a redirection, or a link that
        took over its meta.
        """
        bloom, _ = self.filter()
        request, = bloom.unseen([scrapy.Request("http://a/", meta={"mine": 1})])
        self.assertFalse(request.dont_filter)
        self.assertFalse(bloom.request_seen(request))
        self.assertEqual(request.meta, {"mine": 1})
        self.assertTrue(bloom.request_seen(request))
        first, second = bloom.unseen([scrapy.Request("http://b/"), scrapy.Request("http://c/")])
        self.assertTrue(bloom.request_seen(first.replace(url="http://c/")))
        self.assertFalse(bloom.request_seen(second))
        self.assertFalse(bloom.request_seen(first.replace(url="http://d/")))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://d/")))

    def test_unseen_of_a_spider(self):
        """Whatever the engine looks like inside; and not in vain where the filter is not set."""
        _, crawler = self.filter()
        self.assertEqual(len(list(unseen(crawler.spider, [scrapy.Request("http://a/")]))), 1)
        self.assertEqual(len(list(unseen(crawler.spider, [scrapy.Request("http://a/")]))), 0)
        with self.assertRaises(CloseSpider):
            unseen(Crawler().spider, [scrapy.Request("http://a/")])

    # ---- a filter that vanishes ----

    def vanish(self, remove):
        bloom, crawler = self.filter(BLOOM_CAPACITY=54321, BLOOM_ERROR_RATE=1e-9)
        bloom.open()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertEqual((self.count(crawler, "created"), self.count(crawler, "vanished")), (1, 0))
        logging.disable(logging.NOTSET)
        with self.assertLogs("shardbloom", "WARNING") as log:
            remove()
            self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertIn("had vanished", "\n".join(log.output))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertEqual((self.count(crawler, "created"), self.count(crawler, "vanished")), (2, 1))
        self.assertEqual(self.capacity(), 54321)
        self.server.redis.delete("news:seen")
        self.assertEqual(
            len(list(bloom.unseen([scrapy.Request("http://a/"), scrapy.Request("http://b/")]))), 2
        )
        self.assertEqual((self.count(crawler, "vanished"), self.capacity()), (2, 54321))

    def test_deleted(self):
        self.vanish(lambda: self.server.redis.delete("news:seen"))

    def test_flushed(self):
        self.vanish(self.server.redis.flushall)

    def test_restarted_without_persistence(self):
        def restart():
            self.server.kill()
            self.server.start()

        self.vanish(restart)

    # ---- a server that goes away ----

    def test_a_restart_is_survived(self):
        self.server.keep_aof()
        bloom, crawler = self.filter(BLOOM_RETRIES=8)
        bloom.open()
        for n in range(100):
            bloom.request_seen(scrapy.Request("http://a/%d" % n))
        self.server.kill()
        answers = []
        asker = threading.Thread(
            target=lambda: answers.append(bloom.request_seen(scrapy.Request("http://a/new")))
        )
        asker.start()
        end = time.monotonic() + server.WAIT
        while self.count(crawler, "errors") == 0 and time.monotonic() < end:
            time.sleep(0.01)
        self.server.start()
        asker.join()
        self.assertEqual(answers, [False])
        self.assertTrue(
            all(bloom.request_seen(scrapy.Request("http://a/%d" % n)) for n in range(100))
        )
        self.assertGreater(self.count(crawler, "errors"), 0)
        self.assertEqual(crawler.engine.closed, [])

    def test_a_doubtful_answer_is_crawled(self):
        """The connection breaks after a command was carried out: the repeated one says seen."""
        faults = Faults(self.server.port)
        self.addCleanup(faults.close)
        direct = {"BLOOM_URL": "redis://127.0.0.1:%d" % faults.port}
        params = {"host": "127.0.0.1", "port": faults.port, "retry_on_timeout": True,
                  "retry_on_error": [redis.ConnectionError]}
        for number, settings in enumerate((direct, {"BLOOM_URL": None, "REDIS_PARAMS": params})):
            bloom, crawler = self.filter(BLOOM_KEY="key%d" % number, **settings)
            bloom.open()
            faults.cut()
            self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
            self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
            faults.cut()
            urls = ["http://b/1", "http://b/2", "http://b/1"]
            found = [r.url for r in bloom.unseen(scrapy.Request(url) for url in urls)]
            self.assertEqual(found, urls[:2])
            self.assertEqual(self.count(crawler, "doubtful"), 3)

    def test_not_yet_is_tried_again(self):
        faults = Faults(self.server.port)
        self.addCleanup(faults.close)
        bloom, crawler = self.filter(
            BLOOM_URL="redis://127.0.0.1:%d" % faults.port, BLOOM_RETRIES=4
        )
        bloom.request_seen(scrapy.Request("http://a/"))
        faults.answer("-LOADING data", "-READONLY replica", "-CLUSTERDOWN down", "-BUSY script")
        # Not doubtful: nothing had been done.
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertEqual((self.count(crawler, "errors"), self.count(crawler, "doubtful")), (4, 0))
        faults.answer(*["-LOADING data"] * 6)  # that is waited for as long as it takes
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertEqual(crawler.engine.closed, [])

    def test_try_again_is_tried_again(self):
        bloom, crawler = self.filter()
        bloom.open()
        client, replies = bloom.filter.client, [
            TryAgainError("TRYAGAIN"),
            TryAgainError("TRYAGAIN"),
        ]
        execute = client.execute_command

        def execute_later(*command):
            if replies:
                raise replies.pop()
            return execute(*command)

        bloom.request_seen(scrapy.Request("http://a/"))
        client.execute_command = execute_later
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertEqual((self.count(crawler, "errors"), self.count(crawler, "doubtful")), (2, 0))

    def test_lost_server_closes_the_spider(self):
        """What isn't known to be seen goes to the scheduler; it may keep it for the next start."""
        bloom, crawler = self.filter()
        bloom.open()
        self.server.kill()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertFalse(bloom.request_seen(scrapy.Request("http://b/")))
        self.assertEqual(
            [r.url for r in bloom.unseen([scrapy.Request("http://c/")] * 2)], ["http://c/"]
        )
        self.assertEqual(crawler.engine.closed, ["bloom_lost"])
        self.assertEqual((self.count(crawler, "errors"), self.count(crawler, "unasked")), (3, 3))

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
        self.server.redis.execute_command("BF.RESERVE", "full", 0.01, 1, "NONSCALING", "SEED", 1)
        bloom.open()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertFalse(bloom.request_seen(scrapy.Request("http://b/")))
        self.assertEqual(crawler.engine.closed, ["bloom_lost"])
        self.assertEqual((self.count(crawler, "errors"), self.count(crawler, "unasked")), (1, 1))

    def test_what_was_marked_before_an_error_is_not_lost(self):
        bloom, crawler = self.filter(BLOOM_KEY="full")
        self.server.redis.execute_command("BF.RESERVE", "full", 0.001, 2, "NONSCALING", "SEED", 1)
        found = list(bloom.unseen(scrapy.Request("http://a/%d" % n) for n in (1, 2, 3, 1)))
        self.assertEqual([r.url[-1] for r in found], ["1", "2", "3"])
        self.assertEqual((self.count(crawler, "new"), self.count(crawler, "seen")), (2, 1))
        self.assertEqual(crawler.engine.closed, ["bloom_lost"])

    def test_a_wrong_password_is_not_tried_again(self):
        self.server.redis.config_set("requirepass", "secret")
        for url in (self.url(), self.url().replace("//", "//:wrong@")):
            bloom, crawler = self.filter(BLOOM_URL=url)
            with self.assertRaises(redis.RedisError):
                bloom.open()
            self.assertEqual(self.count(crawler, "errors"), 1)
        bloom, _ = self.filter(BLOOM_URL=self.url().replace("//", "//default:secret@"))
        bloom.open()
        self.server.redis = self.server.client(password="secret")

    def test_settings_that_are_wrong(self):
        for settings in (
            {"BLOOM_ON_LOST": "whatever"},
            {"BLOOM_FINGERPRINT": "md5"},
            {"BLOOM_URL": "http://a/"},
        ):
            with self.assertRaises(NotConfigured):
                self.filter(**settings)
        self.server.redis.set("news:seen", "x")
        bloom, _ = self.filter()
        with self.assertRaises(redis.ResponseError):
            bloom.open()

    def test_an_adopted_bitmap_serves(self):
        bloom, _ = self.filter(BLOOM_KEY="adopted")
        self.server.redis.execute_command(
            "BF.ADOPT",
            "adopted",
            "PREFIX",
            "news:bloomfilter",
            "BITS",
            20,
            "SEEDS",
            6,
            0,
            1,
            2,
            3,
            4,
            5,
            "DIGEST",
            "NONE",
        )
        bloom.open()
        self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(self.server.redis.exists("news:bloomfilter"))


    def test_partitions(self):
        bloom, crawler = self.filter(
            BLOOM_PARTITIONS=8, BLOOM_CAPACITY=5000, BLOOM_OPTIONS="EXPANSION 4"
        )
        bloom.open()
        self.assertEqual(
            self.server.redis.get("news:seen"), b"partitioned-filter 1 8 1e-06 5000 EXPANSION 4"
        )
        requests = [scrapy.Request("http://a/%d" % n) for n in range(100)]
        self.assertFalse(bloom.request_seen(requests[0]))
        self.assertTrue(bloom.request_seen(requests[0]))
        self.assertEqual([r.url for r in bloom.unseen(requests)], [r.url for r in requests[1:]])
        self.assertEqual(self.count(crawler, "new"), 100)
        # Another wish ends the crawl before it begins, even where a lost server would be tolerated.
        for settings in ({"BLOOM_PARTITIONS": 9}, {"BLOOM_PARTITIONS": 8, "BLOOM_ERROR_RATE": 0.1}):
            other, _ = self.filter(BLOOM_CAPACITY=5000, BLOOM_ON_LOST="crawl", **settings)
            with self.assertRaises(PlanError):
                other.open()
        # An ordinary filter does not take it for its own, nor the other way round.
        plain, _ = self.filter()
        with self.assertRaises(redis.ResponseError):
            plain.open()
        bloom.clear()
        self.assertEqual(list(self.server.redis.scan_iter("news:*")), [])

    def test_of_partitions_only_what_has_no_answer_is_doubtful(self):
        faults = Faults(self.server.port)
        self.addCleanup(faults.close)
        bloom, crawler = self.filter(
            BLOOM_URL="redis://127.0.0.1:%d" % faults.port, BLOOM_PARTITIONS=4
        )
        bloom.open()
        requests = [scrapy.Request("http://a/%d" % n) for n in range(80)]
        of = [partition_of(bloom.fingerprint(r).encode(), 4) for r in requests]
        order = list(dict.fromkeys(of))
        known = [r for r, p in zip(requests, of) if p == order[0]]
        self.assertEqual(len(list(bloom.unseen(known))), len(known))
        faults.cut(3)  # the third is carried out and not answered, the fourth does not arrive
        found = {r.url for r in bloom.unseen(requests)}
        self.assertEqual(found, {r.url for r, p in zip(requests, of) if p != order[0]})
        self.assertEqual(self.count(crawler, "doubtful"), of.count(order[2]))
        self.assertEqual(self.count(crawler, "seen"), len(known))


class Fingerprints(DupeFilterTest):
    """Known fingerprints: what Scrapy 2.8 and 2.19, scrapy-redis 0.9 and 0.6 have computed for
    these requests.
    """

    REQUESTS = (
        scrapy.Request("http://a.example/p?b=2&a=1#part"),
        scrapy.Request("http://a.example/form", method="POST", body=b"\x00name=\xc3\xbc"),
        scrapy.Request("https://b.example/%7Euser/caf\u00e9"),
    )
    KNOWN = {
        "scrapy": [
            "6fff59a6c82eb7f35cc120f96f2e7746509e200a",
            "c046b09b8ad1c3c981903e0c5b6d5deef9827508",
            "46a56fea4f05c3719c9674ee3a9b20766c3a0ef7",
        ],
        "scrapy-redis": [
            "bb12467377c8a9613e451b816e3979611ca1c3a6",
            "a4b2e4ad48937bea1a4354a5325f17e88fa0ddb1",
            "8657a43fac34c68cde3a427635f4209994e2d9f7",
        ],
        "scrapy-2.6": [
            "446d3093b4e5baf982e558fda18b96986de1737a",
            "ef9d3a8ebf19fb413c64bb419bf264c748f1b745",
            "e1abc2697dbcb24161966e588ea58fc5babc8410",
        ],
    }

    def test_known_ones(self):
        for name, known in self.KNOWN.items():
            bloom, _ = self.filter(BLOOM_FINGERPRINT=name)
            self.assertEqual([bloom.fingerprint(request) for request in self.REQUESTS], known, name)

    def test_a_set_of_scrapy_redis_that_was_moved(self):
        """docs/migrating.md: bfimport, and the fingerprint as before. Nothing is crawled again."""
        self.server.redis.sadd("news:dupefilter", *self.KNOWN["scrapy-redis"][:2])
        bfimport = os.path.join(server.ROOT, "scripts", "bfimport")
        subprocess.run(
            [sys.executable, bfimport, "-u", self.url(), "news:dupefilter", "news:seen"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.server.dir,
            timeout=60,
        )
        bloom, _ = self.filter(BLOOM_FINGERPRINT="scrapy-redis")
        self.assertEqual(
            [bloom.request_seen(request) for request in self.REQUESTS], [True, True, False]
        )


class SchedulerOfScrapyRedis(DupeFilterTest):
    """The calls that scrapy-redis's scheduler makes, and its settings."""

    def spider_filter(self, **settings):
        crawler = Crawler(**settings)
        bloom = BloomDupeFilter.from_spider(crawler.spider)
        self.addCleanup(bloom.close)
        return bloom, crawler

    def test_its_settings(self):
        port = self.server.port
        for db, settings in enumerate(
            (
                {"REDIS_URL": self.url(0)},
                {"REDIS_HOST": "127.0.0.1", "REDIS_PORT": port, "REDIS_DB": 1},
                {
                    "REDIS_HOST": "127.0.0.1",
                    "REDIS_PORT": str(port),
                    "REDIS_PARAMS": {"db": 2, "socket_timeout": 30},
                },
                {
                    "REDIS_PARAMS": {
                        "host": "127.0.0.1",
                        "port": port,
                        "db": 3,
                        "redis_cls": "redis.StrictRedis",
                    }
                },
                {"REDIS_URL": self.url(4), "REDIS_HOST": "no.such.host.invalid"},
                {"BLOOM_URL": self.url(5), "REDIS_URL": "redis://no.such.host.invalid"},
            )
        ):
            bloom, _ = self.spider_filter(**settings)
            self.assertFalse(bloom.request_seen(scrapy.Request("http://a/")))
            self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
            self.assertEqual(self.server.client(db=db).execute_command("BF.CARD", "news:seen"), 1)

    def test_its_key(self):
        self.spider_filter(REDIS_URL=self.url(), SCHEDULER_DUPEFILTER_KEY="%(spider)s:mine")
        self.spider_filter(
            REDIS_URL=self.url(), SCHEDULER_DUPEFILTER_KEY="%(spider)s:mine", BLOOM_KEY="other"
        )
        self.assertEqual(set(self.server.redis.keys("*")), {b"news:mine", b"other"})

    def test_clear(self):
        bloom, crawler = self.spider_filter(REDIS_URL=self.url(), BLOOM_CAPACITY=54321)
        other, other_crawler = self.spider_filter(REDIS_URL=self.url(), BLOOM_CAPACITY=54321)
        for one in (bloom, other):
            one.request_seen(scrapy.Request("http://a/"))
        bloom.clear()
        self.assertEqual(self.server.redis.keys("news:seen"), [])
        self.assertFalse(other.request_seen(scrapy.Request("http://a/")))
        self.assertTrue(bloom.request_seen(scrapy.Request("http://a/")))
        self.assertEqual(self.capacity(), 54321)
        self.assertEqual(
            (self.count(crawler, "vanished"), self.count(other_crawler, "vanished")), (0, 1)
        )
        bloom.log(scrapy.Request("http://a/"), crawler.spider)
        self.assertEqual(crawler.stats.get_value("dupefilter/filtered"), 1)


class Crawls(unittest.TestCase):
    """Real Scrapy processes."""

    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)
        self.directory = tempfile.mkdtemp(prefix="shardbloom-crawl-")
        self.addCleanup(shutil.rmtree, self.directory)

    def start_site(self, npages):
        site = subprocess.Popen(
            [sys.executable, os.path.join(server.ROOT, "examples", "demo", "site.py"), str(npages)],
            stdout=subprocess.PIPE,
            preexec_fn=server.die_with_parent,
        )
        self.addCleanup(site.stdout.close)
        self.addCleanup(site.wait, server.WAIT)
        self.addCleanup(site.kill)
        self.site = int(site.stdout.readline())

    def start(self, settings, **options):
        options = {
            "site": self.site,
            "redis": self.server.port,
            **options,
            "settings": {
                "DUPEFILTER_CLASS": CLASS,
                "BLOOM_CAPACITY": 100_000,
                "BLOOM_ERROR_RATE": 1e-12,
                **settings,
            },
        }
        return subprocess.Popen(
            [sys.executable, os.path.join(HERE, "crawler.py"), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.directory,
            preexec_fn=server.die_with_parent,
        )

    def end(self, process):
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 0, err.decode())
        self.assertNotIn(b"Traceback", err, err.decode())
        return json.loads(out.splitlines()[-1]), err.decode()

    def fetched(self):
        with urllib.request.urlopen(
            "http://127.0.0.1:%d/stats" % self.site, timeout=server.WAIT
        ) as reply:
            return json.load(reply)

    def test_every_page_once(self):
        """Links one by one and all at once; those to another host are left alone."""
        settings = {"BLOOM_URL": "redis://127.0.0.1:%d" % self.server.port}
        for links in ("plain", "unseen"):
            self.start_site(120)
            self.server.redis.flushall()
            stats, err = self.end(self.start(settings, links=links, offsite="localhost"))
            site = self.fetched()
            self.assertEqual(
                (site["missing"], site["twice"], stats["finish_reason"]), ([], [], "finished"), err
            )
            # With unseen, the address on the other host is marked too.
            self.assertEqual(stats["bloom/new"], 121 if links == "unseen" else 120)
            self.assertGreater(stats["offsite/filtered"], 0)
            self.assertGreater(stats["bloom/seen"], 120)

    def test_a_crawl_that_was_stopped_goes_on(self):
        """The server goes away in the middle. With a JOBDIR, the next start fetches what is left;
        nothing is lost.
        """
        self.server.keep_aof()
        for links in ("plain", "unseen"):
            self.start_site(120)
            self.server.redis.flushall()
            settings = {"BLOOM_URL": "redis://127.0.0.1:%d" % self.server.port, "BLOOM_RETRIES": 1,
                        "JOBDIR": "job" + links}
            stats, err = self.end(self.start(settings, links=links, shutdown=20))
            self.assertEqual(stats["finish_reason"], "bloom_lost", err)
            self.assertEqual(err.count("The filter is lost, closing the spider"), 1)
            self.assertGreater(len(self.fetched()["missing"]), 0)
            self.server.process.wait(server.WAIT)
            self.server.start()
            # What is left is in the JOBDIR; the first page is known.
            stats, err = self.end(self.start(settings, links=links))
            self.assertEqual(
                (stats["finish_reason"], self.fetched()["missing"]), ("finished", []), err
            )

    def crawl_together(self, nworkers, npages, settings, **options):
        self.start_site(npages)
        self.server.redis.delete("nready")
        settings = {
            "SCHEDULER": SCHEDULER,
            "BLOOM_CAPACITY": npages,
            "CONCURRENT_REQUESTS": 1,
            **settings,
        }
        workers = [
            self.start(settings, number=number, workers=nworkers, **options)
            for number in range(nworkers)
        ]
        return [self.end(worker)[0] for worker in workers]

    def test_scheduler_of_scrapy_redis(self):
        """Several workers with one queue. The filter keeps its size; each page is fetched once."""
        for links in ("plain", "unseen"):
            self.server.redis.flushall()
            address = {"REDIS_HOST": "127.0.0.1", "REDIS_PORT": self.server.port}
            settings = {**address, "SCHEDULER_PERSIST": True}
            stats = self.crawl_together(3, 200, settings, links=links)
            site = self.fetched()
            self.assertEqual((site["missing"], site["twice"]), ([], []), stats)
            self.assertEqual(sum(one.get("bloom/new", 0) for one in stats), 200)
            self.assertTrue(all(one.get("response_received_count", 0) > 0 for one in stats), stats)
            self.assertEqual(sum(one.get("bloom/created", 0) for one in stats), 1)
            self.assertEqual({one["finish_reason"] for one in stats}, {"finished"})
            self.assertEqual(
                self.server.redis.execute_command("BF.INFO", "follow:seen", "CAPACITY"), [200]
            )

    def test_a_filter_that_vanishes_in_the_middle(self):
        """Each worker deletes it once. Pages are fetched again, and none is lost."""
        stats = self.crawl_together(2, 200, {"REDIS_URL": "redis://127.0.0.1:%d" % self.server.port,
                                             "SCHEDULER_PERSIST": True}, delete=20)
        self.assertEqual(self.fetched()["missing"], [], stats)
        self.assertGreater(self.fetched()["fetches"], 200)
        self.assertGreater(sum(one.get("bloom/vanished", 0) for one in stats), 0)
        self.assertEqual(
            self.server.redis.execute_command("BF.INFO", "follow:seen", "CAPACITY"), [200]
        )

    def test_scheduler_of_scrapy_redis_clears(self):
        """Without SCHEDULER_PERSIST a crawl begins anew each time."""
        settings = {"REDIS_PARAMS": {"host": "127.0.0.1", "port": self.server.port}}
        for _ in range(2):
            self.crawl_together(1, 60, settings)
            self.assertEqual((self.fetched()["missing"], self.fetched()["twice"]), ([], []))
            self.assertEqual(self.server.redis.keys("*"), [b"nready"])


class Together(unittest.TestCase):
    def test_workers_fetch_every_page_once(self):
        program = os.path.join(server.ROOT, "examples", "demo", "demo.py")
        options = "--json --pages 400 --workers 3 --timeout 300 --error 1e-13".split()
        command = [sys.executable, program, *options]
        demo = subprocess.run(command, stdout=subprocess.PIPE, timeout=400, text=True)
        self.assertEqual(demo.returncode, 0, demo.stdout)
        summary = json.loads(demo.stdout)
        self.assertEqual(
            (summary["fetched"], summary["fetches"], summary["twice"], summary["missing"]),
            (400, 400, [], []),
        )
        self.assertEqual(len(summary["workers"]), 3)
        self.assertEqual(sum(worker["fetched"] for worker in summary["workers"]), 400)
        self.assertEqual(sum(worker["new"] for worker in summary["workers"]), 400)
        self.assertGreater(sum(worker["seen"] for worker in summary["workers"]), 400)
        self.assertEqual({worker["reason"] for worker in summary["workers"]}, {"finished"})
        self.assertGreater(sum(worker["fetched"] > 0 for worker in summary["workers"]), 1)
        self.assertLess(summary["filter_bytes"], summary["redis_set_bytes"])


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
