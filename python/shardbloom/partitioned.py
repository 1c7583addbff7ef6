"""One filter over a cluster: many ordinary filters, its partitions, each on the node that has its
slot.

docs/partitions.md has the form and the rules. This is a client for it: it divides a batch by
partition and node, asks all nodes at the same time, follows keys to where they are, and says of
each item whether the answer is known.

What is sent a second time, and what is not. A command that was answered with MOVED, ASK, TRYAGAIN,
CLUSTERDOWN or LOADING, or that never left for want of a connection, has done nothing: it is sent
again. A command whose connection broke may have been carried out: sent again, its new items would
look as if they had been seen before. So its items get no answer (NotAdded), and the caller decides.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import redis
from redis.exceptions import NoPermissionError

from shardbloom.cluster import PATIENCE_SECONDS, Request, Servers, unreachable
from shardbloom.connection import Key, shown
from shardbloom.filter import Item, NotAdded, info_from
from shardbloom.plan import (
    LONGEST_PLAN,
    Plan,
    PlanError,
    item_bytes,
    name_bytes,
    partition_keys,
    partition_of,
)

logger = logging.getLogger("shardbloom")

CHECK_SECONDS = 60  # a program that runs for long asks again whether the plan is what it was
NATTEMPTS = 5  # to settle on a plan, or to add, while others delete what was just made


class NotReplicated(redis.RedisError):
    """The items are on the primary, but fewer replicas than wanted have confirmed it in time."""


class PartitionedFilter:
    """One filter over all nodes of a cluster; on a single server it works too.

    client         a client of redis-py, Redis or RedisCluster. Its own retries are not used.
    name           the filter's name, without braces; its partitions are called NAME:P{TAG}
    capacity       items that it is made for, in all partitions together
    partitions     how many, from 1 to 1024: some for every node that the cluster may ever have
    error          promised rate of false positives
    options        further words for BF.RESERVE: ("EXPANSION", 4), ("NONSCALING",)
    on_created     is called with this object whenever it has made the filter or a part of it;
                   nvanished says whether that had been there before
    batch          items that are sent before answers are awaited, to all partitions together
    patience       seconds until what has not been done is given up
    wait_replicas  an item counts as stored when so many replicas have confirmed it (WAIT)
    wait_ms        how long to wait for them

    The plan, a small key under the name, is made by whoever comes first. A program that wants
    another one gets a PlanError; PartitionedFilter.open() takes what there is.
    """

    def __init__(
        self,
        client: Any,
        name: Key,
        *,
        capacity: int,
        partitions: int = 64,
        error: float = 1e-4,
        options: Sequence[Union[str, int]] = (),
        on_created: Optional[Callable[[PartitionedFilter], None]] = None,
        batch: int = 10000,
        patience: float = PATIENCE_SECONDS,
        wait_replicas: int = 0,
        wait_ms: int = 1000,
    ):
        wanted = Plan.of(partitions, error, capacity, options)
        self._begin(client, name, wanted, on_created, batch, patience, wait_replicas, wait_ms)

    @classmethod
    def open(
        cls,
        client: Any,
        name: Key,
        *,
        on_created: Optional[Callable[[PartitionedFilter], None]] = None,
        batch: int = 10000,
        patience: float = PATIENCE_SECONDS,
        wait_replicas: int = 0,
        wait_ms: int = 1000,
    ) -> PartitionedFilter:
        """The filter that is there, whatever its plan. Raises PlanError if there is none."""
        one = cls.__new__(cls)
        one._begin(client, name, None, on_created, batch, patience, wait_replicas, wait_ms)
        if one._read_plan() is None:
            raise PlanError(f"there is no partitioned filter {shown(one.key)}")
        return one

    def _begin(
        self,
        client: Any,
        name: Key,
        wanted: Optional[Plan],
        on_created: Optional[Callable[[PartitionedFilter], None]],
        batch: int,
        patience: float,
        wait_replicas: int,
        wait_ms: int,
    ) -> None:
        if batch < 1 or wait_replicas < 0 or wait_ms < 1:
            raise ValueError("batch and wait_ms must be 1 or more, wait_replicas 0 or more")
        self.key = name_bytes(name)
        self.client = client
        self.name = name
        self.servers = Servers.of(client, patience)
        timeout = self.servers.first.client().connection_pool.connection_kwargs.get(
            "socket_timeout"
        )
        if wait_replicas and timeout is not None and timeout * 1000 <= wait_ms:
            raise ValueError(
                f"the client's socket_timeout of {timeout} s must be longer than wait_ms"
            )
        self.wanted = wanted  # None: whatever there is
        self.on_created = on_created
        self.batch = batch
        self.wait_replicas, self.wait_ms = wait_replicas, wait_ms
        self.plan: Optional[Plan] = None  # what counts, as soon as it is known
        self.keys: List[bytes] = []  # of the partitions
        self.ncreated = 0  # how often there was no plan and this object made one
        self.nvanished = 0  # partitions that had been there before and had to be made again
        self._opened = False  # all partitions were there
        self._checked = 0.0  # when the plan was read last

    def __repr__(self) -> str:
        return f"PartitionedFilter({self.name!r}, {self.plan or self.wanted})"

    @property
    def error(self) -> float:
        return self._any_plan().error

    @property
    def capacity(self) -> int:
        return self._any_plan().capacity

    def _any_plan(self) -> Plan:
        plan = self.plan or self.wanted
        if plan is None:
            raise PlanError(f"there is no partitioned filter {shown(self.key)}")
        return plan

    # ---- the plan ----

    def _ask(self, *words: Any, key: Optional[bytes] = None) -> Any:
        """One command that may be repeated."""
        request = Request(self.key if key is None else key, words)
        self.servers.exchange([request])
        return request.result()

    def _read_plan(self) -> Optional[Plan]:
        """The plan that is there, now known to us; None if there is none. Raises PlanError if it is
        another one than was wanted, or than it was.
        """
        try:
            raw = self._ask("GET", self.key)
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise PlanError(
                f"{shown(self.key)} is not a partitioned filter: the key is of another type"
            ) from None
        if raw is None:
            return None
        found = Plan.parse(self.key, raw)
        expected = self.plan or self.wanted
        if expected is not None and not found.is_like(expected):
            raise PlanError(
                f"{shown(self.key)} is another partitioned filter: found '{found}', expected"
                f" '{expected}'"
            )
        if self.plan is None:
            self.keys = partition_keys(self.key, found.npartitions)
            self.plan = found
        self._checked = time.monotonic()
        return self.plan

    def _settle(self) -> Tuple[Plan, bool]:
        """The plan that counts, and whether we have made it."""
        made = False
        for _ in range(NATTEMPTS):
            plan = self._read_plan()
            if plan is not None:
                return plan, made
            # Its answer does not matter: whoever was first, the plan that is read then counts.
            made = bool(self._ask("SET", self.key, str(self._any_plan()), "NX")) or made
        raise PlanError(f"the plan of {shown(self.key)} vanishes as soon as it is created")

    def _for_asking(self) -> Optional[Plan]:
        """The plan, if there is a filter; one that is known is read again now and then."""
        if self.plan is None or time.monotonic() > self._checked + CHECK_SECONDS:
            return self._read_plan() or self.plan
        return self.plan

    def _for_adding(self) -> Plan:
        """The plan, after all that is missing was made."""
        if not self._opened:
            self.create()
        elif time.monotonic() > self._checked + CHECK_SECONDS:
            made = self._settle()[1]
            self._report(made, 0)
        return self._any_plan()

    def create(self) -> bool:
        """Makes the plan and the partitions that are not there. True if there was no plan."""
        plan, made = self._settle()
        replies = self._reserve(plan, range(plan.npartitions))
        refused = [one for one in replies if isinstance(one, Exception) and not exists(one)]
        if refused:
            if made and len(refused) == len(replies):
                # Nobody can do anything with this plan: an option that the server does not know.
                self._ask("UNLINK", self.key)
                self.plan = None
            raise refused[0]
        nmade = sum(not isinstance(one, Exception) for one in replies)
        self._report(made, nmade)
        self._opened = True
        return made

    def _reserve(self, plan: Plan, numbers: Iterable[int]) -> List[Any]:
        """Makes partitions; their replies, or errors."""
        keys = [self.keys[p] for p in numbers]
        requests = [Request(key, plan.reservation(key)) for key in keys]
        self.servers.exchange(requests)
        return [request.reply for request in requests]

    def _report(self, made: bool, nmade: int) -> None:
        """Says what had to be made; loudly, if it had been there before."""
        if not made and not nmade:
            return
        plan, name = self._any_plan(), shown(self.key)
        self.ncreated += made
        if not self._opened:
            words = "%s has been created in %d partitions for %d items, error rate %g"
            if not made:
                words = (
                    "%s lacked %d partitions, which have been created; it is for %d items, error"
                    " rate %g"
                )
            logger.info(words, name, plan.npartitions if made else nmade, plan.capacity, plan.error)
        else:
            self.nvanished += nmade
            if made:
                logger.warning("the plan of %s had vanished; it has been created again", name)
            if nmade:
                logger.warning(
                    (
                        "%d of %d partitions of %s had vanished, with everything they held; they"
                        " have been created again"
                    ),
                    nmade,
                    plan.npartitions,
                    name,
                )
        if self.on_created is not None:
            self.on_created(self)

    def delete(self) -> bool:
        """Deletes the filter with all it knows; whether there was one. The next add makes it anew,
        which is no surprise then.
        """
        plan = self._read_plan() or self.plan
        if plan is None:
            return False
        # The plan goes last: if this is interrupted, it still says which partitions there are.
        requests = [Request(key, ("UNLINK", key)) for key in self.keys]
        self.servers.exchange(requests)
        found = sum(request.result() for request in requests)
        found += self._ask("UNLINK", self.key)
        self._opened = False
        return bool(found)

    def close(self) -> None:
        """Closes all connections, those of the client too."""
        self.servers.close()

    # ---- adding ----

    def add(self, item: Item) -> bool:
        """Adds an item. True if it is new: asking and marking are one step, so of several callers
        one gets True.
        """
        try:
            return self.add_many([item])[0]
        except NotAdded as error:
            raise error.cause

    def add_many(self, items: Iterable[Item]) -> List[bool]:
        """Adds items; for each, whether it is new. Raises NotAdded if that is not known of all."""
        todo = [item_bytes(item) for item in items]
        answers: List[Optional[bool]] = [None] * len(todo)
        for at in range(0, len(todo), self.batch):
            try:
                failure = self._add(todo, range(at, min(at + self.batch, len(todo))), answers)
            except redis.RedisError as error:
                failure = error
            if failure is not None:
                raise NotAdded(answers, failure) from failure
        return [bool(answer) for answer in answers]

    def _add(
        self, items: List[bytes], which: range, answers: List[Optional[bool]]
    ) -> Optional[Exception]:
        """One batch. Returns why some of its items have no answer."""
        plan = self._for_adding()
        members = self._divide(plan, items, which)
        requests = {
            p: Request(
                self.keys[p],
                ("BF.INSERT", self.keys[p], "NOCREATE", "ITEMS", *(items[i] for i in indexes)),
                repeatable=False,
            )
            for p, indexes in members.items()
        }
        last = ("WAIT", self.wait_replicas, self.wait_ms) if self.wait_replicas else ()
        self.servers.exchange(list(requests.values()), last)
        for _ in range(NATTEMPTS):
            missing = [p for p, request in requests.items() if not_found(request.reply)]
            if not missing or not self._make_again(missing):
                break
            self.servers.exchange([requests[p] for p in missing], last)
        failure: Optional[Exception] = None
        for p, indexes in members.items():
            request = requests[p]
            replies = request.reply
            problem = replies if isinstance(replies, Exception) else self._unconfirmed(request)
            if problem is not None:
                failure = graver(failure, problem)
                continue
            for index, reply in zip(indexes, replies):
                if isinstance(reply, Exception):  # full, and NONSCALING
                    failure = graver(failure, reply)
                else:
                    answers[index] = bool(reply)
        return failure

    def _divide(self, plan: Plan, items: List[bytes], which: range) -> Dict[int, List[int]]:
        """The indexes of the items of each partition."""
        members: Dict[int, List[int]] = {}
        for index in which:
            members.setdefault(partition_of(items[index], plan.npartitions), []).append(index)
        return members

    def _unconfirmed(self, request: Request) -> Optional[Exception]:
        """Why an answer does not count, although there is one."""
        if not self.wait_replicas:
            return None
        if isinstance(request.last, Exception):
            return request.last
        if int(request.last) >= self.wait_replicas:
            return None
        return NotReplicated(
            f"{request.last} of {self.wait_replicas} replicas of"
            f" {request.asked and request.asked.name} have confirmed within {self.wait_ms} ms"
        )

    def _make_again(self, missing: List[int]) -> bool:
        """Partitions have vanished: makes them as the plan says, which may have vanished too."""
        plan, made = self._settle()
        replies = self._reserve(plan, missing)
        self._report(made, len(missing))
        return all(not isinstance(one, Exception) or exists(one) for one in replies)

    # ---- asking ----

    def exists(self, item: Item) -> bool:
        """Whether the item may have been added. False is certain; a filter that is not there
        contains nothing.
        """
        return self.exists_many([item])[0]

    def exists_many(self, items: Iterable[Item]) -> List[bool]:
        """The same for many."""
        todo = [item_bytes(item) for item in items]
        found = [False] * len(todo)
        plan = self._for_asking()
        if plan is None:
            return found
        for at in range(0, len(todo), self.batch):
            members = self._divide(plan, todo, range(at, min(at + self.batch, len(todo))))
            requests = [
                Request(
                    self.keys[p], ("BF.MEXISTS", self.keys[p], *(todo[index] for index in indexes))
                )
                for p, indexes in members.items()
            ]
            self.servers.exchange(requests)
            for request, indexes in zip(requests, members.values()):
                for index, reply in zip(indexes, request.result()):
                    if isinstance(reply, Exception):
                        raise reply
                    found[index] = bool(reply)
        return found

    def __contains__(self, item: Item) -> bool:
        return self.exists(item)

    def _ask_all(self, command: str) -> List[Any]:
        requests = [Request(key, (command, key)) for key in self.keys]
        self.servers.exchange(requests)
        return [request.result() for request in requests]

    def count(self) -> int:
        """Items that were new when they were added; 0 if there is no filter."""
        return 0 if self._for_asking() is None else sum(map(int, self._ask_all("BF.CARD")))

    def parts(self) -> Dict[bytes, Dict[str, Optional[int]]]:
        """Every partition by its key, as Filter.info() has it. Raises ResponseError if one is
        missing.
        """
        if self._for_asking() is None:
            raise redis.ResponseError("not found")
        return dict(zip(self.keys, map(info_from, self._ask_all("BF.INFO"))))

    def info(self) -> Dict[str, Optional[int]]:
        """capacity, size (bytes) and items of all partitions, the layers of the one that has most,
        expansion (None: NONSCALING), and how many partitions.
        """
        parts = list(self.parts().values())
        whole: Dict[str, Optional[int]] = {
            field: sum(part[field] or 0 for part in parts)
            for field in ("capacity", "size", "items")
        }
        whole["layers"] = max(part["layers"] or 0 for part in parts)
        whole["expansion"] = parts[0]["expansion"]
        whole["partitions"] = len(parts)
        return whole


def not_found(reply: Any) -> bool:
    return isinstance(reply, redis.ResponseError) and str(reply) in ("not found", "ERR not found")


def exists(reply: Any) -> bool:
    return isinstance(reply, redis.ResponseError) and "item exists" in str(reply)


def graver(before: Optional[Exception], now: Exception) -> Exception:
    """Which of two failures to report: after a lost connection, items may have been added."""
    return now if before is None or unreachable(now) and not unreachable(before) else before


def plan_at(servers: Servers, key: bytes, db: Optional[int] = None) -> Optional[Plan]:
    """The plan under a name; None if there is something else, or nothing, or nothing that the user
    may read. For tools, which find all kinds of keys.
    """
    try:
        head = servers.command(key, "GETRANGE", key, 0, LONGEST_PLAN, db=db)
        return Plan.parse(key, head)
    except (PlanError, NoPermissionError):
        return None
    except redis.ResponseError as error:
        if "WRONGTYPE" in str(error):
            return None
        raise
