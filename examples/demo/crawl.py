#!/usr/bin/python3
"""crawl.py SITE-PORT REDIS-PORT PAGES WORKERS NUMBER ERROR: a worker of the demo.

It follows every link, and prints its stats as one line of JSON at the end.
"""

import json
import os
import sys
import time

import redis
import scrapy
from scrapy.crawler import CrawlerProcess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "python"))  # as if shardbloom was installed

from shardbloom.scrapy import unseen  # noqa: E402


class Demo(scrapy.Spider):
    name = "demo"
    waited = False

    def start_requests(self):
        """Each worker begins at a page of its own; worker 0's leads to all others."""
        if self.number < self.npages:
            url = "http://127.0.0.1:%d/p/%d?lang=en&sort=up" % (self.port, self.number)
            yield scrapy.Request(url)

    async def start(self):
        """What Scrapy calls from 2.13 on."""
        for request in self.start_requests():
            yield request

    def parse(self, response):
        if not self.waited:
            self.waited = True
            wait_for_all(self.server, min(self.nworkers, self.npages))
        links = [response.urljoin(href) for href in response.css("a::attr(href)").getall()]
        yield from unseen(self, (scrapy.Request(link) for link in links))


def wait_for_all(server, nworkers):
    """At most a minute. So no worker has done half the work before the last one is up."""
    client = redis.Redis(port=server)
    client.incr("demo:ready")
    for _ in range(600):
        if int(client.get("demo:ready")) >= nworkers:
            break
        time.sleep(0.1)


def main():
    site, server, npages, nworkers, number = map(int, sys.argv[1:6])
    # Scrapy 2.7 to 2.11 ask for this; newer ones know no other, and warn that it isn't needed.
    older = {"REQUEST_FINGERPRINTER_IMPLEMENTATION": "2.7"} if scrapy.version_info < (2, 12) else {}
    process = CrawlerProcess({
        "DUPEFILTER_CLASS": "shardbloom.scrapy.BloomDupeFilter",
        "BLOOM_URL": "redis://127.0.0.1:%d/0" % server,
        "BLOOM_CAPACITY": npages,
        "BLOOM_ERROR_RATE": sys.argv[6],
        **older,
        "LOG_LEVEL": "WARNING",
        "CONCURRENT_REQUESTS": 16,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
        "TELNETCONSOLE_ENABLED": False,
    }, install_root_handler=True)
    crawler = process.create_crawler(Demo)
    process.crawl(
        crawler, port=site, server=server, npages=npages, nworkers=nworkers, number=number
    )
    process.start()
    print(json.dumps({name: value for name, value in crawler.stats.get_stats().items()
                      if isinstance(value, (int, float, str))}))


if __name__ == "__main__":
    main()
