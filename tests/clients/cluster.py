"""A cluster for the tests in Python: real nodes, whose slots can be moved and whose replicas can be
promoted.
"""

import time

import server
import tool  # noqa: F401  (the path to the package)

from shardbloom.cluster import slot_of


class Cluster:
    """Three primaries that share the slots; with replicas, one for each of so many of them."""

    def __init__(self, replicas=0, clock_ms=None):
        self.nodes, self.replicas, self.buses = [], [], []
        for _ in range(3 + replicas):
            self.buses.append(server.free_port())
            node = server.Server(
                "--cluster-enabled",
                "yes",
                "--cluster-node-timeout",
                "20000",
                "--cluster-replica-no-failover",  # but for promote()
                "yes",
                "--repl-diskless-sync-delay",
                "0",
                "--cluster-port",
                str(self.buses[-1]),
                clock_ms=clock_ms,
            )
            (self.nodes if len(self.nodes) < 3 else self.replicas).append(node)
        bounds = [0, 5461, 10923, 16384]
        for i, node in enumerate(self.nodes + self.replicas):
            if i < 3:
                node.redis.execute_command("CLUSTER", "ADDSLOTSRANGE", bounds[i], bounds[i + 1] - 1)
            node.redis.execute_command("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            node.redis.execute_command(
                "CLUSTER", "MEET", "127.0.0.1", self.nodes[0].port, self.buses[0]
            )
        self.moved = {}  # slots that have another node by now
        self.ids = [node.redis.execute_command("CLUSTER", "MYID").decode() for node in self.nodes]
        self.wait(lambda: all(self.is_ready(node) for node in self.nodes + self.replicas))
        for i, replica in enumerate(self.replicas):
            replica.redis.execute_command("CLUSTER", "REPLICATE", self.ids[i])
        for i, replica in enumerate(self.replicas):
            self.wait(lambda: replica.redis.info("replication").get("master_link_status") == "up")
            self.wait(lambda: self.nodes[i].redis.info("replication")["connected_slaves"] == 1)
        # Whoever asks any node for the slots learns of all replicas.
        for node in self.nodes if replicas else ():
            self.wait(lambda: sum("slave" in one[2] for one in self.seen_by(node)) == replicas)

    @staticmethod
    def wait(condition):
        end = time.monotonic() + server.WAIT
        while not condition():
            assert time.monotonic() < end, "the cluster does not come to it"
            time.sleep(0.02)

    @staticmethod
    def seen_by(node):
        """What a node knows of all: the fields of each line of CLUSTER NODES."""
        reply = node.redis.execute_command("CLUSTER", "NODES")
        text = reply.decode() if isinstance(reply, bytes) else str(reply)
        return [line.split(" ") for line in text.splitlines()]

    def is_ready(self, node):
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
        known = "cluster_known_nodes:%d" % len(self.nodes + self.replicas)
        return "cluster_state:ok" in text and known in text

    def of(self, key):
        """The node that has a key's slot."""
        if slot_of(key) in self.moved:
            return self.moved[slot_of(key)]
        return self.nodes[[slot_of(key) < bound for bound in (5461, 10923, 16384)].index(True)]

    def stop(self):
        for node in self.nodes + self.replicas:
            node.stop()

    def promote(self, replica):
        """Makes a replica a primary, whatever the others think."""
        replica.redis.execute_command("CLUSTER", "FAILOVER", "TAKEOVER")
        self.wait(lambda: replica.redis.info("replication")["role"] == "master")

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

    def end_migration(self, key, source, target):
        """The slot belongs to the target now. Everybody has heard so from the target itself: until
        then, an older message of the source could make a node believe the contrary.
        """
        slot, owner = slot_of(key), self.ids[self.nodes.index(target)]
        for node in [target, source, *self.nodes]:
            node.redis.execute_command("CLUSTER", "SETSLOT", slot, "NODE", owner)
        self.moved[slot] = target

        def epoch(node):
            return next(fields[6] for fields in self.seen_by(node) if fields[0] == owner)

        self.wait(lambda: len({epoch(node) for node in self.nodes}) == 1)
