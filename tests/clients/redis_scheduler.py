"""A scheduler with a queue in Redis, which calls a duplicate filter exactly as scrapy-redis's does,
and is no part of it.

DUPEFILTER_CLASS.from_spider(spider) when it is opened; never open() nor close(); request_seen() and
log() for requests without dont_filter; clear() at the end unless SCHEDULER_PERSIST is set, and at
the start with SCHEDULER_FLUSH_ON_START.
"""

import pickle

import redis
from scrapy.utils.misc import load_object


class RedisScheduler:
    def __init__(self, crawler):
        self.settings = crawler.settings
        self.spider = None
        self.df = None
        if self.settings.get("REDIS_URL"):
            self.redis = redis.Redis.from_url(self.settings.get("REDIS_URL"))
        else:
            params = self.settings.getdict("REDIS_PARAMS")
            for setting, name in (("REDIS_HOST", "host"), ("REDIS_PORT", "port")):
                if self.settings.get(setting):
                    params[name] = self.settings.get(setting)
            self.redis = redis.Redis(**params)

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def open(self, spider):
        self.spider = spider
        self.key = spider.name + ":requests"
        self.df = load_object(self.settings["DUPEFILTER_CLASS"]).from_spider(spider)
        if self.settings.getbool("SCHEDULER_FLUSH_ON_START"):
            self.flush()

    def close(self, reason):
        if not self.settings.getbool("SCHEDULER_PERSIST"):
            self.flush()

    def flush(self):
        self.df.clear()
        self.redis.delete(self.key)

    def enqueue_request(self, request):
        if not request.dont_filter and self.df.request_seen(request):
            self.df.log(request, self.spider)
            return False
        parts = {"url": request.url, "meta": dict(request.meta), "dont_filter": request.dont_filter}
        self.redis.rpush(self.key, pickle.dumps(parts))
        return True

    def next_request(self):
        parts = self.redis.lpop(self.key)
        if parts is None:
            return None
        parts = pickle.loads(parts)
        return load_object("scrapy.Request")(callback=self.spider.parse, **parts)

    def has_pending_requests(self):
        return self.redis.llen(self.key) > 0
