#!/usr/bin/python3
"""Runs the benchmark: see bench/README.md. Settings come from the environment, as `make bench`
passes them."""
import argparse
import json
import os
import shutil
import signal
import sys
import time

import cases
import latency
import plots
import report
from contest import contestants, prefer
from surroundings import about

FORMS = {
    "full": cases.full_groups,
    "quick": cases.quick_groups,
    "compare": cases.compare_groups,
    "latency": cases.latency_groups,
    "latency-quick": cases.quick_latency_groups,
}
QUICK = ("quick", "latency-quick")


class Progress:
    """A line on the terminal that says what runs now; where there is no terminal, a line per
    finished case."""

    def __init__(self, total):
        self.total, self.done, self.begin = total, 0, time.monotonic()
        self.group = ""
        self.live = sys.stdout.isatty()

    def step(self, case, contestant, turn, turns):
        if self.live:
            text = f"{self.prefix()}  {self.group}: {case}  {contestant.title} {turn}/{turns}"
            width = shutil.get_terminal_size().columns - 1
            print("\r" + text[:width].ljust(width), end="", flush=True)

    def finished(self, case):
        self.done += 1
        if not self.live:
            print(f"{self.prefix()}  {self.group}: {case}", flush=True)

    def prefix(self):
        filled = 20 * self.done // max(1, self.total)
        minutes, seconds = divmod(int(time.monotonic() - self.begin), 60)
        bar = "#" * filled + "." * (20 - filled)
        return f"[{bar}] {self.done}/{self.total} {minutes}:{seconds:02d}"


class Results:
    """The figures, kept on disk after every case, so that an interrupted run loses none."""

    def __init__(self, path, resume):
        self.path = path
        self.data = {"about": {}, "groups": {}}
        if resume and os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                self.data = json.load(f)

    def complete(self, group):
        return self.data["groups"].get(group.name, {}).get("complete", False)

    def begin(self, group):
        self.data["groups"][group.name] = {
            "parameters": group.parameters,
            "complete": False,
            "cases": {},
        }

    def add(self, group, case, figures):
        self.data["groups"][group.name]["cases"][case] = figures
        self.save()

    def end(self, group):
        self.data["groups"][group.name]["complete"] = True
        self.save()

    def save(self):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path + ".new", "w", encoding="utf-8") as f:
            json.dump(self.data, f, indent=1, ensure_ascii=False)
        os.replace(self.path + ".new", self.path)


def chosen(groups, only):
    """ONLY=word[,word…]: the groups whose name contains one of the words."""
    words = [w.strip() for w in only.split(",") if w.strip()]
    found = [g for g in groups if not words or any(w in g.name for w in words)]
    if not found:
        raise SystemExit(f"ONLY={only} fits none of: {', '.join(g.name for g in groups)}")
    return found


def parse():
    env = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--module", default=env("MODULE", "shardbloom.so"), help="our module; '' to leave it out"
    )
    parser.add_argument(
        "--peer", default=env("PEER", ""), help="another module with the same BF.* commands"
    )
    parser.add_argument(
        "--modules", default=env("MODULES", ""), help="further ones: name=path, separated by spaces"
    )
    parser.add_argument("--noop", required=True, help="the module that does nothing")
    parser.add_argument("--load", required=True, help="the load generator")
    parser.add_argument("--server", default=env("SERVER") or "redis-server")
    parser.add_argument("--form", choices=FORMS, default="full")
    parser.add_argument("--only", default=env("ONLY", ""))
    parser.add_argument(
        "--who", default=env("WHO", ""), help="names of contestants, by commas; '' for all"
    )
    parser.add_argument("--rounds", type=int, default=int(env("ROUNDS") or 0))
    parser.add_argument("--resume", action="store_true", default=env("RESUME", "") not in ("", "0"))
    parser.add_argument(
        "--results", default=env("RESULTS") or os.path.join("build", "bench", "results")
    )
    parser.add_argument(
        "--core",
        default=env("CORE") or max(os.sched_getaffinity(0)),
        help="shared by server and load",
    )
    parser.add_argument("--cc", default=env("CC", "cc"))
    parser.add_argument("--cflags", default=env("CFLAGS", ""))
    return parser.parse_args()


def modules(text):
    """[(name, path)] of MODULES="before=/path/to/one.so other=/path/to/another.so"."""
    pairs = [word.partition("=") for word in text.split()]
    for name, _, path in pairs:
        if not name.isidentifier() or not path:
            raise SystemExit(f"MODULES={text}: name=path is needed, separated by spaces")
    return [(name, path) for name, _, path in pairs]


def estimate(groups, bench):
    """A line that says how long it will take. Machines differ, and neighbours too."""
    minutes = sum(g.seconds(bench) for g in groups) / 60
    return (
        f"about {max(1, round(minutes))} minutes for {len(groups)} groups of cases"
        f" and {len(bench.contestants)} contestants"
    )


def main():
    options = parse()
    others = modules(options.modules)
    for path in filter(None, (options.module, options.peer, *[path for _, path in others])):
        if not os.path.exists(path):
            raise SystemExit(f"{path}: no such module")
    results = Results(os.path.join(options.results, f"{options.form}.json"), options.resume)
    groups = [g for g in chosen(FORMS[options.form](), options.only) if not results.complete(g)]
    takers = [
        c
        for c in contestants(options.module, options.peer, options.noop, others)
        if not options.who or c.name in options.who.split(",")
    ]
    is_quick = options.form in QUICK
    bench = cases.Bench(
        takers,
        options.server,
        options.load,
        options.core,
        options.rounds or (2 if is_quick else 3 if options.form == "latency" else 5),
        4 if is_quick else 1,
        None,
    )
    print(estimate(groups, bench), flush=True)
    bench.progress = Progress(sum(len(g.case_names(bench)) for g in groups))
    results.data["about"] = about(bench, options)
    results.data["titles"] = {c.name: c.title for c in [*takers, latency.YARDSTICK]}
    for group in groups:
        bench.progress.group = group.name
        results.begin(group)

        def record(case, figures, group=group):
            results.add(group, case, figures)
            bench.progress.finished(case)

        group.run(bench, record)
        results.end(group)
    print()
    publish(results, options)


def publish(results, options):
    """Tables and plots, beside the figures they are made of."""
    tables = report.tables(results.data)
    print(tables)
    with open(os.path.join(options.results, f"{options.form}.txt"), "w", encoding="utf-8") as f:
        f.write(tables)
    for path in plots.draw(results.data, options.results, options.form):
        print(f"plot: {os.path.relpath(path)}")
    print(f"figures: {os.path.relpath(results.path)}")


def end(_number, _frame):
    raise KeyboardInterrupt  # so that servers are stopped on the way out


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    prefer(os.getpid())  # and the load, which inherits it
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; RESUME=1 goes on with the groups that are not complete")
