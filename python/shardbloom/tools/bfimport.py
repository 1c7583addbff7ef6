"""Streams a Redis SET into a filter, in batches, with a progress bar. An interrupted run can be
continued.

    bfimport spider:dupefilter seen
    bfimport -u redis://old:6379 --to redis://new:6379 --error 0.0001 urls seen --verify

The set is read with SSCAN and stays as it is. Neither server is blocked for longer than one batch
takes. Adding an element twice does no harm, so you can repeat the command at any time to catch up,
even while clients keep adding to both. Set and filter may be in clusters. A partitioned filter is
created with --partitions; one that exists is recognised by its plan.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from typing import Any, Iterator, List, NoReturn, Tuple, Union

import redis

from shardbloom import progress
from shardbloom.cluster import Servers
from shardbloom.connection import (
    FOUND,
    Failure,
    add_options,
    address_from,
    other_address,
    run,
    shown,
)
from shardbloom.filter import Filter, NotAdded, window_words
from shardbloom.partitioned import PartitionedFilter, plan_at
from shardbloom.plan import MOST_PARTITIONS
from shardbloom.progress import Progress

EPILOG = """exit status:
  0    all elements are in the filter
  1    --verify found elements that are not in the filter
  2    an error
  130  Ctrl-C; the same command continues
"""


def say(text: str) -> None:
    progress.say(f"bfimport: {text}")


class Source:
    """The set. Its elements come in an order that only the process knows that serves it."""

    def __init__(self, servers: Servers, name: str):
        self.servers, self.name = servers, name
        kind = servers.command(name, "TYPE", name).decode()
        if kind == "none":
            raise Failure(f"there is no set {shown(name)}")
        if kind != "set":
            raise Failure(f"{shown(name)} is not a set")
        self.nelements = int(servers.command(name, "SCARD", name))
        self.node = servers.answered

    def run_id(self) -> str:
        """Names the process: after a restart a server hashes with another seed and has another
        order.

        Empty if the user may not know it.
        """
        return str(self.node.info("server").get("run_id", ""))

    def scan(self, cursor: int, count: int) -> Tuple[int, List[bytes]]:
        """Some elements, and the cursor for the next."""
        cursor, elements = self.servers.command(
            self.name, "SSCAN", self.name, cursor, "COUNT", count
        )
        return int(cursor), list(elements)

    def has_moved(self) -> bool:
        """Another node has answered than before: its cursors are others. From now on it is the one
        that counts.
        """
        moved = self.servers.answered is not self.node
        self.node = self.servers.answered
        return moved


class State:
    """The position in the set, kept in a file, with the name of the process to which it means
    something.
    """

    def __init__(self, path: str, run_id: str):
        self.path, self.run_id = path, run_id
        self.cursor = self.nread = self.nnew = 0

    def load(self) -> None:
        """Takes up the position of the last run, if there is one and it is still good."""
        try:
            with open(self.path, encoding="ascii") as file:
                saved = json.load(file)
            if not self.run_id:
                say("the user may not call INFO, so the last position may be wrong: starting over")
                return
            if saved["run_id"] != self.run_id:
                say("the server of the set was restarted since the last run: starting over")
                return
            self.cursor, self.nread, self.nnew = (
                int(saved[name]) for name in ("cursor", "nread", "nnew")
            )
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError) as error:
            text = (
                f"{self.path} is not a state file of bfimport ({error}); remove it, or give"
                " --restart"
            )
            raise Failure(text) from None

    def begin_anew(self, run_id: str) -> None:
        self.run_id = run_id
        self.cursor = self.nread = self.nnew = 0

    def save(self) -> None:
        text = json.dumps(
            {"run_id": self.run_id, "cursor": self.cursor, "nread": self.nread, "nnew": self.nnew}
        )
        with open(self.path + ".new", "w", encoding="ascii") as file:
            file.write(text + "\n")
        os.replace(self.path + ".new", self.path)

    def remove(self) -> None:
        if os.path.exists(self.path):
            os.remove(self.path)


class Import:
    """A set on its way into a filter."""

    def __init__(self, source: Source, target: Servers, options: argparse.Namespace):
        self.source, self.batch = source, options.batch
        self.filter = filter_for(target, options, source.nelements)
        names = "\0".join([place(source.servers), source.name, place(target), options.filter])
        digest = hashlib.sha256(names.encode(errors="surrogateescape")).hexdigest()
        self.state = State(options.state or f"bfimport-{digest[:12]}.json", source.run_id())
        if not options.restart:
            self.state.load()

    def prepare(self) -> None:
        """Creates the filter if need be. What an earlier run put into another one is no use."""
        if self.filter.create():
            plan = self.filter.plan if isinstance(self.filter, PartitionedFilter) else None
            parts = f" in {plan.npartitions} partitions" if plan else ""
            say(
                f"created {shown(self.filter.name)}{parts} for {self.filter.capacity:,} items,"
                f" error rate {self.filter.error}"
            )
        if self.state.cursor and self.filter.count() < self.state.nnew:
            say("the filter is not the one from the last run: starting over")
            self.state.begin_anew(self.source.run_id())
        if self.state.cursor:
            say(f"continuing after {self.state.nread:,} elements ({self.state.path})")

    def run(self) -> None:
        """Reads the set from the position on, and begins anew whenever the position has lost its
        meaning.
        """
        try:
            while True:
                why = self.fill()
                if why is None:
                    break
                progress.end()
                say(f"{why}: starting over")
                self.state.begin_anew(self.source.run_id())
        except (KeyboardInterrupt, redis.RedisError):
            if self.state.cursor:
                progress.end()
                say(
                    f"stopped after {self.state.nread:,} elements; the same command continues from"
                    f" there ({self.state.path})"
                )
            raise
        self.state.remove()

    def fill(self) -> Any:
        """All elements from the position on; returns why they are not all, or None."""
        state, source = self.state, self.source
        bar = Progress("added", source.nelements, nbefore=state.nread)
        while True:
            cursor, elements = source.scan(state.cursor, self.batch)
            if source.has_moved():
                if state.cursor:
                    return "the set has moved to another node"
                state.run_id = source.run_id()
            try:
                state.nnew += sum(self.filter.add_many(elements))
            except NotAdded as error:
                raise error.cause
            if self.filter.nvanished:
                self.filter.nvanished = 0
                return "the filter vanished, with everything added so far"
            state.nread += len(elements)
            state.cursor = cursor
            if cursor == 0:
                if source.run_id() != state.run_id:
                    return "the server of the set was restarted meanwhile"
                bar.show(state.nread, last=True)
                return None
            bar.show(state.nread)
            state.save()

    def verify(self) -> int:
        """How many elements of the set are not in the filter."""
        bar = Progress("verified", self.source.nelements)
        nread = nmissing = 0
        for elements in self.elements():
            nmissing += self.filter.exists_many(elements).count(False)
            nread += len(elements)
            bar.show(nread)
        bar.show(nread, last=True)
        return nmissing

    def elements(self) -> Iterator[List[bytes]]:
        cursor = 0
        while True:
            cursor, elements = self.source.scan(cursor, self.batch)
            if self.source.has_moved():
                raise Failure(
                    "the set has moved to another node; run the same command again to verify it"
                )
            yield elements
            if cursor == 0:
                return


def filter_for(
    target: Servers, options: argparse.Namespace, nelements: int
) -> Union[Filter, PartitionedFilter]:
    """The filter that the options mean. What they do not say is as it is in a plan that exists."""
    plan = plan_at(target, os.fsencode(options.filter))
    error = options.error or (plan.error if plan else 0.001)
    capacity = options.capacity or (plan.capacity if plan else max(nelements, 100))
    try:
        words = window_words(options.window, options.slices, options.sliding)
        if plan is None and options.partitions is None:
            return Filter(
                target,
                options.filter,
                error=error,
                capacity=capacity,
                options=words,
                batch=options.batch,
            )
        return PartitionedFilter(
            target,
            os.fsencode(options.filter),
            partitions=options.partitions or (plan.npartitions if plan else 0),
            error=error,
            capacity=capacity,
            options=words or (plan.options if plan else ()),
            batch=options.batch,
        )
    except ValueError as problem:
        raise Failure(str(problem)) from None


def place(servers: Servers) -> str:
    return f"{servers}/{servers.address.db or 0}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bfimport",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("set", help="name of the set: of URLs, of fingerprints, of anything")
    parser.add_argument("filter", help="name of the filter, created if there is none")
    parser.add_argument(
        "--to",
        metavar="URL",
        default=os.environ.get("BF_TO"),
        help=(
            "server that has the filter, if it is a different one; the environment variable BF_TO"
            " does the same and hides a password"
        ),
    )
    parser.add_argument(
        "--error",
        type=float,
        help="error rate of a new filter (default: 0.001)",
    )
    parser.add_argument(
        "--capacity",
        type=int,
        help="capacity of a new filter (default: the size of the set, at least 100)",
    )
    parser.add_argument(
        "--partitions",
        type=int,
        metavar="N",
        help="create a partitioned filter: N filters, spread over the nodes of a cluster",
    )
    parser.add_argument(
        "--window",
        type=int,
        metavar="SECONDS",
        help="a new filter forgets items after this time; it counts from the import",
    )
    parser.add_argument(
        "--slices",
        type=int,
        metavar="N",
        help="number of slices in --window (default: the server's)",
    )
    parser.add_argument(
        "--sliding", action="store_true", help="with --window: adding an item again renews it"
    )
    parser.add_argument(
        "--batch", type=int, default=1000, help="elements per command (default: %(default)s)"
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="then check that every element of the set is in the filter",
    )
    parser.add_argument(
        "--state",
        metavar="FILE",
        help=(
            "where to keep the position (default: a file in the current directory, named after the"
            " arguments)"
        ),
    )
    parser.add_argument(
        "--restart",
        action="store_true",
        help="start over; needed if the set was deleted and recreated since the last run",
    )
    add_options(parser)
    options = parser.parse_args()
    if not 1 <= options.batch <= 100000:
        parser.error("--batch must be from 1 to 100000")
    if options.partitions is not None and not 1 <= options.partitions <= MOST_PARTITIONS:
        parser.error(f"--partitions must be from 1 to {MOST_PARTITIONS}")
    if options.error is not None and not 0 < options.error < 1:
        parser.error("--error must be between 0 and 1")
    if options.capacity is not None and options.capacity < 1:
        parser.error("--capacity must be 1 or more")
    if options.window is None and (options.slices is not None or options.sliding):
        parser.error("--slices and --sliding need --window")
    if options.window is not None and options.window < 1:
        parser.error("--window must be 1 or more")
    return options


def import_set() -> int:
    options = arguments()
    servers = Servers(address_from(options), timeout=300).open(module=options.to is None)
    target = (
        servers
        if options.to is None
        else Servers(other_address(options.to, options), timeout=300).open()
    )
    work = Import(Source(servers, options.set), target, options)
    work.prepare()
    work.run()
    nmissing = work.verify() if options.verify else 0
    state = work.state
    print(f"{state.nread} elements read, {state.nnew} added, {state.nread - state.nnew} were known")
    if nmissing:
        # Added to the set after the first pass came by, if clients are at work; else an error that
        # must be known.
        say(f"{nmissing} elements are not in the filter; run again to catch up")
    return FOUND if nmissing else 0


def main() -> NoReturn:
    run("bfimport", import_set)
