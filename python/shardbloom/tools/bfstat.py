"""Shows all filters of a server or cluster: how full they are, and whether they are damaged.

    bfstat                              a live view; q quits
    bfstat --once                       once, as text; the default if the output is not a terminal
    bfstat --json                       once, as JSON
    bfstat --prometheus                 once, in Prometheus's text format
    bfstat --prometheus --listen 9121   the same, at http://127.0.0.1:9121/metrics

For every filter it shows items and capacity, the layers and how full they are, the false-positive
rate to expect now and the promised one, memory, and lost shards. If a filter forgets, it also shows
the window and the age of the oldest slice. Damaged filters come first, then the largest. It uses
SCAN, BF.INFO, BF.SHARDS, BF.DESCRIPTOR and INFO; a user who may not call one of these sees less.
Fill is estimated from a sample of the bits. A partitioned filter is one line for all its
partitions; --parts shows each of them too.
"""

from __future__ import annotations

import argparse
import dataclasses
import http.server
import json
import shutil
import sys
import time
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Tuple

import redis

from shardbloom import exposition, progress
from shardbloom.cluster import Servers
from shardbloom.connection import ERROR, FOUND, Failure, add_options, address_from, explain, run
from shardbloom.format import ADOPTED, CLASSIC
from shardbloom.screen import BOLD, RED, YELLOW, Line, Screen, fit, painted
from shardbloom.survey import FilterState, LayerState, Rates, Survey

EPILOG = """exit status:
  0    no filter is damaged
  1    a filter is damaged: shards are lost, or it can't be read
       (with --prometheus the status is 0; the metrics show the damage)
  2    an error
  130  Ctrl-C
"""

LIVE_TIMEOUT_SECONDS = 10
SHOWN_LOST = 3  # lost shards that are named

# Name of a column and its width. The first of DROPPED go where the terminal is narrow.
COLUMNS = {
    "ITEMS": 6,
    "CAPACITY": 8,
    "USED": 5,
    "NEW/S": 6,
    "LAYERS": 6,
    "MEMORY": 7,
    "ERROR": 7,
    "PROMISED": 8,
    "WINDOW": 6,
    "AGE": 6,
    "LOST": 4,
}
OF_WINDOWS = ("WINDOW", "AGE")  # shown if a filter has one
DROPPED = ("LAYERS", "PROMISED", "AGE", "CAPACITY", "NEW/S", "ERROR", "MEMORY")
NAME_COLUMNS = 14  # that must be left for the name; names are cut to what is left


# ---- numbers for people ----


def count(n: float) -> str:
    """Three digits and a unit: at most 6 columns."""
    if n < 9999.5:
        return f"{n:.0f}" if n >= 10 or n == int(n) else f"{n:.1f}"
    for unit in "kMGTP":
        n /= 1000
        if n < 999.5:
            break
    return f"{n:.3g} {unit}"


def memory(n: int) -> str:
    return count(n) + ("B" if n >= 9999.5 else " B")


def rate(error: Optional[float]) -> str:
    return "?" if error is None else "0" if error == 0 else f"{error:.1e}"


def duration(seconds: Optional[float]) -> str:
    """A time in the largest unit that fits into it: at most 6 columns."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            n = seconds / length
            return f"{n:.0f}{unit}" if n >= 100 else f"{n:.3g}{unit}"
    return f"{seconds:.3g}s"


def speed(per_second: Optional[float]) -> str:
    return "-" if per_second is None else count(per_second)


# ---- lines ----


class Page:
    """A survey as lines of text that fit into so many columns."""

    def __init__(
        self, survey: Survey, columns: int, rates: Optional[Rates] = None, parts: bool = False
    ):
        self.survey, self.columns, self.rates, self.parts = survey, columns, rates, parts
        ordered = survey.filters.items()
        self.filters = sorted(
            ordered, key=lambda one: (not one[1].damaged(), -one[1].bytes, one[0])
        )
        shown = [self.name(one) for _, one in self.filters]
        if parts:
            shown += [self.name(part) for _, one in self.filters for part in one.parts]
        longest = max(map(len, shown), default=0)
        ages = any(one.window is not None for _, one in self.filters)
        names = [
            name
            for name in COLUMNS
            if (rates is not None or name != "NEW/S") and (ages or name not in OF_WINDOWS)
        ]
        for name in DROPPED:
            if columns - self.width(names) >= min(NAME_COLUMNS, max(longest, 6)):
                break
            if name in names:
                names.remove(name)
        self.columns_shown = names
        self.name_columns = max(6, min(40, columns - self.width(names), max(longest, 6)))

    @staticmethod
    def width(names: List[str]) -> int:
        return sum(COLUMNS[name] + 1 for name in names)

    @staticmethod
    def name(one: FilterState) -> str:
        return one.key if one.db == 0 else f"{one.db}/{one.key}"

    def head(self) -> Iterator[Line]:
        """What stays at the top."""
        survey = self.survey
        states = survey.filters.values()
        ndamaged = sum(one.damaged() for one in states)
        nbytes, nitems = sum(one.bytes for one in states), sum(one.items for one in states)
        damage = f", {ndamaged} DAMAGED" if ndamaged else ""
        text = (
            f"{survey.servers}  {len(states)} filters, {memory(nbytes)},"
            f" {count(nitems)} items{damage}"
        )
        clock = time.strftime("%H:%M:%S")
        yield RED if ndamaged else BOLD, fit(
            text, max(self.columns - 10, 0), pad=True
        ) + "  " + clock
        if self.rates is not None:
            adds, new, checks, hits = (
                speed(self.rates.total(name))
                for name in ("bf_adds", "bf_items_added", "bf_checks", "bf_hits")
            )
            yield "", f"{adds} adds/s ({new} new/s), {checks} checks/s ({hits} hits/s)   q quits"
        for node in survey.down:
            yield RED, f"{node} does not answer; its filters are missing here"
        if survey.nhidden:
            yield YELLOW, f"{survey.nhidden} more filters that this user may not ask"
        titles = "".join(f" {name:>{COLUMNS[name]}}" for name in self.columns_shown)
        yield BOLD, fit("FILTER", self.name_columns, pad=True) + titles

    def row(self, which: Optional[Tuple[int, bytes]], one: FilterState) -> Line:
        """The line of a filter."""
        used = one.items / one.capacity if one.capacity else 0
        values = {
            "ITEMS": count(one.items),
            "CAPACITY": count(one.capacity),
            "USED": f"{100 * used:.0f}%",
            "NEW/S": speed(self.rates.per_second.get(which) if self.rates else None),
            "LAYERS": str(len(one.layers)),
            "MEMORY": memory(one.bytes),
            "ERROR": rate(one.error),
            "PROMISED": rate(one.promised),
            "WINDOW": duration(one.window),
            "AGE": duration(one.age),
            "LOST": str(len(one.lost)),
        }
        broken = one.error is not None and one.promised is not None and one.error > one.promised
        colour = RED if one.damaged() else YELLOW if broken else ""
        cells = "".join(f" {values[name]:>{COLUMNS[name]}}" for name in self.columns_shown)
        return colour, fit(self.name(one), self.name_columns, pad=True) + cells

    def damage(self, one: FilterState) -> Iterator[Line]:
        """What is wrong with a filter."""
        if one.problem:
            yield RED if one.damaged() else YELLOW, "  " + one.problem
        for key in one.lost[:SHOWN_LOST]:
            yield RED, "  LOST " + key
        if len(one.lost) > SHOWN_LOST:
            yield RED, f"  LOST {len(one.lost) - SHOWN_LOST} more"

    def partitions(self, one: FilterState) -> Iterator[Line]:
        """How evenly a partitioned filter is filled; and its partitions, if they are wanted."""
        if one.parts:
            fewest, most = (choose(part.items for part in one.parts) for choose in (min, max))
            yield "", f"  {len(one.parts)} partitions, {count(fewest)} to {count(most)} items each"
        for part in one.parts if self.parts else ():
            yield self.row(None, part)
            yield from self.damage(part)

    def layers(self, one: FilterState) -> Iterator[Line]:
        for layer in one.layers:
            yield "", f"  layer {layer.number} {self.bar(layer)} " + layer_words(layer)

    def bar(self, layer: LayerState) -> str:
        share = (
            layer.items / layer.capacity
            if layer.capacity and layer.items is not None
            else layer.fill * 2
        )
        width = max(6, min(24, self.columns - 65))
        full = min(width, max(0, round(share * width)))
        return "█" * full + "░" * (width - full)

    def lines(self) -> Iterator[Line]:
        """Everything, with layers."""
        yield from self.head()
        for which, one in self.filters:
            yield self.row(which, one)
            yield from self.damage(one)
            yield from self.layers(one)
            yield from self.partitions(one)

    def picture(self, height: int) -> List[Line]:
        """As much as fits into so many lines: with layers if they all fit, and the head in any
        case.
        """
        head = list(self.head())
        if len(head) + sum(1 + len(one.layers) for _, one in self.filters) <= height:
            lines = list(self.lines())
            if len(lines) <= height:
                return lines
        body: List[Line] = []
        nshown = 0
        for which, one in self.filters:
            rows = [self.row(which, one), *self.damage(one)]
            last = nshown + 1 == len(self.filters)
            if len(head) + len(body) + len(rows) > height - (0 if last else 1):
                break
            body += rows
            nshown += 1
        if nshown < len(self.filters):
            body.append(
                ("", f"… {len(self.filters) - nshown} more filters; --match shows some of them")
            )
        return head + body


def layer_words(layer: LayerState) -> str:
    kind = {CLASSIC: "RedisBloom's, ", ADOPTED: "adopted, "}.get(layer.kind or 0, "")
    items = (
        f"{count(layer.items)} of {count(layer.capacity or 0)}, " if layer.items is not None else ""
    )
    shards = f"{layer.existing} shard{'s' if layer.existing != 1 else ''}"
    age = f", began {duration(layer.age)} ago" if layer.age is not None else ""
    return f"{items}{kind}{100 * layer.fill:.1f}% of bits, {shards}, error {rate(layer.error)}{age}"


# ---- ways to show it ----


def code_of(survey: Survey) -> int:
    """The exit code for what was found."""
    if survey.down:
        return ERROR
    return FOUND if any(one.damaged() for one in survey.filters.values()) else 0


def once(survey: Survey, parts: bool) -> int:
    columns = shutil.get_terminal_size((110, 40)).columns
    lines = list(Page(survey, columns, parts=parts).lines())
    print("\n".join(painted(lines, columns if sys.stdout.isatty() else None)))
    return code_of(survey)


def as_dict(one: FilterState, parts: bool) -> Dict[str, Any]:
    """A filter for JSON. Only a partitioned one has partitions, shown on demand."""
    values = dataclasses.asdict(one)
    if one.partitions is None:
        del values["partitions"]
    if one.partitions is None or not parts:
        del values["parts"]
    else:
        values["parts"] = [as_dict(part, False) for part in one.parts]
    return values


def as_json(survey: Survey, parts: bool) -> int:
    totals: Dict[str, int] = {}
    for numbers in survey.totals.values():
        for name, n in numbers.items():
            before = totals.get(name, 0)
            totals[name] = max(before, n) if "longest" in name else before + n
    filters = [as_dict(one, parts) for _, one in Page(survey, 80).filters]
    nodes = {"nodes": list(survey.totals), "nodes_down": survey.down}
    print(
        json.dumps(
            {"server": str(survey.servers), **nodes, "totals": totals, "filters": filters}, indent=2
        )
    )
    return code_of(survey)


def as_metrics(servers: Servers, options: argparse.Namespace) -> int:
    try:
        text = exposition.exposition(Survey(servers.open(), options.match).look(), options.parts)
    except (Failure, redis.RedisError):
        print("\n".join(exposition.up(str(servers), 0)), flush=True)
        raise
    print(text, end="")
    return 0


def serve(servers: Servers, options: argparse.Namespace) -> int:
    """Answers every GET /metrics with what is then the case."""

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 30

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "only /metrics is here")
                return
            try:
                survey = Survey(servers.open(), options.match).look()
                text = exposition.exposition(survey, options.parts)
            except (Failure, redis.RedisError) as error:
                progress.say(f"bfstat: {explain(error, getattr(error, 'address', None))}")
                text = "\n".join(exposition.up(str(servers), 0)) + "\n"
            body = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", exposition.CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    place = options.listen
    host, _, port = place.rpartition(":")
    try:
        server = http.server.HTTPServer((host.strip("[]") or "127.0.0.1", int(port)), Handler)
    except (ValueError, OverflowError):
        raise Failure(f"--listen needs a port, or address:port, not {place}") from None
    except OSError as error:
        raise Failure(f"can't listen on {place}: {error.strerror}") from None
    print(f"http://{server.server_name}:{server.server_port}/metrics", flush=True)
    server.serve_forever()
    return 0


class View:
    """The live view: looks, draws, and waits, until somebody presses q."""

    def __init__(self, servers: Servers, options: argparse.Namespace):
        self.survey, self.interval, self.rates, self.parts = (
            Survey(servers, options.match),
            options.interval,
            Rates(),
            options.parts,
        )
        self.problem = ""
        self.since = 0.0

    def run(self) -> int:
        with Screen() as screen:
            while True:
                if self.look(screen) or self.wait(screen):
                    return code_of(self.survey)

    def look(self, screen: Screen) -> bool:
        """One look at everything; True if q was pressed meanwhile."""
        drawn = time.monotonic()
        try:
            for _ in self.survey.steps():
                if screen.key(0) == "q":
                    return True
                if time.monotonic() > drawn + max(self.interval, 1):
                    self.draw(screen)
                    drawn = time.monotonic()
            self.rates.take_survey(self.survey)
            self.problem = ""
        except (Failure, redis.RedisError) as error:
            if not self.problem:
                self.since = time.monotonic()
            self.problem = explain(error, getattr(error, "address", None))
        return False

    def wait(self, screen: Screen) -> bool:
        """Until the next look, never sooner than the last one took; True if q was pressed."""
        end = time.monotonic() + max(self.interval, self.survey.seconds)
        self.draw(screen)
        while time.monotonic() < end:
            key = screen.key(end - time.monotonic())
            if key == "q":
                return True
            if key == "resize":
                self.draw(screen)
        return False

    def draw(self, screen: Screen) -> None:
        columns, height = screen.look()
        above: List[Line] = []
        if self.problem:
            above = [
                (RED, f"{self.problem}; for {time.monotonic() - self.since:.0f} s, trying again")
            ]
        page = Page(self.survey, columns - 1, self.rates, self.parts)
        screen.draw(above + page.picture(height - len(above)))


# ---- the program ----


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bfstat",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="show it once, as text")
    how.add_argument("--json", action="store_true", help="show it once, as JSON")
    how.add_argument("--prometheus", action="store_true", help="show it once, for Prometheus")
    parser.add_argument(
        "--listen",
        metavar="[ADDRESS:]PORT",
        help="with --prometheus: serve HTTP (on 127.0.0.1)",
    )
    parser.add_argument(
        "--match", metavar="PATTERN", help="only filters whose name matches, as in KEYS"
    )
    parser.add_argument(
        "--parts", action="store_true", help="show every partition of partitioned filters too"
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=2,
        metavar="SECONDS",
        help="time between refreshes of the live view (default: %(default)s)",
    )
    add_options(parser)
    options = parser.parse_args()
    if not options.interval > 0:
        parser.error("--interval must be more than 0")
    if options.listen and not options.prometheus:
        parser.error("--listen is for --prometheus")
    return options


def show() -> int:
    options = arguments()
    address = address_from(options)
    if options.listen:
        return serve(Servers(address), options)
    if options.prometheus:
        return as_metrics(Servers(address), options)
    if options.once or options.json or not sys.stdout.isatty():
        survey = Survey(Servers(address).open(), options.match).look()
        return (as_json if options.json else once)(survey, options.parts)
    return View(Servers(address, LIVE_TIMEOUT_SECONDS).open(), options).run()


def main() -> NoReturn:
    run("bfstat", show)
