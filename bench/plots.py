"""The figures as SVG plots, by gnuplot."""
import os
import shutil
import subprocess

import latency_report

COLOURS = {
    "ours": "#1b6ca8",
    "peer": "#d1495b",
    "noop": "#8d99ae",
    "set": "#edae49",
    "digest": "#c8963e",
    "setbit": "#66a182",
    "lua": "#2e6f57",
}
MORE_COLOURS = ("#7b5ea7", "#b08ea2", "#444444")  # of further modules, in turn
HEAD = """set terminal svg size 1000,480 font 'sans,13' background '#ffffff'
set output {output}
set title {title}
set ylabel {ylabel}
set grid ytics lc rgb '#dddddd'
set key outside top center horizontal
set border 3
set tics nomirror
set bmargin 4
"""


def colour(data, name):
    if name in COLOURS:
        return COLOURS[name]
    further = [n for n in data["titles"] if n not in COLOURS]
    return MORE_COLOURS[further.index(name) % len(MORE_COLOURS)]


def quoted(text):
    return "'" + text.replace("'", "") + "'"


def gnuplot(script, path):
    subprocess.run(["gnuplot"], input=script, text=True, check=True)
    return path


def block(name, lines):
    return f"${name} << EOD\n" + "\n".join(lines) + "\nEOD\n"


def bars(path, title, ylabel, data, cases, names, measure, log=False):
    """Groups of bars: a group per case, a bar per contestant. cases: [(label, figures)]."""
    names = [n for n in names if any(n in figures for _, figures in cases)]
    lines = [
        " ".join(
            [
                '"' + label.replace(" ", "\\n", 1) + '"',
                *[str(figures.get(n, {}).get(measure, "?")) for n in names],
            ]
        )
        for label, figures in cases
    ]
    script = HEAD.format(output=quoted(path), title=quoted(title), ylabel=quoted(ylabel)) + block(
        "data", lines
    )
    script += (
        "set style data histogram\nset style histogram clustered gap 1\nset style fill solid 0.9\n"
    )
    script += "set datafile missing '?'\n"
    script += "set logscale y\n" if log else "set yrange [0:*]\n"
    script += (
        "plot "
        + ", ".join(
            f"$data using {i + 2}:xtic(1) title {quoted(data['titles'][n])}"
            f" lc rgb '{colour(data, n)}'"
            for i, n in enumerate(names)
        )
        + "\n"
    )
    return gnuplot(script, path)


def lines(path, title, xlabel, ylabel, data, series, log=False):
    """Cost over a parameter. series: {(contestant, label): [(x, y)]}; a contestant's labels differ
    by their points."""
    script = HEAD.format(output=quoted(path), title=quoted(title), ylabel=quoted(ylabel))
    script += f"set xlabel {quoted(xlabel)}\nset logscale x\n"
    script += "set logscale y\n" if log else "set yrange [0:*]\n"
    plotted, nlabels = [], {}
    for i, ((name, label), points) in enumerate(series.items()):
        script += block(f"s{i}", [f"{x} {y}" for x, y in points])
        nlabels[name] = nlabels.get(name, 0) + 1
        plotted.append(
            f"$s{i} with linespoints lw {4 - nlabels[name]} pt {(7, 8, 4)[nlabels[name] - 1]} ps 1"
            f" lc rgb '{colour(data, name)}' title {quoted(data['titles'][name] + ' ' + label)}"
        )
    return gnuplot(script + "plot " + ", ".join(plotted) + "\n", path)


def over_groups(data, prefix, parameter, wanted, measure, error=None):
    """Series of one figure over a parameter of the groups whose name starts with the prefix."""
    series = {}
    for group_name, group in data["groups"].items():
        parameters = group["parameters"]
        if (
            not group_name.startswith(prefix)
            or parameters.get("layers", 1) != 1
            and parameter != "layers"
        ):
            continue
        if error is not None and parameters.get("error") != error:
            continue
        for case, label in wanted.items():
            for name, figures in group["cases"].get(case, {}).items():
                if name == "ours" or name in latency_report.rivals(data):
                    series.setdefault((name, label), []).append(
                        (parameters[parameter], figures[measure])
                    )
    return {key: sorted(points) for key, points in series.items() if len(points) > 1}


def over_batch(data, measure):
    cases = data["groups"]["main"]["cases"]
    series = {}
    for op, mix in (("MEXISTS", "absent"), ("MADD", "new")):
        single = f"{op[1:]} {mix}, pipeline 1, conns 1"
        for x, case in [(1, single), *[(n, f"{op}×{n} {mix}") for n in (10, 100, 1000)]]:
            for name, figures in cases.get(case, {}).items():
                if name in ("ours", "peer", "noop"):
                    series.setdefault((name, op), []).append((x, figures[measure]))
    return series


# ---- the longest moments ----

SHOWN = (
    ("first items, singly", "one"),
    ("first items, by 100", "100"),
    ("fills until dense, by 100", "filling"),
)


def distribution(path, data, group, capacity):
    """How long the slowest commands take: the share of commands that take longer, from all to the
    very last. Where the curve ends is the longest."""
    script = HEAD.format(
        output=quoted(path),
        title=quoted(f"Commands on a filter of {capacity}, by the server’s clock"),
        ylabel=quoted("ms (logarithmic)"),
    )
    script += "set xlabel 'share of commands that take longer, in percent (logarithmic)'\n"
    script += "set logscale xy\nset xrange [100:0.001]\nset yrange [0.0008:*]\nset format y '%g'\n"
    base = latency_report.yardstick_us(data)
    plotted = []
    for i, (line, label) in enumerate(SHOWN):
        for name, figures in group["cases"].get(line, {}).items():
            block_name = f"d{len(plotted)}"
            script += block(block_name, [f"{x} {y / 1000}" for x, y in tail(figures)])
            plotted.append(
                f"${block_name} with linespoints lw 2 dt {i + 1} pt {(7, 8, 4)[i]} ps 0.6"
                f" lc rgb '{colour(data, name)}' title {quoted(data['titles'][name] + ', ' + line)}"
            )
    if base:
        plotted.append(f"{base / 1000} lw 1 lc rgb '#000000' title 'a SETRANGE of 8 MB'")
    return gnuplot(
        script + "set key outside right center vertical\nplot " + ", ".join(plotted) + "\n",
        path,
    )


def tail(figures):
    """[(percent of commands that take longer, µs)]."""
    shares = dict(figures["percentiles_us"])
    calls = shares.pop("calls")
    points = [
        (100 - float(share), us) for share, us in shares.items() if 100 - float(share) > 100 / calls
    ]
    return points + [
        (100 / calls, max(shares["100"], figures["longest_us"].get(figures["busiest"], 0)))
    ]


LABELS = {
    "first items, singly": "first one by one",
    "first items, by 100": "first by 100",
    "first items, by 1000": "first by 1000",
    "very first batch of 100": "very first",
    "grows to this size, by 100": "growing",
    "fills until dense, by 100": "filling by 100",
    "saved": "saving",
    "deleted": "deleting",
    "healed": "healing",
    "first items after healing, by 100": "after healing",
}


def longest(path, data, group, capacity):
    cases = [
        (
            LABELS[line],
            {
                name: {"ms": f["best_command_us"] / 1000}
                for name, f in figures.items()
                if f.get("best_command_us")
            },
        )
        for line, figures in group["cases"].items()
        if line in LABELS
    ]
    names = [n for n in data["titles"] if any(n in figures for _, figures in cases)]
    return bars(
        path,
        f"The longest command on a filter of {capacity}",
        "ms (logarithmic)",
        data,
        cases,
        names,
        "ms",
        log=True,
    )


def draw_latency(data, at):
    """Of the largest capacity that can be filled, or of the largest there is."""
    found = {
        g["parameters"]["capacity"]: (name.split()[-1], g)
        for name, g in latency_report.groups(data).items()
        if g["parameters"]
    }
    if not found:
        return []
    capacity, group = found.get(10**9) or found[max(found)]
    return [
        distribution(at("distribution"), data, group, capacity),
        longest(at("longest"), data, group, capacity),
    ]


MAIN_CASES = [
    "ADD new, pipeline 64, conns 1",
    "ADD present, pipeline 64, conns 1",
    "EXISTS absent, pipeline 64, conns 1",
    "EXISTS present, pipeline 64, conns 1",
    "MADD×100 new",
    "MADD×100 80% dup",
    "MEXISTS×100 absent",
    "MEXISTS×100 present",
    "fill MADD×1000",
]
GROWTH = {
    "EXISTS absent, pipeline 64, conns 1": "EXISTS absent",
    "MEXISTS×100 absent": "MEXISTS×100 absent",
    "MADD×100 new": "MADD×100 new",
}


def draw(data, directory, form):
    """All plots there are figures for; the paths of those drawn."""
    if not shutil.which("gnuplot"):
        print("gnuplot is not installed: no plots")
        return []

    def at(name):
        return os.path.join(directory, f"{form}-{name}.svg")

    drawn = draw_latency(data, at)
    main = data["groups"].get("main", {}).get("cases", {})
    cases = [(c.replace(", pipeline 64, conns 1", ""), main[c]) for c in MAIN_CASES if c in main]
    if cases:
        drawn.append(
            bars(
                at("in-command"),
                "Time in the command, pipeline 64 or batches",
                "µs per item",
                data,
                cases,
                ("ours", *latency_report.rivals(data), "noop"),
                "cmd_us",
            )
        )
        drawn.append(
            bars(
                at("server-cpu"),
                "Server CPU, pipeline 64 or batches",
                "µs per item (logarithmic)",
                data,
                cases,
                tuple(data["titles"]),
                "cpu_us",
                log=True,
            )
        )
        drawn.append(
            lines(
                at("batch"),
                "Cost and batch size, no pipeline",
                "items per command",
                "server CPU, µs per item (logarithmic)",
                data,
                over_batch(data, "cpu_us"),
                log=True,
            )
        )
    for name, title, xlabel, prefix, parameter, error in (
        ("size", "Cost and filter size, error rate 0.0001", "items", "", "items", 1e-4),
        ("layers", "Cost and number of layers, 10^6 items", "layers", "layers", "layers", None),
        (
            "length",
            "Cost and item length, 10^6 items",
            "bytes per item",
            "item length",
            "item_bytes",
            None,
        ),
    ):
        series = over_groups(data, prefix, parameter, GROWTH, "cmd_us", error)
        if series:
            drawn.append(lines(at(name), title, xlabel, "in command, µs per item", data, series))
    return drawn
