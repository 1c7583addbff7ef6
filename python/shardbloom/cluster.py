"""One server, or all of a cluster: whoever holds a key answers for it.

redis-py has a client for clusters too. This one is here because the tools also have to look at
every node by itself, in every database, and because one code for a single server and a cluster is
simpler than two. A server that is not part of a cluster never redirects, so the same calls serve
both.
"""

from __future__ import annotations

import binascii
import dataclasses
import re
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import redis
from redis.exceptions import AskError, MovedError, NoPermissionError, TryAgainError

from shardbloom.connection import Address, Key

NSLOTS = 16384
NREDIRECTIONS = 16
PATIENCE_SECONDS = 30  # for keys on their way from node to node

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


class Node:
    """A server, or one primary of a cluster. Errors leave it with what they are about, for
    connection.explain().
    """

    def __init__(self, address: Address, timeout: float):
        self.address = address
        self.name = str(address)
        self.timeout = timeout
        self._clients: Dict[int, Any] = {}

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

    def named(self, error: redis.RedisError, key: Optional[Key] = None) -> redis.RedisError:
        """The error, with what connection.run() needs to say what it is about."""
        setattr(error, "address", self.address)
        setattr(error, "key", key)
        return error

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


class Servers:
    """The server of an address, or the cluster that it is part of."""

    def __init__(self, address: Address, timeout: float = 60):
        self.address = address
        self.timeout = timeout
        self.first = Node(address, timeout)
        self._nodes: Dict[Tuple[str, int], Node] = (
            {} if address.path else {(address.host, address.port): self.first}
        )
        self._slots: Dict[int, Node] = {}  # learned from redirections
        self.answered = self.first  # who replied to the last command

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
