"""The longest moments as tables and a list of targets."""
import statistics
from typing import Any, Iterator, Optional

Figures = dict[str, Any]

PREFIX = "latency"
FIRST_BATCH = "very first batch of 100"
LARGE_BYTES = "bytes of a filter of 10^9 with 1000 items"
SMALL_BYTES = "bytes of a filter of 100 at 0.01 with 1 item"
RESERVED = "1000 filters of different sizes reserved"
YARDSTICK = ("SETRANGE of 8 MB", "DEL of 8 MB", "idle for a second")
FIXED = (
    "ours",
    "noop",
    "set",
    "digest",
    "setbit",
    "lua",
    "setrange",
)  # everyone else is a module to compare with


def groups(data: Figures) -> dict[str, Figures]:
    return {name: group for name, group in data["groups"].items() if name.startswith(PREFIX)}


def rivals(data: Figures) -> list[str]:
    """Modules that ours is compared with."""
    return [name for name in data["titles"] if name not in FIXED]


def lines(data: Figures) -> Iterator[tuple[str, str, Figures]]:
    """(capacity, line, {contestant: figures}) of everything that takes time."""
    for name, group in groups(data).items():
        for line, figures in group["cases"].items():
            if line not in YARDSTICK and line not in (LARGE_BYTES, SMALL_BYTES):
                yield name.removeprefix(PREFIX).lstrip(" ,"), line, figures


def setranges(data: Figures) -> list[float]:
    """All SETRANGEs of 8 MB of the run, in µs."""
    return [
        us
        for group in groups(data).values()
        for us in group["cases"].get(YARDSTICK[0], {}).get("setrange", {}).get("durations_us", [])
    ]


def yardstick_us(data: Figures) -> Optional[float]:
    durations = setranges(data)
    return statistics.median(durations) if durations else None


def idle_us(data: Figures) -> Optional[float]:
    """The longest wait when nothing happens. Shorter waits can't be distinguished from it."""
    waits = [
        group["cases"][YARDSTICK[2]]["setrange"]["ping_us"]
        for group in groups(data).values()
        if YARDSTICK[2] in group["cases"]
    ]
    return max(waits, default=None)


def ms(us: Optional[float]) -> str:
    if us is None:
        return "–"
    return (
        f"{us / 1000:.3f}"
        if us < 1000
        else f"{us / 1000:.1f}"
        if us < 100_000
        else f"{us / 1000:,.0f}"
    )


def quotient(above: Optional[float], below: Optional[float]) -> Optional[float]:
    return above / below if above is not None and below else None


def ratio(above: Optional[float], below: Optional[float]) -> str:
    value = quotient(above, below)
    return "–" if value is None else f"{value:.2f}" if value < 100 else f"{value:,.0f}"


def figure(figures: Figures, who: str, name: str) -> Optional[float]:
    return figures.get(who, {}).get(name)


def markdown(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    drawn = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths)) + " |"
        for row in [head, *rows]
    ]
    drawn.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(drawn) + "\n\n"


def cell(figures: Figures, who: str, measure: str) -> str:
    """Best and typical round; of a command, which one it was."""
    best, typical = figure(figures, who, f"best_{measure}"), figure(figures, who, measure)
    if best is None:
        return "–"
    name = f" {figures[who]['command'].upper()}" if measure == "command_us" else ""
    return f"{ms(best)} ({ms(typical)}){name}"


def longest_table(data: Figures, measure: str, title: str) -> str:
    """The longest command or wait of each line, and what it is of the others'. Items are the same
    in every round and neighbours only ever add, so that the best round counts; the typical one is
    beside it."""
    others, base = rivals(data), yardstick_us(data)
    head = [
        title,
        "capacity",
        "ours",
        *others,
        *[f"ours/{name}" for name in others],
        "ours/SETRANGE",
    ]
    rows = []
    for capacity, line, figures in lines(data):
        ours = figure(figures, "ours", f"best_{measure}")
        rows.append(
            [
                line,
                capacity,
                *[cell(figures, name, measure) for name in ("ours", *others)],
                *[ratio(ours, figure(figures, name, f"best_{measure}")) for name in others],
                ratio(ours, base),
            ]
        )
    return markdown(head, rows)


def matrix(data: Figures, measure: str, title: str) -> str:
    """Lines by capacities: ours against the peer's, best rounds."""
    capacities = [
        name.removeprefix(PREFIX).strip()
        for name, group in groups(data).items()
        if group["parameters"]
    ]
    found: dict[str, dict[str, Figures]] = {}
    for capacity, line, figures in lines(data):
        if capacity in capacities:
            found.setdefault(line, {})[capacity] = figures

    def versus(figures: Figures) -> str:
        ours, peer = (figure(figures, who, f"best_{measure}") for who in ("ours", "peer"))
        return ms(ours) if peer is None else f"{ms(ours)} : {ms(peer)}"

    rows = [
        [line, *[versus(row.get(capacity, {})) for capacity in capacities]]
        for line, row in found.items()
    ]
    return markdown([title, *capacities], rows) if rows else ""


def typical_table(data: Figures) -> str:
    """What creating a filter costs, typically."""
    others = rivals(data)
    rows = []
    for capacity, line, figures in lines(data):
        for command in ("bf.reserve", "bf.add", "del") if capacity.startswith("small") else ():
            who = {name: f["typical_us"].get(command) for name, f in figures.items()}
            if any(who.values()):
                rows.append(
                    [line, command.upper(), *[number(who.get(name)) for name in ("ours", *others)]]
                )
    return markdown(["typical command, µs", "command", "ours", *others], rows) if rows else ""


def number(value: Optional[float]) -> str:
    return "–" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def memory_table(data: Figures) -> str:
    others = rivals(data)
    cases = groups(data).get("latency, memory", {}).get("cases", {})
    rows = [
        [line, *[number(figure(figures, name, "bytes")) for name in ("ours", *others)]]
        for line, figures in cases.items()
    ]
    return markdown(["memory", "ours", *others], rows) if rows else ""


# ---- targets ----


def verdict(text: str, limit: float, values: dict[str, Optional[float]]) -> Iterator[list[str]]:
    """A row: how many are within the limit, and which is the worst."""
    known = {name: value for name, value in values.items() if value is not None}
    if known:
        worst, value = max(known.items(), key=lambda item: item[1])
        within = sum(v <= limit for v in known.values())
        yield [
            text,
            f"{limit:g}",
            "met" if within == len(known) else f"**{within} of {len(known)}**",
            f"{value:,.2f}",
            worst,
        ]


def targets(data: Figures) -> Iterator[list[str]]:
    base = yardstick_us(data)
    named = {f"{line}, {capacity}": figures for capacity, line, figures in lines(data)}

    def against(measure: str, below: str) -> dict[str, Optional[float]]:
        return {
            line: quotient(figure(f, "ours", measure), figure(f, below, measure))
            for line, f in named.items()
        }

    yield from verdict("longest command over RedisBloom's", 1, against("best_command_us", "peer"))
    yield from verdict(
        "longest wait of a PING over RedisBloom's", 1, against("best_ping_us", "peer")
    )
    yield from verdict(
        "longest BF command over SETRANGE of 8 MB",
        2,
        {line: quotient(figure(f, "ours", "best_command_us"), base) for line, f in named.items()},
    )
    yield from verdict(
        "longest wait (commands and sweeps) over SETRANGE of 8 MB",
        2,
        {
            line: quotient(figure(f, "ours", "best_ping_us"), base)
            for line, f in named.items()
            if not line.startswith("saved")
        },
    )
    first = {
        c: figure(f, "ours", "best_command_us") for c, line, f in lines(data) if line == FIRST_BATCH
    }
    yield from verdict(
        "first BF.MADD of 100, 10^9 over 10^6",
        3,
        {"": quotient(first.get("10^9"), first.get("10^6"))},
    )
    cases = groups(data).get("latency, memory", {}).get("cases", {})
    yield from verdict(
        "bytes of a filter of 10^9 with 1000 items",
        200_000,
        {"": figure(cases.get(LARGE_BYTES, {}), "ours", "bytes")},
    )
    yield from verdict(
        "bytes of a small filter", 600, {"": figure(cases.get(SMALL_BYTES, {}), "ours", "bytes")}
    )
    small = groups(data).get("latency, small filters", {}).get("cases", {})
    yield from verdict(
        "creating a small filter, typical µs",
        10,
        {
            f"{command}, {line}": f["ours"]["typical_us"].get(command)
            for line, f in small.items()
            if "ours" in f
            for command in ("bf.reserve", "bf.add")
        },
    )


def tables(data: Figures) -> str:
    if not groups(data):
        return ""
    durations = setranges(data)
    out = "== the longest moments\n\n"
    if durations:
        out += (
            f"SETRANGE of 8 MB, {len(durations)} times:"
            f" typical {ms(statistics.median(durations))} ms, best {ms(min(durations))},"
            f" longest {ms(max(durations))}."
            f" Longest wait of a PING on an idle server: {ms(idle_us(data))}.\n\n"
        )
    out += longest_table(data, "command_us", "longest command, ms: best round (typical)")
    out += longest_table(data, "ping_us", "longest wait of a PING, ms: best round (typical)")
    out += matrix(data, "command_us", "longest command, ms: ours : peer")
    out += matrix(data, "ping_us", "longest wait of a PING, ms: ours : peer")
    out += typical_table(data) + memory_table(data)
    return out + markdown(["target", "limit", "verdict", "worst", "where"], list(targets(data)))
