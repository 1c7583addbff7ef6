#!/usr/bin/python3
"""Several crawlers share one partitioned filter on a cluster that changes under them.

Starts a site (site.py), three primaries with a replica each, and crawlers around the worker in C
(lines.py). In the middle of the crawl it moves slots from one primary to another, then kills a
primary, whose replica takes over. At the end it says which pages were fetched twice or never, and
why. It removes everything afterwards.
"""

import itertools
import os
import subprocess
import sys
import time

import redis

import demo

sys.path.insert(0, os.path.join(demo.ROOT, "python"))  # as if shardbloom was installed

from shardbloom import PartitionedFilter  # noqa: E402

PARTITIONS = 64
NODE_TIMEOUT_MS = 2000
NMOVED = 600  # slots, and two partitions in them
MOVE_AT, KILL_AT = 0.02, 0.2  # shares of the pages
PAGE_MS = 10
SLOW_AT, SLOW_MS = 0.7, 3000  # then the crawl waits for the cluster, should that be slower


def free_ports(n):
    """Ports for nodes, each with one for the cluster's bus 10000 above it."""
    some = range(20000 + os.getpid() % 5000, 30000)
    free = (port for port in some if demo.is_free(port) and demo.is_free(port + 10000))
    return list(itertools.islice(free, n))


class ClusterDemo(demo.Demo):
    moving = killed_at = took_over = None
    moved = slowed = False

    def say(self, text, *values):
        text = text % values
        if not self.arguments.json:
            print("\r\033[K" + text if sys.stdout.isatty() else text, flush=True)

    def start_site(self):
        super().start_site(PAGE_MS)

    # ---- the cluster ----

    def start_server(self):
        ports = free_ports(6)
        self.nodes = {
            port: self.start_node(
                port,
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                str(NODE_TIMEOUT_MS),
                "--repl-diskless-sync-delay",
                "0",
            )
            for port in ports
        }
        addresses = ["127.0.0.1:%d" % port for port in ports]
        made = self.redis_cli("create", *addresses, "--cluster-replicas", "1")
        if made.wait(120) != 0:
            sys.exit("The cluster does not come up:\n" + self.said_by("create"))
        self.primaries = ports[:3]  # as redis-cli has it
        self.port = self.primaries[0]
        self.wait(lambda: all(self.replica_of(port) for port in self.primaries))
        self.say("primaries with a replica each: %s", ", ".join(addresses[:3]))

    def redis_cli(self, command, *words):
        with open(os.path.join(self.dir, command), "w") as out:
            return self.start(
                *("redis-cli", "--cluster", command, *words, "--cluster-yes"),
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def said_by(self, command):
        with open(os.path.join(self.dir, command), errors="replace") as out:
            return out.read()[-2000:]

    def wait(self, condition):
        end = time.monotonic() + 60
        while not condition():
            if time.monotonic() > end:
                sys.exit("The cluster does not come up.")
            time.sleep(0.1)

    @staticmethod
    def ask(port, *words):
        return redis.Redis(port=port, socket_timeout=30).execute_command(*words)

    def node_id(self, port):
        return self.ask(port, "CLUSTER", "MYID").decode()

    def replica_of(self, port):
        """The port of its replica that is in sync, or None."""
        for one in redis.Redis(port=port).info("replication").items():
            if one[0].startswith("slave") and one[1]["state"] == "online":
                return one[1]["port"]
        return None

    # ---- what happens to it ----

    def intervene(self):
        stats = self.site_stats()
        share = stats["fetched"] / stats["pages"]
        if self.slowed != (share >= SLOW_AT and not self.took_over):
            self.slowed = not self.slowed
            self.ask_site("pace/%d" % (SLOW_MS if self.slowed else PAGE_MS))
        if not self.moving and share >= MOVE_AT:
            self.move()
        elif self.moving and not self.moved and self.moving.poll() is not None:
            self.moved = True
            if self.moving.returncode != 0:
                sys.exit("The slots were not moved:\n" + self.said_by("reshard"))
            self.say("%8s%d slots moved in %.1f s", "", NMOVED, time.monotonic() - self.began)
        elif self.moved and not self.killed_at and share >= KILL_AT:
            self.kill()
        elif self.killed_at and not self.took_over:
            if redis.Redis(port=self.heir).info("replication")["role"] == "master":
                self.took_over = time.monotonic() - self.killed_at
                self.say("%8s%d took over after %.1f s", "", self.heir, self.took_over)

    def move(self):
        source, target = self.primaries[0], self.primaries[1]
        self.began = time.monotonic()
        self.say("%8s%d slots move from node %d to %d", "", NMOVED, source, target)
        self.moving = self.redis_cli(
            *("reshard", "127.0.0.1:%d" % source, "--cluster-from", self.node_id(source)),
            *("--cluster-to", self.node_id(target), "--cluster-slots", str(NMOVED)),
        )

    def kill(self):
        victim = self.primaries[2]
        self.heir = self.replica_of(victim)
        self.nodes[victim].kill()
        self.killed_at = time.monotonic()
        self.say("%8sprimary %d killed; its replica is %d", "", victim, self.heir)

    # ---- watching and summing up ----

    def start_workers(self):
        super().start_workers("lines.py", str(PARTITIONS))

    def filter_state(self):
        """Items and bytes of all partitions; None while a part of the cluster is away."""
        try:
            one = PartitionedFilter.open(redis.Redis(port=self.port), demo.KEY, patience=0.1)
            info = one.info()
        except redis.RedisError:
            return None
        return {"items": info["items"], "bytes": info["size"], "adds": 0, "error": None}

    def progress(self, stats, state, last, seconds):
        return "%5.0f new/s" % ((state["items"] - last["items"]) / seconds)

    def set_bytes(self):
        """A server of its own for the set: the cluster's nodes have other things to do."""
        super().start_server()
        return super().set_bytes()

    def summary(self):
        if not self.moved or not self.took_over:
            raise SystemExit("The crawl was over before the cluster had changed; try more pages.")
        return {**super().summary(), "moved_slots": NMOVED, "took_over_seconds": self.took_over}


def explain(summary):
    """Why pages were fetched twice or never."""
    doubtful = sum(worker["doubtful"] for worker in summary["workers"])
    print("why twice: %d links were on their way when the primary died;" % doubtful)
    print("    they were followed, to be sure. And what its replica had not got yet was new once")
    print("    more: replication is asynchronous.")
    print("why never: false positives of the filter. Nothing else loses a page.")


def main():
    arguments = demo.parse_arguments(__doc__.splitlines()[0], 10000)
    summary = demo.run(ClusterDemo(arguments))
    if not arguments.json:
        explain(summary)
    sys.exit(1 if summary["nmissing"] > demo.nforgiven(summary) else 0)


if __name__ == "__main__":
    main()
