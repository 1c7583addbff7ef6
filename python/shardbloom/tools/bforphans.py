"""Finds shards that no live filter owns, and removes them on request.

    bforphans                                 lists them
    bforphans --remove                        removes them

The module removes the shards of a deleted filter by itself. This tool is for what the module can't
see: a filter deleted while its cluster slot was moving, shards copied by other tools, a server that
ran without the module. The same goes for shards of slices that a filter with a window has dropped.

It finds every key named like a shard (bf:{tag}:id:layer:shard) with SCAN, in all databases, and in
a cluster on all primaries. It asks the server whether the shard's filter exists (BF.OWNER). The
descriptor of a filter with a window shows which slices it still has. Each orphan is checked again
after a while, and once more by the command that removes it. A filter that is being created,
renamed, restored or migrated meanwhile is safe. Slots that are moving are skipped; run it again
when they have arrived.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, NoReturn, Optional, Set, Tuple

import redis
from redis.exceptions import NoPermissionError

from shardbloom import progress
from shardbloom.cluster import Node, Servers, is_on_the_way, redirection, slot_of
from shardbloom.connection import ERROR, FOUND, add_options, address_from, run, shown
from shardbloom.format import Descriptor, FormatError

EPILOG = """exit status:
  0    no orphans, or all were removed
  1    orphans were found and are still there
  2    an error; or no orphans were found but something was skipped:
       moving slots, or a node that does not answer
  130  Ctrl-C
"""

PATTERN = b"bf:{*}:*:*:*"

# One command, so nothing can come between the question and the removal.
REMOVE = """
if redis.call('BF.OWNER', KEYS[1]).ok ~= 'orphan' then return 0 end
return redis.call('UNLINK', KEYS[1])
"""

# The same for a shard of a filter that lives, KEYS[2], and has dropped the shard's layer. ARGV: the
# number of that layer, the filter's id as the descriptor has it. The number of the first layer that
# is left stands behind the tag, two bytes, and seven bytes of the window.
REMOVE_DROPPED = """
if redis.call('BF.OWNER', KEYS[1]).ok ~= 'live' then return 0 end
local d = redis.pcall('BF.DESCRIPTOR', KEYS[2])
if type(d) ~= 'string' or string.sub(d, 1, 4) ~= 'BFD\\1' then return 0 end
local at = 42 + string.byte(d, 41) + 256 * string.byte(d, 42)
local mine = 'bf:{' .. string.sub(d, 43, at) .. '}:'
if string.sub(d, 5, 12) ~= ARGV[2] or string.sub(KEYS[1], 1, #mine) ~= mine then return 0 end
if string.byte(d, at + 1) % 4 < 2 then return 0 end
local a, b, c, e = string.byte(d, at + 10, at + 13)
if a + 256 * (b + 256 * (c + 256 * e)) <= tonumber(ARGV[1]) then return 0 end
return redis.call('UNLINK', KEYS[1])
"""

SHARD = re.compile(rb"bf:\{(.*)\}:([0-9a-f]{16}):([0-9]{1,10}):[0-9]{1,10}", re.DOTALL)

Found = Tuple[Node, int, bytes]  # node, database, name


class Dropped(NamedTuple):
    """What is known of a shard whose filter lives but has dropped its layer."""

    key: bytes  # of the filter
    id: bytes
    layer: int


class Windows:
    """The filters with a window in a database: which layers they still have."""

    def __init__(self, node: Node, db: int, batch: int):
        self.node, self.db = node, db
        self.first: Dict[Tuple[bytes, int], Tuple[bytes, int]] = {}  # by tag and id: key, number
        self.nhidden = 0  # filters that the user may not ask
        cursor = 0
        while True:
            words = ("SCAN", cursor, "COUNT", batch, "TYPE", "bf-shards")
            cursor, keys = node.command(*words, db=db)
            if keys:
                self.take(keys)
            if cursor == 0:
                break

    def take(self, keys: List[bytes]) -> None:
        infos = node_replies(self.node, self.db, [("BF.INFO", key, "WINDOW") for key in keys])
        self.nhidden += sum(isinstance(info, NoPermissionError) for info in infos)
        aging = [
            key
            for key, info in zip(keys, infos)
            if isinstance(info, (list, tuple)) and info[0] is not None
        ]
        raws = node_replies(self.node, self.db, [("BF.DESCRIPTOR", key) for key in aging])
        self.nhidden += sum(isinstance(raw, NoPermissionError) for raw in raws)
        for key, raw in zip(aging, raws):
            descriptor = descriptor_of(raw)
            if descriptor and descriptor.window:
                which = descriptor.tag, descriptor.id
                known = self.first.get(which)
                if not known or known[1] > descriptor.number(0):
                    self.first[which] = key, descriptor.number(0)

    def dropped(self, name: bytes) -> Optional[Dropped]:
        """Not None if a filter here, the shard's own, has dropped the layer that its name says."""
        parts = SHARD.fullmatch(name)
        if not parts:
            return None
        tag, number, layer = parts[1], int(parts[2], 16), int(parts[3])
        key, first = self.first.get((tag, number), (b"", 0))
        return Dropped(key, number.to_bytes(8, "little"), layer) if layer < first else None


def moving_slots(node: Node) -> Set[int]:
    """Slots of a cluster node that are on their way: a shard of a filter that lives may belong to
    what is still elsewhere.
    """
    if not int(node.info("cluster").get("cluster_enabled", 0)):
        return set()
    text = node.command("CLUSTER", "NODES")
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return {int(slot) for slot in re.findall(r" \[([0-9]+)-[<>]-", text)}


def descriptor_of(raw: Any) -> Optional[Descriptor]:
    try:
        return Descriptor(raw) if isinstance(raw, bytes) else None
    except FormatError:
        return None


def node_replies(node: Node, db: int, commands: List[Tuple[Any, ...]]) -> List[Any]:
    """Replies; errors are among them, unless the node is lost."""
    replies = node.commands(commands, db) if commands else []
    for reply in replies:
        if isinstance(reply, redis.ConnectionError):
            raise node.named(reply)
    return replies


def answers(node: Node, db: int, commands: Iterable[Tuple[Any, ...]]) -> List[Any]:
    """All replies; redirections are the answer "moving", other errors end the program."""
    replies = node.commands(commands, db)
    for i, reply in enumerate(replies):
        if redirection(reply) or is_on_the_way(reply):
            replies[i] = b"moving"
        elif isinstance(reply, redis.RedisError):
            raise node.named(reply)
    return replies


def owners(node: Node, db: int, names: Iterable[bytes]) -> List[bytes]:
    replies = answers(node, db, [("BF.OWNER", name) for name in names])
    return [reply if isinstance(reply, bytes) else str(reply).encode() for reply in replies]


class Hunt:
    """What was found so far."""

    def __init__(self, options: argparse.Namespace):
        self.batch, self.quiet, self.line = (
            options.batch,
            options.quiet,
            progress.Line(terminal_seconds=1),
        )
        self.nscanned, self.nshards = 0, 0
        self.found: Dict[Found, int] = {}  # with its bytes
        self.dropped: Dict[Found, Dropped] = {}  # those whose filter lives
        self.nhidden = 0
        self.nmoving, self.ndying, self.nother, self.nremoved, self.bytes_removed = 0, 0, 0, 0, 0

    def tell(self, text: str, last: bool = False) -> None:
        """What is being done, unless nobody wants to know."""
        if not self.quiet and (last or self.line.due()):
            self.line.put(text, last)

    def batches(self) -> Iterator[Tuple[Node, int, List[bytes]]]:
        """What was found, by node and database, a batch at a time."""
        groups: Dict[Tuple[Node, int], List[bytes]] = {}
        for node, db, name in self.found:
            groups.setdefault((node, db), []).append(name)
        for (node, db), names in groups.items():
            for i in range(0, len(names), self.batch):
                yield node, db, names[i : i + self.batch]

    def scan(self, node: Node, db: int, nkeys: int) -> None:
        """Looks through a database."""
        cursor, first = 0, self.nscanned
        candidates: Set[bytes] = set()
        windows = Windows(node, db, self.batch)
        self.nhidden += windows.nhidden
        while True:
            words = ("SCAN", cursor, "MATCH", PATTERN, "COUNT", self.batch, "TYPE", "string")
            cursor, names = node.command(*words, db=db)
            self.nscanned += self.batch
            self.nshards += len(names)
            for name, owner in zip(names, owners(node, db, names)) if names else ():
                dropped = windows.dropped(name) if owner == b"live" else None
                if dropped:
                    self.dropped[node, db, name] = dropped
                if dropped or owner != b"live":
                    candidates.add(name)
            done = min(100, 100 * (self.nscanned - first) // max(nkeys, 1))
            self.tell(
                f"{node.name} db {db}: {done}% of {nkeys} keys, {self.nshards} shards, "
                f"{len(self.found) + len(candidates)} without a filter so far"
            )
            if cursor == 0:
                break
        self.nscanned = first + nkeys
        self.found.update({(node, db, name): 0 for name in candidates})

    def confirm(self) -> None:
        """Asks again, and keeps what is an orphan still."""
        confirmed: Dict[Found, int] = {}
        for node, db, names in self.batches():
            lengths = answers(node, db, [("STRLEN", name) for name in names])
            swept = not self.dropped or self.is_swept(node)
            moving = moving_slots(node) if self.dropped else set()
            for name, owner, nbytes in zip(names, owners(node, db, names), lengths):
                if owner == b"orphan" and isinstance(nbytes, int):
                    confirmed[node, db, name] = nbytes
                    self.dropped.pop((node, db, name), None)
                elif owner == b"live" and (node, db, name) in self.dropped and nbytes:
                    if slot_of(name) in moving:
                        self.nmoving += 1
                    elif swept:
                        confirmed[node, db, name] = nbytes
                    else:
                        self.ndying += 1
                elif owner == b"moving" or nbytes == b"moving":
                    self.nmoving += 1
                elif owner == b"dying":
                    self.ndying += 1
                elif owner == b"other" and nbytes:
                    self.nother += 1
        self.found = confirmed

    @staticmethod
    def is_swept(node: Node) -> bool:
        """Whether the server has nothing left to remove: what a filter dropped a moment ago goes by
        itself.
        """
        return not node.info("bf").get("bf_sweeps_pending", 0)

    def removal(self, one: Found, remove: bytes, remove_dropped: bytes) -> Tuple[Any, ...]:
        """The command that removes an orphan, if it is one still."""
        dropped = self.dropped.get(one)
        if not dropped:
            return ("EVALSHA", remove, 1, one[2])
        return ("EVALSHA", remove_dropped, 2, one[2], dropped.key, dropped.layer, dropped.id)

    def remove(self) -> Set[Found]:
        """Removes orphans; returns those that are gone."""
        removed: Set[Found] = set()
        for node, db, names in self.batches():
            scripts = [
                node.command("SCRIPT", "LOAD", text, db=db) for text in (REMOVE, REMOVE_DROPPED)
            ]
            commands = [self.removal((node, db, name), *scripts) for name in names]
            for name, reply in zip(names, answers(node, db, commands)):
                if reply == 1:
                    removed.add((node, db, name))
                    self.bytes_removed += self.found[node, db, name]
            self.tell(f"{len(removed)} of {len(self.found)} removed")
        self.nremoved = len(removed)
        return removed


def report_text(hunt: Hunt, removed: Set[Found], down: List[str]) -> None:
    for (node, db, name), nbytes in sorted(
        hunt.found.items(), key=lambda item: (item[0][0].name, item[0][1:])
    ):
        state = "  removed" if (node, db, name) in removed else ""
        print(f"{node.name} db {db}  {shown(name)}  {nbytes} bytes{state}")
    print(
        f"{hunt.nshards} shards seen, {len(hunt.found)} orphans of"
        f" {sum(hunt.found.values())} bytes, {hunt.nremoved} removed"
    )
    if hunt.nmoving:
        print(
            f"note: {hunt.nmoving} shards were skipped because their slots are moving; run again"
            " later"
        )
    if hunt.ndying:
        print(
            f"note: {hunt.ndying} shards belong to filters deleted a moment ago; the server is"
            " removing them"
        )
    if hunt.nhidden:
        print(
            f"note: {hunt.nhidden} filters could not be checked for dropped slices: no permission"
        )
    if hunt.nother:
        print(f"note: {hunt.nother} keys are named like shards but are something else; left alone")
    for address in down:
        print(f"note: {address} does not answer and was skipped")


def report_json(hunt: Hunt, removed: Set[Found], down: List[str]) -> None:
    orphans = [
        {
            "node": node.name,
            "db": db,
            "key": shown(name),
            "bytes": nbytes,
            "removed": (node, db, name) in removed,
        }
        for (node, db, name), nbytes in hunt.found.items()
    ]
    skipped = {
        "moving": hunt.nmoving,
        "dying": hunt.ndying,
        "not_shards": hunt.nother,
        "nodes_down": down,
    }
    report = {
        "orphans": orphans,
        "shards_seen": hunt.nshards,
        "bytes": sum(hunt.found.values()),
        "removed": hunt.nremoved,
        "bytes_removed": hunt.bytes_removed,
        "skipped": skipped,
    }
    print(json.dumps(report, indent=2))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bforphans",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--remove", action="store_true", help="remove what is found (UNLINK)")
    parser.add_argument("--json", action="store_true", help="report as JSON")
    parser.add_argument(
        "--batch",
        type=int,
        default=500,
        metavar="N",
        help="keys per SCAN and per round trip (default: %(default)s)",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=2,
        metavar="SECONDS",
        help="time before an orphan is checked again (default: %(default)s)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    add_options(parser)
    options = parser.parse_args()
    if not 1 <= options.batch <= 100000:
        parser.error("--batch must be 1 to 100000")
    if not 0 <= options.wait <= 3600:
        parser.error("--wait must be 0 to 3600")
    return options


def look() -> int:
    options = arguments()
    address = address_from(options)
    nodes, down = Servers(address).open().nodes()
    hunt = Hunt(options)
    for node in nodes:
        node.check_module()
        for db, nkeys in node.databases().items():
            if address.db in (None, db):
                hunt.scan(node, db, nkeys)
    if hunt.found:
        time.sleep(options.wait)
        hunt.confirm()
    removed = hunt.remove() if options.remove else set()
    hunt.tell(f"{hunt.nscanned} keys on {len(nodes)} nodes looked through", last=True)
    (report_json if options.json else report_text)(hunt, removed, down)
    if len(removed) < len(hunt.found):
        return FOUND
    return ERROR if hunt.nmoving or down else 0


def main() -> NoReturn:
    run("bforphans", look)
