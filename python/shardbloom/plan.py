"""The form of a partitioned filter: its plan, its partitions, and which of them has an item.

docs/partitions.md describes it to the byte, with test vectors. Nothing here talks to a server.
"""

from __future__ import annotations

import binascii
import dataclasses
import functools
import math
import re
from typing import Dict, List, Optional, Sequence, Tuple, Union

import redis

from shardbloom.cluster import NSLOTS
from shardbloom.connection import Key, shown
from shardbloom.filter import Item

WORD, VERSION = "partitioned-filter", "1"
MOST_PARTITIONS = 1024
LONGEST_PLAN = 4096  # bytes; a string that is longer is something else


class PlanError(redis.RedisError):
    """The key under the filter's name is not the plan of a partitioned filter, or of another one
    than was wanted.
    """


def item_bytes(item: Item) -> bytes:
    """An item as redis-py sends it."""
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    if isinstance(item, str):
        return item.encode()
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        raise TypeError(f"an item is a str, bytes, an int or a float, not {type(item).__name__}")
    return repr(item).encode()


def partition_of(item: bytes, npartitions: int) -> int:
    return binascii.crc_hqx(item, 0) * npartitions >> 16


@functools.lru_cache(maxsize=16)
def tags(npartitions: int) -> Tuple[int, ...]:
    """The number in the hash tag of each partition: the smallest whose slot is the one in the
    middle of the partition's share of all slots.
    """
    slots = [(2 * p + 1) * (NSLOTS // 2) // npartitions for p in range(npartitions)]
    wanted = set(slots)
    found: Dict[int, int] = {}
    n = 0
    while len(found) < len(wanted):
        slot = binascii.crc_hqx(b"%d" % n, 0) % NSLOTS
        if slot in wanted:
            found.setdefault(slot, n)
        n += 1
    return tuple(found[slot] for slot in slots)


def name_bytes(name: Key) -> bytes:
    """The name of a partitioned filter. Raises ValueError if it can't be one: with a brace in it,
    the partitions' own tags would not count.
    """
    raw = name.encode(errors="surrogateescape") if isinstance(name, str) else bytes(name)
    if not raw:
        raise ValueError("a partitioned filter needs a name")
    if b"{" in raw or b"}" in raw:
        raise ValueError(f"the name of a partitioned filter has no braces, but {shown(raw)} has")
    return raw


def partition_keys(name: bytes, npartitions: int) -> List[bytes]:
    return [b"%b:%d{%d}" % (name, p, tag) for p, tag in enumerate(tags(npartitions))]


def partition_name(key: bytes) -> Optional[bytes]:
    """The filter that a key may be a partition of, by the look of it."""
    match = re.fullmatch(rb"([^{}]+):(?:0|[1-9]\d{0,3})\{(?:0|[1-9]\d*)\}", key, re.DOTALL)
    return match[1] if match else None


def ceil_sqrt(n: int) -> int:
    return math.isqrt(n - 1) + 1 if n > 0 else 0


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a partitioned filter is: the words of the key under its name."""

    npartitions: int
    error_text: str  # as its creator wrote it
    capacity: int
    options: Tuple[str, ...] = ()  # further words of BF.RESERVE

    @classmethod
    def of(
        cls, partitions: int, error: float, capacity: int, options: Sequence[Union[str, int]] = ()
    ) -> Plan:
        """A plan as a program wishes it. Raises ValueError for what can't be one."""
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise ValueError(f"partitions must be from 1 to {MOST_PARTITIONS}, not {partitions}")
        if not 0 < error < 1:
            raise ValueError(f"error must be between 0 and 1, not {error}")
        if capacity < 1:
            raise ValueError("capacity must be 1 or more")
        words = tuple(str(word).upper() for word in options)
        if not all(
            word.isascii() and word.isprintable() and word.split() == [word] for word in words
        ):
            raise ValueError(f"each option must be one word: {options!r}")
        return cls(int(partitions), repr(float(error)), int(capacity), words)

    @classmethod
    def parse(cls, name: bytes, raw: bytes) -> Plan:
        """The plan that was read from the key. Raises PlanError."""
        words = raw[:LONGEST_PLAN].decode("ascii", "replace").split(" ")
        if words[0] != WORD or len(raw) > LONGEST_PLAN:
            raise PlanError(f"{shown(name)} is a string, but not the plan of a partitioned filter")
        if words[1:2] != [VERSION]:
            version = shown(" ".join(words[1:2])[:20])
            raise PlanError(
                f"{shown(name)} is a partitioned filter of version {version}, and only version"
                f" {VERSION} is known here"
            )
        try:
            partitions, error, capacity, *options = words[2:]
            if not (partitions.isdigit() and capacity.isdigit() and all(options)):
                raise ValueError
            plan = dataclasses.replace(
                cls.of(int(partitions), float(error), int(capacity), options), error_text=error
            )
        except ValueError:
            raise PlanError(
                f"{shown(name)} has a plan that can't be read: {shown(raw[:200])}"
            ) from None
        return plan

    @property
    def error(self) -> float:
        return float(self.error_text)

    def __str__(self) -> str:
        words = (WORD, VERSION, self.npartitions, self.error_text, self.capacity, *self.options)
        return " ".join(map(str, words))

    def is_like(self, other: Plan) -> bool:
        """Whether both mean the same: the error rate may be written differently."""
        mine, theirs = (
            (plan.npartitions, plan.error, plan.capacity, plan.options) for plan in (self, other)
        )
        return mine == theirs

    def partition_capacity(self) -> int:
        """Items do not fall evenly: each partition has room for four standard deviations more, and
        for names that differ in a few digits only, which a CRC does not scatter like a hash.
        """
        largest = -(-65536 // self.npartitions)  # checksums that one partition may have
        share = -(-self.capacity * largest // 65536)
        return share + -(-share // 64) + 4 * ceil_sqrt(share)

    def reservation(self, key: bytes) -> Tuple[Union[str, bytes, int], ...]:
        """The command that makes a partition."""
        return (
            "BF.RESERVE",
            key,
            self.error_text,
            self.partition_capacity(),
            *self.options,
        )
