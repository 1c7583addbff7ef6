#!/usr/bin/python3
"""lines.py SITE-PORT SERVER-PORT PAGES WORKERS NUMBER ERROR PARTITIONS: a crawler around the worker
in C, for the demo in a cluster.

All links of the pages that it fetches go through build/worker, which prints those that nobody has
seen yet; they are fetched next. The worker answers in the order of its input, so a line of our own
behind the links, printed, tells that all links before it were dealt with. Prints its stats as one
line of JSON at the end, with the names that Scrapy has for them.
"""

import concurrent.futures
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEY = "demo:seen"
FETCHES = 4  # at a time
AT_ONCE = 50  # pages, before their links are asked for
LINK = re.compile(r'<a href="([^"]*)"')
PER_THREAD = threading.local()


def canonical(url):
    """One spelling for all that mean the same: arguments sorted, no fragment."""
    parts = urllib.parse.urlsplit(url)
    query = urllib.parse.urlencode(sorted(urllib.parse.parse_qsl(parts.query)))
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))


def fetch(url):
    """The links of a page."""
    parts = urllib.parse.urlsplit(url)
    if not hasattr(PER_THREAD, "connection"):
        PER_THREAD.connection = http.client.HTTPConnection(parts.netloc, timeout=120)
    PER_THREAD.connection.request("GET", parts._replace(scheme="", netloc="").geturl())
    page = PER_THREAD.connection.getresponse().read().decode()
    return [canonical(urllib.parse.urljoin(url, link)) for link in LINK.findall(page)]


class Unseen:
    """The worker in C: of many links those that are new, to all crawlers together."""

    def __init__(self, port, npages, number, error, npartitions):
        # The lines of our own are in the filter, too: room for one per page is more than enough.
        command = [os.path.join(ROOT, "build", "worker"), "--port", str(port), "--key", KEY]
        command += ["--partitions", str(npartitions), "-e", error, "-c", str(2 * npages)]
        self.worker = subprocess.Popen(
            [*command, "--progress"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = []
        self.listener = threading.Thread(target=lambda: self.said.extend(self.worker.stderr))
        self.listener.start()
        self.number, self.nrounds = number, 0

    def among(self, links):
        self.nrounds += 1
        last = "end of round %d of crawler %d" % (self.nrounds, self.number)
        # It reads and prints at the same time, and so must we.
        writer = threading.Thread(target=self.write, args=([*links, last],))
        writer.start()
        new = []
        for line in self.worker.stdout:
            if line == last + "\n":
                writer.join()
                return new
            new.append(line[:-1])
        raise SystemExit("the worker has ended:\n" + "".join(self.said))

    def write(self, lines):
        try:
            self.worker.stdin.write("".join(line + "\n" for line in lines))
            self.worker.stdin.flush()
        except BrokenPipeError:
            pass  # then its output ends, and that is told

    def close(self):
        """How many lines it printed although they may have been printed before."""
        self.worker.stdin.close()
        if self.worker.wait(60) != 0:
            raise SystemExit("the worker has failed:\n" + "".join(self.said))
        self.listener.join()
        match = re.search(r"(\d+) of the new ones may have been printed before", "".join(self.said))
        return int(match[1]) if match else 0


def main():
    site, server, npages, nworkers, number = map(int, sys.argv[1:6])
    unseen = Unseen(server, npages, number, sys.argv[6], int(sys.argv[7]))
    nfetched = nlinks = nnew = 0
    # Each begins at a page of its own; from that of crawler 0 all can be reached.
    first = number * npages // nworkers
    start = canonical("http://127.0.0.1:%d/p/%d?lang=en&sort=up" % (site, first))
    todo = unseen.among([start])
    # So that no crawler has found all pages before the last one is up.
    fetch("http://127.0.0.1:%d/meet/%d" % (site, nworkers))
    with concurrent.futures.ThreadPoolExecutor(FETCHES) as pool:
        while todo:
            pages, todo = todo[:AT_ONCE], todo[AT_ONCE:]
            links = [link for found in pool.map(fetch, pages) for link in found]
            new = unseen.among(links)
            nfetched, nlinks, nnew = nfetched + len(pages), nlinks + len(links), nnew + len(new)
            todo += new
    doubtful = unseen.close()
    stats = {"response_received_count": nfetched, "bloom/new": nnew, "bloom/seen": nlinks - nnew}
    print(json.dumps({**stats, "bloom/doubtful": doubtful, "finish_reason": "finished"}))


if __name__ == "__main__":
    main()
