#!/usr/bin/python3
"""What a memory that forgets costs: a filter with a window, beside a filter of as many layers that
never forgets, and beside the usual recipe, one filter of another module per slice.

Usage: window.py --load path --clock path --module ours.so [--peer redisbloom.so]; `make
bench-window`. A table on the terminal and in window.txt, all figures in window.json.

Time passes while a window is filled, which takes the clock of the tests. Then the server is
restarted from its snapshot without that clock, and so are the others: what is measured runs as
users run it. All slices but the newest are full, and that is half full.
"""
import argparse
import json
import os
import struct
import sys
import time

from cases import ABSENT_FROM, Bench, best
from contest import KEY, Contestant, Server, load, prefer
from report import about_lines, fmt, table
from surroundings import about

WINDOW_SECONDS = 30 * 86400

# Name, options of the load, items in a run.
OPERATIONS = (
    ("EXISTS absent", {"exists": True, "pipeline": 64}, 100_000),
    ("EXISTS present", {"exists": True, "pipeline": 64, "dup": 100}, 100_000),
    ("MEXISTS×100 absent", {"exists": True, "batch": 100}, 300_000),
    ("MEXISTS×100 present", {"exists": True, "batch": 100, "dup": 100}, 300_000),
    ("ADD present", {"pipeline": 64, "dup": 100}, 100_000),
    ("ADD new", {"pipeline": 64}, 20_000),
)


class Scene:
    """So many items in a window, at such an error rate, in so many slices."""

    def __init__(self, nitems, error, nslices, ways):
        self.nitems, self.error, self.nslices, self.ways = nitems, error, nslices, ways
        self.nlayers = nslices + 1  # that can be alive at once
        self.share = nitems // nslices
        self.name = f"{nitems:.0e} items, {error:g}, {nslices} slices".replace("e+0", "e")

    def parts(self):
        """(number of the slice, first item, items in it); the newest one is half full."""
        for i in range(self.nlayers):
            yield i, i * self.share, self.share if i < self.nslices else self.share // 2

    @property
    def npresent(self):
        return self.nslices * self.share + self.share // 2


class Way:
    """One way to remember items for a window: a filled server, and how to query it."""

    round_trips = 1  # to add an item and know whether it was new

    def __init__(self, bench, scene, module, style="bf", keys=None):
        self.bench, self.scene, self.keys = bench, scene, keys
        contestant = Contestant(self.name, self.title, style, module)
        self.server = Server(contestant, bench.server, core=bench.core, prefix=self.prefix())
        self.next_absent = ABSENT_FROM
        self.next_new = scene.npresent
        try:
            self.fill()
            self.restart()
        except BaseException:
            self.server.close()
            raise

    def prefix(self):
        return ()

    def fill(self):
        raise NotImplementedError

    def add(self, key, first, nitems):
        binary = self.bench.loader
        style = self.server.contestant.style
        self.server.contestant.style = "bf"
        load(binary, self.server, key=key, batch=1000, items=nitems, new_from=first)
        self.server.contestant.style = style

    def restart(self):
        self.server.client.save()
        self.server.kill()
        self.server.prefix = ()
        self.server.start()

    def operate(self, name, options, nitems, turn):
        new = name.startswith("ADD new")
        if new and self.round_trips > 1:
            return None
        if new:
            nitems = min(nitems, self.scene.share // 2 // self.bench.rounds)
        figures = load(
            self.bench.loader,
            self.server,
            items=nitems,
            present=self.scene.npresent,
            new_from=self.next_new if new else self.next_absent,
            seed=turn + 1,
            keys=self.keys,
            **options,
        )
        if new:
            self.next_new += figures["new"]
        else:
            self.next_absent += figures["new"]
        return figures

    def memory(self):
        """Bytes that FLUSHALL gives back."""
        client = self.server.client
        client.config_set("latency-tracking", "no")
        client.config_resetstat()
        before = self.server.quiet_memory()
        client.flushall()
        return before - self.server.memory()


class Window(Way):
    """BF.RESERVE … WINDOW."""

    name, title = "window", "window"

    def prefix(self):
        self.clock_file = os.path.join(self.bench.results, "clock")
        self.now = round(time.time() * 1000)
        self.set_clock(self.now)
        return ("env", f"LD_PRELOAD={self.bench.clock}", f"TEST_CLOCK={self.clock_file}")

    def set_clock(self, ms):
        with open(self.clock_file, "wb") as file:
            file.write(struct.pack("@Q", ms))

    def fill(self):
        scene = self.scene
        piece = -(-WINDOW_SECONDS * 1000 // scene.nslices)
        # Pieces of time are shifted by the seed: the present is the middle of one, so that no slice
        # begins or ends while the benchmark runs.
        words = ("WINDOW", WINDOW_SECONDS, "SLICES", scene.nslices)
        words += ("SEED", (self.now + piece // 2) % piece)
        for i, first, nitems in scene.parts():
            self.set_clock(self.now - (scene.nslices - i) * piece)
            if i == 0:
                command = ("BF.RESERVE", KEY, repr(scene.error), scene.nitems)
                self.server.client.execute_command(*command, *words)
            self.add(KEY, first, nitems)

    def restart(self):
        super().restart()
        info = self.server.client.execute_command("BF.INFO", KEY)
        if info[5] != self.scene.nlayers:
            raise SystemExit(f"the window has {info[5]} layers, not {self.scene.nlayers}")


class Layers(Way):
    """A filter that never forgets, with as many layers. Where they are small, they share a
    string."""

    name, title = "layers", "layers"
    options = ()

    def fill(self):
        scene = self.scene
        command = ("BF.RESERVE", KEY, repr(scene.error), scene.share, "EXPANSION", 1)
        self.server.client.execute_command(*command, *self.options)
        for _, first, nitems in scene.parts():
            self.add(KEY, first, nitems)

    def restart(self):
        super().restart()
        info = self.server.client.execute_command("BF.INFO", KEY)
        if info[5] not in (self.scene.nlayers - 1, self.scene.nlayers):
            raise SystemExit(f"the filter has {info[5]} layers, not {self.scene.nlayers}")


class Days(Way):
    """A filter of the peer for each slice, all asked in one pipeline."""

    name, title = "pipeline", "recipe, pipeline"
    round_trips = 2

    def fill(self):
        scene = self.scene
        for i, first, nitems in scene.parts():
            key = f"{KEY}:{scene.nslices - i}"  # 0 is the newest
            error = scene.error / scene.nlayers
            self.server.client.execute_command("BF.RESERVE", key, repr(error), scene.share)
            self.add(key, first, nitems)

    def operate(self, name, options, nitems, turn):
        if name == "ADD present":
            return None  # is an EXISTS here
        return super().operate(name, options, nitems // 4, turn)


class Script(Days):
    """The same, asked by a script."""

    name, title = "script", "recipe, script"
    round_trips = 1

    def operate(self, name, options, nitems, turn):
        return Way.operate(self, name, options, nitems // 4, turn)


def ways_of(scene, bench, options):
    """Who takes part in a scene, on a server each."""
    found = []
    try:
        for name in scene.ways:
            if name == "window":
                found.append(Window(bench, scene, options.module))
            elif name == "layers":
                found.append(Layers(bench, scene, options.module))
            elif options.peer:
                way, style = (Days, "days") if name == "pipeline" else (Script, "days-script")
                found.append(way(bench, scene, options.peer, style, keys=scene.nlayers))
    except BaseException:
        for way in found:
            way.server.close()
        raise
    return found


def measure(scene, bench, options):
    """{operation: {way: figures}}, with memory and round trips."""
    ways = ways_of(scene, bench, options)
    try:
        runs = {name: {way.name: [] for way in ways} for name, _, _ in OPERATIONS}
        for name, load_options, nitems in OPERATIONS:
            for turn, way in bench.in_turns(ways):
                figures = way.operate(name, load_options, nitems, turn)
                if figures:
                    runs[name][way.name].append(figures)
            print(f"{scene.name}: {name}", file=sys.stderr, flush=True)
        result = {
            name: {way: best(figures) for way, figures in by_way.items() if figures}
            for name, by_way in runs.items()
        }
        absent = result["MEXISTS×100 absent"]
        for way in ways:
            nasked = sum(f["items"] for f in runs["MEXISTS×100 absent"][way.name])
            nhits = sum(f["hits"] for f in runs["MEXISTS×100 absent"][way.name])
            absent[way.name]["rate"] = nhits / nasked
        result["memory"] = {way.name: {"bytes": way.memory()} for way in ways}
        result["round trips"] = {way.name: {"trips": way.round_trips} for way in ways}
        return result
    finally:
        for way in ways:
            way.server.close()


TITLES = {way.name: way.title for way in (Window, Layers, Days, Script)}


FIGURES = {
    "cpu_us": "server CPU, µs",
    "cmd_us": "in command, µs",
    "bytes": "bytes",
    "rate": "false positives",
    "trips": "to add one item",
}


def shown(figure, value):
    return f"{value:.1e}" if figure == "rate" and value is not None else fmt(value)


def comparison(scene, cases):
    """One table: every way, and the window's figure over that of the others."""
    names = [name for name in TITLES if name in cases["memory"]]
    rows = []
    for case, by_way in cases.items():
        for figure, unit in FIGURES.items():
            values = [by_way.get(name, {}).get(figure) for name in names]
            if values[0] is None:
                continue
            ratios = [f"{values[0] / value:.2f}" if value else "-" for value in values[1:]]
            cells = [shown(figure, value) for value in values]
            rows.append([f"{case}, {unit}", *cells, *ratios])
    head = [scene.name, *[TITLES[n] for n in names], *[f"window/{n}" for n in names[1:]]]
    return table(head, rows) + "\n"


def slices_table(results):
    """What a choice of SLICES costs: the scenes that differ in nothing else."""
    rows = []
    for scene, cases in sorted(results, key=lambda one: (-one[0].error, one[0].nslices)):
        if scene.nitems != 10**6:
            continue
        cells = [f"{cases['memory']['window']['bytes'] / 1e6:.2f}"]
        for case in ("EXISTS absent", "EXISTS present", "ADD new"):
            cells.append(fmt(cases[case]["window"]["cmd_us"]))
        for case in ("MEXISTS×100 absent", "MEXISTS×100 present"):
            cells.append(fmt(cases[case]["window"]["cpu_us"]))
        cells.append(f"{cases['MEXISTS×100 absent']['window']['rate']:.1e}")
        rows.append([f"{scene.error:g}, {scene.nslices}", f"+{100 / scene.nslices:.0f}%", *cells])
    head = [
        "error rate, SLICES",
        "remembered for",
        "MB",
        "EXISTS absent",
        "EXISTS present",
        "ADD new",
        "MEXISTS×100 absent",
        "present",
        "measured rate",
    ]
    return table(head, rows) + "\n" if rows else ""


def tables(data, results):
    text = about_lines(data["about"])
    for scene, cases in results:
        if len(cases["memory"]) > 1:
            text += comparison(scene, cases)
    return text + slices_table(results)


def scenes(quick):
    everyone = ("window", "layers", "pipeline", "script")
    small, large = 10**6, 2 * 10**7
    found = [Scene(small, 1e-3, 8, everyone)]
    if quick:
        return found
    found += [Scene(small, 1e-4, 8, everyone), Scene(large, 1e-4, 8, everyone)]
    found.append(Scene(small, 1e-3, 30, ("window", "pipeline", "script")))
    found += [
        Scene(small, error, n, ("window",))
        for error in (1e-3, 1e-4)
        for n in (1, 2, 4, 8, 16, 30)
        if (error, n) not in ((1e-3, 8), (1e-4, 8), (1e-3, 30))
    ]
    return found


def main():
    env = os.environ.get
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", required=True)
    parser.add_argument("--load", required=True)
    parser.add_argument("--clock", required=True, help="tests/preload/clock.c as a library")
    parser.add_argument("--peer", default=env("PEER", ""))
    parser.add_argument("--server", default=env("SERVER") or "redis-server")
    parser.add_argument("--rounds", type=int, default=int(env("ROUNDS") or 5))
    parser.add_argument("--only", default=env("ONLY", ""))
    parser.add_argument("--results", default=env("RESULTS") or "build/bench/results")
    parser.add_argument("--core", default=env("CORE") or max(os.sched_getaffinity(0)))
    options = parser.parse_args()
    options.form, options.cc, options.cflags = "window", env("CC", "cc"), env("CFLAGS", "")
    os.makedirs(options.results, exist_ok=True)
    takers = [Contestant("ours", "shardbloom", "bf", options.module)]
    if options.peer:
        takers.append(Contestant("peer", "peer", "bf", options.peer))
    bench = Bench(takers, options.server, options.load, options.core, options.rounds, 1, None)
    bench.clock, bench.results = os.path.abspath(options.clock), os.path.abspath(options.results)
    data = {"about": about(bench, options), "scenes": {}}
    results = []
    for scene in scenes(env("QUICK")):
        if options.only and options.only not in scene.name:
            continue
        cases = measure(scene, bench, options)
        results.append((scene, cases))
        data["scenes"][scene.name] = cases
        with open(os.path.join(options.results, "window.json"), "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1, ensure_ascii=False)
    text = tables(data, results)
    print(text)
    with open(os.path.join(options.results, "window.txt"), "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    prefer(os.getpid())
    main()
