"""Who takes part, and the server each of them runs on."""
import contextlib
import functools
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import redis

START_SECONDS = 300  # a server that has not answered by then (loading included) has failed
RECIPE_LAST_BIT = 2**31 - 1
KEY = "bench"


class Contestant:
    """One way to answer "have I seen this item?"."""

    def __init__(self, name, title, style, module=None, max_items=None, weight=1):
        self.name = name
        self.title = title
        self.style = style  # of the load generator
        self.module = module  # path of the module the server loads
        self.max_items = max_items  # filled no further: more would not fit, or changes nothing
        self.weight = weight  # how many times fewer items a run takes, because each costs more
        self.is_filter = style == "bf"

    def reserve(self, client, error, capacity, key=KEY):
        if self.is_filter:
            client.execute_command("BF.RESERVE", key, repr(error), capacity)
        elif self.style in ("setbit", "lua"):
            client.setbit(key, RECIPE_LAST_BIT, 0)


def contestants(ours, peer, noop, others=()):
    """All that are present. ours and peer may be None; others are (name, path) pairs of further
    modules, such as an older build of ours."""
    found = []
    if ours:
        found.append(Contestant("ours", "shardbloom", "bf", ours))
    if peer:
        found.append(Contestant("peer", "peer", "bf", peer))
    found += [Contestant(name, name, "bf", path) for name, path in others]
    return found + [
        Contestant("noop", "do nothing", "noop", noop, max_items=10**5),
        Contestant("set", "SADD url", "set", max_items=2 * 10**7),
        Contestant("digest", "SADD digest", "digest", max_items=2 * 10**7),
        Contestant("setbit", "7 SETBIT", "setbit", max_items=2 * 10**5, weight=4),
        Contestant("lua", "Lua SETBIT", "lua", max_items=2 * 10**5, weight=4),
    ]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_core(core, command):
    """Server and load share one core where the server's CPU is measured. They work in turns anyway,
    and on a core of its own the server would fall asleep between requests: on a virtual machine,
    waking it costs four times what the request does (57 µs of server CPU per unpipelined command
    instead of 14), which drowns every difference.
    """
    return command if core is None else ["taskset", "-c", str(core), *command]


PERIOD_NS = 20_000_000


def urgent(command, share=0.9):
    """Where the longest moment is measured, the server and who watches it come before everything
    else on the machine, or the figures would show its neighbours: by a deadline scheduler, since
    newer kernels interrupt other real-time tasks for up to 50 ms. Needs root; without it they take
    their chances like all others. What the server forks is not urgent."""
    return [*deadline(share), *command] if may_be_urgent() else command


def deadline(share):
    """Gives the process this share of a core in every period, whatever else is running."""
    return [
        "chrt",
        "--reset-on-fork",
        "--deadline",
        f"--sched-runtime={round(PERIOD_NS * share)}",
        f"--sched-deadline={PERIOD_NS}",
        f"--sched-period={PERIOD_NS}",
        "0",
    ]


def prefer(pid):
    """Lets a process of ours go before its neighbours, if we may; not before an urgent one."""
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, -15)


@functools.lru_cache
def may_be_urgent():
    tried = subprocess.run([*deadline(0.1), "true"], stderr=subprocess.DEVNULL, check=False)
    return tried.returncode == 0


class Server:
    """A server in a directory of its own, for one contestant."""

    def __init__(self, contestant, binary, *options, core=None, is_urgent=False, prefix=()):
        self.contestant = contestant
        self.binary = binary
        self.core = core  # the core it shares with its load, or None for any
        self.is_urgent = is_urgent
        self.prefix = prefix  # of its command line: a tool that runs it
        self.dir = tempfile.mkdtemp(prefix="shardbloom-bench-")
        self.process = None
        self.start(*options)

    def start(self, *options):
        """Starts it; returns the seconds until it answers, loading of its data included."""
        self.port = free_port()
        command = [
            *self.prefix,
            self.binary,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            self.dir,
            "--save",
            "",
            "--logfile",
            "log",
            *options,
        ]
        if self.contestant.module:
            command += ["--loadmodule", os.path.abspath(self.contestant.module)]
        begin = time.monotonic()
        command = on_core(self.core, urgent(command) if self.is_urgent else command)
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=self.dir if self.prefix else None,
        )
        self.client = redis.Redis(port=self.port, socket_timeout=START_SECONDS)
        self.wait(self.answers, "does not answer")
        return time.monotonic() - begin

    def answers(self):
        if self.process.poll() is not None:
            with open(os.path.join(self.dir, "log"), encoding="utf-8") as log:
                raise SystemExit(f"{self.contestant.title}: the server ended\n{log.read()[-2000:]}")
        try:
            return self.client.ping()
        except (redis.ConnectionError, redis.BusyLoadingError):
            return False

    def wait(self, condition, complaint, seconds=START_SECONDS, pause=0.005):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise SystemExit(f"{self.contestant.title}: the server {complaint}")
            time.sleep(pause)

    def hurry_threads(self):
        """Its other threads hold locks that the main one waits for, the allocator's above all."""
        for task in map(int, os.listdir(f"/proc/{self.pid}/task")) if may_be_urgent() else ():
            if task != self.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setscheduler(task, os.SCHED_FIFO, os.sched_param(1))

    @property
    def pid(self):
        return self.process.pid

    def info(self, field):
        return self.client.info("everything")[field]

    def command_us(self, command):
        """In-command microseconds since CONFIG RESETSTAT."""
        return self.client.info("commandstats").get(f"cmdstat_{command.lower()}", {}).get("usec", 0)

    def memory(self):
        return self.client.info("memory")["used_memory"]

    def quiet_memory(self):
        """The same once the connections of the load are gone, with what the server keeps for
        them."""
        self.wait(
            lambda: self.client.info("clients")["connected_clients"] == 1, "keeps connections open"
        )
        time.sleep(0.3)
        return self.memory()

    def disk_bytes(self, pattern):
        return sum(os.path.getsize(f) for f in glob.glob(os.path.join(self.dir, pattern)))

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def close(self):
        self.kill()
        if self.is_urgent:
            time.sleep(3 * PERIOD_NS / 1e9)  # until its share of the core is free for the next one
        shutil.rmtree(self.dir, ignore_errors=True)


class LoadFailed(SystemExit):
    """The server refused what the load generator sent, or ended."""


def load_command(binary, server, **options):
    """The command line of the load generator: batch=100 becomes --batch 100, exists=True
    --exists."""
    command = [
        binary,
        "--port",
        str(server.port),
        "--pid",
        str(server.pid),
        "--style",
        server.contestant.style,
        "--key",
        KEY,
    ]
    for name, value in options.items():
        if value is True:
            command.append(f"--{name.replace('_', '-')}")
        elif value not in (False, None):
            command += [f"--{name.replace('_', '-')}", str(value)]
    return on_core(server.core, command)


def load(binary, server, **options):
    """One measured run; the figures of the load generator."""
    command = load_command(binary, server, **options)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise LoadFailed(f"failed: {' '.join(command)}")
    return json.loads(done.stdout)
