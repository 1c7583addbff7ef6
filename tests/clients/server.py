"""Servers for the tests in Python that need more than one, or one of their own.

Server() starts a real server with the module on a free port of 127.0.0.1, in a directory of its
own; stop() ends it and fails if it had crashed. The server is $SERVER or redis-server, the module
$MODULE or ./shardbloom.so. Should the test itself die, the kernel kills its servers.

For filters with a window, Server(clock_ms=…) has a clock that stands still until set_clock().
"""

import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import redis

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WAIT = 60  # seconds; no wait is longer
# The tests read replies as RESP2 has them; redis-py 8 speaks RESP3 unless told so.
RESP2 = {"protocol": 2} if int(redis.__version__.split(".")[0]) >= 5 else {}


def take_port():
    """A free port and the claim to it, as in tests/integration/server.c: nobody else takes it while
    the server is down."""
    for attempt in range(10000):
        port = 10000 + (os.getpid() * 7919 + attempt) % 10000
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind("\0shardbloom-port-%d" % port)
            with socket.socket() as s:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                s.bind(("127.0.0.1", port))
            return port, claim
        except OSError:
            claim.close()
    raise RuntimeError("no free port")


CLAIMS = []  # of free_port(), until the tests end


def free_port():
    """A port for something else: TLS, the bus of a cluster, or a server that is not there."""
    port, claim = take_port()
    CLAIMS.append(claim)
    return port


def die_with_parent():
    """For Popen's preexec_fn. The kernel means the thread that starts it: start servers in the main
    thread.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Server:
    def __init__(self, *arguments, module=True, module_arguments=(), clock_ms=None):
        self.dir = tempfile.mkdtemp(prefix="shardbloom-")
        self.port, self.claim = take_port()
        self.arguments = arguments
        self.module = module
        self.module_arguments = module_arguments
        self.process = None
        self.redis = None
        self.clock_ms = clock_ms
        if clock_ms is not None:
            self.set_clock(clock_ms)
        self.start()

    def set_clock(self, ms):
        """What the time is for filters with a window, in milliseconds since 1970."""
        self.clock_ms = ms
        with open(os.path.join(self.dir, "clock"), "r+b" if self.process else "wb") as file:
            file.write(struct.pack("@Q", ms))

    def start(self):
        environment = dict(os.environ)
        preload = environment.pop("SERVER_PRELOAD", "")
        libraries = [preload] if preload else []  # the sanitizer's runtime must be the first one
        if self.clock_ms is not None:
            libraries.append(os.path.join(ROOT, "build", "clock.so"))
            environment["TEST_CLOCK"] = os.path.join(self.dir, "clock")
        if libraries:
            environment["LD_PRELOAD"] = " ".join(libraries)
        if preload:
            environment["ASAN_OPTIONS"] = "detect_leaks=0:allocator_may_return_null=1"
        module = os.path.abspath(os.path.join(ROOT, os.environ.get("MODULE") or "shardbloom.so"))
        self.log = open(os.path.join(self.dir, "log"), "ab")
        self.process = subprocess.Popen(
            [
                os.environ.get("SERVER") or "redis-server",
                "--port",
                str(self.port),
                "--bind",
                "127.0.0.1",
                "--dir",
                self.dir,
                "--save",
                "",
                "--enable-debug-command",
                "yes",
                *self.arguments,
                *(["--loadmodule", module, *self.module_arguments] if self.module else []),
            ],
            stdout=self.log,
            stderr=self.log,
            stdin=subprocess.DEVNULL,
            env=environment,
            preexec_fn=die_with_parent,
        )
        self.redis = self.client()
        end = time.monotonic() + WAIT
        while True:
            try:
                self.redis.ping()
                return
            except (redis.ConnectionError, redis.BusyLoadingError):
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("the server does not come up:\n" + self.tail())
                time.sleep(0.02)

    def client(self, **options):
        return redis.Redis(port=self.port, socket_timeout=WAIT, **RESP2, **options)

    def tail(self):
        with open(os.path.join(self.dir, "log"), errors="replace") as f:
            return f.read()[-4000:]

    def keep_aof(self):
        """Every answer is on disk before it is given. Until the first AOF is written, a crash would
        find none.
        """
        self.redis.config_set("appendfsync", "always")
        self.redis.config_set("appendonly", "yes")
        self.arguments = ("--appendonly", "yes", "--appendfsync", "always")
        end = time.monotonic() + WAIT
        while time.monotonic() < end:
            state = self.redis.info("persistence")
            if not state["aof_rewrite_in_progress"] and not state["aof_rewrite_scheduled"]:
                assert state["aof_last_bgrewrite_status"] == "ok", state
                return
            time.sleep(0.01)
        raise RuntimeError("no AOF:\n" + self.tail())

    def kill(self):
        """As if the machine had lost power: no goodbye. start() brings it back."""
        self.process.kill()
        self.process.wait(WAIT)
        self.log.close()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(WAIT)
            self.log.close()
        self.claim.close()
        code = self.process.returncode
        text = self.tail()
        shutil.rmtree(self.dir, ignore_errors=True)
        if (
            code not in (0, -signal.SIGTERM, -signal.SIGKILL)
            or "=== REDIS BUG REPORT" in text
            or "ERROR: Addr" in text
        ):
            raise AssertionError("the server ended with %d:\n%s" % (code, text))
