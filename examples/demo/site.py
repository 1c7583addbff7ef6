#!/usr/bin/python3
"""site.py PAGES [PORT [MS]]: a web site on 127.0.0.1, made up on the fly for the demo and its test.

/p/0 … /p/PAGES-1 are its pages. Links form a tree, so that all can be reached from /p/0. Further
links go to random pages: back and forth, in circles, twice on a page. The same page is linked in
several spellings that mean the same (order of the arguments, a fragment). /stats says, as JSON, how
often pages were fetched. The program prints its port when ready. A page takes MS milliseconds, if
given, as if the site were far away; /pace/MS changes that. /meet/N answers when N have asked for
it, or after a minute.
"""

import asyncio
import contextlib
import json
import random
import sys

LINKS = 12  # on each page, besides those of the tree


def spellings(n):
    """Different addresses of page n that are one request."""
    yield "/p/%d?lang=en&sort=up" % n
    yield "/p/%d?sort=up&lang=en" % n
    yield "/p/%d?lang=en&sort=up#part-%d" % (n, n % 7)


def page(n, npages):
    rng = random.Random(n)
    targets = [t for t in range(4 * n + 1, 4 * n + 5) if t < npages]
    targets += [rng.randrange(npages) for _ in range(LINKS)]
    targets += targets[:3] + [n, 0]
    rng.shuffle(targets)
    links = "".join(
        '<li><a href="%s">page %d</a></li>' % (rng.choice(list(spellings(t))), t) for t in targets
    )
    return "<html><title>page %d</title><ul>%s</ul></html>" % (n, links)


class Site:
    def __init__(self, npages, seconds):
        self.npages, self.seconds = npages, seconds
        self.fetched = [0] * npages
        self.nwaiting, self.all_there = 0, asyncio.Event()

    def answer(self, path):
        if path == "/stats":
            nfetched = sum(map(bool, self.fetched))
            stats = {
                "pages": self.npages,
                "fetches": sum(self.fetched),
                "fetched": nfetched,
                "ntwice": sum(times > 1 for times in self.fetched),
                "nmissing": self.npages - nfetched,
                "twice": [n for n, times in enumerate(self.fetched) if times > 1][:100],
                "missing": [n for n, times in enumerate(self.fetched) if times == 0][:100],
            }
            return 200, "application/json", json.dumps(stats)
        if path.startswith("/pace/") and path[6:].isdigit():
            self.seconds = int(path[6:]) / 1000
            return 200, "text/plain", "so be it"
        name = path.partition("?")[0]
        if name.startswith("/p/") and name[3:].isdigit() and int(name[3:]) < self.npages:
            n = int(name[3:])
            self.fetched[n] += 1
            return 200, "text/html", page(n, self.npages)
        return 404, "text/plain", "no such page"

    async def meet(self, nexpected):
        self.nwaiting += 1
        if self.nwaiting >= nexpected:
            self.all_there.set()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.all_there.wait(), 60)

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("ascii", "replace")
                if path.startswith("/meet/") and path[6:].isdigit():
                    await self.meet(int(path[6:]))
                status, kind, body = self.answer(path)
                body = body.encode()
                await asyncio.sleep(self.seconds)
                writer.write(b"HTTP/1.1 %d -\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
                             % (status, kind.encode(), len(body), body))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def main():
    if not 2 <= len(sys.argv) <= 4 or not all(word.isdigit() for word in sys.argv[1:]):
        sys.exit(__doc__.splitlines()[0])
    site = Site(int(sys.argv[1]), int(sys.argv[3]) / 1000 if len(sys.argv) > 3 else 0)
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    server = await asyncio.start_server(site.serve, "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
