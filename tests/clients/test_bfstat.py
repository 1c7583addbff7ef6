#!/usr/bin/python3
"""scripts/bfstat: what it says of filters of every kind and condition, beside what the server says.
"""

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
import unicodedata
import unittest
import urllib.error
import urllib.request

import server
from result import run_tests

BFSTAT = os.path.join(server.ROOT, "scripts", "bfstat")


class Base(unittest.TestCase):
    def setUp(self):
        self.server = server.Server()
        self.addCleanup(self.server.stop)
        self.redis = self.server.redis

    def run_it(self, *arguments):
        done = subprocess.run(
            [BFSTAT, "--port", str(self.server.port), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        return done.returncode, done.stdout, done.stderr

    def json(self, *arguments, code=0):
        status, out, err = self.run_it("--json", *arguments)
        self.assertEqual((status, err), (code, ""))
        return {(one["db"], one["key"]): one for one in json.loads(out)["filters"]}

    def fill(self, key, n):
        for at in range(0, n, 1000):
            self.redis.execute_command(
                "BF.MADD", key, *("item %d" % i for i in range(at, min(n, at + 1000)))
            )


class Bfstat(Base):
    def test_no_filters(self):
        self.redis.set("string", "x")
        self.assertEqual(self.json(), {})
        code, out, _ = self.run_it("--once")
        self.assertEqual(code, 0)
        self.assertIn("0 filters", out)

    def test_says_what_the_server_says(self):
        self.redis.execute_command("BF.RESERVE", "seen", "0.001", 1000, "SEED", 1)
        self.fill("seen", 5000)
        self.server.client(db=5).execute_command(
            "BF.RESERVE", b"\xff\x1b[2Jname", "0.01", 77, "NONSCALING"
        )
        found = self.json()
        self.assertEqual(set(found), {(0, "seen"), (5, "\\xff\\x1b[2Jname")})
        seen = found[0, "seen"]
        info = self.redis.execute_command("BF.INFO", "seen")
        info = dict(zip(info[::2], info[1::2]))
        self.assertEqual(seen["items"], info[b"Number of items inserted"])
        self.assertEqual(seen["capacity"], info[b"Capacity"])
        self.assertEqual(seen["bytes"], info[b"Size"])
        self.assertEqual(len(seen["layers"]), info[b"Number of filters"])
        self.assertEqual(sum(layer["items"] for layer in seen["layers"]), seen["items"])
        self.assertAlmostEqual(seen["promised"], 0.001)
        self.assertEqual(seen["lost"], [])
        self.assertTrue(0.3 < seen["layers"][0]["fill"] < 0.6)
        empty = found[5, "\\xff\\x1b[2Jname"]
        self.assertEqual((empty["items"], empty["error"], empty["expansion"]), (0, 0, None))

    def test_the_error_rate_is_the_one_that_is_measured(self):
        self.redis.execute_command("BF.RESERVE", "f", "0.02", 20000, "SEED", 3)
        self.fill("f", 20000)
        nasked, nfound = 100000, 0
        for at in range(0, nasked, 1000):
            nfound += sum(
                self.redis.execute_command(
                    "BF.MEXISTS", "f", *("other %d" % i for i in range(at, at + 1000))
                )
            )
        expected = self.json()[0, "f"]["error"]
        self.assertTrue(0.8 < nfound / nasked / expected < 1.25, (nfound / nasked, expected))

    def test_adopted_filters(self):
        self.redis.execute_command("BF.ADOPT", "a", "BITS", 9, "BLOCKS", 2, "PREFIX", "bits")
        self.fill("a", 300)
        one = self.json()[0, "a"]
        self.assertGreater(len(one["layers"]), 1)
        self.assertEqual(one["layers"][0]["kind"], 3)
        self.assertEqual(one["layers"][1]["kind"], 1)
        self.assertTrue(0 < one["layers"][0]["error"] < 0.01)
        self.assertIn("adopted", self.run_it("--once")[1])

    def test_filters_of_redisbloom(self):
        with open(
            os.path.join(server.ROOT, "tests", "assets", "redisbloom-growing.dump"), "rb"
        ) as file:
            data = file.read()
        while data:
            iterator, nbytes = struct.unpack_from("<QQ", data)
            if nbytes:
                self.redis.execute_command(
                    "BF.LOADCHUNK", "moved", iterator, data[16 : 16 + nbytes]
                )
            data = data[16 + nbytes :]
        one = self.json()[0, "moved"]
        self.assertGreater(len(one["layers"]), 1)
        self.assertEqual({layer["kind"] for layer in one["layers"]}, {2})
        self.assertEqual(sum(layer["items"] for layer in one["layers"]), one["items"])
        self.assertTrue(0 < one["error"] < 0.2, one["error"])

    def test_half_loaded_filters(self):
        self.fill("seen", 100)
        iterator, chunk = self.redis.execute_command("BF.SCANDUMP", "seen", 0)
        self.redis.execute_command("BF.LOADCHUNK", "half", iterator, chunk)
        found = self.json()
        self.assertEqual(set(found), {(0, "half"), (0, "seen")})
        self.assertEqual(found[0, "seen"]["problem"], None)
        self.assertEqual(self.run_it("--once")[0], 0)

    def test_lost_shards(self):
        self.redis.execute_command(
            "BF.RESERVE", "seen", "0.001", 10000, "SHARDSIZE", "4096", "SEED", 1
        )
        self.fill("seen", 5000)
        shard = self.redis.execute_command("BF.SHARDS", "seen")[2][1]
        self.redis.delete(shard)
        self.assertEqual(self.json(code=1)[0, "seen"]["lost"], [shard.decode()])
        code, out, _ = self.run_it("--once")
        self.assertEqual(code, 1)
        self.assertIn("LOST " + shard.decode(), out)

    def test_selection(self):
        for key in ("a:1", "a:2", "b:1"):
            self.redis.execute_command("BF.ADD", key, "x")
        self.server.client(db=2).execute_command("BF.ADD", "a:3", "x")
        self.assertEqual(set(self.json("--match", "a:*")), {(0, "a:1"), (0, "a:2"), (2, "a:3")})
        self.assertEqual(set(self.json("--db", "2")), {(2, "a:3")})

    def test_many_filters(self):
        pipeline = self.redis.pipeline(transaction=False)
        for n in range(300):
            pipeline.execute_command("BF.ADD", "filter %d" % n, "x")
            pipeline.set("string %d" % n, "x")
        pipeline.execute()
        self.assertEqual(len(self.json()), 300)
        self.assertEqual(len(self.run_it("--once")[1].splitlines()), 2 + 2 * 300)

    def test_damaged_filters_come_first(self):
        self.redis.execute_command("BF.RESERVE", "a-large-one", "0.001", 100000)
        self.fill("a-large-one", 1000)
        self.fill("small", 10)
        shard = self.redis.execute_command("BF.SHARDS", "small")[0][1]
        self.redis.set(shard, "rubbish")
        self.assertEqual([key for _, key in self.json(code=1)], ["small", "a-large-one"])
        code, out, _ = self.run_it("--once")
        self.assertEqual(code, 1)
        self.assertIn("2 filters", out.splitlines()[0])
        self.assertIn("1 DAMAGED", out.splitlines()[0])
        self.assertTrue(out.splitlines()[2].startswith("small "))
        self.assertIn("LOST " + shard.decode(), out)

    def test_totals(self):
        self.fill("seen", 100)
        self.redis.execute_command("BF.MEXISTS", "seen", "item 1", "item 2", "other")
        status, out, err = self.run_it("--json")
        report = json.loads(out)
        self.assertEqual(report["server"], "127.0.0.1:%d" % self.server.port)
        totals = {name: n for name, n in self.redis.info("bf").items() if "timer" not in name}
        self.assertEqual({**report["totals"], **totals}, report["totals"])  # timers go on
        self.assertEqual(report["totals"]["bf_checks"], 3)

    # ---- for Prometheus ----

    def metrics(self, text):
        """Samples by name and labels; checks the format line by line."""
        found, described = {}, set()
        self.assertTrue(text.endswith("\n"))
        for line in text.splitlines():
            comment = re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) (.+)", line)
            if comment:
                described.add((comment[1], comment[2]))
                if comment[1] == "TYPE":
                    self.assertIn(comment[3], ("gauge", "counter"))
                    self.assertEqual(comment[2].endswith("_total"), comment[3] == "counter", line)
                continue
            sample = re.fullmatch(r'([a-z_]+)({(?:[a-z]+="(?:[^"\\\n]|\\.)*",?)+})? (\S+)', line)
            self.assertTrue(sample, line)
            self.assertTrue({("HELP", sample[1]), ("TYPE", sample[1])} <= described, line)
            self.assertNotIn((sample[1], sample[2]), found)
            found[sample[1], sample[2]] = float(sample[3])
        return found

    def test_prometheus(self):
        self.redis.execute_command(
            "BF.RESERVE", "seen", "0.001", 10000, "SHARDSIZE", "4096", "SEED", 1
        )
        self.fill("seen", 5000)
        self.server.client(db=3).execute_command("BF.ADD", b'a"b\\c\nd\xff', "x")
        self.redis.delete(self.redis.execute_command("BF.SHARDS", "seen")[1][1])
        code, out, err = self.run_it("--prometheus")
        self.assertEqual((code, err), (0, ""))
        found = self.metrics(out)
        node = '{node="127.0.0.1:%d"}' % self.server.port
        seen = '{db="0",filter="seen"}'
        self.assertEqual(found["shardbloom_up", '{server="127.0.0.1:%d"}' % self.server.port], 1)
        self.assertEqual(found["shardbloom_filters", node], 2)
        self.assertEqual(found["shardbloom_adds_total", node], 5001)
        self.assertEqual(found["shardbloom_filter_shards_lost", seen], 1)
        self.assertEqual(found["shardbloom_filter_capacity", seen], 10000)
        self.assertEqual(
            found["shardbloom_filter_items", seen], self.redis.execute_command("BF.CARD", "seen")
        )
        self.assertEqual(found["shardbloom_filter_error_rate_promised", seen], 0.001)
        # Not printable, and shown with an escape sequence, whose backslash is escaped again; so are
        # " and \.
        self.assertEqual(found["shardbloom_filter_items", r'{db="3",filter="a\"b\\c\\nd\\xff"}'], 1)

    def test_prometheus_by_http(self):
        self.redis.execute_command("BF.RESERVE", "seen", "0.01", 100, "SEED", 1)
        self.fill("seen", 10)
        process = subprocess.Popen(
            [BFSTAT, "-p", str(self.server.port), "--prometheus", "--listen", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=server.die_with_parent,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        url = process.stdout.readline().strip()
        for n in (10, 20):  # each time what is then the case
            self.fill("seen", n)
            with urllib.request.urlopen(url, timeout=server.WAIT) as reply:
                self.assertTrue(
                    reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                )
                found = self.metrics(reply.read().decode())
            self.assertEqual(found["shardbloom_filter_items", '{db="0",filter="seen"}'], n)
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(url.replace("/metrics", "/other"), timeout=server.WAIT)
        self.server.kill()
        with urllib.request.urlopen(url, timeout=server.WAIT) as reply:
            self.assertEqual(list(self.metrics(reply.read().decode()).values()), [0])
        self.assertIn("no connection", process.stderr.readline())

    def test_prometheus_without_a_server(self):
        self.server.kill()
        code, out, err = self.run_it("--prometheus")
        self.assertEqual(code, 2)
        self.assertEqual(list(self.metrics(out).values()), [0])
        self.assertIn("no connection", err)

    def test_a_user_who_may_not_see_descriptors(self):
        self.redis.execute_command("BF.ADD", "seen", "x")
        self.redis.acl_setuser(
            "watcher",
            enabled=True,
            passwords=["+secret"],
            keys=["*"],
            commands=["+info", "+scan", "+bf.info", "+bf.shards"],
        )
        one = self.json("--user", "watcher", "--password", "secret")[0, "seen"]
        self.assertEqual((one["items"], one["error"], one["promised"]), (1, None, None))

    def test_a_server_that_is_not_there(self):
        self.server.kill()
        code, out, err = self.run_it("--once")
        self.assertEqual((code, out), (2, ""))
        self.assertEqual(
            err, "bfstat: no connection to 127.0.0.1:%d: Connection refused\n" % self.server.port
        )

    def test_calls_that_are_wrong(self):
        self.assertEqual(self.run_it("--interval", "0")[0], 2)
        self.assertEqual(self.run_it("--json", "--once")[0], 2)
        self.assertEqual(self.run_it("--listen", "1")[0], 2)
        self.assertEqual(self.run_it("--prometheus", "--listen", "nonsense")[0], 2)
        code, out, _ = self.run_it("--help")
        self.assertEqual(code, 0)
        self.assertIn("--json", out)

    def test_a_locale_without_these_characters(self):
        self.redis.execute_command("BF.ADD", "\u65e5\u672c", "x")
        done = subprocess.run(
            [BFSTAT, "-p", str(self.server.port), "--once"],
            capture_output=True,
            timeout=60,
            env={**os.environ, "PYTHONIOENCODING": "ascii"},
        )
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertIn(rb"\u65e5\u672c", done.stdout)

    def test_the_user_of_the_docs(self):
        """docs/monitoring.md: a user without the right to write anything."""
        with open(os.path.join(server.ROOT, "docs", "monitoring.md"), encoding="utf-8") as file:
            words = re.search(r"^    ACL SETUSER monitor (.*)$", file.read(), re.MULTILINE)[
                1
            ].split()
        self.redis.execute_command("ACL", "SETUSER", "monitor", *words)
        self.redis.execute_command("BF.ADD", "seen", "x")
        self.server.client(db=2).execute_command("BF.ADD", "other", "x")
        found = self.json("--user", "monitor", "-a", "secret")
        self.assertEqual(set(found), {(0, "seen"), (2, "other")})
        self.assertAlmostEqual(found[0, "seen"]["promised"], 0.01)
        self.assertEqual(self.run_it("--prometheus", "--user", "monitor", "-a", "secret")[0], 0)

    def test_a_user_limited_to_some_keys(self):
        self.redis.execute_command("BF.ADD", "seen:1", "x")
        self.redis.execute_command("BF.ADD", "other", "x")
        self.redis.acl_setuser(
            "watcher",
            enabled=True,
            passwords=["+secret"],
            keys=["seen:*", "bf:{seen:*"],
            categories=["+@all"],
        )
        self.assertEqual(set(self.json("--user", "watcher", "-a", "secret")), {(0, "seen:1")})
        self.assertIn(
            "1 more filters that this user may not ask",
            self.run_it("--once", "--user", "watcher", "-a", "secret")[1],
        )


class Terminal:
    """bfstat on a terminal of its own, and what is to be seen there."""

    def __init__(self, test, columns, height, *arguments):
        self.test, self.columns, self.height = test, columns, height
        self.master, slave = pty.openpty()
        self.resize(columns, height)
        self.process = subprocess.Popen(
            [BFSTAT, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm"},
            preexec_fn=self.own_terminal,
        )
        os.close(slave)
        self.output = b""
        test.addCleanup(os.close, self.master)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)

    @staticmethod
    def own_terminal():
        server.die_with_parent()
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def resize(self, columns, height):
        self.columns, self.height = columns, height
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, columns, 0, 0))

    def read(self):
        if select.select([self.master], [], [], 0.1)[0]:
            try:
                self.output += os.read(self.master, 65536)
            except OSError:  # it has ended
                return False
        return True

    def pictures(self):
        """Every picture that was drawn whole, as rows without colours."""
        drawn = re.findall(rb"\033\[H(.*?)\033\[J", self.output, re.DOTALL)
        return [re.sub(r"\033\[[0-9;]*[mK]", "", one.decode()).split("\r\n") for one in drawn]

    def wait_for(self, condition):
        """Waits for a picture, one that is drawn from now on, of which the condition is true.
        Returns it.
        """
        end, nseen = time.monotonic() + server.WAIT, 0
        self.output = b""
        while True:
            for picture in self.pictures()[nseen:]:
                nseen += 1
                if condition("\n".join(picture)):
                    return picture
            self.test.assertLess(time.monotonic(), end, self.output)
            self.test.assertTrue(self.read(), self.output)

    def press(self, key):
        os.write(self.master, key)

    def end(self):
        """Reads until it has ended; returns the exit code."""
        end = time.monotonic() + server.WAIT
        while self.process.poll() is None and time.monotonic() < end:
            self.read()
        while self.read() and select.select([self.master], [], [], 0)[0]:
            pass
        return self.process.wait(1)


def width(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


class Live(Base):
    """What the live view does."""

    def watch(self, columns, height, *arguments):
        return Terminal(
            self, columns, height, "-p", str(self.server.port), "--interval", "0.1", *arguments
        )

    def test_shows_what_changes_until_q(self):
        self.redis.execute_command("BF.RESERVE", "seen", "0.001", 1000, "SEED", 1)
        view = self.watch(100, 30)
        view.wait_for(lambda text: "0 of 1000" in text)
        self.redis.execute_command("BF.MADD", "seen", *range(500))
        view.wait_for(
            lambda text: "50%" in text
            and re.search(r"[1-9]\S*( k)? adds/s \([1-9]\S*( k)? new/s\)", text)
        )
        self.redis.execute_command("BF.MEXISTS", "seen", *range(400, 600))
        view.wait_for(
            lambda text: re.search(r"[1-9]\S*( k)? checks/s \([1-9]\S*( k)? hits/s\)", text)
        )
        before = termios.tcgetattr(view.master)
        view.press(b"x")
        view.press(b"q")
        self.assertEqual(view.end(), 0)
        # The terminal is as it was: its own screen, a cursor, and what is typed is shown.
        self.assertTrue(view.output.rstrip().endswith(b"\033[?7h\033[?25h\033[?1049l"), view.output)
        self.assertFalse(before[3] & termios.ECHO)
        self.assertTrue(termios.tcgetattr(view.master)[3] & termios.ECHO)

    def test_ctrl_c_and_sigterm(self):
        for stop, code in (
            (lambda view: view.press(b"\x03"), 130),
            (lambda view: view.process.terminate(), 143),
        ):
            view = self.watch(80, 24)
            view.wait_for(lambda text: "0 filters" in text)
            stop(view)
            self.assertEqual(view.end(), code)
            self.assertIn(b"\033[?1049l", view.output)
            self.assertNotIn(b"Traceback", view.output)

    def check_fits(self, view, picture):
        self.assertLessEqual(len(picture), view.height, picture)
        for row in picture:
            self.assertLess(width(row), view.columns, row)
        self.assertTrue(picture[0].startswith("127.0.0.1:"), picture)
        self.assertIn("adds/s", picture[1])
        self.assertTrue(picture[2].startswith("FILTER"), picture)
        self.assertTrue(picture[2].endswith("LOST"), picture)

    def test_fits_the_terminal(self):
        for n in range(40):
            self.redis.execute_command(
                "BF.ADD", "filter %d with a name that is rather long, %s" % (n, "x" * n), "x"
            )
        self.redis.execute_command("BF.ADD", "\u65e5\u672c\u8a9e" * 12, "x")
        self.redis.execute_command("BF.RESERVE", "damaged", "0.001", 10000, "SHARDSIZE", "4096")
        self.fill("damaged", 3000)
        for shard in self.redis.execute_command("BF.SHARDS", "damaged")[:2]:
            self.redis.delete(shard[1])
        view = self.watch(80, 24)
        for columns, height in ((80, 24), (70, 20), (40, 10), (200, 100)):
            view.resize(columns, height)
            picture = view.wait_for(
                lambda text: "42 filters" in text
                and (height > 50) != ("more filters" in text)
                and (len(text.split("\n")) == height or height > 50)
                and max(map(width, text.split("\n"))) > columns - 3
            )
            self.check_fits(view, picture)
            self.assertIn("1 DAMAGED" if columns > 60 else "42 filters", picture[0])
            self.assertTrue(picture[3].startswith("damaged "), picture)
            self.assertTrue(picture[4].startswith("  LOST bf:{damaged}"), picture)
        self.assertIn(b"\033[31;1mdamaged", view.output)  # red
        view.press(b"q")
        self.assertEqual(view.end(), 1)

    def test_layers_are_shown_where_there_is_room(self):
        self.redis.execute_command("BF.RESERVE", "grown", "0.01", 100)
        self.fill("grown", 3000)
        nlayers = self.redis.execute_command("BF.INFO", "grown", "FILTERS")[0]
        view = self.watch(80, 4 + nlayers)
        self.check_fits(view, view.wait_for(lambda text: text.count("layer ") == nlayers))
        view.resize(80, 3 + nlayers)
        view.wait_for(lambda text: "grown" in text and "layer " not in text)

    def test_survives_a_restart_of_the_server(self):
        self.server.keep_aof()
        self.fill("seen", 100)
        view = self.watch(80, 24)
        view.wait_for(lambda text: "seen" in text)
        self.server.kill()
        picture = view.wait_for(lambda text: "Connection refused" in text)
        self.assertTrue(
            picture[0].startswith("no connection to 127.0.0.1:%d" % self.server.port), picture
        )
        self.assertTrue(
            any(row.startswith("seen ") for row in picture), picture
        )  # what was last known
        self.server.start()
        view.wait_for(
            lambda text: "no connection" not in text and "seen" in text and "1 filters" in text
        )
        self.server.redis.execute_command("BF.ADD", "another", "x")
        view.wait_for(lambda text: "another" in text and "2 filters" in text)
        view.press(b"q")
        self.assertEqual(view.end(), 0)

    def test_a_filter_that_is_replaced_by_another(self):
        """The number of filters stays the same."""
        self.redis.execute_command("BF.ADD", "first", "x")
        view = self.watch(80, 24)
        view.wait_for(lambda text: "first" in text)
        self.redis.rename("first", "second")
        view.wait_for(lambda text: "second" in text and "first" not in text)

    def test_no_module(self):
        plain = server.Server(module=False)
        self.addCleanup(plain.stop)
        view = Terminal(self, 80, 24, "-p", str(plain.port))
        self.assertEqual(view.end(), 2)
        self.assertIn(b"has no shardbloom module, or an old one", view.output)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
