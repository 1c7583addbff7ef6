#!/usr/bin/python3
"""scripts/bfcopy, what it says on the way: progress, and how to go on.
tests/integration/test_bfcopy.c has the rest.
"""

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import unittest

import server
from proxy import Proxy
from result import run_tests

BFCOPY = os.path.join(server.ROOT, "scripts", "bfcopy")
NAMES = ["crawl:%d" % n for n in range(5)]


def read_to_the_end(terminal):
    """All that came to a terminal that nobody has open any more. It may come in pieces."""
    output = b""
    try:
        while piece := os.read(terminal, 65536):
            output += piece
    except OSError:  # how the end is told
        pass
    os.close(terminal)
    return output


class Copying(unittest.TestCase):
    def setUp(self):
        self.source, self.target = server.Server(), server.Server()
        self.addCleanup(self.source.stop)
        self.addCleanup(self.target.stop)
        for name in NAMES:
            self.source.redis.execute_command("BF.ADD", name, name)

    def words(self, *arguments, port=None):
        return [
            BFCOPY,
            "-p",
            str(port or self.source.port),
            "--to",
            "redis://127.0.0.1:%d" % self.target.port,
            *arguments,
        ]

    def run_it(self, *arguments, port=None):
        done = subprocess.run(
            self.words(*arguments, port=port), capture_output=True, text=True, timeout=60
        )
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout, done.stderr

    def interrupted(self, hook, *arguments):
        """A run to which something happens at the third filter; hook gets its process."""
        started = threading.Event()
        proxy = Proxy(
            self.source.port, b"BF.SCANDUMP", 5, lambda: started.wait() and hook(process)
        )
        self.addCleanup(proxy.close)
        process = subprocess.Popen(
            self.words("--no-verify", *arguments, port=proxy.port),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=server.die_with_parent,
        )
        started.set()
        out, err = process.communicate(timeout=60)
        self.assertNotIn("Traceback", err)
        return process.returncode, out, err

    def ndone(self):
        self.assertEqual(self.target.redis.keys("bfcopy:*"), [])
        return self.target.redis.exists(*NAMES)

    def test_ctrl_c_says_how_to_go_on(self):
        code, out, err = self.interrupted(
            lambda process: process.send_signal(signal.SIGINT), "crawl:*"
        )
        self.assertEqual(code, 130, err)
        ndone = self.ndone()
        self.assertTrue(0 < ndone < 5, ndone)
        self.assertIn(
            "bfcopy: stopped: %d of 5 filters were copied, no unfinished copy is used; the same"
            " command with --missing continues\n" % ndone,
            err,
        )
        code, out, err = self.run_it("crawl:*", "--missing")
        self.assertEqual(code, 0, err)
        self.assertIn("%d of 5 filters are at the target already" % ndone, err)
        self.assertEqual(self.ndone(), 5)
        for name in NAMES:
            self.assertEqual(self.target.redis.execute_command("BF.EXISTS", name, name), 1)
        self.assertEqual(self.run_it("crawl:*", "--missing")[0], 0)
        self.assertEqual(self.run_it("crawl:*", "--missing", "--replace")[0], 2)

    def test_a_lost_connection_says_how_to_go_on(self):
        code, out, err = self.interrupted(
            lambda _: self.source.redis.client_kill_filter(skipme=True), "crawl:*", "--replace"
        )
        self.assertEqual(code, 2, err)
        self.assertIn(
            "of 5 filters were copied, no unfinished copy is used; the same command copies"
            " everything again",
            err,
        )
        self.assertRegex(err, "\nbfcopy: no connection to 127.0.0.1:[0-9]+: .*\n$")

    def test_progress_on_a_terminal_survives_errors(self):
        """A bar is whole before an error, which has a line of its own, and the next bar comes
        behind it.
        """
        self.target.redis.set("crawl:2", "in the way")
        master, slave = pty.openpty()
        process = subprocess.Popen(
            self.words("crawl:*"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=server.die_with_parent,
        )
        os.close(slave)
        output = read_to_the_end(master)
        self.assertEqual(process.wait(60), 2)
        # What stands there in the end: a carriage return begins the line again.
        lines = [
            re.sub(r"\033\[K", "", line.rstrip("\r").split("\r")[-1])
            for line in output.decode().split("\n")
        ]
        self.assertIn("bfcopy: crawl:2 exists at the target; --replace would replace it", lines)
        bars = [line for line in lines if line.startswith("[")]
        self.assertEqual(len(bars), 8, lines)
        for bar in bars:
            self.assertRegex(bar, r"^\[#{30}\]   (copied|verified) .* \(100%\), .*/s$")
        self.assertIn("4 copied, 1 failed", lines)


class Lines(unittest.TestCase):
    """shardbloom.progress on a terminal, without a server."""

    def test_a_line_in_the_middle_of_a_bar(self):
        script = [
            "import sys; sys.path.insert(0, %r)" % os.path.join(server.ROOT, "python"),
            "from shardbloom.progress import Progress, say, end",
            "bar = Progress('copied', 100)",
            "bar.show(50)",
            "say('something is wrong')",
            "bar.next = 0",
            "bar.show(60)",
            "end()",
            "say('the end')",
        ]
        master, slave = pty.openpty()
        subprocess.run(
            [sys.executable, "-c", "\n".join(script)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            timeout=60,
            check=True,
        )
        os.close(slave)
        output = read_to_the_end(master).decode()
        lines = [
            re.sub(r"\033\[K", "", line.rstrip("\r").split("\r")[-1]) for line in output.split("\n")
        ]
        self.assertEqual(lines[0], "something is wrong")
        self.assertRegex(lines[1], r"^\[#{18}\.{12}\] copied 60 \(60%\)")
        self.assertEqual(lines[2:], ["the end", ""])


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
