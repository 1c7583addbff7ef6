"""A duplicate filter for Scrapy that many workers share: the memory of seen requests is a Bloom filter in Redis.

    DUPEFILTER_CLASS = "bloom_dupefilter.BloomDupeFilter"

README.md beside this file tells the settings, what happens when the server is lost, and what "seen" means.
"""

import logging
import time

import redis
from redis.exceptions import TryAgainError
from scrapy.dupefilters import BaseDupeFilter
from scrapy.exceptions import NotConfigured
from scrapy.utils.request import referer_str

logger = logging.getLogger(__name__)

BATCH = 500  # requests per BF.MADD of unseen()


class BloomDupeFilter(BaseDupeFilter):
    def __init__(self, client, key, *, error_rate, capacity, retries, on_lost, debug, fingerprinter, crawler):
        self.client = client
        self.key = key
        self.error_rate = error_rate
        self.capacity = capacity
        self.retries = retries
        self.on_lost = on_lost
        self.debug = debug
        self.fingerprinter = fingerprinter
        self.crawler = crawler
        self.stats = crawler.stats
        self.logdupes = True
        self.lost = False

    @classmethod
    def from_crawler(cls, crawler):
        settings = crawler.settings
        on_lost = settings.get("BLOOM_ON_LOST", "close")
        if on_lost not in ("close", "crawl"):
            raise NotConfigured("BLOOM_ON_LOST is %r; it must be 'close' or 'crawl'" % on_lost)
        timeout = settings.getfloat("BLOOM_TIMEOUT", 5)
        client = redis.Redis.from_url(
            settings.get("BLOOM_URL") or settings.get("REDIS_URL") or "redis://127.0.0.1:6379/0",
            socket_timeout=timeout, socket_connect_timeout=timeout, socket_keepalive=True)
        spider = crawler.spider.name if crawler.spider else crawler.spidercls.name
        return cls(
            client,
            settings.get("BLOOM_KEY", "%(spider)s:seen") % {"spider": spider},
            error_rate=settings.getfloat("BLOOM_ERROR_RATE", 1e-6),
            capacity=settings.getint("BLOOM_CAPACITY", 10_000_000),
            retries=settings.getint("BLOOM_RETRIES", 6),
            on_lost=on_lost,
            debug=settings.getbool("DUPEFILTER_DEBUG"),
            fingerprinter=crawler.request_fingerprinter,
            crawler=crawler)

    # ---- what Scrapy calls ----

    def open(self):
        """Creates the filter. Whoever comes first does; for the others it exists, whatever its parameters."""
        try:
            self.ask("BF.RESERVE", self.key, self.error_rate, self.capacity)
            logger.info("Created filter %s for %d requests, error rate %g", self.key, self.capacity, self.error_rate)
        except redis.ResponseError as error:
            if "item exists" not in str(error):
                raise
            logger.info("Using filter %s, which has %s requests", self.key, self.ask("BF.CARD", self.key)[0])
        except redis.RedisError as error:
            if self.on_lost == "close":
                raise
            self.give_up(error)

    def request_seen(self, request):
        """One BF.ADD: asks and marks at once, so that of several workers exactly one gets False."""
        try:
            new, doubtful = self.ask("BF.ADD", self.key, self.fingerprint(request))
        except redis.RedisError as error:
            return self.give_up(error)
        return not self.count(new, doubtful)

    def close(self, reason):
        self.client.close()
        self.client.connection_pool.disconnect()

    def log(self, request, spider):
        if self.debug:
            logger.debug("Filtered duplicate request: %s (referer: %s)", request, referer_str(request),
                         extra={"spider": spider})
        elif self.logdupes:
            logger.debug("Filtered duplicate request: %s - no more duplicates will be shown"
                         " (see DUPEFILTER_DEBUG to show all duplicates)", request, extra={"spider": spider})
            self.logdupes = False
        self.stats.inc_value("dupefilter/filtered", spider=spider)

    # ---- for spiders ----

    def unseen(self, requests):
        """Of many requests, as a page's links are, those that are new: one round trip for hundreds of them.

        They are marked as seen by this, so they are yielded with dont_filter=True. Two that are the same count once.
        """
        requests = list(requests)
        for at in range(0, len(requests), BATCH):
            batch = [r for r in requests[at:at + BATCH] if not r.dont_filter]
            yield from (r for r in requests[at:at + BATCH] if r.dont_filter)
            if not batch:
                continue
            try:
                answers, doubtful = self.ask("BF.MADD", self.key, *map(self.fingerprint, batch))
                for answer in answers:
                    if isinstance(answer, Exception):
                        raise answer
            except redis.RedisError as error:
                if not self.give_up(error):
                    yield from (r.replace(dont_filter=True) for r in batch)
                continue
            yielded = set()
            for request, new in zip(batch, answers):
                fingerprint = self.fingerprint(request)
                if self.count(new, doubtful and fingerprint not in yielded):
                    yielded.add(fingerprint)
                    yield request.replace(dont_filter=True)

    # ---- the rest ----

    def fingerprint(self, request):
        return self.fingerprinter.fingerprint(request).hex()

    def ask(self, *command):
        """Sends a command, again and again while the server can't be reached, at most BLOOM_RETRIES times.

        Returns the answer, and whether it is doubtful: when a connection breaks, the server may have carried out the
        command before. Then a "seen" may be the echo of ourselves.
        """
        doubtful = False
        for attempt in range(self.retries + 1):
            try:
                answer = self.client.execute_command(*command)
                self.lost = self.lost and self.on_lost == "close"
                return answer, doubtful
            except (redis.ConnectionError, redis.TimeoutError, TryAgainError) as error:
                self.stats.inc_value("bloom/errors")
                if attempt == self.retries or self.lost:
                    raise
                # These two are replies: the server did nothing.
                doubtful = doubtful or not isinstance(error, (redis.BusyLoadingError, TryAgainError))
                pause = min(0.1 * 2 ** attempt, 2)
                logger.warning("Redis does not answer (%s), trying again in %.1f s", error, pause)
                time.sleep(pause)

    def count(self, new, doubtful):
        """Whether the request shall be crawled. In doubt it is: a page fetched twice is better than a page lost."""
        if not new and doubtful:
            self.stats.inc_value("bloom/doubtful")
            new = True
        self.stats.inc_value("bloom/new" if new else "bloom/seen")
        return bool(new)

    def give_up(self, error):
        """The server is lost, or refuses. Whether to treat requests as seen from here on."""
        if not isinstance(error, (redis.ConnectionError, redis.TimeoutError, TryAgainError)):
            self.stats.inc_value("bloom/errors")
        if self.on_lost == "crawl":
            if not self.lost:
                logger.error("The filter is lost, crawling without one: %s", error)
        elif not self.lost:
            logger.critical("The filter is lost, closing the spider: %s", error)
            self.crawler.engine.close_spider(self.crawler.spider, "bloom_lost")
        self.lost = True
        return self.on_lost == "close"


def unseen(spider, requests):
    """BloomDupeFilter.unseen for use in a callback: yield from unseen(self, (response.follow(a) for a in links))."""
    return spider.crawler.engine.slot.scheduler.df.unseen(requests)
