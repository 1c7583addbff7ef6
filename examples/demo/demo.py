#!/usr/bin/python3
"""Several Scrapy workers crawl one site together and share one Bloom filter.

Starts a site on 127.0.0.1 (site.py), a Redis server with the module, and workers (crawl.py), and
shows their progress. At the end it says whether every page was fetched exactly once, and how much
memory the filter took, compared with Scrapy's own set and a Redis SET. It removes everything
afterwards.
"""

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import redis

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
KEY = "demo:seen"
PERIOD = 0.5


def parse_arguments(description, pages):
    parser = argparse.ArgumentParser(description=description)
    add = parser.add_argument
    add("--pages", type=int, default=pages, help="pages of the site (default %(default)s)")
    add("--workers", type=int, default=3, help="crawling processes (default %(default)s)")
    add("--error", default="1e-6", help="error rate of the filter (default %(default)s)")
    add(
        "--timeout",
        type=int,
        default=900,
        help="give up after so many seconds (default %(default)s)",
    )
    add("--json", action="store_true", help="print the summary as JSON, and nothing else")
    arguments = parser.parse_args()
    if arguments.pages < 1 or arguments.workers < 1:
        parser.error("at least one page and one worker are needed")
    return arguments


def is_free(port):
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


class Demo:
    def __init__(self, arguments):
        self.arguments = arguments
        self.dir = tempfile.mkdtemp(prefix="shardbloom-demo-")
        self.processes = []

    # ---- starting and stopping ----

    def start(self, *command, **options):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **options)
        self.processes.append(process)
        return process

    def start_site(self, ms=0):
        command = [sys.executable, os.path.join(HERE, "site.py")]
        command += [str(self.arguments.pages), "0", str(ms)]
        site = self.start(*command, stdout=subprocess.PIPE, text=True)
        self.site = int(site.stdout.readline())

    def start_server(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start_node(self.port)
        self.redis = redis.Redis(port=self.port, socket_timeout=30)

    def start_node(self, port, *options):
        """A server with the module; returns its process when it answers."""
        module = os.path.join(ROOT, os.environ.get("MODULE") or "shardbloom.so")
        if not os.path.exists(module):
            sys.exit("There is no %s; type make first." % module)
        directory = os.path.join(self.dir, str(port))
        os.mkdir(directory)
        log = os.path.join(directory, "log")
        command = [os.environ.get("SERVER") or "redis-server", "--port", str(port)]
        command += ["--bind", "127.0.0.1", "--dir", directory, "--save", "", "--logfile", log]
        server = self.start(*command, "--loadmodule", module, *options)
        for _ in range(300):
            try:
                redis.Redis(port=port, socket_timeout=30).ping()
                return server
            except redis.ConnectionError:
                if server.poll() is not None:
                    break
                time.sleep(0.1)
        with open(log, errors="replace") as text:
            sys.exit("The server does not come up:\n" + text.read()[-2000:])

    def start_workers(self, program="crawl.py", *more):
        self.workers = []
        for number in range(self.arguments.workers):
            path = os.path.join(self.dir, "worker%d" % number)
            numbers = (self.site, self.port, self.arguments.pages, self.arguments.workers, number)
            command = [sys.executable, os.path.join(HERE, program), *map(str, numbers)]
            command += [self.arguments.error, *more]
            with open(path, "w") as out:
                worker = self.start(*command, stdout=out, stderr=subprocess.STDOUT)
            self.workers.append((path, worker))

    def stop(self):
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- watching ----

    def ask_site(self, path):
        url = "http://127.0.0.1:%d/%s" % (self.site, path)
        with urllib.request.urlopen(url, timeout=30) as reply:
            return reply.read()

    def site_stats(self):
        return json.loads(self.ask_site("stats"))

    def filter_state(self):
        """Items, capacity, bytes, fill, adds, and the rate of false positives at this fill."""
        try:
            info = self.redis.execute_command("BF.INFO", KEY)
        except redis.ResponseError:
            return None
        values = dict(zip(info[::2], info[1::2]))
        plan = self.redis.execute_command("BF.PLAN", self.arguments.error, self.arguments.pages)
        probes = dict(zip(plan[::2], plan[1::2]))[b"Hashes per item"]
        shards = self.redis.execute_command("BF.SHARDS", KEY)
        fills = [float(dict(zip(s[::2], s[1::2]))[b"fill"] or 0) for s in shards]
        fill = sum(fills) / len(fills) if fills else 0
        info = self.redis.info("bf")
        return {"items": values[b"Number of items inserted"], "capacity": values[b"Capacity"],
                "bytes": values[b"Size"], "fill": fill, "error": fill ** probes,
                "adds": next((v for k, v in info.items() if k.endswith("_adds")), 0)}

    def progress(self, stats, state, last, seconds):
        """What the line of progress says besides the pages."""
        new = (state["items"] - last["items"]) / seconds
        seen = (state["adds"] - last["adds"]) / seconds - new
        return "%5.0f new/s %6.0f seen/s  fill %4.1f%%  est. error %.1e" % (
            new, max(0, seen), 100 * state["fill"], state["error"])

    def intervene(self):
        """What happens to the servers meanwhile."""

    def watch(self):
        began = before = time.monotonic()
        last = {"items": 0, "adds": 0}
        tty = sys.stdout.isatty()
        while any(worker.poll() is None for _, worker in self.workers):
            time.sleep(PERIOD)
            now = time.monotonic()
            if now - began > self.arguments.timeout:
                raise SystemExit("Not done after %d s." % self.arguments.timeout)
            self.intervene()
            state = self.filter_state()
            if self.arguments.json or not state or (not tty and now - before < 2):
                continue
            stats = self.site_stats()
            share = stats["fetched"] / stats["pages"]
            line = "%3d s  %s %5d/%d pages  %s  %d workers" % (
                now - began,
                "█" * round(20 * share) + "░" * (20 - round(20 * share)),
                stats["fetched"],
                stats["pages"],
                self.progress(stats, state, last, now - before),
                sum(worker.poll() is None for _, worker in self.workers),
            )
            print("\r\033[K" + line if tty else line, end="" if tty else "\n", flush=True)
            last, before = state, now
        if tty and not self.arguments.json:
            print()
        self.seconds = time.monotonic() - began

    # ---- summing up ----

    def set_bytes(self):
        """What the same fingerprints take as Scrapy's own set and as a Redis SET, really stored."""
        npages = self.arguments.pages
        fingerprints = {hashlib.sha1(b"page %d" % n).hexdigest() for n in range(npages)}
        python = sys.getsizeof(fingerprints) + sum(map(sys.getsizeof, fingerprints))
        pipeline = self.redis.pipeline(transaction=False)
        for fingerprint in fingerprints:
            pipeline.sadd("demo:set", fingerprint)
        pipeline.execute()
        return python, self.redis.memory_usage("demo:set", samples=0)

    def summary(self):
        stats, state = self.site_stats(), self.filter_state()
        workers = []
        for path, worker in self.workers:
            with open(path, errors="replace") as out:
                lines = out.read().splitlines()
            if worker.returncode != 0 or not lines or not lines[-1].startswith("{"):
                raise SystemExit("A worker failed:\n" + "\n".join(lines[-30:]))
            workers.append(json.loads(lines[-1]))
        python, redis_set = self.set_bytes()
        return {
            "pages": stats["pages"],
            "fetched": stats["fetched"],
            "fetches": stats["fetches"],
            "twice": stats["twice"],
            "missing": stats["missing"],
            "ntwice": stats["ntwice"],
            "nmissing": stats["nmissing"],
            "seconds": round(self.seconds, 1),
            "workers": [
                {
                    "fetched": w.get("response_received_count", 0),
                    "new": w.get("bloom/new", 0),
                    "seen": w.get("bloom/seen", 0),
                    "errors": w.get("bloom/errors", 0),
                    "doubtful": w.get("bloom/doubtful", 0),
                    "reason": w.get("finish_reason"),
                }
                for w in workers
            ],
            "filter_bytes": state["bytes"],
            "python_set_bytes": python,
            "redis_set_bytes": redis_set,
            "promised_error": self.arguments.error,
            "estimated_error": state["error"],
        }


def show(summary):
    def memory(nbytes):
        return "%9.1f kB  %6.1f bytes per page" % (nbytes / 1000, nbytes / summary["pages"])

    print(
        "\n%d pages, %d fetches, %.1f s"
        % (summary["pages"], summary["fetches"], summary["seconds"])
    )
    for number, worker in enumerate(summary["workers"]):
        print("    worker %d: %5d pages, %6d links new, %6d seen" % (
            number, worker["fetched"], worker["new"], worker["seen"]))
    print(
        "fetched twice: %d   never fetched: %d"
        " (the filter promises a share of at most %s by mistake)"
        % (summary["ntwice"], summary["nmissing"], summary["promised_error"])
    )
    print("memory of what was seen:")
    print("    filter, shared by all:     " + memory(summary["filter_bytes"]))
    print("    Scrapy's set, per worker:  " + memory(summary["python_set_bytes"]))
    print("    Redis SET:                 " + memory(summary["redis_set_bytes"]))


def run(demo):
    """The whole demo; returns the summary. It leaves nothing behind."""
    arguments = demo.arguments
    try:
        demo.start_site()
        demo.start_server()
        if not arguments.json:
            print("%d pages at http://127.0.0.1:%d/p/0, filter %s at 127.0.0.1:%d, %d workers" % (
                arguments.pages, demo.site, KEY, demo.port, arguments.workers), flush=True)
        demo.start_workers()
        demo.watch()
        summary = demo.summary()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        demo.stop()
    if arguments.json:
        print(json.dumps(summary))
    else:
        show(summary)
    return summary


def nforgiven(summary):
    """Pages that may stay unfetched: a false positive leaves one; one in a million may. Of 3000
    pages four have a probability below (3000 * 1e-6)^4 / 4! < 1e-11."""
    return 3 + summary["pages"] / 1e5


def main():
    summary = run(Demo(parse_arguments(__doc__.splitlines()[0], 3000)))
    sys.exit(1 if summary["ntwice"] or summary["nmissing"] > nforgiven(summary) else 0)


if __name__ == "__main__":
    main()
