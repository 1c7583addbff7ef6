#!/usr/bin/python3
"""Runs the benchmark: see bench/README.md. Settings come from the environment, as `make bench` passes them."""
import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time

import cases
import plots
import report
from contest import Server, contestants

HERE = os.path.dirname(os.path.abspath(__file__))


class Progress:
    """A line on the terminal that says what runs now; where there is no terminal, a line per finished case."""

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
        return f"[{'#' * filled}{'.' * (20 - filled)}] {self.done}/{self.total} {minutes}:{seconds:02d}"


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
        self.data["groups"][group.name] = {"parameters": group.parameters, "complete": False, "cases": {}}

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


def first_match(path, word):
    with open(path, encoding="utf-8") as f:
        return next((line.split(":", 1)[1].strip() for line in f if line.startswith(word)), "unknown")


def about(bench, options):
    """What the figures depend on. Neither paths nor the name of the machine."""
    versions = {}
    for contestant in bench.contestants:
        server = Server(contestant, bench.server)
        try:
            info = server.client.info("server")
            for module in server.client.module_list():
                versions[contestant.name] = f"{text(module[b'name'])} {module[b'ver']}"
        finally:
            server.close()
    compiler = subprocess.run([options.cc, "--version"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "form": "quick" if options.quick else "full",
        "rounds": bench.rounds,
        "cpu": first_match("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory": first_match("/proc/meminfo", "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "server": f"{info.get('server_name', 'redis')} {info['redis_version']} ({info.get('mem_allocator', '')})",
        "modules": versions,
        "compiler": compiler.splitlines()[0] if compiler else "unknown",
        "flags": options.cflags,
    }


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


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
    parser.add_argument("--module", default=env("MODULE", "shardbloom.so"), help="our module; '' to leave it out")
    parser.add_argument("--peer", default=env("PEER", ""), help="another module with the same BF.* commands")
    parser.add_argument("--noop", required=True, help="the module that does nothing")
    parser.add_argument("--load", required=True, help="the load generator")
    parser.add_argument("--server", default=env("SERVER") or "redis-server")
    parser.add_argument("--quick", action="store_true", default=env("QUICK", "") not in ("", "0"))
    parser.add_argument("--only", default=env("ONLY", ""))
    parser.add_argument("--who", default=env("WHO", ""), help="names of contestants, by commas; '' for all")
    parser.add_argument("--rounds", type=int, default=int(env("ROUNDS") or 0))
    parser.add_argument("--resume", action="store_true", default=env("RESUME", "") not in ("", "0"))
    parser.add_argument("--results", default=env("RESULTS") or os.path.join(HERE, "results"))
    parser.add_argument("--core", default=env("CORE") or max(os.sched_getaffinity(0)), help="shared by server and load")
    parser.add_argument("--cc", default=env("CC", "cc"))
    parser.add_argument("--cflags", default=env("CFLAGS", ""))
    return parser.parse_args()


def main():
    options = parse()
    for path in filter(None, (options.module, options.peer)):
        if not os.path.exists(path):
            raise SystemExit(f"{path}: no such module")
    groups = chosen(cases.quick_groups() if options.quick else cases.full_groups(), options.only)
    form = "quick" if options.quick else "full"
    results = Results(os.path.join(options.results, f"{form}.json"), options.resume)
    groups = [g for g in groups if not results.complete(g)]
    takers = [c for c in contestants(options.module, options.peer, options.noop)
              if not options.who or c.name in options.who.split(",")]
    bench = cases.Bench(takers, options.server, options.load, options.core, options.rounds or (2 if options.quick else 5),
                        4 if options.quick else 1, None)
    bench.progress = Progress(sum(len(g.case_names(bench)) for g in groups))
    results.data["about"] = about(bench, options)
    results.data["titles"] = {c.name: c.title for c in takers}
    for group in groups:
        bench.progress.group = group.name
        results.begin(group)

        def record(case, figures, group=group):
            results.add(group, case, figures)
            bench.progress.finished(case)

        group.run(bench, record)
        results.end(group)
    print()
    tables = report.tables(results.data)
    print(tables)
    with open(os.path.join(options.results, f"{form}.txt"), "w", encoding="utf-8") as f:
        f.write(tables)
    for path in plots.draw(results.data, options.results, form):
        print(f"plot: {os.path.relpath(path)}")
    print(f"figures: {os.path.relpath(results.path)}")


def end(_number, _frame):
    raise KeyboardInterrupt  # so that servers are stopped on the way out


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, end)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; RESUME=1 goes on with the groups that are not complete")
