"""Finds shards that no live filter owns, and removes them on request.

    bforphans                                 lists them
    bforphans --remove                        removes them

The module removes the shards of a deleted filter by itself. This tool is for what the module can't
see: a filter deleted while its cluster slot was moving, shards copied by other tools, a server that
ran without the module.

It finds every key named like a shard (bf:{tag}:id:layer:shard) with SCAN, in all databases, and in
a cluster on all primaries. The server itself says whether the shard's filter exists (BF.OWNER).
Each orphan is checked again after a while, and once more by the command that removes it. A filter
that is being created, renamed, restored or migrated meanwhile is safe. Slots that are moving are
skipped; run it again when they have arrived.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, Dict, Iterable, Iterator, List, NoReturn, Set, Tuple

import redis

from shardbloom import progress
from shardbloom.cluster import Node, Servers, is_on_the_way, redirection
from shardbloom.connection import ERROR, FOUND, add_options, address_from, run, shown

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

Found = Tuple[Node, int, bytes]  # node, database, name


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
        while True:
            words = ("SCAN", cursor, "MATCH", PATTERN, "COUNT", self.batch, "TYPE", "string")
            cursor, names = node.command(*words, db=db)
            self.nscanned += self.batch
            self.nshards += len(names)
            for name, owner in zip(names, owners(node, db, names)) if names else ():
                if owner != b"live":
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
            for name, owner, nbytes in zip(names, owners(node, db, names), lengths):
                if owner == b"orphan" and isinstance(nbytes, int):
                    confirmed[node, db, name] = nbytes
                elif owner == b"moving" or nbytes == b"moving":
                    self.nmoving += 1
                elif owner == b"dying":
                    self.ndying += 1
                elif owner == b"other" and nbytes:
                    self.nother += 1
        self.found = confirmed

    def remove(self) -> Set[Found]:
        """Removes orphans; returns those that are gone."""
        removed: Set[Found] = set()
        for node, db, names in self.batches():
            sha = node.command("SCRIPT", "LOAD", REMOVE, db=db)
            for name, reply in zip(
                names, answers(node, db, [("EVALSHA", sha, 1, name) for name in names])
            ):
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
            f"note: {hunt.nmoving} shards were skipped, their slots are on the move; run again"
            " later"
        )
    if hunt.ndying:
        print(
            f"note: {hunt.ndying} shards belong to filters deleted a moment ago; the server is"
            " removing them"
        )
    if hunt.nother:
        print(f"note: {hunt.nother} keys are named like shards, but are none; they are left alone")
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
