"""What is measured: groups of cases, each group on servers of its own.

A group of operations fills one filter per contestant and runs the same operations on all of them,
taking turns, several rounds. New items for ADD come out of the last part of the filter's capacity;
then the filter is topped up, and all other operations see it exactly full.
"""
import json
import subprocess
import time

import latency
from contest import KEY, Server, load, load_command

ABSENT_FROM = 2**40  # numbers of items that nobody adds
SLICES = 10  # turns in which filters are filled
LOWER_IS_BETTER = ("cpu_us", "cmd_us", "p50_us", "p99_us", "p999_us", "max_us")


class Operation:
    """One kind of request: ADD or EXISTS, which items, how many at a time."""

    def __init__(self, exists, mix, batch=0, pipeline=1, conns=1):
        self.exists, self.mix, self.batch, self.pipeline, self.conns = (
            exists,
            mix,
            batch,
            pipeline,
            conns,
        )

    @property
    def name(self):
        command = "EXISTS" if self.exists else "ADD"
        if self.batch:
            return f"M{command}×{self.batch} {self.mix}"
        return f"{command} {self.mix}, pipeline {self.pipeline}, conns {self.conns}"

    @property
    def nitems(self):
        """Items in one run: enough for tens of milliseconds of server time."""
        if self.batch:
            return {10: 200_000, 100: 400_000}.get(self.batch, 500_000)
        if self.pipeline > 1:
            return 200_000
        return 20_000 if self.conns == 1 else 50_000

    @property
    def dup(self):
        return {"new": 0, "absent": 0, "80% dup": 80, "present": 100}[self.mix]

    @property
    def fills(self):
        """Does it add items?"""
        return not self.exists and self.dup < 100


def operations():
    """The whole list of the benchmark."""
    singles = [
        Operation(exists, mix, 0, pipeline, conns)
        for pipeline, conns in ((64, 1), (64, 50), (1, 1), (1, 50))
        for exists in (False, True)
        for mix in ("absent" if exists else "new", "80% dup", "present")
    ]
    batches = [
        Operation(exists, mix, batch)
        for batch in (10, 100, 1000)
        for exists in (False, True)
        for mix in ("absent" if exists else "new", "80% dup", "present")
    ]
    return singles + batches


def brief_operations():
    """Those that show how cost grows with one parameter."""
    return [
        Operation(False, "new", 0, 64),
        Operation(True, "absent", 0, 64),
        Operation(True, "present", 0, 64),
        Operation(False, "new", 100),
        Operation(True, "absent", 100),
        Operation(True, "present", 100),
    ]


def compare_operations():
    """Single items and batches of 100, known and unknown: for an older build of ours beside the new
    one."""
    return [
        Operation(exists, mix, batch, 1 if batch else 64)
        for batch in (0, 100)
        for exists in (False, True)
        for mix in ("absent" if exists else "new", "present")
    ]


class Bench:
    """The settings of a run and the means to measure."""

    def __init__(self, contestants, server, loader, core, rounds, scale, progress):
        self.contestants = contestants
        self.server = server  # path of the server
        self.loader = loader  # path of the load generator
        self.core = core  # where server and load run while CPU is measured
        self.rounds = rounds
        self.scale = scale  # divides the items of a run
        self.progress = progress

    def filters(self):
        return [c for c in self.contestants if c.is_filter]

    def in_turns(self, servers, rounds=None):
        """Every server, several times, a different one first each time."""
        for i in range(rounds or self.rounds):
            for j in range(len(servers)):
                yield i, servers[(i + j) % len(servers)]


def best(figures):
    """The best of several runs, each figure for itself, and all the runs' main figures."""
    result = dict(figures[0])
    for name in LOWER_IS_BETTER:
        result[name] = min(f[name] for f in figures)
    result["items_per_s"] = max(f["items_per_s"] for f in figures)
    result["rounds"] = [{name: f[name] for name in ("cpu_us", "cmd_us")} for f in figures]
    return result


class Filled:
    """A contestant's server with a filter that is filled step by step."""

    def __init__(self, bench, contestant, group):
        self.bench, self.contestant, self.group = bench, contestant, group
        self.server = Server(contestant, bench.server, core=bench.core)
        self.limit = min(group.nitems, contestant.max_items or group.nitems)
        self.next_absent = ABSENT_FROM
        self.create()

    def create(self):
        self.server.client.flushall()
        self.contestant.reserve(self.server.client, self.group.error, self.group.capacity)
        self.count = 0

    def run(self, **options):
        return load(self.bench.loader, self.server, item_bytes=self.group.item_bytes, **options)

    def fill_to(self, count):
        """Adds new items until there are `count` of them."""
        if count <= self.count:
            return None
        figures = self.run(batch=1000, items=count - self.count, new_from=self.count)
        self.count = count
        return figures

    def operate(self, op, seed):
        nitems = min(op.nitems // self.bench.scale // self.contestant.weight, self.limit // 2)
        if op.fills and self.count + nitems * (100 - op.dup) // 100 > self.limit:
            self.create()
            self.fill_to(self.limit // 2)
        new_from = self.count if op.fills else self.next_absent
        figures = self.run(
            exists=op.exists,
            batch=op.batch,
            pipeline=op.pipeline,
            conns=op.conns,
            items=nitems,
            present=self.count,
            dup=op.dup,
            new_from=new_from,
            seed=seed,
        )
        if op.fills:
            self.count += figures["new"]
        else:
            self.next_absent += figures["new"]
        return figures

    def memory(self, nprobes):
        """Memory per item and the false-positive rate that was measured for it. Ends the filter.

        Memory is what FLUSHALL gives back, and nothing else may come or go meanwhile: connections
        of the load with their buffers, and the server's latency histograms, 41 KB for every command
        at its first call, which is a quarter of a filter of 10^5 items."""
        figures = self.run(exists=True, batch=1000, items=nprobes, new_from=2 * ABSENT_FROM)
        client = self.server.client
        info = client.execute_command("BF.INFO", KEY) if self.contestant.is_filter else None
        client.config_set("latency-tracking", "no")
        client.config_resetstat()
        before = self.server.quiet_memory()
        client.flushall()
        used = before - self.server.memory()
        result = {
            "bytes": used,
            "bytes_per_item": used / self.count,
            "items": self.count,
            "fp_rate": figures["hits"] / nprobes,
        }
        if info:
            result["layers"] = info[5]
            result["size"] = info[3]
        return result


class Operations:
    """The group of operations on one shape of filter."""

    def __init__(
        self,
        name,
        nitems,
        error,
        ops,
        layers=1,
        item_bytes=64,
        everyone=False,
        rounds=None,
        probes=10**6,
        capacity=None,
    ):
        self.name, self.nitems, self.error, self.ops = name, nitems, error, ops
        # the sum of `layers` doublings is the number of items
        self.capacity = capacity or -(-nitems // (2**layers - 1))
        self.layers, self.item_bytes, self.everyone = layers, item_bytes, everyone
        self.rounds, self.probes = rounds, probes

    @property
    def parameters(self):
        return {
            "items": self.nitems,
            "error": self.error,
            "capacity": self.capacity,
            "layers": self.layers,
            "item_bytes": self.item_bytes,
        }

    def case_names(self, _bench):
        return ["fill MADD×1000"] + [op.name for op in self.ops] + ["memory"]

    def takers(self, bench):
        return bench.contestants if self.everyone else bench.filters()

    def seconds(self, bench):
        """An estimate: filling, and some tenths of a second for every run."""
        fill = sum(
            min(self.nitems, c.max_items or self.nitems) * c.weight * 0.8e-6
            for c in self.takers(bench)
        )
        return fill + len(self.takers(bench)) * (
            2 + len(self.ops) * (self.rounds or bench.rounds) * 0.35
        )

    def run(self, bench, record):
        takers = self.takers(bench)
        filled = []
        try:
            for contestant in takers:
                filled.append(Filled(bench, contestant, self))
            self.fill(bench, filled, record)
            for op in [o for o in self.ops if o.fills]:
                self.operate(bench, filled, op, record)
            for f in filled:
                f.fill_to(f.limit)
            for op in [o for o in self.ops if not o.fills]:
                self.operate(bench, filled, op, record)
            record("memory", {f.contestant.name: f.memory(self.probes) for f in filled})
        finally:
            for f in filled:
                f.server.close()

    def fill(self, bench, filled, record):
        """Filters are filled in turns, a slice each; what is left for the ADDs of new items stays
        free."""
        room = sum(op.nitems // bench.scale * (100 - op.dup) // 100 for op in self.ops if op.fills)
        room *= self.rounds or bench.rounds
        figures = {f.contestant.name: [] for f in filled}
        for i, f in bench.in_turns(filled, SLICES):
            target = f.limit - min(f.limit // 2, room)
            figures[f.contestant.name].append(f.fill_to(target * (i + 1) // SLICES))
            bench.progress.step("fill MADD×1000", f.contestant, i + 1, SLICES)
        record("fill MADD×1000", {name: self.sum(slices) for name, slices in figures.items()})

    @staticmethod
    def sum(slices):
        items = sum(s["items"] for s in slices)
        result = {
            name: sum(s[name] * s["items"] for s in slices) / items for name in ("cpu_us", "cmd_us")
        }
        result["items"] = items
        result["items_per_s"] = items / sum(s["seconds"] for s in slices)
        for name in ("p50_us", "p99_us", "p999_us", "max_us"):
            result[name] = max(s[name] for s in slices)
        return result

    def operate(self, bench, filled, op, record):
        rounds = self.rounds or bench.rounds
        figures = {f.contestant.name: [] for f in filled}
        for i, f in bench.in_turns(filled, rounds):
            bench.progress.step(op.name, f.contestant, i + 1, rounds)
            figures[f.contestant.name].append(f.operate(op, seed=i + 1))
        record(op.name, {name: best(runs) for name, runs in figures.items()})


class Reserve:
    """What it costs to create a large filter, and the worst moment while its memory comes into
    being."""

    name = "creation"

    def __init__(self, reserve_items, stall_items):
        self.reserve_items, self.stall_items = reserve_items, stall_items
        self.parameters = {"reserve": reserve_items, "stall": stall_items, "error": 1e-4}

    def case_names(self, _bench):
        return ["RESERVE", "worst ADD"]

    def seconds(self, bench):
        return 2 * len(bench.filters()) * bench.rounds

    def run(self, bench, record):
        servers = [Server(c, bench.server, core=bench.core) for c in bench.filters()]
        try:
            record("RESERVE", self.measure(bench, servers, "RESERVE", self.reserve))
            record("worst ADD", self.measure(bench, servers, "worst ADD", self.stall))
        finally:
            for server in servers:
                server.close()

    def measure(self, bench, servers, case, one):
        runs = {s.contestant.name: [] for s in servers}
        for i, server in bench.in_turns(servers):
            bench.progress.step(case, server.contestant, i + 1, bench.rounds)
            server.client.flushall()
            server.client.config_resetstat()
            runs[server.contestant.name].append(one(bench, server))
        return {
            name: {figure: min(r[figure] for r in rs) for figure in rs[0]}
            for name, rs in runs.items()
        }

    def reserve(self, _bench, server):
        before = server.memory()
        server.contestant.reserve(server.client, 1e-4, self.reserve_items)
        return {"reserve_us": server.command_us("BF.RESERVE"), "bytes": server.memory() - before}

    def stall(self, bench, server):
        """Memory is zeroed either by RESERVE or by the ADDs that come first."""
        server.contestant.reserve(server.client, 1e-4, self.stall_items)
        reserve_us = server.command_us("BF.RESERVE")
        figures = load(bench.loader, server, items=20_000)
        return {"worst_us": max(reserve_us, figures["max_us"]), "p99_us": figures["p99_us"]}


class Persistence:
    """A large filter under BGSAVE and across restarts."""

    name = "persistence"

    def __init__(self, nitems, nfill, rate, tail):
        self.nitems, self.nfill, self.rate, self.tail = nitems, nfill, rate, tail
        self.parameters = {
            "items": nitems,
            "filled": nfill,
            "error": 1e-4,
            "adds_per_s": rate,
            "aof_tail": tail,
        }

    def case_names(self, _bench):
        return ["BGSAVE", "restart from RDB", "restart from AOF"]

    def seconds(self, bench):
        return len(bench.filters()) * (10 + self.nitems * 1.5e-7 + self.nfill * 1e-6)

    def run(self, bench, record):
        results = {name: {} for name in self.case_names(bench)}
        for contestant in bench.filters():
            server = Server(contestant, bench.server)
            try:
                self.run_one(bench, server, results)
            finally:
                server.close()
        for case, figures in results.items():
            record(case, figures)

    def run_one(self, bench, server, results):
        name = server.contestant.name
        bench.progress.step("filling a large filter", server.contestant, 1, 1)
        server.contestant.reserve(server.client, 1e-4, self.nitems)
        load(bench.loader, server, batch=1000, items=self.nfill)
        bench.progress.step("BGSAVE", server.contestant, 1, 1)
        results["BGSAVE"][name] = self.bgsave(bench, server)
        bench.progress.step("restart from RDB", server.contestant, 1, 1)
        results["restart from RDB"][name] = self.restart_rdb(bench, server)
        bench.progress.step("restart from AOF", server.contestant, 1, 1)
        results["restart from AOF"][name] = self.restart_aof(bench, server)

    def bgsave(self, bench, server):
        """Peak extra memory of server and child together, and the worst ADD, while ADDs of new
        items arrive at a fixed rate: a faster filter must not be punished for having dirtied more
        pages."""
        before = resident_bytes(server.pid)
        command = load_command(
            bench.loader, server, items=10**7, rate=self.rate, pipeline=16, new_from=self.nfill
        )
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            time.sleep(0.5)
            begin, added = time.monotonic(), self.card(server)
            server.client.bgsave()
            peak = 0
            while server.info("rdb_bgsave_in_progress"):
                peak = max(peak, resident_bytes(server.pid) - before)
                time.sleep(0.02)
            seconds, added = time.monotonic() - begin, self.card(server) - added
            writer.terminate()
            figures = json.loads(writer.communicate(timeout=60)[0])
        finally:
            writer.kill()
        return {
            "extra_bytes": peak,
            "seconds": seconds,
            "adds_per_s": added / seconds,
            "kept_rate": added / seconds >= 0.9 * self.rate,
            "worst_us": figures["max_us"],
            "p99_us": figures["p99_us"],
            "fork_us": server.info("latest_fork_usec"),
            "rdb_bytes": server.disk_bytes("dump.rdb"),
        }

    @staticmethod
    def card(server):
        return server.client.execute_command("BF.CARD", KEY)

    def restart_rdb(self, bench, server):
        server.client.save()
        server.kill()
        seconds = server.start()
        self.check(bench, server)
        return {"seconds": seconds, "bytes": server.disk_bytes("dump.rdb")}

    def restart_aof(self, bench, server):
        """A plain AOF, which is a rewrite by commands, and a tail of single ADDs."""
        client = server.client
        client.config_set("aof-use-rdb-preamble", "no")
        client.config_set("appendonly", "yes")
        server.wait(
            lambda: not server.info("aof_rewrite_in_progress")
            and not server.info("aof_rewrite_scheduled"),
            "does not finish the AOF rewrite",
            seconds=600,
            pause=0.1,
        )
        load(bench.loader, server, items=self.tail, pipeline=64, new_from=2 * self.nitems)
        time.sleep(2)  # appendfsync everysec
        server.kill()
        seconds = server.start("--appendonly", "yes", "--aof-use-rdb-preamble", "no")
        self.check(bench, server)
        return {"seconds": seconds, "bytes": server.disk_bytes("appendonlydir/*")}

    def check(self, bench, server):
        """A restart that loses items would be fast."""
        figures = load(
            bench.loader,
            server,
            exists=True,
            batch=1000,
            items=100_000,
            present=self.nfill,
            dup=100,
        )
        if figures["hits"] != 100_000:
            raise SystemExit(f"{server.contestant.title}: items are missing after a restart")


class Aof:
    """What a crawl writes to the AOF: 80% of its URLs are known already."""

    name = "aof"
    parameters = {"items": 100_000, "filled": 50_000, "dup": 80}

    def case_names(self, _bench):
        return ["ADD 80% dup", "MADD×100 80% dup"]

    def seconds(self, bench):
        return 3 * len(bench.contestants)

    def run(self, bench, record):
        results = {name: {} for name in self.case_names(bench)}
        for contestant in bench.contestants:
            if contestant.style == "noop":
                continue
            bench.progress.step("AOF of a crawl", contestant, 1, 1)
            server = Server(contestant, bench.server, "--appendonly", "yes")
            try:
                contestant.reserve(server.client, 1e-4, 100_000)
                load(bench.loader, server, batch=1000, items=50_000)
                for name, batch, new_from in (
                    ("ADD 80% dup", 0, 50_000),
                    ("MADD×100 80% dup", 100, 70_000),
                ):
                    results[name][contestant.name] = self.measure(bench, server, batch, new_from)
            finally:
                server.close()
        for name, figures in results.items():
            record(name, figures)

    @staticmethod
    def measure(bench, server, batch, new_from):
        before = server.info("aof_current_size")
        load(
            bench.loader,
            server,
            batch=batch,
            pipeline=10,
            items=50_000,
            present=50_000,
            dup=80,
            new_from=new_from,
        )
        return {"bytes_per_1000": (server.info("aof_current_size") - before) / 50}


def resident_bytes(pid):
    """Memory of a process and its children, pages they share counted once."""
    total = 0
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        pids = [pid, *map(int, f.read().split())]
    for p in pids:
        try:
            with open(f"/proc/{p}/smaps_rollup", encoding="ascii") as f:
                total += sum(int(line.split()[1]) * 1024 for line in f if line.startswith("Pss:"))
        except (FileNotFoundError, ProcessLookupError):
            pass  # the child has ended
    return total


def full_groups():
    everything = operations()
    shapes = [
        Operations(f"{label} at {error}", n, error, everything, rounds=3)
        for label, n in (("10^5", 10**5), ("2·10^7", 2 * 10**7), ("10^8", 10**8))
        for error in (0.01, 0.0001)
        if (n, error) != (2 * 10**7, 1e-4)
    ]
    return [
        Operations("main", 2 * 10**7, 1e-4, everything, everyone=True, probes=10**7),
        *shapes,
        Operations("grown, 10 layers", 2 * 10**7, 1e-4, everything, layers=10, rounds=3),
        *[
            Operations(f"layers {n}", 10**6, 1e-4, brief_operations(), layers=n)
            for n in (1, 2, 4, 6, 8)
        ],
        *[
            Operations(f"item length {n}", 10**6, 1e-4, brief_operations(), item_bytes=n)
            for n in (16, 64, 256, 1024, 4096)
        ],
        Reserve(10**9, 10**8),
        Aof(),
        Persistence(4 * 10**8, 5 * 10**7, 20_000, 200_000),
        *latency_groups(),
    ]


def quick_groups():
    return [
        Operations("main", 2 * 10**6, 1e-4, operations(), everyone=True),
        Operations("10^5 at 0.01", 10**5, 1e-2, brief_operations()),
        Operations("grown, 10 layers", 2 * 10**5, 1e-4, brief_operations(), layers=10),
        Reserve(10**9, 10**7),
        Aof(),
        Persistence(2 * 10**7, 2 * 10**6, 20_000, 50_000),
        *quick_latency_groups(),
    ]


def compare_groups():
    """What a change must not make slower. The last one needs 2.7 GB per contestant."""
    return [
        Operations("2·10^7 at 0.0001", 2 * 10**7, 1e-4, compare_operations()),
        Operations("10^8 at 0.0001", 10**8, 1e-4, compare_operations()),
        Operations(
            "10^9 at 0.0001, a tenth full", 10**8, 1e-4, compare_operations(), capacity=10**9
        ),
    ]


def latency_groups():
    return latency.groups((6, 7, 8, 9, 10))


def quick_latency_groups():
    return latency.groups((6, 9), brief=True)
