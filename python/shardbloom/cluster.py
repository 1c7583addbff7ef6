"""One server, or all of a cluster: whoever holds a key answers for it.

redis-py has a client for clusters too. This one is here because the tools also have to look at
every node by itself, in every database, and because one code for a single server and a cluster is
simpler than two. A server that is not part of a cluster never redirects, so the same calls serve
both.
"""

from __future__ import annotations

import binascii
import concurrent.futures
import dataclasses
import re
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import redis
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    ReadOnlyError,
    TryAgainError,
)

from shardbloom.connection import Address, ClientAddress, Key

NSLOTS = 16384
NREDIRECTIONS = 16
PATIENCE_SECONDS = 30  # for keys on their way from node to node, and for a new primary
PAUSE_SECONDS = 0.05  # before the next attempt
MOST_THREADS = 32  # that talk to nodes at the same time

# The server has answered, and has done nothing: it will do it later.
NOT_YET = (redis.BusyLoadingError, TryAgainError, ReadOnlyError, ClusterDownError)
NOT_YET_WORDS = (
    "BUSY ",
    "CLUSTERDOWN ",
    "LOADING ",
    "MASTERDOWN ",
    "NOREPLICAS ",
    "READONLY ",
    "TRYAGAIN ",
)
UNREACHABLE = (redis.ConnectionError, redis.TimeoutError)

# redis-py before 5.3 wants to know what a connection is for; later ones warn if they are told.
FOR_COMMAND = ("_",) if [int(n) for n in redis.__version__.split(".")[:2]] < [5, 3] else ()

Word = Any  # of a command: str, bytes, int or float


def slot_of(key: Key) -> int:
    """The hash slot of a key."""
    name = key.encode(errors="surrogateescape") if isinstance(key, str) else key
    start = name.find(b"{")
    end = name.find(b"}", start + 1) if start >= 0 else -1
    return binascii.crc_hqx(name[start + 1 : end] if end > start + 1 else name, 0) % NSLOTS


@dataclasses.dataclass(frozen=True)
class Redirection:
    """A reply that names another node."""

    host: str  # may be empty: the host of the node that was asked
    port: int
    moved: bool  # for good; else for this one command


def redirection(error: object) -> Optional[Redirection]:
    """What MOVED and ASK say; redis-py knows them by classes of their own in some versions and as
    words in others.
    """
    if isinstance(error, AskError):  # MovedError is one too
        return Redirection(error.host, int(error.port), isinstance(error, MovedError))
    match = (
        re.match(r"(MOVED|ASK) \d+ (\S*):(\d+)", str(error))
        if isinstance(error, redis.ResponseError)
        else None
    )
    return Redirection(match[2], int(match[3]), match[1] == "MOVED") if match else None


def is_on_the_way(error: object) -> bool:
    """TRYAGAIN: some of the keys are on the other node already."""
    return (
        isinstance(error, TryAgainError)
        or isinstance(error, redis.ResponseError)
        and str(error)[:8] == "TRYAGAIN"
    )


def not_yet(error: object) -> bool:
    """Whether the server has answered that it can't do it now. It has done nothing then."""
    return isinstance(error, NOT_YET) or (
        isinstance(error, redis.ResponseError) and str(error).startswith(NOT_YET_WORDS)
    )


def unreachable(error: object) -> bool:
    """Whether there was no answer, and may be one later, here or from another node."""
    return isinstance(error, UNREACHABLE) and not isinstance(
        error, (redis.AuthenticationError, redis.BusyLoadingError)
    )


@dataclasses.dataclass(eq=False)
class Request:
    """A command for Servers.exchange(), and what came of it."""

    key: Key
    words: Tuple[Word, ...]
    repeatable: bool = True  # once more does no harm, if the answer got lost
    reply: Any = None  # or the error that came instead of it
    last: Any = None  # the reply to the command that was sent last on the same connection
    sent: bool = False  # if there is no answer: it may have been carried out
    asked: Optional[Node] = None  # who was asked last
    node: Optional[Node] = None  # whom a redirection named
    asking: bool = False
    nredirections: int = 0

    def result(self) -> Any:
        """The reply; raises the error."""
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


class Node:
    """A server, or one primary of a cluster. Errors leave it with what they are about, for
    connection.explain().
    """

    def __init__(self, address: Address, timeout: float):
        self.address = address
        self.name = str(address)
        self.timeout = timeout
        self._clients: Dict[int, Any] = {}
        self._answers = False  # the last connection was good

    def client(self, db: Optional[int] = None) -> Any:
        """A client of redis-py for a database; without a number, for the one of the address."""
        number = (self.address.db or 0) if db is None else db
        if number not in self._clients:
            self._clients[number] = self.address.client(number, self.timeout)
        return self._clients[number]

    def command(
        self,
        *words: Word,
        db: Optional[int] = None,
        key: Optional[Key] = None,
        asking: bool = False,
    ) -> Any:
        """The reply to a command; raises errors, redirections too."""
        try:
            if not asking:
                return self.client(db).execute_command(*words)
            pipeline = self.client(db).pipeline(
                transaction=False
            )  # ASKING holds for the next command of a connection
            pipeline.execute_command("ASKING")
            pipeline.execute_command(*words)
            reply = pipeline.execute(raise_on_error=False)[1]
            if isinstance(reply, Exception):
                raise reply
            return reply
        except redis.RedisError as error:
            raise self.named(error, key)

    def commands(self, commands: Iterable[Sequence[Word]], db: Optional[int] = None) -> List[Any]:
        """The replies to many commands in one round trip; single errors are among them."""
        try:
            pipeline = self.client(db).pipeline(transaction=False)
            for words in commands:
                pipeline.execute_command(*words)
            return list(pipeline.execute(raise_on_error=False))
        except redis.RedisError as error:
            raise self.named(error)

    def exchange(self, requests: Sequence[Request], last: Sequence[Word] = ()) -> None:
        """Sends all requests in one go, then the last command, and takes the replies one by one.

        When the connection breaks, only those are in doubt that have no answer yet: a pipeline of
        redis-py would forget the answers before. And nothing is ever sent twice, whatever the
        client was told about retries.
        """
        pool = self.client().connection_pool
        waiting = list(requests)
        for request in requests:
            request.asked, request.reply, request.last, request.sent = self, None, None, False
        sent = False
        connection: Any = None
        try:
            connection = pool.get_connection(*FOR_COMMAND)
            if not self._answers:
                self._probe(connection)
            commands: List[Sequence[Word]] = []
            for request in requests:
                commands += [("ASKING",)] if request.asking else []
                commands.append(request.words)
            commands += [last] if last else []
            sent = True
            connection.send_packed_command(connection.pack_commands(commands))
            while waiting:
                if waiting[0].asking:
                    reply_from(connection)
                waiting[0].reply = reply_from(connection)
                waiting.pop(0)
            if last:
                # Without this reply those are in doubt too that were carried out.
                waiting = [one for one in requests if not isinstance(one.reply, Exception)]
                reply = reply_from(connection)
                for request in waiting:
                    request.last = reply
                waiting = []
            self._answers = True
        except UNREACHABLE as error:
            self._answers = False
            for request in waiting:
                request.reply, request.sent = error, sent
                if sent and isinstance(error, redis.BusyLoadingError):
                    # redis-py has closed the connection: it is the answer to the first alone.
                    request.sent = request is not waiting[0]
                    error = redis.ConnectionError(str(error))
        finally:
            for request in requests:
                if isinstance(request.reply, redis.RedisError):
                    self.named(request.reply, request.key)
            if connection is not None:
                if waiting:
                    connection.disconnect()  # a reply may come later
                pool.release(connection)

    @staticmethod
    def _probe(connection: Any) -> None:
        """A server that is still loading says so now, rather than to each of a hundred commands,
        of which redis-py would drop all replies but the first.
        """
        connection.send_command("PING")
        reply_from(connection)

    def named(self, error: redis.RedisError, key: Optional[Key] = None) -> redis.RedisError:
        """The error, with what connection.run() needs to say what it is about."""
        setattr(error, "address", self.address)
        setattr(error, "key", key)
        return error

    def close(self) -> None:
        for client in self._clients.values():
            client.connection_pool.disconnect()

    def check_module(self) -> None:
        """Raises the error "unknown command" if the module is not loaded."""
        try:
            self.command("BF.PLAN", "0.01", 100)  # needs no key, and RedisBloom does not know it
        except NoPermissionError:
            pass  # the server knows the command

    def info(self, section: str) -> Dict[str, Any]:
        """A section of INFO; empty if the user may not see it."""
        try:
            return dict(self.command("INFO", section))
        except NoPermissionError:
            return {}

    def databases(self) -> Dict[int, int]:
        """The databases that hold keys, with how many; if the user may not know, the one of the
        address with 0.
        """
        found = self.info("keyspace")
        numbers = {
            int(name[2:]): entry["keys"]
            for name, entry in found.items()
            if re.fullmatch(r"db\d+", name)
        }
        return numbers or {self.address.db or 0: 0}


def reply_from(connection: Any) -> Any:
    """The next reply of a connection; errors of single commands are returned, others raised."""
    try:
        return connection.read_response(disable_decoding=True)
    except redis.ResponseError as error:
        return error


class Servers:
    """The server of an address, or the cluster that it is part of."""

    def __init__(self, address: Address, timeout: float = 60, patience: float = PATIENCE_SECONDS):
        self.address = address
        self.timeout = timeout
        self.patience = patience
        self.first = Node(address, timeout)
        self._nodes: Dict[Tuple[str, int], Node] = (
            {} if address.path else {(address.host, address.port): self.first}
        )
        self._slots: Dict[int, Node] = {}  # learned from redirections
        self.answered = self.first  # who replied to the last command
        self._entry = self.first  # whom to ask for a slot that is not known
        self._learned = False  # who has which slot, or that there are none
        self._threads: Optional[concurrent.futures.ThreadPoolExecutor] = None

    @classmethod
    def of(cls, client: Any, patience: float = PATIENCE_SECONDS) -> Servers:
        """The servers of a client of redis-py, Redis or RedisCluster, over its own connections."""
        if isinstance(client, cls):
            return client
        if not hasattr(client, "get_nodes"):
            return cls(ClientAddress.of(client), patience=patience)
        addresses = [
            ClientAddress.of(client.get_redis_connection(node)) for node in client.get_nodes()
        ]
        if not addresses:
            raise redis.ConnectionError("the cluster's client knows no node")
        servers = cls(addresses[0], patience=patience)
        for address in addresses:
            servers._nodes.setdefault((address.host, address.port), Node(address, servers.timeout))
        return servers

    def close(self) -> None:
        """Closes all connections."""
        if self._threads is not None:
            self._threads.shutdown()
            self._threads = None
        for node in {self.first, *self._nodes.values()}:
            node.close()

    def __str__(self) -> str:
        return str(self.address)

    def open(self, module: bool = True) -> Servers:
        """Connects, to find out now what does not work; with module, also whether the module is
        there.
        """
        try:
            self.first.command("PING")
        except NoPermissionError:
            pass
        if module:
            self.first.check_module()
        return self

    def node(self, host: str, port: int) -> Node:
        """A node of the cluster by its address; one that was met before is the same object."""
        if (host, port) not in self._nodes:
            self._nodes[host, port] = Node(self.address.at(host, port), self.timeout)
        return self._nodes[host, port]

    def is_cluster(self) -> bool:
        return bool(int(self.first.info("cluster").get("cluster_enabled", 0)))

    def nodes(self) -> Tuple[List[Node], List[str]]:
        """The server, or all primaries of the cluster that have slots; and the addresses of those
        that do not answer.
        """
        if not self.is_cluster():
            return [self.first], []
        reply = self.first.command("CLUSTER", "NODES")
        text = reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)
        up, down = [], []
        for fields in (line.split(" ") for line in text.splitlines() if line):
            flags = fields[2].split(",")
            if (
                "master" not in flags
                or "noaddr" in flags
                or "handshake" in flags
                or len(fields) == 8
            ):
                continue  # the ninth field is the first range of slots
            place = fields[1].split("@")[0].split(",")[0]
            host, _, port = place.rpartition(":")
            node = self.node(self._host(host, self.first), int(port))
            try:
                node.command("PING")
            except NoPermissionError:
                pass
            except redis.AuthenticationError:
                raise
            except (redis.ConnectionError, redis.TimeoutError):
                down.append(node.name)
                continue
            up.append(node)
        return up, down

    @staticmethod
    def _host(name: str, node: Node) -> str:
        """A host as nodes give it. A node that does not know its own address gives none: it is the
        one that was asked.
        """
        return name.strip("[]") if name not in ("", "?") else node.address.host

    def command(self, key: Key, *words: Word, db: Optional[int] = None) -> Any:
        """Sends a command to the node that has the key, wherever that turns out to be."""
        slot = slot_of(key)
        node, asking = self._slots.get(slot, self.first), False
        nredirections, end = 0, time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                reply = node.command(*words, db=db, key=key, asking=asking)
                self.answered = node
                return reply
            except redis.ResponseError as error:
                other = redirection(error)
                if other is not None and nredirections < NREDIRECTIONS:
                    nredirections += 1
                    node, asking = (
                        self.node(self._host(other.host, node), other.port),
                        not other.moved,
                    )
                    if other.moved:
                        self._slots[slot] = node
                elif is_on_the_way(error) and time.monotonic() < end:
                    time.sleep(0.05)
                else:
                    raise
            except (redis.ConnectionError, redis.TimeoutError):
                self._slots.pop(
                    slot, None
                )  # after a failover another one has it; the next command finds out
                raise

    def execute_command(self, *words: Word) -> Any:
        """As a client of redis-py has it, for commands whose first argument is the key: Filter
        needs no more.
        """
        return self.command(words[1], *words)

    # ---- many commands at once ----

    def exchange(self, requests: Sequence[Request], last: Sequence[Word] = ()) -> None:
        """Sends each request to the node that has its key, all nodes at the same time.

        What was not carried out goes where it is sent to, or is tried again for as long as our
        patience lasts: MOVED, ASK, TRYAGAIN, CLUSTERDOWN, LOADING, no connection. After a lost
        answer only what is repeatable is sent again; the others keep the error, and sent tells
        that it is not known. Every node also gets the last command, after its requests.
        """
        end = time.monotonic() + self.patience
        todo = list(requests)
        while todo:
            if not self._learned:
                self._learn()
            groups: Dict[Node, List[Request]] = {}
            for request in todo:
                owner = self._slots.get(slot_of(request.key), self._entry)
                groups.setdefault(request.node or owner, []).append(request)
            self._exchange_all(groups, last)
            redirected: List[Request] = []
            waiting: List[Request] = []
            for request in todo:
                if self._redirect(request):
                    redirected.append(request)
                elif self._may_wait(request):
                    waiting.append(request)
            for node, group in groups.items():
                if any(unreachable(request.reply) for request in group):
                    self._lose(node)
            if waiting:
                self._learned = False
                if time.monotonic() > end:
                    waiting = []
                else:
                    time.sleep(PAUSE_SECONDS)
            todo = redirected + waiting

    def _exchange_all(self, groups: Dict[Node, List[Request]], last: Sequence[Word]) -> None:
        if len(groups) == 1:
            for node, group in groups.items():
                node.exchange(group, last)
            return
        if self._threads is None:
            self._threads = concurrent.futures.ThreadPoolExecutor(
                MOST_THREADS, thread_name_prefix="shardbloom"
            )
        tasks = [self._threads.submit(node.exchange, group, last) for node, group in groups.items()]
        concurrent.futures.wait(tasks)
        for task in tasks:
            task.result()

    def _redirect(self, request: Request) -> bool:
        """Follows MOVED and ASK. After too many, it is a matter of patience."""
        other = redirection(request.reply)
        if other is None or request.nredirections >= NREDIRECTIONS:
            return False
        node = self.node(self._host(other.host, request.asked or self._entry), other.port)
        request.nredirections += 1
        if other.moved:
            self._slots[slot_of(request.key)] = node
        request.node, request.asking = (None, False) if other.moved else (node, True)
        return True

    @staticmethod
    def _may_wait(request: Request) -> bool:
        """Whether to try again later; from the beginning then."""
        request.node, request.asking, request.nredirections = None, False, 0
        if unreachable(request.reply):
            return request.repeatable or not request.sent
        return not_yet(request.reply) or redirection(request.reply) is not None

    def _lose(self, node: Node) -> None:
        """A node is gone: others know who has its slots now."""
        for slot in [slot for slot, owner in list(self._slots.items()) if owner is node]:
            self._slots.pop(slot, None)
        self._learned = False
        others = list(dict.fromkeys([self.first, *self._nodes.values()]))
        if node is self._entry:
            self._entry = others[(others.index(node) + 1) % len(others)]

    def _learn(self) -> None:
        """Asks who has which slot. A server that is not part of a cluster has them all, and a user
        who may not ask learns it from redirections.
        """
        request = Request(b"", ("CLUSTER", "SLOTS"))
        self._entry.exchange([request])
        if unreachable(request.reply):
            self._lose(self._entry)
            return
        self._learned = True
        if isinstance(request.reply, Exception):
            return
        for first, last, *nodes in request.reply:
            found = [
                self.node(self._host(text_of(host), self._entry), int(port))
                for host, port, *_ in nodes
            ]  # the primary, then its replicas: one of them may be the next one to ask
            for slot in range(first, last + 1) if found else ():
                self._slots[slot] = found[0]


def text_of(host: Any) -> str:
    return host.decode("utf-8", "replace") if isinstance(host, bytes) else str(host or "")
