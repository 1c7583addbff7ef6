#!/usr/bin/python3
"""crawler.py OPTIONS: a Scrapy process for test_scrapy.py. It crawls the site of examples/demo and
prints its stats.

OPTIONS is JSON: "site" (its port), "redis" (the server's), "settings", and
    links     "unseen" to ask for all links of a page at once, else "plain"
    offsite   every page links to this host too, which is not the spider's
    shutdown  the server is shut down when so many pages have been read
    delete    the filter is deleted when so many pages have been read
    number    which of the workers it is: page 0 is where worker 0 begins, and so on
    workers   how many there are: each goes on after its first page when all have read one. With
              one request at a time (CONCURRENT_REQUESTS) each of them then has exactly one, even if
              they share a queue
"""

import json
import os
import sys
import time

import redis
import scrapy
from scrapy.crawler import CrawlerProcess

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(HERE)), "python"), HERE]

from shardbloom.scrapy import unseen  # noqa: E402


class Follow(scrapy.Spider):
    name = "follow"
    allowed_domains = ["127.0.0.1"]
    nread = 0

    def start_requests(self):
        yield scrapy.Request(
            "http://127.0.0.1:%d/p/%d" % (self.options["site"], self.options.get("number", 0))
        )

    async def start(self):
        for request in self.start_requests():
            yield request

    def parse(self, response):
        self.nread += 1
        if self.nread == 1:
            self.wait_for_all()
        if self.nread == self.options.get("shutdown"):
            redis.Redis(port=self.options["redis"]).shutdown(nosave=True)
        if self.nread == self.options.get("delete"):
            redis.Redis(port=self.options["redis"]).delete("follow:seen")
        links = [
            response.urljoin(href.split("?")[0]) for href in response.css("a::attr(href)").getall()
        ]
        if self.options.get("offsite"):
            links.append("http://%s:%d/p/0" % (self.options["offsite"], self.options["site"]))
        requests = (scrapy.Request(link) for link in links)
        yield from unseen(self, requests) if self.options.get("links") == "unseen" else requests

    def wait_for_all(self):
        client = redis.Redis(port=self.options["redis"])
        client.incr("nready")
        end = time.monotonic() + 120
        while int(client.get("nready")) < self.options.get("workers", 1) and time.monotonic() < end:
            time.sleep(0.01)


def main():
    options = json.loads(sys.argv[1])
    older = {"REQUEST_FINGERPRINTER_IMPLEMENTATION": "2.7"} if scrapy.version_info < (2, 12) else {}
    process = CrawlerProcess(
        {"LOG_LEVEL": "INFO", "TELNETCONSOLE_ENABLED": False, **older, **options["settings"]}
    )
    crawler = process.create_crawler(Follow)
    process.crawl(crawler, options=options)
    process.start()
    stats = crawler.stats.get_stats().items()
    print(
        json.dumps({name: value for name, value in stats if isinstance(value, (int, float, str))}),
        flush=True,
    )


if __name__ == "__main__":
    main()
