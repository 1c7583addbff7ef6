"""A duplicate filter for Scrapy that many workers share: a Bloom filter in Redis.

    DUPEFILTER_CLASS = "shardbloom.scrapy.BloomDupeFilter"

Works with Scrapy's own scheduler and with that of scrapy-redis. examples/scrapy/README.md explains
the settings, what happens when the server is lost, and what "seen" means.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple, Union
from weakref import WeakKeyDictionary

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy import Request, Spider
from scrapy.dupefilters import BaseDupeFilter
from scrapy.exceptions import CloseSpider, NotConfigured
from scrapy.utils.defer import deferred_from_coro
from scrapy.utils.misc import load_object
from scrapy.utils.python import to_bytes, to_unicode
from scrapy.utils.request import referer_str
from w3lib.url import canonicalize_url

from shardbloom.cluster import Servers, not_yet, unreachable
from shardbloom.connection import Address, Failure, explain
from shardbloom.filter import Filter, NotAdded, window_words
from shardbloom.partitioned import PartitionedFilter
from shardbloom.plan import PlanError

logger = logging.getLogger(__name__)

BATCH = 500  # requests per command of unseen()
MARK = "shardbloom_new"  # in the meta of a request: the fingerprint that unseen() has marked for it
LONGEST_PAUSE_SECONDS = 2.0

_filters: WeakKeyDictionary[Any, BloomDupeFilter] = WeakKeyDictionary()  # by crawler


# ---- fingerprints ----


def scrapy_redis_fingerprint(request: Request) -> str:
    """What scrapy-redis 0.8 and newer keep in <spider>:dupefilter."""
    parts = {
        "method": to_unicode(request.method),
        "url": canonicalize_url(request.url),
        "body": (request.body or b"").hex(),
    }
    return hashlib.sha1(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def scrapy_2_6_fingerprint(request: Request) -> str:
    """What Scrapy up to 2.6 kept, and scrapy-redis up to 0.7. Scrapy 2.12 and newer lack it."""
    digest = hashlib.sha1(to_bytes(request.method))
    digest.update(to_bytes(canonicalize_url(request.url)))
    digest.update(request.body or b"")
    return digest.hexdigest()


def fingerprinter(name: str, crawler: Any) -> Callable[[Request], str]:
    """The function that BLOOM_FINGERPRINT names."""
    if name == "scrapy":
        return lambda request: str(crawler.request_fingerprinter.fingerprint(request).hex())
    named = {"scrapy-redis": scrapy_redis_fingerprint, "scrapy-2.6": scrapy_2_6_fingerprint}
    if name not in named:
        raise NotConfigured(
            f"BLOOM_FINGERPRINT is {name!r}; it must be 'scrapy', 'scrapy-redis' or 'scrapy-2.6'"
        )
    return named[name]


# ---- the server ----


def client_from(settings: Any) -> Any:
    """The server of BLOOM_URL; else that of scrapy-redis's settings, with their meaning there.

    With one exception: the client never repeats a command by itself, as retry_on_timeout and
    redis-py 6 would. A request that was marked by a command whose answer got lost would look as if
    it had been seen before.
    """
    timeout = settings.getfloat("BLOOM_TIMEOUT", 5)
    if settings.get("BLOOM_URL"):
        try:
            return Servers(Address.from_url(settings.get("BLOOM_URL")), timeout, patience=timeout)
        except Failure as failure:
            raise NotConfigured(f"BLOOM_URL: {failure}") from None
    options: Dict[str, Any] = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "socket_keepalive": True,
    }
    options.update(settings.getdict("REDIS_PARAMS"))
    for setting, option in (
        ("REDIS_HOST", "host"),
        ("REDIS_PORT", "port"),
        ("REDIS_DB", "db"),
        ("REDIS_URL", "url"),
    ):
        if settings.get(setting):
            options[option] = settings.get(setting)
    if settings.get("BLOOM_TIMEOUT"):
        options.update(socket_timeout=timeout, socket_connect_timeout=timeout)
    for option in ("retry_on_timeout", "retry_on_error", "retry"):
        options.pop(option, None)
    options["retry"] = Retry(NoBackoff(), 0)
    kind = options.pop("redis_cls", redis.Redis)
    kind = load_object(kind) if isinstance(kind, str) else kind
    url = options.pop("url", None)
    return kind.from_url(url, **options) if url else kind(**options)


def window_from(settings: Any) -> Tuple[Any, ...]:
    """What BLOOM_WINDOW, BLOOM_SLICES and BLOOM_SLIDING say of a filter that must be created."""
    try:
        return window_words(
            settings.getint("BLOOM_WINDOW") if settings.get("BLOOM_WINDOW") else None,
            settings.getint("BLOOM_SLICES") if settings.get("BLOOM_SLICES") else None,
            settings.getbool("BLOOM_SLIDING"),
        )
    except ValueError as error:
        raise NotConfigured(f"BLOOM_WINDOW, BLOOM_SLICES or BLOOM_SLIDING: {error}") from None


def passing(error: Exception) -> bool:
    """Whether it may help to try again."""
    return not_yet(error) or unreachable(error)


# ---- the filter ----


class BloomDupeFilter(BaseDupeFilter):  # type: ignore[misc]
    """One for each crawler. Scrapy calls from_crawler(), scrapy-redis's scheduler from_spider()."""

    def __init__(self, crawler: Any, key: str) -> None:
        settings = crawler.settings
        self.crawler = crawler
        self.stats = crawler.stats
        self.on_lost = settings.get("BLOOM_ON_LOST", "close")
        if self.on_lost not in ("close", "crawl"):
            raise NotConfigured(f"BLOOM_ON_LOST is {self.on_lost!r}; it must be 'close' or 'crawl'")
        self.retries = settings.getint("BLOOM_RETRIES", 6)
        self.debug = settings.getbool("DUPEFILTER_DEBUG")
        self.fingerprint = fingerprinter(settings.get("BLOOM_FINGERPRINT", "scrapy"), crawler)
        self.filter = self.filter_from(settings, key)
        self.logdupes = True
        self.lost = False
        self.silent_until = (
            0.0  # monotonic seconds; a server that has just not answered is not asked before
        )
        _filters[crawler] = self

    def filter_from(self, settings: Any, key: str) -> Union[Filter, PartitionedFilter]:
        client = client_from(settings)
        words = settings.get("BLOOM_OPTIONS") or ()
        options: Dict[str, Any] = {
            "error": settings.getfloat("BLOOM_ERROR_RATE", 1e-6),
            "capacity": settings.getint("BLOOM_CAPACITY", 10_000_000),
            "options": (
                *(words.split() if isinstance(words, str) else words),
                *window_from(settings),
            ),
            "on_created": self.created,
            "batch": BATCH,
        }
        partitions = settings.getint("BLOOM_PARTITIONS", 0)
        if not partitions:
            return Filter(client, key, **options)
        patience = settings.getfloat("BLOOM_TIMEOUT", 5)
        return PartitionedFilter(client, key, partitions=partitions, patience=patience, **options)

    @classmethod
    def from_crawler(cls, crawler: Any) -> BloomDupeFilter:
        """For Scrapy's own scheduler, which calls open() and close() too."""
        name = crawler.spider.name if crawler.spider else crawler.spidercls.name
        settings = crawler.settings
        template = (
            settings.get("BLOOM_KEY")
            or settings.get("SCHEDULER_DUPEFILTER_KEY")
            or "%(spider)s:seen"
        )
        return cls(crawler, template % {"spider": name})

    @classmethod
    def from_spider(cls, spider: Spider) -> BloomDupeFilter:
        """For scrapy-redis's scheduler, which never calls open() or close(), but clear()."""
        dupefilter = cls.from_crawler(spider.crawler)
        dupefilter.open()
        return dupefilter

    # ---- what schedulers call ----

    def open(self) -> None:
        """Creates the filter if there is none. Adding would too; here, mistakes show at once."""
        try:
            if not self.ask(self.filter.create)[0]:
                logger.info(
                    "Using filter %s, which has %d requests",
                    self.filter.name,
                    self.ask(self.filter.count)[0],
                )
            self.lost = False
        except redis.RedisError as error:
            if self.on_lost == "close" or isinstance(error, PlanError):
                logger.critical("%s", self.words(error))
                raise
            self.give_up(error)

    def request_seen(self, request: Request) -> bool:
        """One command asks and marks at once, so that of several workers exactly one gets False."""
        fingerprint = self.fingerprint(request)
        if request.meta.get(MARK) is not None and request.meta.pop(MARK) == fingerprint:
            return False  # unseen() has asked already
        if self.is_silent():
            return False
        try:
            new, doubtful = self.ask(lambda: self.filter.add(fingerprint))
        except redis.RedisError as error:
            self.give_up(error)
            return False
        return not self.count(new, doubtful)

    def clear(self) -> None:
        """Forgets all: scrapy-redis's scheduler calls it at the end, without SCHEDULER_PERSIST."""
        self.ask(self.filter.delete)

    def close(self, reason: str = "") -> None:
        (self.filter if isinstance(self.filter, PartitionedFilter) else self.filter.client).close()

    def log(self, request: Request, spider: Spider) -> None:
        if self.debug:
            words = "Filtered duplicate request: %s (referer: %s)"
            logger.debug(words, request, referer_str(request), extra={"spider": spider})
        elif self.logdupes:
            words = (
                "Filtered duplicate request: %s - no more duplicates will be shown"
                " (DUPEFILTER_DEBUG shows all)"
            )
            logger.debug(words, request, extra={"spider": spider})
            self.logdupes = False
        self.stats.inc_value("dupefilter/filtered")

    # ---- for spiders ----

    def unseen(self, requests: Iterable[Request]) -> Iterator[Request]:
        """Those of many requests, such as a page's links, that are new: a round trip for hundreds.

        This marks them as seen, and notes in their meta that the scheduler need not ask for them
        again. Two that are the same count once.
        """
        todo = list(requests)
        for at in range(0, len(todo), BATCH):
            batch = [request for request in todo[at : at + BATCH] if not request.dont_filter]
            yield from (request for request in todo[at : at + BATCH] if request.dont_filter)
            yield from self.unseen_of(batch)

    def unseen_of(self, batch: List[Request]) -> Iterator[Request]:
        """The same for one command's worth."""
        fingerprints = [self.fingerprint(request) for request in batch]
        answers: List[Optional[bool]] = [None] * len(batch)
        doubtful: Set[int] = set()

        def add_rest() -> None:
            """What has an answer, as from other nodes of a cluster, keeps it."""
            rest = [index for index, answer in enumerate(answers) if answer is None]
            failure: Optional[NotAdded] = None
            found: List[Any] = []
            try:
                found = self.filter.add_many([fingerprints[index] for index in rest])
            except NotAdded as error:
                failure, found = error, error.answers
            for index, answer in zip(rest, found):
                answers[index] = answer
                if failure is not None and answer is None and not not_yet(failure.cause):
                    doubtful.add(index)
            if failure is not None:
                raise failure

        if batch and not self.is_silent():
            try:
                self.ask(add_rest)
            except redis.RedisError as error:
                self.give_up(error.cause if isinstance(error, NotAdded) else error)
        yielded = set()
        for index, (request, fingerprint) in enumerate(zip(batch, fingerprints)):
            new = answers[index]
            if fingerprint in yielded:
                self.stats.inc_value("bloom/seen")
            elif new is None or self.count(new, index in doubtful):
                # without an answer it is not lost, but scheduled
                yielded.add(fingerprint)
                yield request.replace(meta={**request.meta, MARK: fingerprint})

    # ---- asking ----

    def ask(self, call: Callable[[], Any]) -> Tuple[Any, bool]:
        """Calls until there is an answer: at most BLOOM_RETRIES retries, more while a server loads.

        Returns the answer, and whether it is doubtful: when a connection breaks, the server may
        have carried out the command before. Then a "seen" may be the echo of ourselves.
        """
        doubtful = False
        nattempts = 0
        while True:
            try:
                answer = call()
                self.lost = False
                return answer, doubtful
            except redis.RedisError as error:
                cause = error.cause if isinstance(error, NotAdded) else error
                self.stats.inc_value("bloom/errors")
                loading = isinstance(cause, redis.BusyLoadingError)
                if not passing(cause) or self.lost or (nattempts >= self.retries and not loading):
                    raise
                doubtful = doubtful or not not_yet(cause)
                pause = min(0.1 * 2 ** min(nattempts, 10), LONGEST_PAUSE_SECONDS)
                logger.warning("%s; trying again in %.1f s", self.words(cause), pause)
                time.sleep(pause)
                nattempts += 1

    def count(self, new: bool, doubtful: bool) -> bool:
        """Whether to crawl the request. In doubt, yes: better fetch a page twice than lose it."""
        if not new and doubtful:
            self.stats.inc_value("bloom/doubtful")
            new = True
        self.stats.inc_value("bloom/new" if new else "bloom/seen")
        return new

    def created(self, made: Union[Filter, PartitionedFilter]) -> None:
        """The filter calls this when it has found none. It has said so in the log."""
        self.stats.inc_value("bloom/created")
        self.stats.set_value("bloom/vanished", made.nvanished)

    # ---- when the server is lost ----

    def is_silent(self) -> bool:
        """Whether asking is in vain: the spider is closing, or there was no answer just now."""
        silent = self.lost and (self.on_lost == "close" or time.monotonic() < self.silent_until)
        if silent:
            self.stats.inc_value("bloom/unasked")
        return bool(silent)

    def give_up(self, error: Exception) -> None:
        """The server is lost, or refuses.

        The request at hand is scheduled nevertheless, and so are all that come until the spider is
        closed: nobody else may have got it, and a JOBDIR or a shared queue keeps it for the next
        start.
        """
        self.stats.inc_value("bloom/unasked")
        if not self.lost:
            words = "crawling without it" if self.on_lost == "crawl" else "closing the spider"
            logger.critical("The filter is lost, %s: %s", words, self.words(error))
            if self.on_lost == "close":
                self.close_spider()
        self.lost = True
        self.silent_until = time.monotonic() + 1

    def close_spider(self) -> None:
        engine = self.crawler.engine
        if hasattr(engine, "close_spider_async"):  # Scrapy 2.14
            deferred_from_coro(engine.close_spider_async(reason="bloom_lost"))
        else:
            engine.close_spider(self.crawler.spider, "bloom_lost")

    def words(self, error: Exception) -> str:
        """An error in the words of the tools."""
        return explain(error, getattr(error, "address", None), self.filter.name)


def unseen(spider: Spider, requests: Iterable[Request]) -> Iterator[Request]:
    """BloomDupeFilter.unseen for use in a callback:

    yield from unseen(self, (response.follow(a) for a in links))
    """
    dupefilter = _filters.get(spider.crawler)
    if dupefilter is None:
        # Any other error would be logged, and the crawl end as "finished" without these requests.
        logger.critical("unseen() needs DUPEFILTER_CLASS = 'shardbloom.scrapy.BloomDupeFilter'")
        raise CloseSpider("bloom_not_configured")
    return dupefilter.unseen(requests)
