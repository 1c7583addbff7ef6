"""The stored format (docs/format.md): a filter's descriptor, and the way from an item to its bits.

Written from that page, and shares no code with the module.
"""

from __future__ import annotations

import struct
from typing import List, Optional, Set, Tuple

MASK = 2**64 - 1
MULTIPLIER = 0xF1357AEA2E62A9C5
HEADER_BYTES = 55
HALF_LOADED_BYTES = 33  # behind the layers of a filter that BF.LOADCHUNK is filling
HALF_LOADED, WINDOW = 1, 2  # flags of a descriptor
SLIDING = 1  # a flag of a window

BLOCKED, CLASSIC, ADOPTED = 1, 2, 3  # kinds of layers
JOINED = 1  # a flag of blocked layers
WIDE = 1  # a flag of classic ones: 64 bits of hash
DENSE, YOUNG = 0, 1  # forms of a shard
FORM_AT = 28  # in a shard's header; behind it the number of items of a young one
ENTRY = struct.Struct("<IQ")  # of a young shard's table: block + 1, or 0 if it is free; bits


class FormatError(Exception):
    """The bytes are not what the format says."""


class Window:
    """How a filter forgets."""

    FIELDS = struct.Struct("<IBBBIQ")

    seconds: int
    nslices: int
    nover: int  # layers, the oldest, that count no more
    first_number: int  # of the first layer
    capacity: int  # items for each window

    def __init__(self, data: bytes, at: int):
        (
            self.seconds,
            self.nslices,
            flags,
            self.nover,
            self.first_number,
            self.capacity,
        ) = self.FIELDS.unpack_from(data, at)
        if flags & ~SLIDING or not self.nslices:
            raise FormatError("the filter has a window of an unknown kind")
        self.sliding = bool(flags & SLIDING)

    def slice_ms(self) -> int:
        """How long items are added to one slice."""
        return -(-self.seconds * 1000 // self.nslices)

    def lasts_ms(self) -> int:
        """How long a slice counts, from its beginning."""
        return (self.nslices + 1) * self.slice_ms()


class Layer:
    """One layer of a descriptor."""

    kind: int
    block_log2: int
    nprobes: int
    flags: int
    nshards: int
    nblocks: int  # in each shard
    capacity: int
    nitems: int
    nstored: int  # bytes of its strings, headers included
    home: int  # the layer whose string holds the blocks
    offset: int  # of the blocks in it, behind the header
    began_ms: int  # when its slice began, in milliseconds since 1970; 0 without a window

    def __init__(self, data: bytes, at: int, index: int, before: Optional[Layer], window: bool):
        (
            self.kind,
            self.block_log2,
            self.nprobes,
            self.flags,
            self.nshards,
            self.nblocks,
            self.capacity,
            self.nitems,
            self.nstored,
        ) = struct.unpack_from("<BBBBIIQQQ", data, at)
        at += 36
        self.index = index
        self.began_ms = 0
        if window:
            (self.began_ms,) = struct.unpack_from("<Q", data, at)
            at += 8
        self.nbits = self.nbytes = 0  # of the array of a classic layer, at its origin
        if self.kind == CLASSIC and not self.flags & ~WIDE:
            self.nbits, self.nbytes = struct.unpack_from("<QQ", data, at)
            at += 16
        elif self.kind not in (BLOCKED, ADOPTED) or self.flags & ~(
            JOINED if self.kind == BLOCKED else 0
        ):
            raise FormatError("the filter has a layer of an unknown kind")
        joined = self.kind == BLOCKED and bool(self.flags & JOINED)
        if joined and before is None:
            raise FormatError("the first layer of the descriptor can't be joined to another")
        self.home = before.home if joined and before else index
        self.offset = before.offset + before.shard_bytes() if joined and before else 0
        self.end = at + (self.nshards + 7) // 8
        self.created = data[at : self.end]
        if self.kind == ADOPTED:
            nseeds, prefix_bytes = struct.unpack_from("<BH", data, self.end + 3)
            self.end += 6 + 8 * nseeds + prefix_bytes
        if self.end > len(data):
            raise FormatError("the descriptor is cut off")

    def shard_bytes(self) -> int:
        """Bytes of the blocks in one shard."""
        return self.nblocks << (self.block_log2 - 3)

    def has_shard(self, shard: int) -> bool:
        return bool(self.created[shard >> 3] >> (shard & 7) & 1)

    def place(self, digest: int) -> Tuple[int, int]:
        """Shard and block of an item in a blocked layer, from its hash of 128 bits."""
        product = (digest >> 64) * self.nshards
        return product >> 64, ((product & MASK) * self.nblocks) >> 64

    def in_block(self, block: bytes, bits: int) -> bool:
        """Whether an item's bits are all set in its block; bits: the low half of its hash."""
        for _ in range(self.nprobes):
            position = bits >> (64 - self.block_log2)
            if not block[position >> 3] & (0x80 >> (position & 7)):
                return False
            bits = bits * MULTIPLIER & MASK
        return True

    def classic_places(self, item: bytes) -> List[Tuple[int, int, int]]:
        """Shard, byte in it and bit in that of every bit of an item in a classic layer."""
        murmur, seed = (murmur_64a, 0xC6A4A7935BD1E995) if self.flags else (murmur_32, 0x9747B28C)
        a = murmur(item, seed)
        b = murmur(item, a)
        places = []
        for i in range(self.nprobes):
            position = (a + i * b & MASK) % self.nbits
            places.append((*divmod(position >> 3, self.shard_bytes()), position & 7))
        return places


class Descriptor:
    """What a filter's key holds."""

    def __init__(self, data: bytes):
        if data[:3] != b"BFD":
            raise FormatError("not a descriptor")
        if data[3:4] != b"\x01":
            raise FormatError("the descriptor has another version than 1")
        self.layers: List[Layer] = []
        self.window: Optional[Window] = None
        try:
            (
                self.id,
                self.seed,
                self.error,
                self.max_shard_bytes,
                self.expansion,
                tag_bytes,
            ) = struct.unpack_from("<QQdQIH", data, 4)
            self.tag = data[42 : 42 + tag_bytes]
            at = 42 + tag_bytes + 2
            flags, nlayers = data[at - 2], data[at - 1]
            if flags & ~(HALF_LOADED | WINDOW):
                raise FormatError("the descriptor has unknown flags")
            self.half_loaded = bool(flags & HALF_LOADED)
            if flags & WINDOW:
                self.window = Window(data, at)
                at += Window.FIELDS.size
            for index in range(nlayers):
                before = self.layers[-1] if index else None
                self.layers.append(Layer(data, at, index, before, bool(self.window)))
                at = self.layers[-1].end
        except (struct.error, IndexError):
            raise FormatError("the descriptor is cut off") from None
        if at + (HALF_LOADED_BYTES if self.half_loaded else 0) != len(data):
            raise FormatError("there are bytes behind the descriptor")

    def number(self, index: int) -> int:
        """The number of a layer, by which its strings are named: it never changes, while layers
        before it may be dropped.
        """
        return index + (self.window.first_number if self.window else 0)

    def nover(self, now_ms: float) -> int:
        """How many layers, the oldest ones, count no more."""
        if not self.window:
            return 0
        nover = self.window.nover
        while (
            nover < len(self.layers)
            and self.layers[nover].began_ms + self.window.lasts_ms() <= now_ms
        ):
            nover += 1
        return nover

    def shard_name(self, index: int, shard: int) -> bytes:
        return b"bf:{" + self.tag + b"}:%016x:%d:%d" % (self.id, self.number(index), shard)

    def header(self, index: int, shard: int, young_items: Optional[int] = None) -> bytes:
        """The bytes that a shard of a blocked or classic layer must begin with, young or dense."""
        layer = self.layers[index]
        form = (DENSE, 0) if young_items is None else (YOUNG, young_items)
        fields = (
            1,
            layer.block_log2,
            layer.nprobes,
            0,
            self.id,
            shard,
            layer.nshards,
            layer.nblocks,
            *form,
            self.number(index),
        )
        return struct.pack("<4sBBBBQIIIBII", b"BFSH", *fields).ljust(HEADER_BYTES, b"\0")

    def string_bytes(self, home: int) -> int:
        """What the blocks of a string take: those of its home, and of the layers that joined it."""
        return sum(
            layer.shard_bytes()
            for layer in self.layers
            if layer.index == home or layer.home == home and layer.has_shard(0)
        )

    def shards(self) -> List[Tuple[int, int]]:
        """All strings that exist, as (layer, shard)."""
        return [
            (layer.index, shard)
            for layer in self.layers
            for shard in range(layer.nshards)
            if layer.home == layer.index and layer.has_shard(shard)
        ]


def young_items(table: bytes) -> Optional[Set[Tuple[int, int]]]:
    """The items in the table of a young shard, as (block, bits); None if it can't be one."""
    nentries = len(table) // ENTRY.size
    if nentries * ENTRY.size != len(table) or nentries < 4 or nentries & (nentries - 1):
        return None
    return {(block - 1, bits) for block, bits in ENTRY.iter_unpack(table) if block}


def murmur_64a(data: bytes, seed: int) -> int:
    multiplier = 0xC6A4A7935BD1E995
    whole = len(data) & ~7
    state = seed ^ (len(data) * multiplier & MASK)
    for word in struct.unpack(f"<{whole // 8}Q", data[:whole]):
        word = word * multiplier & MASK
        state = (state ^ ((word ^ (word >> 47)) * multiplier & MASK)) * multiplier & MASK
    if data[whole:]:
        state = (state ^ int.from_bytes(data[whole:], "little")) * multiplier & MASK
    state = (state ^ (state >> 47)) * multiplier & MASK
    return state ^ (state >> 47)


def murmur_32(data: bytes, seed: int) -> int:
    multiplier, mask = 0x5BD1E995, 2**32 - 1
    whole = len(data) & ~3
    state = (seed ^ len(data)) & mask
    for word in struct.unpack(f"<{whole // 4}I", data[:whole]):
        word = word * multiplier & mask
        state = (state * multiplier & mask) ^ ((word ^ (word >> 24)) * multiplier & mask)
    if data[whole:]:
        state = (state ^ int.from_bytes(data[whole:], "little")) * multiplier & mask
    state = (state ^ (state >> 13)) * multiplier & mask
    return state ^ (state >> 15)
