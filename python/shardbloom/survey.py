"""All filters of a server or a cluster, and how they are: what bfstat shows.

The server is asked with SCAN, BF.INFO, BF.SHARDS, BF.DESCRIPTOR and INFO. A user who may not call
one of these sees less.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

import redis
from redis.exceptions import NoPermissionError

from shardbloom.cluster import Node, Servers, is_on_the_way, redirection
from shardbloom.connection import shown
from shardbloom.filter import info_from
from shardbloom.format import BLOCKED, Descriptor, FormatError, Layer
from shardbloom.partitioned import plan_at
from shardbloom.plan import Plan, partition_keys, partition_name

BATCH = 100  # filters in one round trip
SCAN_COUNT = 1000
RESCAN_SECONDS = 60  # new filters that the totals do not give away are found after this time

Name = Tuple[int, bytes]  # database, key


@dataclasses.dataclass
class LayerState:
    """One layer. Fields from the descriptor are None if it could not be read."""

    number: int = 0  # in the names of its shards
    age: Optional[float] = None  # of a filter with a window: seconds since its slice began
    kind: Optional[int] = None
    block_bits: Optional[int] = None
    probes: Optional[int] = None
    shards: Optional[int] = None
    blocks: Optional[int] = None
    capacity: Optional[int] = None
    items: Optional[int] = None
    existing: int = 0  # shards that exist
    fill: float = 0.0  # share of the bits that are set
    error: Optional[float] = None  # rate of false positives to expect now


@dataclasses.dataclass
class FilterState:
    """One filter; or all partitions of one, taken together."""

    db: int
    key: str
    items: int = 0
    capacity: int = 0
    expansion: Optional[int] = None
    bytes: int = 0
    error: Optional[float] = None  # rate of false positives to expect now
    promised: Optional[float] = None
    window: Optional[int] = None  # seconds for which items are remembered; None: for ever
    slices: Optional[int] = None
    sliding: Optional[bool] = None
    age: Optional[int] = None  # seconds since the oldest slice began that counts
    lost: List[str] = dataclasses.field(default_factory=list)  # names of shards
    layers: List[LayerState] = dataclasses.field(default_factory=list)
    problem: Optional[str] = None  # why it can't be asked
    partitions: Optional[int] = None  # that its plan has; None: it is not a partitioned one
    parts: List[FilterState] = dataclasses.field(default_factory=list)

    def damaged(self) -> bool:
        """Something is wrong with it; a filter that is being loaded is only not ready yet."""
        return (
            bool(self.lost)
            or self.problem is not None
            and not self.problem.startswith("HALFLOADED")
        )


# ---- error rates ----


@functools.lru_cache(maxsize=4096)
def blocked_rate(width: int, k: int, nitems: int, nblocks: int) -> float:
    """The expected rate of false positives: blocks fill unevenly, so it is a mean over what they
    may hold.
    """
    mean = nitems / nblocks
    if mean == 0:
        return 0.0
    spread = math.sqrt(mean)
    first, last = max(0, int(mean - 10 * spread)), int(mean + 14 * spread + 40)
    rate = 0.0
    for load in range(first, last + 1):
        chance = math.exp(load * math.log(mean) - mean - math.lgamma(load + 1))
        rate += chance * (1 - (1 - 1 / width) ** (load * k)) ** k
    return rate


def layer_error(layer: Layer, fills: Sequence[float]) -> float:
    """The rate of false positives of a layer: from the items it counts, or from the bits that are
    set.
    """
    if layer.kind == BLOCKED:
        return blocked_rate(
            1 << layer.block_log2, layer.nprobes, layer.nitems, layer.nshards * layer.nblocks
        )
    return math.fsum(fill**layer.nprobes for fill in fills) / layer.nshards


SOUND = (b"ok", "ok", b"young", "young")  # states of a shard in BF.SHARDS
MANY_SHARDS = "more than 1000 shards"  # what BF.SHARDS says of a filter that it shows in parts
PART = 1000  # entries in a part


# ---- one filter ----


def mapping(reply: Any) -> Dict[str, Any]:
    """Names and values: a flat list in RESP2, a map in RESP3."""
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {name.decode() if isinstance(name, bytes) else name: value for name, value in pairs}


def state_from(db: int, key: bytes, info: Any, shards: Any, raw: Any) -> Optional[FilterState]:
    """A filter, from the replies to BF.INFO, BF.SHARDS and BF.DESCRIPTOR; None if there is no such
    filter any more.
    """
    state = FilterState(db, shown(key))
    for reply in (info, shards):
        if isinstance(reply, Exception) and not isinstance(reply, NoPermissionError):
            if str(reply) == "not found" or "WRONGTYPE" in str(reply):
                return None
            state.problem = str(reply)
            return state
    numbers = info_from(info)
    state.items, state.capacity, state.bytes = (
        int(numbers[name] or 0) for name in ("items", "capacity", "size")
    )
    state.expansion = numbers["expansion"]
    found = [] if isinstance(shards, Exception) else [mapping(reply) for reply in shards]
    state.lost = list(
        dict.fromkeys(shown(shard["key"]) for shard in found if shard["state"] not in SOUND)
    )
    try:
        descriptor = None if isinstance(raw, Exception) else Descriptor(raw)
    except FormatError:
        descriptor = None
    state.promised = descriptor.error if descriptor else None
    if numbers.get("window") is not None:
        state.window, state.slices, state.age = (
            int(numbers[name] or 0) for name in ("window", "slices", "age")
        )
        state.sliding = bool(numbers["sliding"])
    state.layers = layer_states(descriptor, int(numbers["layers"] or 0), found, state.age)
    errors = [layer.error for layer in state.layers]
    if None not in errors:
        state.error = 1 - math.prod(1 - (error or 0) for error in errors)
    return state


def layer_states(
    descriptor: Optional[Descriptor], nlayers: int, shards: List[Dict[str, Any]], age: Optional[int]
) -> List[LayerState]:
    """All layers that count. The server says that there are nlayers of them. Those before them
    belong to slices that are over.
    """
    if not descriptor:
        first = min((shard["layer"] for shard in shards), default=0) if age is not None else 0
        layers: List[Optional[Layer]] = [None] * nlayers
    else:
        nover = max(len(descriptor.layers) - nlayers, 0) if descriptor.window else 0
        first = descriptor.number(nover)
        layers = list(descriptor.layers[nover:])
    states = []
    for number, layer in enumerate(layers, first):
        mine = [shard for shard in shards if shard["layer"] == number]
        state = layer_state(layer, mine)
        state.number = number
        oldest = layers[0]
        if age is not None and layer and oldest:
            state.age = age - (layer.began_ms - oldest.began_ms) / 1000
        states.append(state)
    return states


def layer_state(layer: Optional[Layer], shards: List[Dict[str, Any]]) -> LayerState:
    """A layer, from the descriptor, if that is known, and its entries of BF.SHARDS."""
    fills = [float(shard["fill"]) for shard in shards if shard["fill"] is not None]
    # Shards that were never written hold no bits, but take their share of the items that are asked
    # for.
    nshards = max(layer.nshards if layer else 0, len(shards), 1)
    state = LayerState(existing=len(shards), fill=sum(fills) / nshards)
    if layer:
        state.kind, state.block_bits, state.probes = (
            layer.kind,
            1 << layer.block_log2,
            layer.nprobes,
        )
        state.shards, state.blocks, state.capacity, state.items = (
            layer.nshards,
            layer.nblocks,
            layer.capacity,
            layer.nitems,
        )
        state.error = layer_error(layer, fills)
    return state


# ---- a partitioned filter ----


def mean(numbers: Iterable[Optional[float]], n: int) -> Optional[float]:
    """The mean of n numbers. Those that are not given are 0. None if one is not known."""
    known = list(numbers)
    return None if None in known else math.fsum(number or 0 for number in known) / n


def whole_of(
    db: int, key: bytes, plan: Plan, found: Dict[bytes, FilterState], all_seen: bool
) -> FilterState:
    """The partitions as one filter. Each item belongs to one of them, so rates are means."""
    keys = [one for one in partition_keys(key, plan.npartitions) if one in found]
    parts = [found[one] for one in keys]
    whole = FilterState(db, shown(key), partitions=plan.npartitions, parts=parts)
    for part in parts:
        whole.items += part.items
        whole.capacity += part.capacity
        whole.bytes += part.bytes
        whole.lost += part.lost
        if part.problem and (part.damaged() or whole.problem is None):
            whole.problem = part.problem if not part.damaged() else f"{part.key}: {part.problem}"
    whole.expansion = parts[0].expansion
    whole.window, whole.slices, whole.sliding = parts[0].window, parts[0].slices, parts[0].sliding
    whole.age = max((part.age for part in parts if part.age is not None), default=None)
    whole.error = mean((part.error for part in parts), len(parts))
    whole.promised = plan.error
    nmissing = plan.npartitions - len(parts)
    if nmissing and all_seen:
        whole.problem = f"{nmissing} of {plan.npartitions} partitions are missing"
    for index in range(max(len(part.layers) for part in parts)):
        layers = [part.layers[index] for part in parts if index < len(part.layers)]
        whole.layers.append(layer_of_all(layers, len(parts)))
    return whole


def layer_of_all(layers: List[LayerState], nparts: int) -> LayerState:
    """The layers of all partitions that have the same number. Some partitions may lack it."""

    def common(field: str) -> Any:
        values = {getattr(layer, field) for layer in layers}
        return values.pop() if len(values) == 1 else None

    def total(field: str) -> Optional[int]:
        values = [getattr(layer, field) for layer in layers]
        return None if None in values else sum(values)

    state = LayerState(
        number=layers[0].number,
        age=layers[0].age,
        **{field: common(field) for field in ("kind", "block_bits", "probes")},
    )
    state.shards, state.blocks, state.capacity, state.items = (
        total(field) for field in ("shards", "blocks", "capacity", "items")
    )
    state.existing = sum(layer.existing for layer in layers)
    state.fill = sum(layer.fill for layer in layers) / len(layers)
    state.error = mean((layer.error for layer in layers), nparts)
    return state


# ---- all of them ----


class Survey:
    """Looks at all filters, again and again; what it sees is in filters, totals and so on.

    steps() is one look, in steps of a round trip each, so that a live view of 300,000 filters stays
    responsive. Filters are found with SCAN the first time, and again when the totals or a missing
    filter show that there are others now.
    """

    def __init__(self, servers: Servers, match: Optional[str] = None):
        self.servers, self.match = servers, match
        self.filters: Dict[Name, FilterState] = {}
        self.totals: Dict[str, Dict[str, int]] = {}  # by node: the numbers of INFO bf
        self.down: List[str] = []  # nodes that do not answer
        self.nhidden = 0  # filters that the user may not ask
        self.seconds = 0.0  # how long the last look took
        self._names: Dict[Tuple[Node, int], Set[bytes]] = {}  # as SCAN gave them
        self._plans: Dict[Name, Plan] = {}  # of the partitioned filters among them
        self._counts: Dict[str, int] = {}  # by node: filters when SCAN was done
        self._scanned = -math.inf  # when that was

    def steps(self) -> Iterator[None]:
        """One look at everything."""
        start = time.monotonic()
        nodes, self.down = self.servers.nodes()
        totals = {}
        for node in nodes:
            node.check_module()
            totals[node.name] = {
                k: int(v) for k, v in node.info("bf").items() if isinstance(v, (int, float))
            }
        self.totals = totals
        yield
        counts = {name: numbers.get("bf_filters", -1) for name, numbers in totals.items()}
        if (
            counts != self._counts
            or -1 in counts.values()
            or time.monotonic() > self._scanned + RESCAN_SECONDS
        ):
            yield from self._scan(nodes)
            self._counts, self._scanned = counts, time.monotonic()
        yield from self._look()
        self.seconds = time.monotonic() - start

    def look(self) -> Survey:
        """One look, all at once."""
        for _ in self.steps():
            pass
        return self

    def _scan(self, nodes: List[Node]) -> Iterator[None]:
        """Finds the names of all filters. A pattern that a partitioned filter's name matches means
        its partitions.
        """
        names: Dict[Tuple[Node, int], Set[bytes]] = {}
        possible: Set[Name] = set()  # partitions, if there is such a plan
        chosen: Set[Name] = set()  # by the pattern itself
        patterns: List[Tuple[Optional[str], Set[Name]]] = [(None, possible)]
        if self.match is not None:
            patterns = [(self.match, chosen), (self.match + ":*{*}", possible)]
        only = self.servers.address.db
        for node in nodes:
            for db in sorted(node.databases()) if only is None else [only]:
                found = names.setdefault((node, db), set())
                for pattern, those in patterns:
                    for keys in self._scan_one(node, db, pattern):
                        found.update(keys)
                        those.update((db, key) for key in keys)
                        yield
        self._plans = self._find_plans(possible)
        if self.match is not None:
            parts = self._parts()
            for (_, db), found in names.items():
                found &= {key for key in found if (db, key) in chosen or (db, key) in parts}
        self._names = names

    @staticmethod
    def _scan_one(node: Node, db: int, pattern: Optional[str]) -> Iterator[List[bytes]]:
        words: List[Any] = ["COUNT", SCAN_COUNT, "TYPE", "bf-shards"]
        words += [] if pattern is None else ["MATCH", pattern]
        cursor = 0
        while True:
            cursor, keys = node.command("SCAN", cursor, *words, db=db)
            yield keys
            if cursor == 0:
                return

    def _find_plans(self, keys: Set[Name]) -> Dict[Name, Plan]:
        """The plans of the filters that keys may be partitions of."""
        names = {(db, partition_name(key)) for db, key in keys}
        plans = {
            (db, name): plan_at(self.servers, name, db) for db, name in names if name is not None
        }
        return {name: plan for name, plan in plans.items() if plan is not None}

    def _parts(self) -> Dict[Name, Name]:
        """The filter of each partition."""
        return {
            (db, key): (db, name)
            for (db, name), plan in self._plans.items()
            for key in partition_keys(name, plan.npartitions)
        }

    def _look(self) -> Iterator[None]:
        """Asks every filter."""
        seen: Dict[Name, FilterState] = {}
        parts = self._parts()
        found: Dict[Name, Dict[bytes, FilterState]] = {}  # partitions, by their filter
        nhidden = nmissing = 0
        for (node, db), names in self._names.items():
            keys = sorted(names)
            for at in range(0, len(keys), BATCH):
                for key, (info, shards, raw) in self._ask(node, db, keys[at : at + BATCH]):
                    if isinstance(info, NoPermissionError):
                        nhidden += 1
                        continue
                    state = state_from(db, key, info, shards, raw)
                    if state is None:
                        nmissing += 1
                    elif (db, key) in parts:
                        found.setdefault(parts[db, key], {})[key] = state
                    else:
                        seen[db, key] = state
                        self.filters[db, key] = state
                yield
        for (db, name), states in found.items():
            all_seen = not self.down and not nhidden
            seen[db, name] = whole_of(db, name, self._plans[db, name], states, all_seen)
        self.filters, self.nhidden = seen, nhidden
        if nmissing:
            self._scanned = -math.inf

    def _ask(self, node: Node, db: int, keys: List[bytes]) -> Iterator[Tuple[bytes, List[Any]]]:
        commands = [
            (command, key) for key in keys for command in ("BF.INFO", "BF.SHARDS", "BF.DESCRIPTOR")
        ]
        replies = node.commands(commands, db)
        for i, (command, key) in enumerate(commands):
            if redirection(replies[i]) or is_on_the_way(replies[i]):
                try:
                    replies[i] = self.servers.command(key, command, key, db=db)
                except redis.ResponseError as error:
                    replies[i] = error
            elif isinstance(replies[i], redis.ConnectionError):  # LOADING
                raise node.named(replies[i])
        for i, key in enumerate(keys):
            info, shards, raw = replies[3 * i : 3 * i + 3]
            if isinstance(shards, redis.ResponseError) and MANY_SHARDS in str(shards):
                shards = self._shards_in_parts(key, db)
            yield key, [info, shards, raw]

    def _shards_in_parts(self, key: bytes, db: int) -> Any:
        """All entries of BF.SHARDS, or the error that came instead."""
        entries: List[Any] = []
        layer = shard = 0
        try:
            while True:
                part = self.servers.command(key, "BF.SHARDS", key, "FROM", layer, shard, db=db)
                entries += part
                if len(part) < PART:
                    return entries
                last = mapping(part[-1])
                layer, shard = last["layer"], last["shard"] + 1
        except redis.ResponseError as error:
            return error


class Rates:
    """How fast totals and filters grow, from one look to the next. A restarted server begins at 0:
    no rate then.
    """

    def __init__(self) -> None:
        self._before: Dict[Any, Tuple[float, int]] = {}
        self.per_second: Dict[Any, float] = {}

    def take(self, what: Any, n: int, now: float) -> None:
        """Notes a number; per_second has its rate if it was noted before."""
        before = self._before.get(what)
        self._before[what] = now, n
        self.per_second.pop(what, None)
        if before is not None and now > before[0] and n >= before[1]:
            self.per_second[what] = (n - before[1]) / (now - before[0])

    def total(self, name: str) -> Optional[float]:
        """The rate of a total over all nodes; None if no node has one."""
        found = [
            rate for what, rate in self.per_second.items() if what[0] == "node" and what[2] == name
        ]
        return sum(found) if found else None

    def take_survey(self, survey: Survey) -> None:
        now = time.monotonic()
        for node, numbers in survey.totals.items():
            for name, n in numbers.items():
                self.take(("node", node, name), n, now)
        for which, state in survey.filters.items():
            self.take(which, state.items, now)
        gone = [what for what in self._before if what[0] != "node" and what not in survey.filters]
        for what in gone:
            del self._before[what]
            self.per_second.pop(what, None)
