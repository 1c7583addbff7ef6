"""Copies filters from one server to another, chunk by chunk, and verifies every byte of the copy.

    bfcopy -u redis://old:6379 --to redis://new:6379 seen
    bfcopy -u redis://old:6379/0 --to redis://new:6379/2 'crawl:*' --replace

The source may run this module or RedisBloom (2.x, 8.x); the target runs this module. Either may be
a cluster, and both may be in use during the copy. A filter gets its name on the target only when it
is complete and verified.

Items added to the source during the copy may be missing from the copy; the output says if there
were any. Run bfcopy again with --replace to catch up. If the filter grows a layer or begins a new
slice meanwhile, its copy starts again. An interrupted run leaves only complete filters; run it
again with --missing to copy the rest.

A partitioned filter is copied by its name: first all its partitions, then its plan.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import struct
import time
from typing import Any, Dict, Iterable, Iterator, List, NoReturn, Optional, Set, Tuple

import redis

from shardbloom import progress
from shardbloom.cluster import Servers
from shardbloom.connection import (
    ERROR,
    Failure,
    add_options,
    address_from,
    explain,
    other_address,
    run,
    shown,
)
from shardbloom.filter import info_from
from shardbloom.format import CLASSIC, Descriptor, FormatError
from shardbloom.partitioned import plan_at
from shardbloom.plan import WORD, Plan, name_bytes, partition_keys
from shardbloom.progress import Progress, readable

EPILOG = """exit status:
  0    all filters were copied
  2    an error: one or more filters were not copied
  130  Ctrl-C
"""

OURS, REDISBLOOM = b"bf-shards", b"MBbloom--"
TEXT = (b"string", "string")
MAGIC = b"BFCHUNK\x01"
FRAME_HEAD, CHECKSUM = 40, 8
HEADER, DATA = 1, 2
PART_BYTES = 8 << 20

Info = Dict[str, Optional[int]]
Chunk = Tuple[int, bytes]  # iterator, bytes


class Changed(Exception):
    """The source has grown or was replaced during the copy."""


# ---- what is known of a filter ----


def information(servers: Servers, key: bytes) -> Info:
    return info_from(servers.command(key, "BF.INFO", key))


def number(info: Info, field: str) -> int:
    return int(info[field] or 0)


def scan(servers: Servers, key: bytes) -> Iterator[Chunk]:
    """All chunks of a filter, each with the iterator that goes with it."""
    iterator = 0
    while True:
        try:
            iterator, chunk = servers.command(key, "BF.SCANDUMP", key, iterator)
        except redis.ResponseError as error:
            if "start again" in str(error) or "not found" in str(error):
                raise Changed(str(error)) from None
            raise
        if iterator == 0:
            return
        yield iterator, chunk


class Digest:
    """The bytes of a filter as they went by: one digest for all parts of our own chunks; for
    RedisBloom's one for each chunk, which is all there is to tell where its bytes belong.
    """

    def __init__(self) -> None:
        self.parts = hashlib.blake2b()
        self.pieces: List[Tuple[int, bytes]] = []  # bytes and digest, in order

    def add(self, chunk: bytes, ours: bool) -> None:
        if not ours:
            self.pieces.append((len(chunk), hashlib.blake2b(chunk).digest()))
        elif chunk[8] == DATA:
            self.parts.update(chunk[FRAME_HEAD:-CHECKSUM])


# ---- verifying ----


def layers_of(header: bytes) -> Iterator[Tuple[int, int]]:
    """For each layer of a filter that came from RedisBloom: its bytes there, and those of one shard
    here.
    """
    try:
        descriptor = Descriptor(header[FRAME_HEAD + 8 : -CHECKSUM])
    except FormatError as error:
        raise Failure(f"the copy can't be read: {error}") from None
    for layer in descriptor.layers:
        if layer.kind != CLASSIC:
            raise Failure("the copy has a layer that RedisBloom did not make")
        yield layer.nbytes, layer.shard_bytes()


def parts_of(chunk: bytes) -> Iterator[Tuple[int, int, int, memoryview]]:
    at, end = FRAME_HEAD, len(chunk) - CHECKSUM
    while at < end:
        layer, shard, part, nbytes = struct.unpack_from("<IIII", chunk, at)
        yield layer, shard, part, memoryview(chunk)[at + 16 : at + 16 + nbytes]
        at += 16 + nbytes


class Pieces:
    """Puts a copy's parts, with zeros where there is no shard, into the pieces in which RedisBloom
    gave them.
    """

    def __init__(self, pieces: Iterable[Tuple[int, bytes]]):
        self.pieces = iter(pieces)
        self.hash: Any = None
        self.left = 0
        self.wanted = b""

    def add(self, data: memoryview) -> None:
        while len(data):
            if self.hash is None:
                self.left, self.wanted = next(self.pieces, (0, b""))
                if not self.left:
                    raise Failure("the copy is longer than its source")
                self.hash = hashlib.blake2b()
            taken = data[: self.left]
            self.hash.update(taken)
            self.left -= len(taken)
            data = data[len(taken) :]
            if self.left == 0:
                if self.hash.digest() != self.wanted:
                    raise Failure("the bits of the copy differ from those of its source")
                self.hash = None

    def add_zeros(self, nbytes: int) -> None:
        zeros = memoryview(bytes(max(min(nbytes, 1 << 20), 0)))
        while nbytes > 0:
            self.add(zeros[:nbytes])
            nbytes -= len(zeros[:nbytes])

    def finish(self) -> None:
        if self.hash is not None or next(self.pieces, None) is not None:
            raise Failure("the copy is shorter than its source")


def verify_redisbloom(chunks: Iterator[Chunk], digest: Digest, bar: Progress) -> None:
    """Compares a copy with the chunks that RedisBloom gave."""
    pieces, layer, offset, nread = Pieces(digest.pieces), 0, 0, 0
    layers: List[Tuple[int, int]] = []

    def fill_to(wanted_layer: int, wanted_offset: int) -> None:
        nonlocal layer, offset
        while layer < wanted_layer:
            pieces.add_zeros(layers[layer][0] - offset)
            layer, offset = layer + 1, 0
        pieces.add_zeros(wanted_offset - offset)
        offset = max(offset, wanted_offset)

    for _, chunk in chunks:
        if chunk[8] == HEADER:
            layers = list(layers_of(chunk))
        elif chunk[8] == DATA:
            for index, shard, part, data in parts_of(chunk):
                total, shard_bytes = layers[index]
                fill_to(index, shard * shard_bytes + part * PART_BYTES)
                if any(data[max(total - offset, 0) :]):
                    raise Failure("the copy has bits where its source has none")
                data = data[: max(total - offset, 0)]
                pieces.add(data)
                offset += len(data)
        nread += len(chunk)
        bar.show(nread)
    fill_to(len(layers) - 1, layers[-1][0])
    pieces.finish()


def verify(target: Servers, key: bytes, digest: Digest, ours: bool, total: int) -> None:
    """Reads the copy back and compares every byte with what the source gave."""
    bar = Progress("  verified", total, readable)
    try:
        if ours:
            again, nread = Digest(), 0
            for _, chunk in scan(target, key):
                again.add(chunk, True)
                nread += len(chunk)
                bar.show(nread)
            if again.parts.digest() != digest.parts.digest():
                raise Failure("the bits of the copy differ from those of its source")
        else:
            verify_redisbloom(scan(target, key), digest, bar)
    except Changed as change:
        raise Failure(f"the copy was changed while it was verified: {change}") from None
    bar.show(total, last=True)


# ---- copying ----


def temporary_name(key: bytes) -> bytes:
    """Where the copy lives until it is complete: in the same cluster slot, with the same tag in its
    shards' names.
    """
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    return b"bfcopy:" + key if start >= 0 and end > start + 1 else b"bfcopy:{" + key + b"}"


class Copy:
    """One filter on its way."""

    def __init__(
        self, source: Servers, target: Servers, key: bytes, name: bytes, options: argparse.Namespace
    ):
        self.source, self.target, self.key, self.name, self.options = (
            source,
            target,
            key,
            name,
            options,
        )
        self.temporary = temporary_name(name)

    def at_target(self, *words: Any) -> Any:
        return self.target.command(self.temporary, *words)

    def run(self) -> None:
        """Copies it, several times if it changes meanwhile. Raises Failure or an error of the
        server.
        """
        kind = self.source.command(self.key, "TYPE", self.key)
        if kind in (b"none", "none"):
            raise Failure(f"there is no filter {shown(self.key)}")
        if kind not in (OURS, REDISBLOOM):
            raise Failure(f"{shown(self.key)} is not a filter")
        if not self.options.replace and self.target.command(self.name, "EXISTS", self.name):
            raise Failure(f"{shown(self.name)} exists at the target; --replace would replace it")
        for attempt in range(self.options.attempts):
            try:
                return self.once()
            except Changed as change:
                problem = change
                progress.end()
                progress.say(
                    f"bfcopy: {shown(self.key)}: {change}; attempt {attempt + 1} of"
                    f" {self.options.attempts}"
                )
        raise Failure(f"{shown(self.key)}: not copied: {problem}")

    def once(self) -> None:
        before = information(self.source, self.key)
        self.at_target("DEL", self.temporary)  # what a killed run has left
        start = time.monotonic()
        try:
            digest, nbytes, ours = self.transfer(number(before, "size"))
            if self.options.verify:
                verify(self.target, self.temporary, digest, ours, nbytes)
            copy, nadded = self.check_information(before)
            self.put_in_place()
        except BaseException:
            self.clean_up()
            raise
        seconds = time.monotonic() - start
        note = (
            f"; {nadded:,} items were added to the source meanwhile, of which some may be missing"
            if nadded
            else ""
        )
        print(
            (
                f"{shown(self.key)}: {copy['items']:,} items, {copy['layers']} layers,"
                f" {readable(nbytes)} in"
                f" {seconds:.1f} s{', verified' if self.options.verify else ''}{note}"
            ),
            flush=True,
        )

    def transfer(self, total: int) -> Tuple[Digest, int, bool]:
        """Loads all chunks; returns what went by, how many bytes, and whether they are our own."""
        bar, digest, nbytes, ours = Progress("  copied", total, readable), Digest(), 0, True
        for index, (iterator, chunk) in enumerate(scan(self.source, self.key)):
            if index == 0:
                ours = chunk.startswith(MAGIC[:7])
            if index > 0 or ours:
                digest.add(chunk, ours)
            try:
                self.at_target("BF.LOADCHUNK", self.temporary, iterator, chunk)
            except redis.ResponseError as error:
                # RedisBloom goes on with the layers that it has made since it gave the header.
                if index > 0 and not ours and str(error).startswith("item exists"):
                    raise Changed("the filter has grown during the copy") from None
                raise
            nbytes += len(chunk)
            bar.show(nbytes)
        bar.show(nbytes, last=True)
        return digest, nbytes, ours

    def check_information(self, before: Info) -> Tuple[Info, int]:
        """The copy must be like the source was at the beginning or is at the end; also returns the
        items added meanwhile.
        """
        try:
            after = information(self.source, self.key)
        except redis.ResponseError as error:
            raise Changed(str(error)) from None
        copy = information(self.target, self.temporary)
        # Slices may have become over since, and two servers may have two opinions on that.
        ages = after.get("window") is not None
        fields = ("window", "slices", "sliding") if ages else ("layers",)
        for field in ("capacity", "expansion", *fields):
            if copy.get(field) not in (before.get(field), after.get(field)):
                raise Failure(
                    f"{shown(self.key)}: {field} is {copy.get(field)}, at the source"
                    f" {after.get(field)}"
                )
        nadded = number(after, "items") - number(before, "items")
        if ages:
            return copy, max(nadded, 0)
        if not number(before, "items") <= number(copy, "items") <= number(after, "items"):
            raise Failure(
                f"{shown(self.key)}: the copy has {copy['items']} items, the source"
                f" {after['items']}"
            )
        return copy, nadded

    def put_in_place(self) -> None:
        """Gives the copy its time to live and its name."""
        left = int(self.source.command(self.key, "PTTL", self.key))
        if left > 0:
            self.at_target("PEXPIRE", self.temporary, left)
        if self.options.replace:
            self.at_target("RENAME", self.temporary, self.name)
        elif not self.at_target("RENAMENX", self.temporary, self.name):
            raise Failure(
                f"{shown(self.name)} was created at the target meanwhile; --replace would replace"
                " it"
            )

    def clean_up(self) -> None:
        progress.end()
        try:
            self.at_target("DEL", self.temporary)
        except redis.RedisError:
            progress.say(
                f"bfcopy: {shown(self.temporary)} is left at the target; the next run removes it"
            )


# ---- partitioned filters ----


@dataclasses.dataclass(frozen=True)
class Entry:
    """A filter to be copied, or the plan of a partitioned one, behind all its partitions."""

    key: bytes
    name: bytes  # at the target
    plan: Optional[Plan] = None

    def partitions(self) -> Iterator[Entry]:
        if self.plan is not None:
            keys, names = (
                partition_keys(name, self.plan.npartitions) for name in (self.key, self.name)
            )
            yield from (Entry(key, name) for key, name in zip(keys, names))


def check_plan(target: Servers, entry: Entry, options: argparse.Namespace) -> None:
    """Before anything is copied: partitions of two plans must not come together."""
    there = plan_at(target, entry.name)
    if there is not None and entry.plan is not None and not there.is_like(entry.plan):
        raise Failure(
            f"at the target {shown(entry.name)} is another partitioned filter: there is"
            f" '{there}', and the source has '{entry.plan}'"
        )
    exists = target.command(entry.name, "EXISTS", entry.name)
    if exists and not options.replace and not (options.missing and there):
        raise Failure(f"{shown(entry.name)} exists at the target; --replace would replace it")


def copy_plan(
    source: Servers, target: Servers, entry: Entry, options: argparse.Namespace, nfailed: int
) -> None:
    """When all partitions are there, the copy gets its plan, and with it becomes usable."""
    if nfailed:
        raise Failure(
            f"{shown(entry.key)}: {nfailed} partitions were not copied, so neither is the plan"
        )
    plan = plan_at(source, entry.key)
    if plan != entry.plan:
        raise Failure(f"{shown(entry.key)}: its plan has changed during the copy")
    left = int(source.command(entry.key, "PTTL", entry.key))
    words = [*(["PX", left] if left > 0 else []), *([] if options.replace else ["NX"])]
    check_plan(target, entry, options)
    if not target.command(entry.name, "SET", entry.name, str(plan), *words):
        raise Failure(f"{shown(entry.name)} was created at the target meanwhile")
    nitems = sum(number(information(target, one.name), "items") for one in entry.partitions())
    print(f"{shown(entry.key)}: {nitems:,} items in {plan and plan.npartitions} partitions")


# ---- the program ----


def entries_of(source: Servers, pattern: bytes, name: Optional[bytes]) -> List[Entry]:
    """What there is to copy, partitions before their plan."""
    keys = keys_of(source, pattern)
    if name is not None and len(keys) > 1:
        raise Failure(f"--as is for one filter, but {len(keys)} match")
    found: Dict[bytes, Entry] = {}
    plans: List[Entry] = []
    for key in keys:
        text = source.command(key, "TYPE", key) in TEXT
        entry = Entry(key, key if name is None else name, plan_at(source, key) if text else None)
        if entry.plan is None:
            found[key] = entry
            continue
        try:
            name_bytes(entry.name)
        except ValueError as error:
            raise Failure(str(error)) from None
        found.update((one.key, one) for one in entry.partitions())
        plans.append(entry)
    return [*found.values(), *plans]


def keys_of(source: Servers, pattern: bytes) -> List[bytes]:
    """The key, or all filters whose names match, and plans of partitioned ones."""
    if not any(sign in pattern for sign in b"*?[") or source.command(pattern, "EXISTS", pattern):
        return [pattern]
    nodes, down = source.nodes()
    if down:
        raise Failure(f"no connection to {', '.join(down)}: filters there would be missed")
    found: Set[bytes] = set()
    plan = WORD.encode()
    for node in nodes:
        cursor = 0
        while True:
            cursor, keys = node.command("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            kinds = node.commands([("TYPE", key) for key in keys]) if keys else []
            found.update(key for key, kind in zip(keys, kinds) if kind in (OURS, REDISBLOOM))
            texts = [key for key, kind in zip(keys, kinds) if kind in TEXT]
            words = [("GETRANGE", key, 0, len(plan) - 1) for key in texts]
            heads = node.commands(words) if texts else []
            found.update(key for key, head in zip(texts, heads) if head == plan)
            if cursor == 0:
                break
    if not found:
        raise Failure(f"no filter matches {shown(pattern)}")
    return sorted(found)


def missing_at(target: Servers, entries: List[Entry]) -> List[Entry]:
    return [one for one in entries if not target.command(one.name, "EXISTS", one.name)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bfcopy",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "key", help="name of a filter, or a pattern as for KEYS; other types of keys are skipped"
    )
    parser.add_argument(
        "--to",
        metavar="URL",
        default=os.environ.get("BF_TO"),
        help="server to copy to; the environment variable BF_TO does the same and hides a password",
    )
    parser.add_argument(
        "--as", dest="name", metavar="NAME", help="name of the copy (default: the same)"
    )
    exclusive = parser.add_mutually_exclusive_group()
    exclusive.add_argument(
        "--replace", action="store_true", help="replace a key of the same name on the target"
    )
    exclusive.add_argument(
        "--missing", action="store_true", help="copy only what does not exist on the target yet"
    )
    parser.add_argument(
        "--no-verify",
        dest="verify",
        action="store_false",
        help="do not read the copy back and compare it",
    )
    parser.add_argument(
        "--attempts",
        type=int,
        default=3,
        metavar="N",
        help=(
            "how often to try if the filter grows or begins a new slice meanwhile (default:"
            " %(default)s)"
        ),
    )
    add_options(parser)
    options = parser.parse_args()
    if options.to is None:
        parser.error("--to is needed: the server to copy to")
    if options.attempts < 1:
        parser.error("--attempts must be 1 or more")
    return options


def copy_all(
    source: Servers, target: Servers, entries: List[Entry], options: argparse.Namespace
) -> int:
    """Copies the filters; returns how many could not be. What ends the run says how to go on."""
    ndone = 0
    failed: Set[bytes] = set()
    try:
        for entry in entries:
            key = entry.key
            try:
                if entry.plan is None:
                    Copy(source, target, key, entry.name, options).run()
                else:
                    nlost = sum(one.key in failed for one in entry.partitions())
                    copy_plan(source, target, entry, options, nlost)
                ndone += 1
            except (redis.ConnectionError, redis.TimeoutError):
                raise
            except (Failure, redis.ResponseError) as problem:
                progress.end()
                text = explain(
                    problem, getattr(problem, "address", None), getattr(problem, "key", None)
                )
                progress.say(f"bfcopy: {text if shown(key) in text else shown(key) + ': ' + text}")
                failed.add(key)
    except (KeyboardInterrupt, redis.RedisError):
        progress.end()
        how = (
            "copies everything again"
            if options.replace
            else "continues" if options.missing else "with --missing continues"
        )
        what = (
            f"{ndone} of {len(entries)} filters were copied"
            if len(entries) > 1
            else "the filter was not copied"
        )
        progress.say(f"bfcopy: stopped: {what}, no unfinished copy is used; the same command {how}")
        raise
    return len(failed)


def copy() -> int:
    options = arguments()
    source = Servers(address_from(options), timeout=300).open(module=False)
    target = Servers(other_address(options.to, options), timeout=300).open()
    name = None if options.name is None else os.fsencode(options.name)
    entries = entries_of(source, os.fsencode(options.key), name)
    for entry in entries:
        if entry.plan is not None:
            check_plan(target, entry, options)
    if options.missing:
        nall = len(entries)
        entries = missing_at(target, entries)
        progress.say(f"bfcopy: {nall - len(entries)} of {nall} filters are at the target already")
    nfailed = copy_all(source, target, entries, options)
    if len(entries) > 1:
        print(f"{len(entries) - nfailed} copied, {nfailed} failed")
    return ERROR if nfailed else 0


def main() -> NoReturn:
    run("bfcopy", copy)
