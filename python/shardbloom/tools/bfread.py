"""Queries a filter without the module's code: reads its descriptor and its shards as docs/format.md
describes them.

    bfread seen https://example.com/          from a server: BF.DESCRIPTOR and GETRANGE
    bfread seen < items                       the same, with one item per line of input
    bfread --save DIR seen                    copies a filter from a server into files
    bfread --load DIR https://example.com/    from such files, without a server
    bfread --info seen                        what the descriptor says

Prints 1 (may have been added) or 0 (was never added) for each item, one per line.
"""

from __future__ import annotations

import argparse
import os
import struct
import sys
import time
from typing import Callable, Dict, Iterator, List, NoReturn, Protocol, Set, Tuple

from shardbloom.cluster import Servers
from shardbloom.connection import Failure, add_options, address_from, run, shown
from shardbloom.format import (
    ADOPTED,
    CLASSIC,
    FORM_AT,
    HEADER_BYTES,
    MASK,
    YOUNG,
    Descriptor,
    FormatError,
    Layer,
    young_items,
)
from shardbloom.partitioned import plan_at
from shardbloom.plan import partition_keys

try:
    import xxhash
except ImportError:
    sys.exit("bfread: the Python module xxhash is missing (Debian: apt-get install python3-xxhash)")

EPILOG = """exit status:
  0    every item was answered
  2    an error: some items were not answered
  130  Ctrl-C
"""


MAX_YOUNG_BYTES = 64 << 20  # more than the table of any young shard takes


# ---- where the bytes come from ----


class Shard(Protocol):
    """The string of a shard."""

    def length(self) -> int:
        ...

    def read(self, first: int, nbytes: int) -> bytes:
        ...


class ServerShard:
    """A shard that a server has."""

    def __init__(self, servers: Servers, name: bytes):
        self.servers, self.name = servers, name

    def length(self) -> int:
        return int(self.servers.command(self.name, "STRLEN", self.name))

    def read(self, first: int, nbytes: int) -> bytes:
        return bytes(
            self.servers.command(self.name, "GETRANGE", self.name, first, first + nbytes - 1)
        )


class FileShard:
    """A shard that --save has written."""

    def __init__(self, path: str):
        self.file = open(path, "rb")

    def length(self) -> int:
        return os.fstat(self.file.fileno()).st_size

    def read(self, first: int, nbytes: int) -> bytes:
        return os.pread(self.file.fileno(), nbytes, first)


def file_name(directory: str, layer: int, shard: int) -> str:
    """Of layer and shard as the descriptor that lies beside them counts them."""
    return os.path.join(directory, f"{layer}.{shard}")


# ---- asking ----


class Reader:
    """A filter that is read. open_shard(layer, shard) gives the string of a shard."""

    def __init__(self, descriptor: Descriptor, open_shard: Callable[[int, int], Shard]):
        self.descriptor, self.open_shard = descriptor, open_shard
        self.opened: Dict[Tuple[int, int], Shard] = {}
        self.young: Dict[Tuple[int, int], Set[Tuple[int, int]]] = {}

    def shard(self, home: int, number: int) -> Shard:
        """The string of an existing shard; its length and header were checked."""
        if (home, number) not in self.opened:
            name = shown(self.descriptor.shard_name(home, number))
            try:
                shard = self.open_shard(home, number)
            except OSError as error:
                raise Failure(f"shard {name}: {error.strerror}") from None
            nbytes = shard.length()
            if nbytes == 0:
                raise Failure(f"shard {name} is missing")
            header = shard.read(0, HEADER_BYTES)
            if header[FORM_AT : FORM_AT + 1] == bytes([YOUNG]):
                if self.open_young(home, number, shard):
                    self.opened[home, number] = shard
                    return shard
                nbytes, header = shard.length(), shard.read(
                    0, HEADER_BYTES
                )  # it may have turned dense
            # It may have got a further layer since the descriptor was read.
            if nbytes < HEADER_BYTES + self.descriptor.string_bytes(
                home
            ) or header != self.descriptor.header(home, number):
                raise Failure(f"shard {name} was overwritten or damaged")
            self.opened[home, number] = shard
        return self.opened[home, number]

    def open_young(self, home: int, number: int, shard: Shard) -> bool:
        """False if the shard isn't young. Reads all of it at once: it may grow or turn any time."""
        string = shard.read(0, MAX_YOUNG_BYTES)
        (nitems,) = struct.unpack_from("<I", string, FORM_AT + 1)
        items = young_items(string[HEADER_BYTES:])
        if items is None or string[:HEADER_BYTES] != self.descriptor.header(home, number, nitems):
            return False
        self.young[home, number] = items
        return True

    def in_shard(self, layer: Layer, number: int, block: int, bits: int) -> bool:
        """Whether a shard of a blocked layer has the item whose hash gave this block and these 64
        bits.
        """
        nbytes = 1 << (layer.block_log2 - 3)
        self.shard(layer.home, number)
        if (layer.home, number) in self.young:
            return (block, bits) in self.young[layer.home, number]
        return layer.in_block(
            self.bytes_of(layer.home, number, layer.offset + block * nbytes, nbytes), bits
        )

    def bytes_of(self, home: int, number: int, first: int, nbytes: int) -> bytes:
        """Bytes behind the header of a shard's string."""
        data = self.shard(home, number).read(HEADER_BYTES + first, nbytes)
        if len(data) != nbytes:
            raise Failure("a shard became shorter while it was read")
        return data

    def in_layer(self, layer: Layer, item: bytes, digest: int) -> bool:
        if layer.kind == ADOPTED:
            raise Failure("the filter has an adopted layer, which bfread can't ask")
        if layer.kind == CLASSIC:
            places = layer.classic_places(item)
            for number in {place[0] for place in places}:
                if layer.has_shard(number):
                    self.shard(layer.index, number)  # all must be sound, as the module demands it
            return all(
                layer.has_shard(number)
                and bool(self.bytes_of(layer.index, number, byte, 1)[0] >> bit & 1)
                for number, byte, bit in places
            )
        number, block = layer.place(digest)
        return layer.has_shard(number) and self.in_shard(layer, number, block, digest & MASK)

    def contains(self, item: bytes) -> bool:
        digest = xxhash.xxh3_128_intdigest(item, self.descriptor.seed)
        nover = self.descriptor.nover(time.time() * 1000)
        # Newest first, like the module: most items are in the newest layer, which is the largest.
        return any(
            self.in_layer(layer, item, digest) for layer in reversed(self.descriptor.layers[nover:])
        )


# ---- the program ----


def save(reader: Reader, raw: bytes, directory: str) -> None:
    """Writes descriptor and shards to files."""
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "descriptor"), "wb") as file:
        file.write(raw)
    for index, number in reader.descriptor.shards():
        shard = reader.shard(index, number)
        with open(file_name(directory, index, number), "wb") as file:
            for first in range(0, shard.length(), 1 << 20):
                file.write(shard.read(first, 1 << 20))


def show(descriptor: Descriptor) -> None:
    """Prints what the descriptor says."""
    print(
        f"id {descriptor.id:016x}, seed {descriptor.seed}, error rate {descriptor.error:g}, "
        f"expansion {descriptor.expansion or 'none'}"
    )
    window = descriptor.window
    if window:
        print(
            f"window of {window.seconds} seconds{', sliding' if window.sliding else ''},"
            f" for {window.capacity} items,"
            f" {window.nslices} slices of {window.slice_ms() / 1000:g} seconds"
        )
    nover = descriptor.nover(time.time() * 1000)
    for layer in descriptor.layers:
        bits = {CLASSIC: f"RedisBloom's {layer.nbits} bits", ADOPTED: "adopted bitmaps"}.get(
            layer.kind, f"blocks of {1 << layer.block_log2} bits"
        )
        nexisting = sum(map(layer.has_shard, range(layer.nshards)))
        began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(layer.began_ms / 1000))
        state = f", began {began}{', over' if layer.index < nover else ''}" if window else ""
        print(
            f"layer {descriptor.number(layer.index)}: {layer.nitems} of {layer.capacity} items,"
            f" {bits}, {layer.nprobes} bits per item,"
            f" {nexisting} of {layer.nshards} shards exist,"
            f" {layer.shard_bytes()} bytes each{state}"
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bfread",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "words", nargs="*", metavar="KEY|ITEM", help="the filter (not with --load), then items"
    )
    parser.add_argument(
        "--load", metavar="DIR", help="read the files that --save wrote; no KEY then"
    )
    parser.add_argument(
        "--save", metavar="DIR", help="write the descriptor and the shards to files, and stop"
    )
    parser.add_argument("--info", action="store_true", help="print the descriptor, and stop")
    parser.add_argument(
        "--hex",
        action="store_true",
        help="items are in hexadecimal; use it for binary items and the empty one",
    )
    add_options(parser)
    options = parser.parse_args()
    if not options.load and not options.words:
        parser.error("a KEY or --load is needed")
    return options


def items(words: List[str], hexadecimal: bool) -> Iterator[bytes]:
    """The items that were asked for, from the arguments or the standard input."""
    source = map(os.fsencode, words) if words else (line.rstrip(b"\n") for line in sys.stdin.buffer)
    for item in source:
        try:
            yield bytes.fromhex(item.decode("ascii")) if hexadecimal else item
        except ValueError:
            raise Failure(f"not hexadecimal: {shown(item)}") from None


def filter_on_server(options: argparse.Namespace) -> Tuple[Reader, bytes]:
    """The filter that the first word names. The server needs the module only for the descriptor."""
    servers = Servers(address_from(options)).open(module=False)
    key = os.fsencode(options.words.pop(0))
    plan = plan_at(servers, key)
    if plan is not None:
        raise Failure(
            f"{shown(key)} is a partitioned filter; bfread reads one partition at a time, such as"
            f" {shown(partition_keys(key, plan.npartitions)[0])}"
        )
    raw = bytes(servers.command(key, "BF.DESCRIPTOR", key))
    descriptor = decoded(raw)
    return Reader(descriptor, lambda *at: ServerShard(servers, descriptor.shard_name(*at))), raw


def filter_in_files(directory: str) -> Tuple[Reader, bytes]:
    with open(os.path.join(directory, "descriptor"), "rb") as file:
        raw = file.read()
    return Reader(decoded(raw), lambda *at: FileShard(file_name(directory, *at))), raw


def decoded(raw: bytes) -> Descriptor:
    try:
        descriptor = Descriptor(raw)
    except FormatError as error:
        raise Failure(str(error)) from None
    if descriptor.half_loaded:
        raise Failure("the filter is half loaded: its BF.LOADCHUNKs are not complete")
    return descriptor


def ask() -> int:
    options = arguments()
    reader, raw = filter_in_files(options.load) if options.load else filter_on_server(options)
    if options.info:
        show(reader.descriptor)
    if options.save:
        save(reader, raw, options.save)
    if not options.info and not options.save:
        for item in items(options.words, options.hex):
            print(int(reader.contains(item)))
    return 0


def main() -> NoReturn:
    run("bfread", ask)
