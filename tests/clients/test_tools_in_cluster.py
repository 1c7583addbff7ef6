#!/usr/bin/python3
"""The tools in a cluster: they look at all nodes, and follow keys to where they are or are going.
"""

import json
import os
import sys
import time
import unittest
import unittest.mock

import redis

import server
from result import run_tests
from tool import run

from shardbloom.cluster import Redirection, Servers, redirection, slot_of
from shardbloom.connection import Address
from shardbloom.filter import Filter

NAMES = ["seen:%d" % n for n in range(12)]


class Cluster:
    """Three primaries that share the slots."""

    def __init__(self, clock_ms=None):
        self.nodes, buses = [], []
        for _ in range(3):
            buses.append(server.free_port())
            self.nodes.append(
                server.Server(
                    "--cluster-enabled",
                    "yes",
                    "--cluster-node-timeout",
                    "5000",
                    "--cluster-port",
                    str(buses[-1]),
                    clock_ms=clock_ms,
                )
            )
        bounds = [0, 5461, 10923, 16384]
        for i, node in enumerate(self.nodes):
            node.redis.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[i], bounds[i + 1] - 1)
            node.redis.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            node.redis.execute_command("CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, buses[0])
        self.ids = [node.redis.execute_command("CLUSTER", "MYID").decode() for node in self.nodes]
        end = time.monotonic() + server.WAIT
        while not all(self.is_ready(node) for node in self.nodes):
            assert time.monotonic() < end, "the cluster does not come up"
            time.sleep(0.05)

    @staticmethod
    def is_ready(node):
        text = node.redis.execute_command("CLUSTER", "INFO")
        text = (
            text
            if isinstance(text, str)
            else (
                text.decode()
                if isinstance(text, bytes)
                else "\n".join("%s:%s" % pair for pair in text.items())
            )
        )
        return "cluster_state:ok" in text and "cluster_known_nodes:3" in text

    def of(self, key):
        """The node that has a key's slot."""
        return self.nodes[[slot_of(key) < bound for bound in (5461, 10923, 16384)].index(True)]

    def stop(self):
        for node in self.nodes:
            node.stop()

    def begin_migration(self, key):
        """The slot of a key is on its way from its node to the next one. Returns both nodes."""
        source = self.of(key)
        at = self.nodes.index(source)
        target, slot = self.nodes[(at + 1) % 3], slot_of(key)
        target.redis.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[at])
        source.redis.execute_command(
            "CLUSTER", "SETSLOT", slot, "MIGRATING", self.ids[(at + 1) % 3]
        )
        return source, target

    def migrate(self, source, target, keys):
        source.redis.execute_command(
            "MIGRATE", "127.0.0.1", target.port, "", 0, 30000, "KEYS", *keys
        )


class InCluster(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.stop)
        self.single = server.Server()
        self.addCleanup(self.single.stop)
        # Every tool enters by a node that has only a third of the keys.
        self.entry = self.cluster.nodes[0]
        self.port = str(self.entry.port)
        for name in NAMES:
            self.cluster.of(name).redis.execute_command("BF.MADD", name, "item", name)
        self.assertEqual(len({self.cluster.of(name) for name in NAMES}), 3)

    def run_it(self, tool, *arguments, code=0, port=None):
        status, out, err = run(tool, "-p", port or self.port, *arguments)
        self.assertEqual(status, code, err)
        return out, err

    def seen_by_bfstat(self):
        return sorted(
            one["key"] for one in json.loads(self.run_it("bfstat", "--json")[0])["filters"]
        )

    def test_bfstat_sees_all_nodes(self):
        self.assertEqual(self.seen_by_bfstat(), sorted(NAMES))
        report = json.loads(self.run_it("bfstat", "--json")[0])
        self.assertEqual(
            sorted(report["nodes"]),
            sorted("127.0.0.1:%d" % node.port for node in self.cluster.nodes),
        )
        self.assertEqual(report["totals"]["bf_filters"], len(NAMES))
        self.cluster.nodes[2].kill()
        out, err = self.run_it("bfstat", "--once", code=2)
        self.assertIn("127.0.0.1:%d does not answer" % self.cluster.nodes[2].port, out)
        self.assertIn(
            'shardbloom_node_up{node="127.0.0.1:%d"} 0' % self.cluster.nodes[2].port,
            self.run_it("bfstat", "--prometheus")[0],
        )
        self.run_it("bforphans", "--quiet", code=2)

    def test_bfread(self):
        for name in NAMES:
            self.assertEqual(self.run_it("bfread", name, "item", name, "other")[0], "1\n1\n0\n")

    def test_bforphans(self):
        for name in NAMES[
            :6
        ]:  # a shard of a filter that there never was, beside one of a filter that lives
            node = self.cluster.of(name)
            shard = node.redis.execute_command("BF.SHARDS", name)[0][1]
            client = node.redis
            copied = b"bf:{%s}:%s:0:0" % (name.encode(), b"0" * 16)
            data = bytearray(client.get(shard))
            data[8:16] = bytes(8)  # the header has the filter's id
            client.set(copied, bytes(data))
        out, err = self.run_it("bforphans", "--quiet", "--wait", "0", code=1)
        self.assertIn("%d shards seen, 6 orphans" % (len(NAMES) + 6), out)
        out, err = self.run_it("bforphans", "--quiet", "--wait", "0", "--remove")
        self.assertIn("6 removed", out)
        self.assertIn(
            "%d shards seen, 0 orphans" % len(NAMES), self.run_it("bforphans", "--quiet")[0]
        )

    def test_bfcopy_from_a_cluster_and_into_one(self):
        out, err = self.run_it(
            "bfcopy", "--to", "redis://127.0.0.1:%d" % self.single.port, "seen:*"
        )
        self.assertIn("12 copied, 0 failed", out)
        for name in NAMES:
            self.assertEqual(
                self.single.redis.execute_command("BF.MEXISTS", name, "item", name), [1, 1]
            )
        self.single.redis.execute_command("BF.ADD", "seen:0", "more")
        out, err = self.run_it(
            "bfcopy",
            "--to",
            "redis://127.0.0.1:" + self.port,
            "seen:*",
            "--replace",
            port=str(self.single.port),
        )
        self.assertEqual(
            self.cluster.of("seen:0").redis.execute_command("BF.EXISTS", "seen:0", "more"), 1
        )
        self.assertEqual(self.seen_by_bfstat(), sorted(NAMES))

    def test_bfimport_into_a_cluster(self):
        urls = ["url %d" % n for n in range(5000)]
        self.cluster.of("urls").redis.sadd("urls", *urls)
        for name in ("imported:1", "imported:2", "imported:3", "imported:4"):
            state = os.path.join(self.entry.dir, "state")
            out, err = self.run_it("bfimport", "urls", name, "--verify", "--state", state)
            self.assertIn("5000 elements read", out)
            self.assertTrue(
                all(self.cluster.of(name).redis.execute_command("BF.MEXISTS", name, *urls))
            )

    def test_keys_that_have_moved_ahead(self):
        """In the middle of a migration the source answers ASK for what has gone."""
        name = next(name for name in NAMES if self.cluster.of(name) is self.entry)
        shards = [shard[1] for shard in self.entry.redis.execute_command("BF.SHARDS", name)]
        source, target = self.cluster.begin_migration(name)
        self.assertIs(source, self.entry)
        self.cluster.migrate(source, target, [name.encode(), *shards])
        with self.assertRaises(redis.ResponseError) as caught:
            source.redis.execute_command("BF.INFO", name)
        self.assertEqual(
            redirection(caught.exception), Redirection("127.0.0.1", target.port, moved=False)
        )
        self.assertEqual(self.run_it("bfread", name, "item", "other")[0], "1\n0\n")
        self.assertEqual(self.seen_by_bfstat(), sorted(NAMES))
        self.run_it("bfcopy", "--to", "redis://127.0.0.1:%d" % self.single.port, name)
        self.assertEqual(self.single.redis.execute_command("BF.EXISTS", name, "item"), 1)
        # Filter on the same way to connect.
        one = Filter(Servers(Address(port=self.entry.port)), name, error=0.01, capacity=100)
        self.assertEqual(
            (one.add("item"), one.add("another"), one.exists("another"), one.ncreated),
            (False, True, True, 0),
        )

    def test_keys_that_arrive_in_pieces(self):
        """TRYAGAIN while a filter's shards are on both sides; the tools wait for the rest."""
        name = next(name for name in NAMES if self.cluster.of(name) is self.entry)
        shards = [shard[1] for shard in self.entry.redis.execute_command("BF.SHARDS", name)]
        source, target = self.cluster.begin_migration(name)
        self.cluster.migrate(source, target, [name.encode()])
        client = Servers(Address(port=self.entry.port))
        rest = [lambda: self.cluster.migrate(source, target, shards)]

        def sleep(_):
            if rest:
                rest.pop()()

        with unittest.mock.patch("time.sleep", sleep):
            self.assertEqual(client.command(name, "BF.EXISTS", name, "item"), 1)
        self.assertEqual(rest, [])


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
