#!/usr/bin/python3
"""PartitionedFilter: the plan that all agree on, answers like those of one filter, and what is said
of each item when slots move, connections break and primaries die.
"""

import binascii
import logging
import os
import random
import signal
import sys
import threading
import time
import unittest
import unittest.mock

import redis
from redis.cluster import RedisCluster

import server
from cluster import Cluster
from faults import Faults
from result import run_tests

from shardbloom import Filter, NotAdded, NotReplicated, PartitionedFilter, PlanError, partitioned
from shardbloom.cluster import Servers, reply_from, slot_of
from shardbloom.connection import Address
from shardbloom.plan import Plan, partition_keys, partition_of, tags

ERROR = 1e-12  # with thousands of items, a wrong answer has a probability below 1e-8 * 1e-12
CAPACITY = 20000


def filter_on(client, name="seen", **options):
    options = {"capacity": CAPACITY, "error": ERROR, "partitions": 16, **options}
    return PartitionedFilter(client, name, **options)


def many_keys(*numbers):
    return [key for n in numbers for key in partition_keys(b"seen", n)]


def urls(first, last):
    return [b"https://example.com/%d" % n for n in range(first, last)]


class Warnings(logging.Handler):
    """What is said on the package's logger meanwhile."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())

    def __enter__(self):
        logging.getLogger("shardbloom").addHandler(self)
        return self.texts

    def __exit__(self, *_):
        logging.getLogger("shardbloom").removeHandler(self)


class during_the_pause:
    """Instead of the first pauses between attempts, something happens each."""

    def __init__(self, *steps):
        self.steps = list(steps)

    def __enter__(self):
        self.patch = unittest.mock.patch("shardbloom.cluster.time.sleep", self.pause)
        self.patch.start()
        return self

    def __exit__(self, *_):
        self.patch.stop()

    def pause(self, _):
        if self.steps:
            self.steps.pop(0)()


def vectors(name):
    """The rows of a table of docs/partitions.md, or the words of a block."""
    with open(os.path.join(server.ROOT, "docs", "partitions.md"), encoding="utf-8") as file:
        text = file.read().partition("<!-- vectors: %s -->\n" % name)[2].partition("\n\n")[0]
    if not text.startswith("|"):
        return text.split()
    rows = [line[1:-1].split("|") for line in text.splitlines()[2:]]
    return [[cell.strip(" ").replace("`", "") for cell in row] for row in rows]


class Forms(unittest.TestCase):
    """Names and plans, without a server."""

    def test_vectors_of_items(self):
        rows = vectors("items")
        self.assertEqual(len(rows), 8)
        for text, digits, checksum, *numbers in rows:
            item = bytes.fromhex(digits)
            self.assertIn(text, ("", item.decode(errors="replace")))
            self.assertEqual(binascii.crc_hqx(item, 0), int(checksum, 16))
            for n, number in zip((1, 3, 64, 1000, 1024), numbers, strict=True):
                self.assertEqual(partition_of(item, n), int(number))

    def test_vectors_of_keys(self):
        rows = vectors("keys")
        self.assertEqual(len(rows), 15)
        for n, p, slot, key in rows:
            found = partition_keys(b"seen", int(n))[int(p)]
            self.assertEqual((found.decode(), slot_of(found)), (key, int(slot)))
        self.assertEqual(list(tags(64)), [int(tag) for tag in vectors("tags")])
        sums = vectors("sums")
        self.assertEqual(len(sums), 4)
        for n, checksum in sums:
            text = " ".join(map(str, tags(int(n)))).encode()
            self.assertEqual(binascii.crc_hqx(text, 0), int(checksum, 16))

    def test_vectors_of_plans(self):
        rows = vectors("capacities")
        self.assertEqual(len(rows), 9)
        for capacity, n, share, room in rows:
            plan = Plan.of(int(n), 1e-4, int(capacity))
            self.assertEqual(plan.partition_capacity(), int(room))
            most = max(sum(p == c * int(n) >> 16 for c in range(65536)) for p in (0, 1))
            self.assertLess(abs(int(share) - int(capacity) * most / 65536), 1)
        rows = vectors("plans")
        self.assertEqual(len(rows), 15)
        before = Plan.of(1, 0.5, 1)
        for sign, text in rows:
            if sign == "×":
                with self.assertRaises(PlanError):
                    Plan.parse(b"seen", text.encode())
                continue
            plan = Plan.parse(b"seen", text.encode())
            self.assertEqual(str(plan), text)
            self.assertEqual(plan.is_like(before), sign == "=", text)
            before = plan
        first = Plan.of(64, 1e-4, 10**10)
        self.assertEqual(str(first), rows[0][1])

    def test_names(self):
        for name in ("a{b", "a}b", "{a}", b"\xff{", "", b""):
            with self.assertRaises(ValueError):
                filter_on(redis.Redis(), name)
        self.assertEqual(filter_on(redis.Redis(), b"\xff\x00").key, b"\xff\x00")

    def test_every_partition_has_its_slot(self):
        for n in (1, 2, 3, 64, 100, 1000, 1024):
            keys = partition_keys(b"seen", n)
            self.assertEqual(
                [slot_of(key) for key in keys], [(2 * p + 1) * 8192 // n for p in range(n)]
            )
            self.assertTrue(all(key.startswith(b"seen:%d{" % p) for p, key in enumerate(keys)))
            self.assertEqual({partition_of(b"%d" % i, n) for i in range(50 * n)}, set(range(n)))

    def test_numbered_pages_fit(self):
        """A CRC spreads them less evenly than chance would: up to 4.2% above the mean here."""
        counts = [0] * 64
        for n in range(10**6):
            counts[partition_of(b"http://a.b/item?id=%d" % n, 64)] += 1
        self.assertGreater(max(counts), 1.04 * 10**6 / 64)
        self.assertLess(max(counts), Plan.of(64, 1e-4, 10**6).partition_capacity())

    def test_wishes_that_are_refused(self):
        for wrong in (
            {"partitions": 0},
            {"partitions": 1025},
            {"error": 0},
            {"error": 1},
            {"error": float("nan")},
            {"capacity": 0},
            {"options": ("EXPANSION 4",)},
            {"options": ("",)},
            {"batch": 0},
            {"wait_replicas": -1},
            {"wait_replicas": 1, "wait_ms": 0},
        ):
            with self.assertRaises(ValueError, msg=wrong):
                filter_on(redis.Redis(), **wrong)
        with self.assertRaisesRegex(ValueError, "socket_timeout"):
            filter_on(redis.Redis(socket_timeout=1), wait_replicas=1, wait_ms=1000)
        with self.assertRaises(TypeError):
            filter_on(redis.Redis()).add_many([None])

    def test_plans_that_are_refused(self):
        for text, words in (
            (b"", "not the plan"),
            (b"hello", "not the plan"),
            (b"partitioned-filter", "version"),
            (b"partitioned-filter 2 64 0.01 100", "version 2"),
            (b"partitioned-filter 1 64 0.01", "can't be read"),
            (b"partitioned-filter 1 64  0.01 100", "can't be read"),
            (b"partitioned-filter 1 0 0.01 100", "can't be read"),
            (b"partitioned-filter 1 1025 0.01 100", "can't be read"),
            (b"partitioned-filter 1 64 2 100", "can't be read"),
            (b"partitioned-filter 1 64 x 100", "can't be read"),
            (b"partitioned-filter 1 64 0.01 -1", "can't be read"),
            (b"partitioned-filter 1 64 0.01 100 ", "can't be read"),
            (b"partitioned-filter 1 64 0.01 100\n", "can't be read"),
            (b"partitioned-filter 1 64 0.01 100 \xff", "can't be read"),
            (b"partitioned-filter 1 64 0.01 100 " + b"X" * 5000, "not the plan"),
        ):
            with self.assertRaisesRegex(PlanError, words, msg=text):
                Plan.parse(b"seen", text)


class OnOneServer(unittest.TestCase):
    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)
        self.redis = self.server.redis

    def behind(self, command=b"BF.INSERT"):
        """A way to the server on which answers can be lost or made up."""
        faults = Faults(self.server.port, command)
        self.addCleanup(faults.close)
        return faults, redis.Redis(port=faults.port, socket_timeout=server.WAIT, **server.RESP2)

    def test_answers_are_those_of_one_filter(self):
        one = Filter(self.redis, "one", error=ERROR, capacity=CAPACITY)
        many = filter_on(self.redis, batch=700)
        chance = random.Random(1)
        known = set()
        self.assertEqual((many.count(), many.exists("a"), many.exists_many([])), (0, False, []))
        for _ in range(30):
            items = [b"%d" % chance.randrange(6000) for _ in range(chance.randrange(1, 1500))]
            new, before = [], set(known)
            for item in items:
                new.append(item not in known)
                known.add(item)
            self.assertEqual(many.exists_many(items), [item in before for item in items])
            self.assertEqual(one.add_many(items), new)
            self.assertEqual(many.add_many(items), new)
            self.assertEqual(many.exists_many(items), [True] * len(items))
        self.assertEqual((many.count(), one.count()), (len(known), len(known)))
        self.assertEqual((many.ncreated, many.nvanished), (1, 0))
        # Items of all kinds, as Filter takes them.
        for item in ("é", b"\x00\xff", -17, 2.5, "", "x" * 100000):
            self.assertEqual((one.add(item), one.exists(item)), (True, True))
            self.assertEqual((many.add(item), many.exists(item), item in many), (True,) * 3)
        info = many.info()
        self.assertEqual(
            (info["partitions"], info["items"], info["layers"], info["expansion"]),
            (16, len(known) + 6, 1, 2),
        )
        self.assertEqual(info["capacity"], 16 * many.plan.partition_capacity())
        self.assertEqual(sum(part["items"] for part in many.parts().values()), len(known) + 6)

    def test_a_full_one_does_not_grow(self):
        """Partitions have room for what falls unevenly. The items are always the same ones."""
        many = filter_on(self.redis, partitions=64)
        many.add_many(urls(0, CAPACITY))
        self.assertEqual(many.info()["layers"], 1)

    def test_full_partitions_refuse_what_is_new(self):
        options = ("NONSCALING", "SEED", 1)
        many = filter_on(self.redis, partitions=4, capacity=100, options=options)
        with self.assertRaises(NotAdded) as caught:
            many.add_many(urls(0, 1000))
        refused = caught.exception.answers.count(None)
        self.assertIn("full", str(caught.exception.cause))
        self.assertEqual(many.count(), 1000 - refused)
        self.assertEqual(
            many.exists_many(urls(0, 1000)), [one is not None for one in caught.exception.answers]
        )
        with self.assertRaisesRegex(redis.ResponseError, "full"):
            many.add(next(u for u, a in zip(urls(0, 1000), caught.exception.answers) if a is None))

    def test_many_begin_at_once(self):
        """One plan comes of it; whoever wanted another is told, and nobody begins differently."""
        start = threading.Barrier(16)
        outcomes = [None] * 16

        def begin(n):
            one = filter_on(self.server.client(), partitions=4 << n % 4)
            ask = one._ask

            def ask_when_all_have_found_nothing(*words):
                if words[0] == "SET":
                    start.wait()
                return ask(*words)

            one._ask = ask_when_all_have_found_nothing
            try:
                outcomes[n] = one.add(b"%d" % n)
            except PlanError as error:
                outcomes[n] = str(error)

        threads = [threading.Thread(target=begin, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        plan = Plan.parse(b"seen", self.redis.get("seen"))
        for n, outcome in enumerate(outcomes):
            if 4 << n % 4 == plan.npartitions:
                self.assertIs(outcome, True)
            else:
                self.assertIn("found '%s'" % plan, outcome)
                self.assertIn("expected 'partitioned-filter 1 %d " % (4 << n % 4), outcome)
        self.assertEqual(
            sorted(key for key in self.redis.scan_iter("seen*")),
            sorted([b"seen", *partition_keys(b"seen", plan.npartitions)]),
        )
        self.assertEqual(PartitionedFilter.open(self.redis, "seen").count(), 4)

    def test_another_wish_is_refused(self):
        filter_on(self.redis, options=("EXPANSION", 4)).create()
        self.assertEqual(self.redis.get("seen"), b"partitioned-filter 1 16 1e-12 20000 EXPANSION 4")
        self.assertFalse(filter_on(self.redis, options=("expansion", "4")).create())
        for wish in (
            {"partitions": 17},
            {"error": 1e-6},
            {"capacity": 20001},
            {"options": ()},
            {"options": ("EXPANSION", 8)},
            {"options": ("EXPANSION", 4, "SEED", 1)},
        ):
            other = filter_on(self.redis, **{"options": ("EXPANSION", 4), **wish})
            for call in (
                other.create,
                other.count,
                other.delete,
                lambda: other.add("a"),
                lambda: other.exists("a"),
            ):
                with self.assertRaisesRegex(PlanError, "found .* expected", msg=wish):
                    call()
            with self.assertRaises(NotAdded) as caught:
                other.add_many(["a", "b"])
            self.assertIsInstance(caught.exception.cause, PlanError)
            self.assertEqual(caught.exception.answers, [None, None])
        # The same number in other digits is the same wish.
        self.redis.set("seen", "partitioned-filter 1 16 0.000000000001 20000 EXPANSION 4")
        same = filter_on(self.redis, options=("EXPANSION", 4))
        self.assertEqual((same.create(), same.add("a")), (False, True))
        self.assertEqual(PartitionedFilter.open(self.redis, "seen").add("a"), False)

    def test_keys_that_are_something_else(self):
        self.redis.execute_command("BF.RESERVE", "plain", 0.01, 100)
        self.redis.rpush("list", "x")
        self.redis.set("text", "hello")
        self.redis.set("newer", "partitioned-filter 2 what ever")
        for name, words in (
            ("plain", "of another type"),
            ("list", "of another type"),
            ("text", "not the plan"),
            ("newer", "version 2"),
        ):
            before = self.redis.dump(name)
            for call in (filter_on(self.redis, name).create, filter_on(self.redis, name).count):
                with self.assertRaisesRegex(PlanError, words):
                    call()
            with self.assertRaisesRegex(PlanError, words):
                PartitionedFilter.open(self.redis, name)
            self.assertEqual(self.redis.dump(name), before)
        with self.assertRaisesRegex(PlanError, "there is no partitioned filter"):
            PartitionedFilter.open(self.redis, "nothing")
        # A partition's key is taken.
        self.redis.set(partition_keys(b"seen", 16)[3], "mine")
        with self.assertRaises(redis.ResponseError):
            filter_on(self.redis).create()

    def test_an_option_that_the_server_refuses_leaves_nothing(self):
        with self.assertRaisesRegex(redis.ResponseError, "NOPE"):
            filter_on(self.redis, options=("NOPE",)).add("a")
        self.assertEqual(self.redis.keys("*"), [])
        self.assertTrue(filter_on(self.redis).add("a"))

    def test_what_vanishes_is_made_again_and_reported(self):
        calls = []
        many = filter_on(self.redis, on_created=lambda one: calls.append(one.nvanished))
        items = urls(0, 2000)
        many.add_many(items)
        self.assertEqual((calls, many.ncreated), ([0], 1))
        gone = [2, 9]
        self.redis.delete(*(many.keys[p] for p in gone))
        with Warnings() as texts:
            answers = many.add_many(items)
        self.assertEqual(answers, [partition_of(item, 16) in gone for item in items])
        self.assertEqual((many.nvanished, calls), (2, [0, 2]))
        self.assertEqual(len(texts), 1)
        self.assertIn("2 of 16 partitions of seen had vanished", texts[0])
        # As the plan says, also where the plan is gone too and this client never had a wish.
        adopter = PartitionedFilter.open(self.redis, "seen", on_created=lambda _: calls.append("x"))
        adopter.add("a")
        self.redis.flushall()
        with Warnings() as texts:
            self.assertEqual(adopter.add_many(items), [True] * 2000)
        self.assertEqual(self.redis.get("seen").decode(), str(many.plan))
        self.assertEqual((adopter.nvanished, adopter.ncreated), (16, 1))
        self.assertIn("the plan of seen had vanished", texts[0])
        self.assertIn("16 of 16 partitions", texts[1])
        capacity = self.redis.execute_command("BF.INFO", many.keys[0], "CAPACITY")
        self.assertEqual(capacity, [many.plan.partition_capacity()])
        # Deleted on purpose, it is no surprise.
        self.assertTrue(many.delete())
        self.assertEqual(self.redis.exists("seen", *many.keys), 0)
        self.assertFalse(many.delete())
        with Warnings() as texts:
            self.assertTrue(many.add("a"))
        self.assertEqual((texts, many.nvanished), ([], 2))

    def test_a_plan_that_changes_is_noticed(self):
        """Somebody deletes the plan alone, and somebody else begins with another one."""
        many = filter_on(self.redis)
        many.add("a")
        with unittest.mock.patch.object(partitioned, "CHECK_SECONDS", -1):
            self.redis.delete("seen")
            with Warnings() as texts:
                self.assertFalse(many.add("a"))
            self.assertIn("the plan of seen had vanished", texts[0])
            self.assertEqual(self.redis.get("seen").decode(), str(many.plan))
            self.redis.set("seen", "partitioned-filter 1 32 1e-12 20000")
            for call in (many.add, many.exists):
                with self.assertRaisesRegex(PlanError, "found .* 1 32 .* expected .* 1 16 "):
                    call("a")
        # Without a look at it in between, it is noticed with the first partition that is gone.
        self.redis.delete(*many.keys)
        with self.assertRaisesRegex(PlanError, "expected '"):
            many.add("b")

    def test_a_user_who_has_only_this_name(self):
        words = "+set +get +bf.reserve +bf.insert +bf.mexists +bf.card +bf.info +unlink".split()
        self.redis.execute_command("ACL", "SETUSER", "crawler", "on", ">pw", "~seen*", *words)
        user = self.server.client(username="crawler", password="pw")
        many = filter_on(user)
        self.assertEqual(many.add_many(["a", "b", "a"]), [True, True, False])
        self.assertEqual((many.count(), many.exists("a"), many.info()["items"]), (2, True, 2))
        with self.assertRaises(redis.ResponseError):
            filter_on(user, "other").create()
        self.assertTrue(many.delete())

    def test_clients_that_decode_or_speak_otherwise(self):
        for client in (
            self.server.client(decode_responses=True),
            Servers(Address(port=self.server.port)),
        ):
            many = filter_on(client)
            self.assertEqual(many.add_many(["a", "b"]), [True, True])
            self.assertEqual((many.count(), many.info()["items"]), (2, 2))
            many.delete()

    def test_what_was_not_carried_out_is_sent_again(self):
        faults, client = self.behind()
        many = filter_on(client, partitions=2)
        with during_the_pause():
            for answer in (
                "-TRYAGAIN shards of this filter are on their way",
                "-CLUSTERDOWN The cluster is down",
                "-READONLY You can't write against a read only replica.",
                "-NOREPLICAS Not enough good replicas to write.",
            ):
                items = [answer + "%d" % n for n in range(20)]
                many.create()
                faults.answer(answer)
                self.assertEqual(many.add_many(items), [True] * 20)
                self.assertEqual(many.add_many(items), [False] * 20)
            # For as long as its patience lasts, and then it says that nothing was added.
            faults.answer(*["-CLUSTERDOWN The cluster is down"] * 2)
            hasty = filter_on(client, partitions=2, patience=-1)
            with self.assertRaises(NotAdded) as caught:
                hasty.add_many(["x", "y"])
            self.assertEqual(caught.exception.answers, [None, None])
            self.assertIsInstance(caught.exception.cause, redis.ResponseError)
            self.assertEqual(many.add_many(["x", "y"]), [True, True])

    def test_a_server_that_loads(self):
        """It says so before any item is sent, and no item is in doubt."""
        faults, client = self.behind(b"PING")
        many = filter_on(client)
        many.create()
        many.servers.first._answers = False  # as after a lost connection
        faults.answer("-LOADING the dataset")
        before = len(faults.commands)
        with during_the_pause():
            self.assertEqual(many.add_many(urls(0, 100)), [True] * 100)
        commands = [words[0] for words in faults.commands[before:]]
        self.assertEqual(commands[0], b"PING")
        self.assertEqual(commands[1:].count(b"PING"), 1)
        self.assertEqual(commands.count(b"BF.INSERT"), 16)
        # If it comes in the middle, it is the answer to one command, and the others are in doubt.
        faults, client = self.behind()
        many = filter_on(client)
        many.create()
        faults.answer("-LOADING the dataset")
        with during_the_pause(), self.assertRaises(NotAdded) as caught:
            many.add_many(urls(100, 200))
        self.assertIsInstance(caught.exception.cause, redis.ConnectionError)
        first = partition_of(urls(100, 101)[0], 16)
        self.assertEqual(
            [one is not None for one in caught.exception.answers],
            [partition_of(item, 16) == first for item in urls(100, 200)],
        )

    def test_a_lost_connection(self):
        """Of four commands the third is carried out, not answered; the fourth is lost."""
        faults, client = self.behind()
        many = filter_on(client, partitions=4)
        many.create()
        items = urls(0, 400)
        order = list(dict.fromkeys(partition_of(item, 4) for item in items))
        faults.cut(3)
        with self.assertRaises(NotAdded) as caught:
            many.add_many(items)
        answers = caught.exception.answers
        self.assertIsInstance(caught.exception.cause, redis.ConnectionError)
        self.assertEqual(
            answers, [True if partition_of(i, 4) in order[:2] else None for i in items]
        )
        self.assertEqual(
            many.exists_many(items), [partition_of(item, 4) in order[:3] for item in items]
        )
        # What had been repeated on the quiet would now count as seen, and be lost.
        doubtful = [item for item, answer in zip(items, answers) if answer is None]
        self.assertEqual(
            many.add_many(doubtful), [partition_of(item, 4) == order[3] for item in doubtful]
        )
        # One item: the error itself, as Filter has it. Later batches are not begun.
        faults.cut()
        with self.assertRaises(redis.ConnectionError):
            many.add("new")
        many.batch = 10
        faults.cut()
        with self.assertRaises(NotAdded) as caught:
            many.add_many(urls(1000, 1100))
        self.assertEqual(many.exists_many(urls(1010, 1100)), [False] * 90)
        # Questions may be repeated.
        faults.command = b"BF.MEXISTS"
        faults.cut()
        self.assertTrue(many.exists(items[0]))
        faults.command = b"BF.CARD"
        faults.cut()
        many.count()
        faults.command = b"BF.RESERVE"
        other = filter_on(client, "other", partitions=4)
        faults.cut(2)
        self.assertTrue(other.create())
        self.assertEqual(len(other.parts()), 4)

    def test_a_server_that_is_not_there_for_a_while(self):
        self.server.keep_aof()
        many = filter_on(self.server.client())
        many.add_many(urls(0, 100))
        self.server.kill()
        with during_the_pause(lambda: None, self.server.start):
            self.assertEqual(many.add_many(urls(50, 150)), [False] * 50 + [True] * 50)
        self.assertEqual(many.nvanished, 0)
        many.servers.patience = -1
        self.server.kill()
        try:
            with during_the_pause(), self.assertRaises(NotAdded) as caught:
                many.add_many(urls(0, 100))
            self.assertEqual(caught.exception.answers, [None] * 100)
            with self.assertRaises(redis.ConnectionError):
                many.exists("a")
        finally:
            self.server.start()


class InCluster(unittest.TestCase):
    def start(self, replicas=0, **options):
        self.cluster = Cluster(replicas)
        self.addCleanup(self.cluster.stop)
        self.client = RedisCluster(
            host="127.0.0.1",
            port=self.cluster.nodes[0].port,
            socket_timeout=server.WAIT,
            **server.RESP2,
        )
        return filter_on(self.client, **options)

    def at(self, node, items, n=16):
        """Those of the items whose partition is on a node."""
        keys = partition_keys(b"seen", n)
        return [item for item in items if self.cluster.of(keys[partition_of(item, n)]) is node]

    def test_all_nodes_have_their_share(self):
        many = self.start(partitions=64)
        for key in many_keys(1, 3, 64, 100):
            slot = self.cluster.nodes[0].redis.execute_command("CLUSTER", "KEYSLOT", key)
            self.assertEqual(slot, slot_of(key))
        items = urls(0, 5000)
        self.assertEqual(many.add_many(items), [True] * 5000)
        for node in self.cluster.nodes:
            self.assertIn(int(node.redis.info("bf")["bf_filters"]), (21, 22))
            self.assertEqual(int(node.redis.info("bf")["bf_items"]), len(self.at(node, items, 64)))
        # Whoever comes in by one node only finds the same, without the right to ask for slots too.
        for node in self.cluster.nodes:
            words = "+set +get +bf.reserve +bf.insert +bf.mexists +bf.card +ping".split()
            node.redis.execute_command("ACL", "SETUSER", "crawler", "on", ">pw", "~seen*", *words)
        for client in (
            redis.Redis(port=self.cluster.nodes[1].port, **server.RESP2),
            redis.Redis(
                port=self.cluster.nodes[1].port, username="crawler", password="pw", **server.RESP2
            ),
            Servers(Address(port=self.cluster.nodes[2].port)),
        ):
            other = filter_on(client, partitions=64)
            self.assertFalse(other.create())
            self.assertEqual(other.add_many(items[:2000]), [False] * 2000)
            self.assertEqual(other.exists_many(items), [True] * 5000)
            self.assertEqual(other.count(), 5000)

    def test_slots_that_move(self):
        """ASK, TRYAGAIN and MOVED, each in the middle of adding; the answers are those of a set."""
        many = self.start()
        known = set()
        upto = 0

        def add():
            nonlocal upto
            items = urls(upto, upto + 1000) + urls(0, 1000)
            upto += 1000
            expected = [not (item in known or known.add(item)) for item in items]
            self.assertEqual(many.add_many(items), expected)
            self.assertEqual(many.exists_many(items), [True] * len(items))

        add()
        for key in (many.keys[0], many.keys[15]):
            source, target = self.cluster.begin_migration(key)
            add()  # nothing has left
            shards = [shard[1] for shard in source.redis.execute_command("BF.SHARDS", key)]
            self.cluster.migrate(source, target, [key])
            with during_the_pause(
                lambda: None, lambda: self.cluster.migrate(source, target, shards)
            ) as pauses:
                add()  # TRYAGAIN, until the rest has come
            self.assertEqual(pauses.steps, [])
            add()  # ASK
            self.cluster.end_migration(key, source, target)
            add()  # MOVED
        # The plan's own slot, for a client that knows the old owner.
        other = filter_on(self.client)
        other.servers.exchange([])
        source, target = self.cluster.begin_migration("seen")
        self.cluster.migrate(source, target, [b"seen"])
        self.assertFalse(other.create())
        self.cluster.end_migration("seen", source, target)
        self.assertFalse(filter_on(self.client).create())
        self.assertEqual((many.ncreated, many.nvanished, many.count()), (1, 0, len(known)))

    def move(self, key):
        """Moves the slot of a key to the next node, one key at a time."""
        source, target = self.cluster.begin_migration(key)
        while True:
            keys = source.redis.execute_command("CLUSTER", "GETKEYSINSLOT", slot_of(key), 1)
            if not keys:
                break
            self.cluster.migrate(source, target, keys)
        self.cluster.end_migration(key, source, target)

    def test_several_threads_while_slots_move(self):
        """Of each item one of them is told that it is new, and nothing is in doubt. make
        test-clients ONLY=partitions:threads SECONDS=60 goes on for that long.
        """
        many = self.start(capacity=10**6)
        many.create()
        end = time.monotonic() + int(os.environ.get("TEST_SECONDS") or 0)
        stop, answers, failures = threading.Event(), {}, []

        def work(n, one):
            chance = random.Random(n)
            while not stop.is_set():
                items = [b"%d" % chance.randrange(10**6) for _ in range(chance.randrange(1, 500))]
                try:
                    found = one.add_many(items)
                except Exception as error:
                    failures.append(error)
                    return
                for item, new in zip(items, found):
                    answers.setdefault(item, []).append(new)

        # Two share an object; another has its own, and a client that knows one node only.
        other = filter_on(
            redis.Redis(port=self.cluster.nodes[1].port, **server.RESP2), capacity=10**6
        )
        threads = [
            threading.Thread(target=work, args=(n, one))
            for n, one in enumerate((many, many, other))
        ]
        for thread in threads:
            thread.start()
        nmoves = 0
        try:
            while nmoves < 4 or time.monotonic() < end:
                for key in many.keys[4:6]:  # the last slot of one node, and the first of the next
                    self.move(key)
                    nmoves += 1
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])
        self.assertEqual([item for item, found in answers.items() if sum(found) != 1], [])
        self.assertEqual(many.exists_many(answers), [True] * len(answers))
        self.assertEqual((many.count(), many.nvanished), (len(answers), 0))

    def test_a_primary_is_killed_and_its_replica_takes_over(self):
        many = self.start(replicas=2)
        victim, other = self.cluster.nodes[:2]
        successor = self.cluster.replicas[0]
        before, after = urls(0, 2000), urls(2000, 4000)
        self.assertEqual(many.add_many(before), [True] * 2000)
        self.assertEqual(victim.redis.wait(1, server.WAIT * 1000), 1)
        # It takes no more commands, and dies with those that were sent to it.
        os.kill(victim.process.pid, signal.SIGSTOP)
        sent, outcome = threading.Event(), []

        def reply(connection):
            if connection.port == victim.port:
                sent.set()
            return reply_from(connection)

        def add():
            try:
                outcome.append(many.add_many(after))
            except NotAdded as error:
                outcome.append(error)

        with unittest.mock.patch("shardbloom.cluster.reply_from", reply):
            adding = threading.Thread(target=add)
            adding.start()
            self.assertTrue(sent.wait(server.WAIT))
            victim.kill()
            adding.join()
        [failure] = outcome
        self.assertIsInstance(failure.cause, redis.ConnectionError)
        doubtful = self.at(victim, after)
        self.assertEqual([i for i, new in zip(after, failure.answers) if new is None], doubtful)
        self.assertEqual(failure.answers.count(True), 2000 - len(doubtful))
        # No connection to it: nothing is sent, and so nothing in doubt; then the replica answers.
        with during_the_pause(lambda: None, lambda: self.cluster.promote(successor)):
            self.assertEqual(many.add_many(doubtful), [True] * len(doubtful))
        self.assertEqual(many.exists_many(before + after), [True] * 4000)
        self.assertEqual((many.count(), many.nvanished), (4000, 0))
        # One who comes anew, by another node.
        late = PartitionedFilter.open(redis.Redis(port=other.port, **server.RESP2), "seen")
        self.assertEqual(late.exists_many(before + after), [True] * 4000)

    def test_what_asynchronous_replication_can_lose(self):
        """A replica that hears nothing any more takes over: what the primary has acknowledged since
        then is lost. Who asks for WAIT is told that it is in doubt; min-replicas-to-write refuses.
        """
        many = self.start(replicas=1)
        primary, replica = self.cluster.nodes[0], self.cluster.replicas[0]
        kept, lost, told = self.at(primary, urls(0, 500)), urls(500, 1000), urls(1000, 1500)
        careful = filter_on(self.client, wait_replicas=1, wait_ms=server.WAIT * 500)
        self.assertEqual(careful.add_many(kept), [True] * len(kept))
        careful.wait_ms = 1  # from now on in vain; the other two primaries have no replica at all
        os.kill(replica.process.pid, signal.SIGSTOP)
        primary.redis.execute_command("CLIENT", "KILL", "TYPE", "replica")
        self.cluster.wait(lambda: primary.redis.info("replication")["connected_slaves"] == 0)
        self.assertEqual(many.add_many(lost), [True] * 500)
        with self.assertRaises(NotAdded) as caught:
            careful.add_many(told)
        self.assertIsInstance(caught.exception.cause, NotReplicated)
        self.assertIn("0 of 1 replicas", str(caught.exception.cause))
        self.assertEqual(caught.exception.answers, [None] * 500)
        primary.redis.config_set("min-replicas-to-write", 1)
        refused = self.at(primary, urls(1500, 2000))
        many.servers.patience = -1
        with during_the_pause(), self.assertRaises(NotAdded) as caught:
            many.add_many(refused)
        self.assertTrue(str(caught.exception.cause).startswith("NOREPLICAS"))
        self.assertEqual(many.exists_many(refused), [False] * len(refused))
        many.servers.patience = server.WAIT
        primary.kill()
        os.kill(replica.process.pid, signal.SIGCONT)
        self.cluster.promote(replica)
        self.assertEqual(many.exists_many(kept), [True] * len(kept))
        gone = set(self.at(primary, lost + told))
        self.assertGreater(len(gone), 200)
        self.assertEqual(many.exists_many(lost + told), [i not in gone for i in lost + told])
        self.assertEqual(many.nvanished, 0)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
