"""The longest moments: what a single command, or a timer, costs everybody else on the server.

Averages do not show a server that stands still for a second, so this looks at the longest command
by the server's own clock (SLOWLOG, and INFO latencystats for what is too short for it), and at the
longest time that a second client's PING had to wait, which also sees what is charged to no command:
sweeping, forking.

Every line is measured several times on fresh servers, contestants in turns. A plain SETRANGE of 8
MB takes a turn as well: it is the yardstick for what a server does to itself without any module.
"""
import json
import mmap
import os
import socket
import statistics
import subprocess
import time
from typing import Any, Callable, Iterable, Optional, Sequence

import redis

from contest import KEY, Contestant, LoadFailed, Server, load, load_command, prefer, urgent

Figures = dict[str, Any]

ERROR = 1e-4
SETRANGE_BYTES = 8 * 2**20
SETRANGES = 40  # per turn
SLOW_US = 200  # from here on SLOWLOG keeps a command
PERCENTILES = (0, 50, 75, 90, 95, 99, 99.5, 99.9, 99.95, 99.99, 99.999, 100)
MEMORY_LIMIT = 8 * 10**9  # of a server: a contestant that wants more is out, not the machine
DENSE_LIMIT = 10**9  # larger filters are not filled: they would not fit
FIRST_BATCHES = 10  # fresh filters whose first batch is timed
SINGLES, BATCHES, BIG_BATCHES = 20_000, 500, 100  # first requests: of one item, of 100, of 1000
LIVE_FILTERS = 300_000
CHURNED = 100_000
DEAD_IN_DATABASE = 8000
DEAD_ON_REPLICA = 60_000
MANY_SHARDS_ITEMS, MANY_SHARDS_BYTES = 55_000_000, 4096
MEASURED_FILTERS = 100_000
GIVE_UP_SECONDS = 120

# Commands of the harness, which are not measured.
OWN = (
    "config",
    "slowlog",
    "info",
    "dbsize",
    "ping",
    "client",
    "bf.card",
    "bf.info",
    "bf.plan",
    "scan",
    "command",
    "select",
    "flushall",
    "unlink",
)


class Pinger:
    """The second client."""

    def __init__(self, binary: str, port: int):
        self.process = subprocess.Popen(
            urgent([binary, str(port)], share=0.5),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def mark(self) -> Figures:
        """What it has seen since the last mark."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("mark\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise LoadFailed("the second client got no answer")
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


class Watch:
    """The server's own clock and the second client, from begin() to end()."""

    def __init__(self, server: Server, pinger: Pinger):
        self.server, self.pinger = server, pinger
        client = server.client
        client.config_set("slowlog-log-slower-than", SLOW_US)
        client.config_set("slowlog-max-len", 100_000)
        client.config_set("latency-tracking-info-percentiles", " ".join(map(str, PERCENTILES)))

    def begin(self) -> None:
        if self.server.is_urgent:
            self.server.hurry_threads()
        self.server.client.slowlog_reset()
        self.server.client.config_resetstat()
        self.pinger.mark()

    def end(self) -> Figures:
        pings = self.pinger.mark()
        commands = self.percentiles()
        longest = {name: shares["100"] for name, shares in commands.items()}
        for entry in self.server.client.slowlog_get(100_000):
            name = entry["command"].split()[0].decode().lower()
            if not name.startswith(OWN):
                longest[name] = max(longest.get(name, 0), entry["duration"])
        worst = max(longest, key=lambda name: longest[name], default=None)
        busiest = max(commands, key=lambda name: commands[name]["calls"], default=None)
        return {
            "command_us": longest[worst] if worst else None,
            "command": worst,
            "longest_us": longest,
            "ping_us": pings["percentiles_us"]["100"],
            "pings": pings["count"],
            "ping_percentiles_us": pings["percentiles_us"],
            "percentiles_us": commands[busiest] if busiest else {},
            "busiest": busiest,
            "typical_us": {name: shares["50"] for name, shares in commands.items()},
        }

    def percentiles(self) -> dict[str, dict[str, float]]:
        """{command: {percentile: µs, "calls": how many}}. The server's histogram ends at a second;
        SLOWLOG does not."""
        info = self.server.client.info("everything")
        found = {}
        for key, values in info.items():
            name = key.removeprefix("latency_percentiles_usec_")
            if name == key or name.startswith(OWN):
                continue
            found[name] = {share.removeprefix("p"): float(us) for share, us in values.items()}
            found[name]["calls"] = info[f"cmdstat_{name}"]["calls"]
        return found


class Wire:
    """Many short commands in a pipeline, without building an object for any of them."""

    def __init__(self, server: Server, depth: int = 10):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=GIVE_UP_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.depth = depth

    def send(self, commands: Iterable[str]) -> None:
        """Sends them all and waits for the answers, each of which must be one line and no error."""
        waiting: list[bytes] = []
        for command in commands:
            words = command.split(" ")
            waiting.append(
                (f"*{len(words)}\r\n" + "".join(f"${len(w)}\r\n{w}\r\n" for w in words)).encode()
            )
            if len(waiting) == self.depth:
                self.flush(waiting)
        self.flush(waiting)

    def flush(self, waiting: list[bytes]) -> None:
        self.socket.sendall(b"".join(waiting))
        got = b""
        while got.count(b"\r\n") < len(waiting):
            some = self.socket.recv(65536)
            if not some:
                raise LoadFailed("the server closed the connection")
            got += some
        if got.startswith(b"-") or b"\r\n-" in got:
            raise LoadFailed(f"the server answered {got[:200]!r}")
        waiting.clear()

    def close(self) -> None:
        self.socket.close()


def small_filters(first: int, end: int) -> Iterable[str]:
    """The commands that make filters of 100 items at 0.01, with one item each."""
    for i in range(first, end):
        yield f"BF.RESERVE small:{i:07} 0.01 100"
        yield f"BF.ADD small:{i:07} item"


class Turn:
    """One contestant's turn: a fresh server, and a second client that watches it."""

    def __init__(
        self,
        bench: Any,
        contestant: Contestant,
        capacity: int,
        dense_items: Optional[int],
        scene: str,
    ):
        self.bench, self.contestant, self.capacity = bench, contestant, capacity
        self.dense_items = dense_items  # how many items made ours dense
        self.server = Server(
            contestant,
            bench.server,
            "--maxmemory",
            # what the peer reserves counts as used, but is not there before it is touched
            "0" if contestant.name == "peer" else str(MEMORY_LIMIT),
            "--maxmemory-policy",
            "noeviction",
            "--rdbcompression",
            "no",
            "--databases",
            "1000" if scene == "many_databases" else "16",
            is_urgent=scene != "replicated",
        )
        self.client = self.server.client
        self.client.client_setname("harness")
        self.pinger_path = os.path.join(os.path.dirname(bench.loader), "ping")
        self.pinger = Pinger(self.pinger_path, self.server.port)
        self.watch = Watch(self.server, self.pinger)

    def close(self) -> None:
        self.pinger.close()
        self.server.close()

    def reserve(self, key: str = KEY) -> None:
        self.contestant.reserve(self.client, ERROR, self.capacity, key)

    def load(self, **options: Any) -> Figures:
        return load(self.bench.loader, self.server, keep_stats=True, **options)

    def card(self) -> int:
        return self.client.execute_command("BF.CARD", KEY)

    def gone(self) -> None:
        """Waits until nothing is left of what was deleted."""
        self.server.wait(
            lambda: self.client.dbsize() == 0, "does not get rid of its keys", GIVE_UP_SECONDS, 0.02
        )
        time.sleep(0.3)

    # ---- what happens to a filter; each returns {line: figures} ----

    def first_items(self) -> dict[str, Figures]:
        """A fresh filter, asked singly."""
        self.watch.begin()
        self.reserve()
        self.load(items=SINGLES)
        return {"first items, singly": self.watch.end()}

    def first_batches(self) -> dict[str, Figures]:
        self.reserve()
        self.watch.begin()
        self.load(items=100 * BATCHES, batch=100)
        return {"first items, by 100": self.watch.end()}

    def first_big_batches(self) -> dict[str, Figures]:
        self.reserve()
        self.watch.begin()
        self.load(items=1000 * BIG_BATCHES, batch=1000)
        return {"first items, by 1000": self.watch.end()}

    def first_batch(self) -> dict[str, Figures]:
        """The very first batch of 100, of several filters, one after the other; their typical time
        counts."""
        seen: list[Figures] = []
        begin = time.monotonic()
        while len(seen) < FIRST_BATCHES and (len(seen) < 2 or time.monotonic() - begin < 10):
            self.reserve()
            self.watch.begin()
            self.load(items=100, batch=100, new_from=10**6 * len(seen))
            seen.append(self.watch.end())
            self.client.delete(KEY)
            self.gone()
        return {"very first batch of 100": typical(seen)}

    def life(self) -> dict[str, Figures]:
        """Filled until all shards are dense, saved, deleted."""
        self.reserve()
        self.watch.begin()
        nitems = self.fill()
        lines = {"fills until dense, by 100": self.watch.end() | {"items": nitems}}
        lines |= self.saved(nitems)
        self.watch.begin()
        self.client.delete(KEY)
        self.gone()
        lines["deleted"] = self.watch.end()
        return lines

    def fill(self) -> int:
        """Until everything that the filter will ever take is there; others take as many items as
        ours."""
        step = max(10**5, self.capacity // 1000)
        nitems = 0
        if self.contestant.name != "ours" and self.dense_items:
            self.load(items=self.dense_items, batch=100)
            return self.dense_items
        while nitems < self.capacity:
            step = min(step, self.capacity - nitems)
            self.load(items=step, batch=100, new_from=nitems)
            nitems += step
            if self.is_dense():
                break
        return nitems

    def is_dense(self) -> bool:
        if self.contestant.name == "peer":
            return False
        plan = self.client.execute_command("BF.PLAN", repr(ERROR), self.capacity)
        total = plan[plan.index(b"Total bytes when full") + 1]
        return self.client.execute_command("BF.INFO", KEY, "SIZE")[0] >= total

    def saved(self, nitems: int) -> dict[str, Figures]:
        """BGSAVE while single items arrive."""
        command = load_command(
            self.bench.loader,
            self.server,
            items=10**7,
            rate=2000,
            keep_stats=True,
            new_from=nitems,
        )
        writer = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            before = self.card()
            self.server.wait(lambda: self.card() > before, "gets no items", GIVE_UP_SECONDS)
            self.watch.begin()
            self.client.bgsave()
            with open(
                f"/proc/{self.server.pid}/task/{self.server.pid}/children", encoding="ascii"
            ) as f:
                for child in f.read().split():
                    prefer(int(child))
            time.sleep(0.2)  # a small filter is saved before the next item comes
            self.server.wait(
                lambda: not self.server.info("rdb_bgsave_in_progress"),
                "does not finish BGSAVE",
                600,
                0.05,
            )
            figures = self.watch.end()
        finally:
            writer.terminate()
            writer.wait()
        figures["fork_us"] = figures["longest_us"].pop("bgsave", 0)
        if figures["command"] == "bgsave":
            worst = max(figures["longest_us"], key=figures["longest_us"].get, default=None)
            figures |= {"command": worst, "command_us": figures["longest_us"].get(worst)}
        return {"saved": figures}

    def healed(self) -> dict[str, Figures]:
        """All shards of a dense filter lost, accepted by BF.HEAL, and the items that come then."""
        if self.contestant.name == "peer":
            return {}
        self.reserve()
        nitems = self.fill()
        for name in list(self.client.scan_iter(match=f"bf:{{{KEY}}}:*", count=1000)):
            self.client.unlink(name)
        self.watch.begin()
        self.client.execute_command("BF.HEAL", KEY)
        lines = {"healed": self.watch.end()}
        self.watch.begin()
        self.load(items=100 * BATCHES, batch=100, new_from=2 * nitems)
        lines["first items after healing, by 100"] = self.watch.end()
        return lines

    def grown(self) -> dict[str, Figures]:
        """A small full layer gets a layer of the capacity on top."""
        first = min(self.capacity // 1000, 10**6)
        self.client.execute_command(
            "BF.RESERVE", KEY, repr(ERROR), first, "EXPANSION", self.capacity // first
        )
        self.load(items=first * 99 // 100, batch=100)
        self.watch.begin()
        self.load(items=first * 3 // 100 + 100 * BATCHES, batch=100, new_from=first * 99 // 100)
        figures = self.watch.end()
        layers = self.client.execute_command("BF.INFO", KEY, "FILTERS")[0]
        if layers != 2:
            raise SystemExit(f"{self.contestant.title}: {layers} layers instead of 2")
        return {"grows to this size, by 100": figures}

    def setrange(self) -> dict[str, Figures]:
        """The yardstick: a new string of 8 MB, zeroed by the server itself."""
        self.watch.begin()
        for i in range(SETRANGES):
            self.client.setrange(f"zeroes:{i}", SETRANGE_BYTES - 1, "x")
        figures = self.watch.end()
        figures["durations_us"] = sorted(
            e["duration"]
            for e in self.client.slowlog_get(1000)
            if e["command"].startswith(b"SETRANGE")
        )
        self.watch.begin()
        for i in range(SETRANGES):
            self.client.delete(f"zeroes:{i}")
        lines = {"SETRANGE of 8 MB": figures, "DEL of 8 MB": self.watch.end()}
        self.watch.begin()
        time.sleep(1)
        return lines | {"idle for a second": self.watch.end()}

    # ---- many small filters ----

    def small(self) -> dict[str, Figures]:
        """Filters of 100 items at 0.01 with one item each come and go."""
        wire = Wire(self.server)
        watch, lines = self.watch, {}

        def come_and_go() -> Iterable[str]:
            for i in range(CHURNED):
                yield f"DEL small:{i:07}"
                yield from small_filters(LIVE_FILTERS + i, LIVE_FILTERS + i + 1)

        watch.begin()
        wire.send(small_filters(0, LIVE_FILTERS))
        lines["300,000 small filters come"] = watch.end()
        watch.begin()
        wire.send(come_and_go())
        lines["100,000 of 300,000 go, as many come"] = watch.end()
        watch.begin()
        wire.send(f"DEL small:{i:07}" for i in range(CHURNED, LIVE_FILTERS + CHURNED))
        self.gone()
        lines["300,000 small filters go"] = watch.end()
        watch.begin()
        wire.send(f"BF.RESERVE shape:{i} 0.01 {1000 + 7 * i}" for i in range(1000))
        lines["1000 filters of different sizes reserved"] = watch.end()
        wire.close()
        return lines

    def many_databases(self) -> dict[str, Figures]:
        """8000 filters die in one of 1000 databases."""
        wire = Wire(self.server)
        wire.send(["SELECT 500"])
        wire.send(small_filters(0, DEAD_IN_DATABASE))
        self.watch.begin()
        wire.send(f"DEL small:{i:07}" for i in range(DEAD_IN_DATABASE))
        self.server.wait(
            lambda: "db500" not in self.client.info("keyspace"),
            "keeps its keys",
            GIVE_UP_SECONDS,
            0.02,
        )
        wire.close()
        return {"8000 small filters go, 1000 databases": self.watch.end()}

    def replicated(self) -> dict[str, Figures]:
        """The same as on the primary, watched on a replica."""
        self.pinger.close()  # who is urgent must fit on the machine
        replica = Server(self.contestant, self.bench.server, is_urgent=True)
        pinger = Pinger(self.pinger_path, replica.port)
        wire = Wire(self.server)
        try:
            replica.client.replicaof("127.0.0.1", self.server.port)
            replica.wait(
                lambda: replica.info("master_link_status") == "up",
                "does not reach its primary",
                GIVE_UP_SECONDS,
            )
            wire.send(small_filters(0, DEAD_ON_REPLICA))
            # WAIT would not do: it counts what its own connection has written.
            replica.wait(
                lambda: replica.info("slave_repl_offset") == self.server.info("master_repl_offset"),
                "does not follow",
                GIVE_UP_SECONDS,
            )
            watch = Watch(replica, pinger)
            watch.begin()
            wire.send(f"DEL small:{i:07}" for i in range(DEAD_ON_REPLICA))
            self.gone()
            replica.wait(lambda: replica.client.dbsize() == 0, "keeps its keys", GIVE_UP_SECONDS)
            return {"60,000 small filters go, on a replica": watch.end()}
        finally:
            wire.close()
            pinger.close()
            replica.close()

    def shards(self) -> dict[str, Figures]:
        """BF.SHARDS of a filter with very many of them."""
        if self.contestant.name == "peer":
            return {}
        self.client.execute_command(
            "BF.RESERVE", KEY, repr(ERROR), MANY_SHARDS_ITEMS, "SHARDSIZE", MANY_SHARDS_BYTES
        )
        self.load(items=10**6, batch=1000)  # some in every shard
        self.watch.begin()
        try:
            self.client.execute_command("BF.SHARDS", KEY, "FROM", 0, 0)
        except redis.ResponseError:  # a build that has no parts
            self.client.execute_command("BF.SHARDS", KEY)
        return {"BF.SHARDS of 35,000 shards, or its largest part": self.watch.end()}

    def memory(self) -> dict[str, Figures]:
        """Bytes for filters that hold little."""
        self.client.config_set("latency-tracking", "no")
        self.pinger.close()
        wire = Wire(self.server)
        wire.send(
            [
                "BF.RESERVE warm 0.0001 1000",
                "BF.ADD warm item",
                "BF.RESERVE gone 0.01 100",
                "DEL gone",
                "DBSIZE",
            ]
        )
        before = self.server.memory()
        wire.send(small_filters(0, MEASURED_FILTERS))
        time.sleep(0.3)
        small = (self.server.memory() - before) / MEASURED_FILTERS
        before = self.server.memory()
        wire.send([f"BF.RESERVE large {ERROR!r} {10**9}"])
        wire.send(f"BF.ADD large item:{i}" for i in range(1000))
        time.sleep(0.3)
        large = self.server.memory() - before
        wire.close()
        return {
            "bytes of a filter of 100 at 0.01 with 1 item": {"bytes": small},
            "bytes of a filter of 10^9 with 1000 items": {"bytes": large},
        }


def warm(nbytes: int) -> None:
    """Uses and returns memory. A virtual machine gets a page from its host when it uses it for the
    first time, which takes several times as long as ever after and would be charged to whoever
    comes first."""
    piece = bytes(2**24)
    with mmap.mmap(-1, nbytes) as memory:
        while memory.tell() + len(piece) <= nbytes:
            memory.write(piece)


def typical(figures: list[Figures]) -> Figures:
    """The round in the middle: of an even number, the better one of the two."""
    key = "command_us" if figures[0].get("command_us") is not None else "bytes"
    return sorted(figures, key=lambda f: f.get(key) or 0)[(len(figures) - 1) // 2]


def summary(figures: list[Figures]) -> Figures:
    """What is kept of several rounds: of the longest command and of the longest wait, typical and
    best; the rest as in the typical round."""
    kept = dict(typical(figures))
    for name in ("command_us", "ping_us", "fork_us", "bytes"):
        values = [f[name] for f in figures if f.get(name) is not None]
        if values:
            kept[name] = statistics.median_low(values)
            kept[f"best_{name}"] = min(values)
            kept[f"all_{name}"] = [round(v, 1) for v in values]
    if "durations_us" in kept:
        kept["durations_us"] = sorted(us for f in figures for us in f["durations_us"])
    return kept


class Latency:
    """The group of one capacity, or of small filters."""

    def __init__(
        self,
        name: str,
        capacity: int,
        scenes: Sequence[Callable[[Turn], dict[str, Figures]]],
        seconds: float,
    ):
        self.name, self.capacity, self.scenes = name, capacity, scenes
        self.estimate = seconds  # per contestant and round
        self.parameters = {"capacity": capacity, "error": ERROR} if capacity else {}

    def case_names(self, _bench: Any) -> list[str]:
        return [
            f"{scene.__name__} {i}"
            for scene in self.scenes
            for i in range(LINES.get(scene.__name__, 1))
        ]

    def seconds(self, bench: Any) -> float:
        return self.estimate * len(bench.filters()) * bench.rounds

    def run(self, bench: Any, record: Callable[[str, Figures], None]) -> None:
        dense_items: Optional[int] = None
        for scene in self.scenes:
            takers = [YARDSTICK] if scene is Turn.setrange else bench.filters()
            found: dict[str, dict[str, list[Figures]]] = {}
            out: set[str] = set()
            warm(min(MEMORY_LIMIT // 2, 10**9 + 3 * self.capacity))
            for i, taker in bench.in_turns(takers):
                if taker.name in out:
                    continue
                bench.progress.step(scene.__name__, taker, i + 1, bench.rounds)
                lines = self.turn(bench, taker, scene, dense_items)
                if lines is None:
                    out.add(taker.name)
                for line, figures in (lines or {}).items():
                    found.setdefault(line, {}).setdefault(taker.name, []).append(figures)
                    dense_items = figures.get("items", dense_items)
            for line, runs in found.items():
                record(line, {name: summary(r) for name, r in runs.items() if name not in out})

    def turn(
        self,
        bench: Any,
        taker: Contestant,
        scene: Callable[[Turn], dict[str, Figures]],
        dense_items: Optional[int],
    ) -> Optional[dict[str, Figures]]:
        """The lines of one turn, or None if the contestant can't do that."""
        turn = Turn(bench, taker, self.capacity, dense_items, scene.__name__)
        try:
            return scene(turn)
        except LoadFailed as problem:
            print(f"\n{taker.title} is out of {self.name}, {scene.__name__}: {problem}")
            return None
        finally:
            turn.close()


LINES = {
    "setrange": 3,
    "life": 3,
    "healed": 2,
    "small": 4,
    "memory": 2,
}  # where a scene has more than one
YARDSTICK = Contestant("setrange", "SETRANGE 8 MB", "setrange")


def groups(exponents: Iterable[int], brief: bool = False) -> list[Latency]:
    """Capacities 10^n, and many small filters; or what is soon done of that."""
    fresh = [
        Turn.setrange,
        Turn.first_items,
        Turn.first_batches,
        Turn.first_big_batches,
        Turn.first_batch,
        Turn.grown,
    ]
    dense = [Turn.life, Turn.healed]
    dense_limit = 10**7 if brief else DENSE_LIMIT
    many = [] if brief else [Turn.small, Turn.replicated]
    large = [
        Latency(
            f"latency 10^{n}",
            10**n,
            fresh + (dense if 10**n <= dense_limit else []),
            60 if 10**n == dense_limit else 15,
        )
        for n in exponents
    ]
    return large + [
        Latency(
            "latency, small filters",
            0,
            [Turn.setrange, *many, Turn.many_databases, Turn.shards],
            5 if brief else 60,
        ),
        Latency("latency, memory", 0, [Turn.memory], 10),
    ]
