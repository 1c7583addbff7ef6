#!/usr/bin/python3
"""The figures as tables for the terminal. Run alone it prints the tables of a results file."""
import json
import math
import sys

import latency_report

MAIN = "main"
EVERYTHING_PER_ITEM = ("cpu_us", "cmd_us")


def fmt(value):
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def table(head, rows):
    rows = [head, *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths))
        )
        for row in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def ratio(case, measure, name="ours", base="peer"):
    """name's figure over base's, or None where one of them is missing."""
    try:
        below = case[base][measure]
        return case[name][measure] / below if below else None
    except KeyError:
        return None


def figure_table(data, group, measure, title, unit_scale=1.0):
    """One row per case, one column per contestant, and ours over that of every other module."""
    names = [n for n in data["titles"] if any(n in c for c in group["cases"].values())]
    head = [title, *[data["titles"][n] for n in names]]
    compare = [n for n in latency_report.rivals(data) if n in names] if "ours" in names else []
    rows = []
    for case, figures in group["cases"].items():
        if not any(measure in f for f in figures.values()):
            continue
        row = [case, *[fmt(scaled(figures.get(n, {}).get(measure), unit_scale)) for n in names]]
        rows.append(row + [fmt(ratio(figures, measure, base=n)) for n in compare])
    return table(head + [f"ours/{n}" for n in compare], rows) + "\n" if rows else ""


def scaled(value, scale):
    return None if value is None else value * scale


# ---- memory, at equal measured error ----


def bits_per_item(figures):
    return figures["bytes_per_item"] * 8


def at_rate(figures, rate):
    """Bits per item this filter would need to have the given measured rate: a bit more or less of
    log2(1/rate) costs as many bits as the filter now pays for one of them."""
    own = math.log2(1 / figures["fp_rate"])
    return bits_per_item(figures) / own * math.log2(1 / rate)


def memory_ratio(figures):
    """Our bits per item over the peer's, ours brought to the peer's measured rate."""
    ours, peer = figures.get("ours"), figures.get("peer")
    if not ours or not peer or not ours["fp_rate"] or not peer["fp_rate"]:
        return None
    return at_rate(ours, peer["fp_rate"]) / bits_per_item(peer)


def memory_table(data):
    rows = []
    for name, group in data["groups"].items():
        figures = group["cases"].get("memory", {})
        for who, f in figures.items():
            if who == "noop":
                continue
            per_bit = bits_per_item(f) / math.log2(1 / f["fp_rate"]) if f["fp_rate"] else None
            rows.append(
                [
                    f"{name}: {data['titles'][who]}",
                    f"{f['items']:,}",
                    str(f.get("layers", "-")),
                    fmt(bits_per_item(f)),
                    fmt(f["size"] * 8 / f["items"]) if "size" in f else "-",
                    f"{f['fp_rate']:.2e}",
                    fmt(per_bit),
                    fmt(memory_ratio(figures)) if who == "ours" else "",
                ]
            )
    head = [
        "memory",
        "items",
        "layers",
        "bits/item",
        "by BF.INFO",
        "measured rate",
        "bits/log2(1/rate)",
        "vs peer, same rate",
    ]
    return table(head, rows) + "\n" if rows else ""


# ---- targets ----

SINGLES = ("ADD ", "EXISTS ")
BATCHES = ("MADD×100 ", "MEXISTS×100 ")

# Text, measure, limit, cases of the main group. Server CPU of single commands is judged with a
# pipeline: without one it consists of system calls, which are the same for everyone.
TARGETS = [
    ("in-command, ADD and EXISTS", "cmd_us", 1 / 1.5, lambda c: c.startswith(SINGLES)),
    ("in-command, MADD×100 and MEXISTS×100", "cmd_us", 1 / 5, lambda c: c.startswith(BATCHES)),
    ("in-command, fill", "cmd_us", 1 / 6, lambda c: c.startswith("fill")),
    (
        "server CPU, ADD and EXISTS, pipelined",
        "cpu_us",
        1 / 1.25,
        lambda c: c.startswith(SINGLES) and "pipeline 64" in c,
    ),
    ("server CPU, MADD×100 and MEXISTS×100", "cpu_us", 1 / 2.5, lambda c: c.startswith(BATCHES)),
    ("server CPU, fill", "cpu_us", 1 / 3, lambda c: c.startswith("fill")),
]


def target_row(name, ratios, limit):
    """ratios: {case: ratio}. The verdict is on the worst."""
    known = {case: r for case, r in ratios.items() if r is not None}
    if not known:
        return None
    worst = max(known, key=known.get)
    within = sum(r <= limit for r in known.values())
    verdict = "met" if within == len(known) else f"{within} of {len(known)}"
    return [
        name,
        f"{min(known.values()):.3f}",
        f"{known[worst]:.3f}",
        f"{limit:.3f}",
        verdict,
        worst,
    ]


def per_item_ratios(data):
    """Every per-item figure of every group, ours over the peer's."""
    return {
        f"{measure[:3]} {group}: {case}": ratio(figures, measure)
        for group, g in data["groups"].items()
        for case, figures in g["cases"].items()
        for measure in EVERYTHING_PER_ITEM
    }


def target_rows(data):
    groups = data["groups"]
    main = groups.get(MAIN, {}).get("cases", {})
    for name, measure, limit, wanted in TARGETS:
        yield target_row(name, {c: ratio(f, measure) for c, f in main.items() if wanted(c)}, limit)
    yield target_row(
        "batches over the do-nothing command, server CPU",
        {
            c: ratio(f, "cpu_us", "ours", "noop")
            for c, f in main.items()
            if c.startswith(("MADD", "MEX"))
        },
        1.8,
    )
    yield target_row("never behind: all cases, in-command and CPU", per_item_ratios(data), 1.0)
    bgsave = groups.get("persistence", {}).get("cases", {}).get("BGSAVE", {})
    if all(
        f.get("kept_rate") for f in bgsave.values()
    ):  # else they had different writes to cope with
        yield target_row("BGSAVE peak extra memory", {"BGSAVE": ratio(bgsave, "extra_bytes")}, 0.55)
    aof = groups.get("aof", {}).get("cases", {})
    yield target_row(
        "AOF bytes of a crawl", {c: ratio(f, "bytes_per_1000") for c, f in aof.items()}, 0.3
    )
    yield target_row(
        "memory per item at the same measured rate",
        {name: memory_ratio(g["cases"].get("memory", {})) for name, g in groups.items()},
        1.0,
    )


def target_table(data):
    rows = [row for row in target_rows(data) if row]
    if not rows:
        return ""
    return (
        table(
            ["target, ours over the peer's", "best", "worst", "limit", "verdict", "worst case"],
            rows,
        )
        + "\n"
    )


def behind_table(data):
    """The cases in which the peer is ahead, by name."""
    rows = [
        [case, f"{r:.3f}"]
        for case, r in sorted(per_item_ratios(data).items(), key=lambda x: -(x[1] or 0))
        if r is not None and r > 1
    ]
    return table(["the peer is ahead in", "ours/peer"], rows) + "\n" if rows else ""


# ---- the whole ----

OTHER_FIGURES = [
    ("reserve_us", "RESERVE, µs in command", 1),
    ("bytes", "bytes", 1),
    ("worst_us", "worst command, µs", 1),
    ("extra_bytes", "extra memory, MB", 1e-6),
    ("seconds", "seconds", 1),
    ("adds_per_s", "ADDs per second meanwhile", 1),
    ("fork_us", "fork, µs", 1),
    ("bytes_per_1000", "AOF bytes per 1,000 items", 1),
]


def about_lines(about):
    modules = ", ".join(f"{name}: {version}" for name, version in about.get("modules", {}).items())
    return (
        "\n".join(
            [
                f"{about['date']}, {about['form']} form, best of {about['rounds']}",
                f"{about['cpu']}, {about['cores']} cores, {about['memory']}, {about['kernel']}",
                f"{about['server']}; {modules}",
                f"{about['compiler']}; {about['flags']}",
            ]
        )
        + "\n\n"
    )


def tables(data):
    out = about_lines(data["about"])
    for name, group in data["groups"].items():
        if name.startswith(latency_report.PREFIX):
            continue
        heading = ", ".join(f"{k} {v}" for k, v in group["parameters"].items())
        out += f"== {name} ({heading})\n\n"
        out += figure_table(data, group, "cpu_us", "server CPU, µs per item")
        out += figure_table(data, group, "cmd_us", "in command, µs per item")
        if name == MAIN:
            out += figure_table(data, group, "items_per_s", "thousand items per second", 1e-3)
            for percentile in ("p50", "p99", "p999", "max"):
                out += figure_table(data, group, f"{percentile}_us", f"latency {percentile}, µs")
        if "memory" not in group["cases"]:
            for measure, title, scale in OTHER_FIGURES:
                out += figure_table(data, group, measure, title, scale)
    return (
        out
        + memory_table(data)
        + behind_table(data)
        + target_table(data)
        + latency_report.tables(data)
    )


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as results:
        print(tables(json.load(results)))
