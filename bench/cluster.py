#!/usr/bin/python3
"""cluster.py: what a partitioned filter costs, on 1, 2 and 3 nodes and against an ordinary filter,
and how evenly real-looking URLs fall on its partitions. `make bench-cluster`; see bench/README.md.
"""
import argparse
import contextlib
import json
import math
import os
import random
import resource
import subprocess
import sys
import threading
import time
import types
from typing import Any, Callable, Iterator

from contest import Contestant, Server, free_port, on_core
from surroundings import about

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "python"))

from shardbloom.plan import partition_keys  # noqa: E402

NSLOTS = 16384
ERROR = "0.0001"
PARTITIONS = 64
RECOVERED = 10**9
WORKERS = 2  # at the same time, where nodes are compared
WORDS = (
    "about account after archive article autumn best blog book buy cat city cloud code cold data"
    " design dog easy energy events family film food forum free garden green guide health history"
    " home house how idea image index jobs kids law life list local love map market media model"
    " money music nature new news night north offer old online open page park people photo plan"
    " press price product public radio recipe report review river road school science search shop"
    " song south sport spring star start story street summer team tech time top town trade travel"
    " video water week west what wiki winter women work world year young"
).split()
ENDINGS = ("com", "com", "com", "org", "net", "de", "co.uk", "fr", "it", "info", "io", "pl", "nl")


# ---- URLs ----


def hosts(rng: random.Random, n: int) -> list[str]:
    """Names of sites; some have a www., some another prefix."""
    made = {
        f"{rng.choice(('www.', 'www.', '', '', 'm.', 'blog.', 'shop.'))}{rng.choice(WORDS)}"
        f"{rng.choice(('', '-', ''))}{rng.choice(WORDS)}{rng.choice(('', str(rng.randrange(99))))}"
        f".{rng.choice(ENDINGS)}"
        for _ in range(n)
    }
    return sorted(made)


def urls(nurls: int) -> Iterator[str]:
    """Different ones, always the same. Few sites have most of the pages, and each writes its
    addresses in a way of its own; numbers in them are not in a row.
    """
    rng = random.Random(16)
    sites = hosts(rng, 100_000)
    rng.shuffle(sites)
    nsites, top = len(sites), len(sites) ** 0.999
    for n in range(nurls):
        at = int(top ** rng.random()) % nsites  # the share of the k-th site falls as 1/k
        site, number = sites[at], n * 2654435761 % 4294967296  # odd factor: no number twice
        one, two, three = WORDS[number % 97], WORDS[number // 97 % 97], WORDS[number // 9409 % 97]
        form = at % 8
        if form == 0:
            yield f"https://{site}/{one}/{two}-{three}-{number}.html"
        elif form == 1:
            yield f"https://{site}/{one}/{number}"
        elif form == 2:
            yield f"http://{site}/index.php?id={number}&lang=en&cat={two}"
        elif form == 3:
            year, month = 2005 + number % 20, 1 + number // 20 % 12
            yield f"https://{site}/{year}/{month:02}/{one}-{two}-{three}/?p={number}"
        elif form == 4:
            yield f"https://{site}/product/{number}/{one}-{two}?ref={three}&utm_source=news"
        elif form == 5:
            yield f"https://{site}/wiki/{one.title()}_{two.title()}_({number})"
        elif form == 6:
            yield f"https://{site}/forum/viewtopic.php?f={number % 50}&t={number}"
        else:
            yield f"https://{site}/{one}/{two}/{number:x}{three}/page/{1 + number % 9}"


def write_urls(nurls: int, paths: list[str]) -> int:
    """Deals them out to the files; returns the bytes."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(open(path, "w", encoding="ascii")) for path in paths]
        for n, url in enumerate(urls(nurls)):
            files[n % len(files)].write(url + "\n")
    return sum(os.path.getsize(path) for path in paths)


# ---- servers and workers ----


def cpu_ns(server: Server) -> int:
    """What all of its threads have had of a CPU."""
    total = 0
    for task in os.listdir(f"/proc/{server.pid}/task"):
        with open(f"/proc/{server.pid}/task/{task}/schedstat", encoding="ascii") as f:
            total += int(f.read().split()[0])
    return total


class Bench:
    """The parameters, and the files with the URLs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.server, self.rounds, self.worker = options.server, options.rounds, options.worker
        self.ours = Contestant("ours", "shardbloom", "bf", options.module)
        self.contestants = [self.ours]
        self.nurls = options.items
        self.paths = [os.path.join(options.results, f"urls{n}") for n in range(WORKERS)]
        self.core = max(os.sched_getaffinity(0))

    @contextlib.contextmanager
    def nodes(self, n: int) -> Iterator[list[Server]]:
        """A cluster of n primaries."""
        servers: list[Server] = []
        buses = [free_port() for _ in range(n)]
        bounds = [NSLOTS * i // n for i in range(n + 1)]
        try:
            for bus in buses:
                options = ("--cluster-enabled", "yes", "--cluster-port", str(bus))
                servers.append(Server(self.ours, self.server, *options))
            for i, server in enumerate(servers):
                ask = server.client.execute_command
                ask("CLUSTER", "ADDSLOTSRANGE", bounds[i], bounds[i + 1] - 1)
                ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
                ask("CLUSTER", "MEET", "127.0.0.1", servers[0].port, buses[0])
            for server in servers:
                server.wait(lambda: self.knows_all(server, n), "is not in the cluster")
            yield servers
        finally:
            for server in servers:
                server.close()

    @staticmethod
    def knows_all(server: Server, n: int) -> bool:
        slots = server.client.execute_command("CLUSTER SLOTS")
        state = server.client.execute_command("CLUSTER INFO")
        return len(slots) == n and "ok" in str(state).split("cluster_slots")[0]

    def run(
        self,
        servers: list[Server],
        batch: int,
        partitions: int,
        core: int | None = None,
        capacity: int = 0,
    ) -> dict[str, Any]:
        """All URLs through the workers, a file for each at the same time, or one after the other if
        they share a core with the server.
        """
        command = [self.worker, "-q", "--port", str(servers[0].port), "-b", str(batch)]
        command += ["-e", ERROR, "-c", str(capacity or self.nurls)]
        command += ["--partitions", str(partitions)] if partitions else []
        command = on_core(core, command)
        for server in servers:
            server.client.config_resetstat()
        before = [cpu_ns(server) for server in servers]
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        counts = [0] * len(self.paths)

        def pass_on(number: int) -> None:
            with open(self.paths[number], "rb") as source:
                worker = subprocess.Popen(command, stdin=source, stdout=subprocess.PIPE)
                assert worker.stdout
                while block := os.read(worker.stdout.fileno(), 1 << 20):
                    counts[number] += block.count(b"\n")
                if worker.wait() != 0:
                    raise SystemExit("a worker failed")

        begin = time.monotonic()
        threads = [threading.Thread(target=pass_on, args=(i,)) for i in range(len(self.paths))]
        for thread in threads:
            thread.start()
            if core is not None:
                thread.join()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = [cpu_ns(server) - start for server, start in zip(servers, before)]
        workers = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        commands = sum(server.command_us("bf.insert") for server in servers)
        return {
            "items_per_second": self.nurls / seconds,
            "server_ns": sum(spent) / self.nurls,
            "busiest_ns": max(spent) / self.nurls,
            "command_ns": 1000 * commands / self.nurls,
            "worker_ns": 1e9 * workers / self.nurls,
            "new": sum(counts),
        }


def best(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """The best of each figure: neighbours on the machine only ever add to a time."""
    chosen = {name: min(one[name] for one in rounds) for name in rounds[0]}
    return {**chosen, "items_per_second": max(one["items_per_second"] for one in rounds)}


# ---- what is measured ----


def compare_nodes(bench: Bench) -> list[dict[str, Any]]:
    """1, 2 and 3 nodes, in turns: all URLs new, then all known."""
    rounds: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for turn in range(bench.rounds):
        for n in (1, 2, 3):
            with bench.nodes(n) as servers:
                for what in ("new", "known"):
                    figures = bench.run(servers, 1000, PARTITIONS)
                    rounds.setdefault((n, what), []).append(figures)
            print(f"  {n} nodes, round {turn + 1} of {bench.rounds}", flush=True)
    return [{"nodes": n, "what": what, **best(runs)} for (n, what), runs in rounds.items()]


def compare_batches(bench: Bench) -> list[dict[str, Any]]:
    """One server that shares a core with the worker: an ordinary filter, and 64 partitions."""
    rounds: dict[tuple[int, int, str], list[dict[str, Any]]] = {}
    for turn in range(bench.rounds):
        for batch in (100, 1000, 10000):
            for partitions in (0, PARTITIONS):
                server = Server(bench.ours, bench.server, core=bench.core)
                try:
                    for what in ("new", "known"):
                        figures = bench.run([server], batch, partitions, bench.core)
                        rounds.setdefault((batch, partitions, what), []).append(figures)
                finally:
                    server.close()
        print(f"  batches, round {turn + 1} of {bench.rounds}", flush=True)
    return [
        {"batch": batch, "partitions": partitions, "what": what, **best(runs)}
        for (batch, partitions, what), runs in rounds.items()
    ]


def balance(bench: Bench) -> dict[str, Any]:
    """How many URLs each of the partitions got, how many layers they have, and their sizes."""
    server = Server(bench.ours, bench.server)
    try:
        bench.run([server], 10000, PARTITIONS)
        ask = server.client.execute_command
        keys = partition_keys(b"seen", PARTITIONS)
        counts = [ask("BF.CARD", key) for key in keys]
        room = ask("BF.INFO", keys[0], "CAPACITY")[0]
        nbytes = sum(ask("BF.INFO", key, "SIZE")[0] for key in keys)
        layers = max(ask("BF.INFO", key, "FILTERS")[0] for key in keys)
        plan = ask("BF.PLAN", ERROR, bench.nurls)
        one = dict(zip(plan[::2], plan[1::2]))
    finally:
        server.close()
    mean = sum(counts) / len(counts)
    return {
        "mean": mean,
        "least": min(counts),
        "most": max(counts),
        "deviation": math.sqrt(sum((count - mean) ** 2 for count in counts) / len(counts)),
        "by_chance": math.sqrt(bench.nurls / PARTITIONS * (1 - 1 / PARTITIONS)),
        "capacity": room,
        "layers": layers,
        "bytes": nbytes,
        "plan_of_one_filter": {str(name, "ascii"): value for name, value in one.items()
                               if isinstance(value, int)},
    }


def recovery(bench: Bench) -> dict[str, Any]:
    """A node that has a filter for RECOVERED items, with all of its memory taken: how long it takes
    to save, to restart, and to bring a replica up to date, on this machine.
    """
    options = ("--rdbcompression", "no", "--repl-diskless-sync-delay", "0")
    rounds = []
    node = Server(bench.ours, bench.server, *options)
    try:
        bench.run([node], 10000, PARTITIONS, capacity=RECOVERED)
        nbytes = node.info("bf_bytes")
        for turn in range(bench.rounds):
            rounds.append(recover(bench, node, options))
            if node.info("bf_bytes") != nbytes:
                raise SystemExit("the node has not come back as it was")
            print(f"  recovery, round {turn + 1} of {bench.rounds}", flush=True)
    finally:
        node.close()
    return {"bytes": nbytes, **{name: min(one[name] for one in rounds) for name in rounds[0]}}


def recover(bench: Bench, node: Server, options: tuple[str, ...]) -> dict[str, float]:
    """Once, in seconds."""
    begin = time.monotonic()
    node.client.execute_command("BGSAVE")
    node.wait(lambda: not node.info("rdb_bgsave_in_progress"), "does not save", 1800, 0.05)
    saved, forked = time.monotonic() - begin, node.info("latest_fork_usec") / 1e6
    node.kill()
    restarted = node.start(*options)
    replica = Server(bench.ours, bench.server, *options)
    try:
        begin = time.monotonic()
        replica.client.execute_command("REPLICAOF", "127.0.0.1", node.port)
        replica.wait(
            lambda: replica.info("master_link_status") == "up", "does not come up", 1800, 0.05
        )
        synced = time.monotonic() - begin
    finally:
        replica.close()
    return {"save": saved, "fork": forked, "restart": restarted, "resync": synced}


# ---- the tables ----


def nodes_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"{WORKERS} workers, batches of 1000:",
        "",
        "| nodes | URLs | items/s | server CPU per item | of the busiest node | in commands"
        " | worker CPU per item |",
        "|---|---|---|---|---|---|---|",
    ]
    return lines + [
        f"| {row['nodes']} | {row['what']} | {row['items_per_second']:,.0f} |"
        f" {row['server_ns']:.0f} ns | {row['busiest_ns']:.0f} ns | {row['command_ns']:.0f} ns"
        f" | {row['worker_ns']:.0f} ns |"
        for row in rows
    ]


def batches_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "One server and one worker on one core:",
        "",
        "| batch | filter | URLs | items/s | server CPU per item | in commands"
        " | worker CPU per item |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        kind = f"{row['partitions']} partitions" if row["partitions"] else "one key"
        lines.append(
            f"| {row['batch']} | {kind} | {row['what']} | {row['items_per_second']:,.0f} |"
            f" {row['server_ns']:.0f} ns | {row['command_ns']:.0f} ns | {row['worker_ns']:.0f} ns |"
        )
    return lines


def balance_line(even: dict[str, Any]) -> list[str]:
    return [
        f"Items per partition: mean {even['mean']:.0f}, least {even['least']}, most {even['most']},"
        f" standard deviation {even['deviation']:.0f} (by chance {even['by_chance']:.0f}); room for"
        f" {even['capacity']}; layers at most {even['layers']}; {even['bytes'] / 1e6:.1f} MB."
    ]


def recovery_line(node: dict[str, Any]) -> list[str]:
    return [
        f"A node with {node['bytes'] / 1e9:.2f} GB (rdbcompression no, files in the page cache):"
        f" BGSAVE {node['save']:.1f} s, its fork {1000 * node['fork']:.0f} ms,"
        f" restart {node['restart']:.1f} s, full resync of a replica on the same machine"
        f" {node['resync']:.1f} s."
    ]


PARTS: dict[str, tuple[Callable[[Bench], Any], Callable[[Any], list[str]]]] = {
    "balance": (balance, balance_line),
    "nodes": (compare_nodes, nodes_table),
    "batches": (compare_batches, batches_table),
    "recovery": (recovery, recovery_line),
}


def tables(results: dict[str, Any]) -> str:
    """All results, as Markdown."""
    lines = [f"{name}: {value}" for name, value in results["about"].items()]
    lines += [
        "",
        f"{results['items']} URLs of {results['bytes'] / results['items']:.0f} bytes, end of line"
        f" included; {PARTITIONS} partitions at {ERROR}.",
    ]
    for part, (_, table) in PARTS.items():
        lines += ["", *table(results[part])] if part in results else []
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", required=True)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--server", default=os.environ.get("SERVER") or "redis-server")
    parser.add_argument("--items", type=int, default=int(os.environ.get("ITEMS") or 10**7))
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("ROUNDS") or 3))
    parser.add_argument("--results", default=os.environ.get("RESULTS") or "build/bench/results")
    parser.add_argument("--only", default=os.environ.get("ONLY") or ",".join(PARTS))
    options = parser.parse_args()
    if not set(options.only.split(",")) <= set(PARTS):
        parser.error(f"the parts are {', '.join(PARTS)}")
    os.makedirs(options.results, exist_ok=True)
    bench = Bench(options)
    surroundings = types.SimpleNamespace(
        cc=os.environ.get("CC") or "gcc", cflags=os.environ.get("CFLAGS", ""), form="cluster"
    )
    try:
        print(f"writing {options.items} URLs", flush=True)
        results = {
            "about": about(bench, surroundings),
            "items": options.items,
            "bytes": write_urls(options.items, bench.paths),
        }
        for part in options.only.split(","):
            results[part] = PARTS[part][0](bench)
    finally:
        for path in bench.paths:
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)
    with open(os.path.join(options.results, "cluster.json"), "w", encoding="utf-8") as f:
        json.dump(results, f, indent=1)
    with open(os.path.join(options.results, "cluster.txt"), "w", encoding="utf-8") as f:
        f.write(tables(results))
    print("\n" + tables(results))


if __name__ == "__main__":
    main()
