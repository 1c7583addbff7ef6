#!/usr/bin/python3
"""One way to connect: every tool by every way to a real server, and what each of them says when it
can't.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import redis

import server
from proxy import Proxy
from result import run_tests
from tool import TOOLS, run


def make_certificates(directory):
    """An authority, and certificates that it signed: for a server at 127.0.0.1, for one elsewhere,
    for a client.
    """

    def openssl(*arguments):
        subprocess.run(
            ["openssl", *arguments], cwd=directory, check=True, capture_output=True, timeout=60
        )

    openssl(
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test authority",
        "-keyout",
        "ca.key",
        "-out",
        "ca.crt",
    )
    for name, extension in (
        ("server", "subjectAltName=IP:127.0.0.1"),
        ("elsewhere", "subjectAltName=DNS:elsewhere"),
        ("client", "extendedKeyUsage=clientAuth"),
    ):
        with open(os.path.join(directory, name + ".ext"), "w", encoding="ascii") as file:
            file.write(extension + "\n")
        openssl(
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            "/CN=" + name,
            "-keyout",
            name + ".key",
            "-out",
            name + ".csr",
        )
        openssl(
            "x509",
            "-req",
            "-in",
            name + ".csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            name + ".ext",
            "-out",
            name + ".crt",
        )


CERTIFICATES = tempfile.TemporaryDirectory(prefix="shardbloom-")
make_certificates(CERTIFICATES.name)


class Base(unittest.TestCase):
    """A server that can be reached in every way, and another to copy to."""

    def setUp(self):
        self.tls_port = server.free_port()
        self.server = server.Server(
            "--unixsocket",
            "socket",
            "--tls-port",
            str(self.tls_port),
            "--tls-auth-clients",
            "optional",
            "--tls-ca-cert-file",
            self.file("ca.crt"),
            "--tls-cert-file",
            self.file("server.crt"),
            "--tls-key-file",
            self.file("server.key"),
        )
        self.addCleanup(self.server.stop)
        self.target = server.Server()
        self.addCleanup(self.target.stop)
        self.socket = os.path.join(self.server.dir, "socket")
        self.redis = self.server.redis
        self.url = "127.0.0.1:%d" % self.server.port

    @staticmethod
    def file(name):
        return os.path.join(CERTIFICATES.name, name)

    def fill(self, db):
        """A filter, a set and an orphan in one database, and nothing in the others."""
        self.redis.flushall()
        self.target.redis.flushall()
        client = self.server.client(db=db)
        client.execute_command("BF.ADD", "seen", "item")
        client.sadd("urls", "a", "b")

    def check_all(self, *connection, db=0, **environment):
        """Every tool does what it is for, on that database."""
        self.fill(db)
        code, out, err = run("bfread", *connection, "seen", "item", "other", **environment)
        self.assertEqual((code, out, err), (0, "1\n0\n", ""))
        code, out, err = run("bfstat", "--json", *connection, **environment)
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(
            [(one["db"], one["key"]) for one in json.loads(out)["filters"]], [(db, "seen")]
        )
        code, out, err = run("bforphans", "--quiet", *connection, **environment)
        self.assertEqual(
            (code, out, err), (0, "1 shards seen, 0 orphans of 0 bytes, 0 removed\n", "")
        )
        code, out, err = run(
            "bfcopy",
            *connection,
            "--to",
            "redis://127.0.0.1:%d/5" % self.target.port,
            "seen",
            **environment,
        )
        self.assertEqual(code, 0, err)
        self.assertEqual(self.target.client(db=5).execute_command("BF.EXISTS", "seen", "item"), 1)
        code, out, err = run(
            "bfimport",
            *connection,
            "--state",
            self.file("state"),
            "urls",
            "imported",
            **environment,
        )
        self.assertEqual(code, 0, err)
        client = self.server.client(db=db)
        self.assertEqual(client.execute_command("BF.MEXISTS", "imported", "a", "b", "c"), [1, 1, 0])


class Ways(Base):
    def test_tcp(self):
        self.check_all("-p", str(self.server.port))
        self.check_all("-H", "localhost", "--port", str(self.server.port))
        self.check_all("-u", "redis://" + self.url)

    def test_databases(self):
        self.check_all("-p", str(self.server.port), "-n", "3", db=3)
        self.check_all("--host", "127.0.0.1", "--port", str(self.server.port), "--db", "4", db=4)
        self.check_all("--url", "redis://%s/3" % self.url, db=3)
        self.check_all("-u", "redis://%s/3" % self.url, "-n", "2", db=2)

    def test_unix_sockets(self):
        self.check_all("-u", "unix://" + self.socket)
        self.check_all("-u", "unix://%s?db=3" % self.socket, db=3)

    def test_tls(self):
        ca = self.file("ca.crt")
        self.check_all("-u", "rediss://127.0.0.1:%d/3" % self.tls_port, "--cacert", ca, db=3)
        self.check_all("-p", str(self.tls_port), "--tls", "--cacert", ca)
        self.check_all("-p", str(self.tls_port), "--tls", "--insecure")

    def test_passwords_and_users(self):
        self.redis.config_set("requirepass", "p@ss:word/")
        self.redis = self.server.client(password="p@ss:word/")
        self.redis.acl_setuser(
            "tool", enabled=True, passwords=["+se cret"], keys=["*"], categories=["+@all"]
        )
        self.server.client = lambda **options: redis.Redis(
            port=self.server.port, password="p@ss:word/", **options
        )
        port = str(self.server.port)
        self.check_all("-p", port, "-a", "p@ss:word/")
        self.check_all("-p", port, "--user", "tool", "--password", "se cret")
        self.check_all("-p", port, REDISCLI_AUTH="p@ss:word/")
        self.check_all("-p", port, "--user", "tool", REDISCLI_AUTH="se cret")
        self.check_all(
            "-u", "redis://:p%%40ss%%3Aword%%2F@%s/3" % self.url, db=3, REDISCLI_AUTH="wrong"
        )
        self.check_all("-u", "redis://p%%40ss%%3Aword%%2F@%s" % self.url)
        self.check_all("-u", "redis://tool:se%%20cret@%s" % self.url)
        self.check_all("-u", "unix://tool:se%%20cret@%s?db=3" % self.socket, db=3)
        self.check_all(
            "-u",
            "rediss://tool:se%%20cret@127.0.0.1:%d" % self.tls_port,
            "--cacert",
            self.file("ca.crt"),
        )

    def test_the_second_server(self):
        """It is given by a URL of any kind, or in the environment."""
        self.target.redis.execute_command("BF.ADD", "seen", "item")
        self.target.redis.sadd("urls", "a", "b")
        self.redis.acl_setuser(
            "tool", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"]
        )
        for url, options, db in (
            ("redis://tool:secret@%s/3" % self.url, (), 3),
            ("unix://tool:secret@%s?db=2" % self.socket, (), 2),
            (
                "rediss://tool:secret@127.0.0.1:%d/1" % self.tls_port,
                ("--cacert", self.file("ca.crt")),
                1,
            ),
        ):
            for environment, words in (({}, ("--to", url)), ({"BF_TO": url}, ())):
                if environment and options:  # certificates beside BF_TO work like beside --to
                    continue
                self.redis.flushall()
                common = ("-p", str(self.target.port), *options, *words)
                code, out, err = run("bfcopy", *common, "seen", **environment)
                self.assertEqual(code, 0, err)
                code, out, err = run(
                    "bfimport",
                    *common,
                    "urls",
                    "imported",
                    "--state",
                    self.file("state"),
                    **environment,
                )
                self.assertEqual(code, 0, err)
                client = self.server.client(db=db)
                self.assertEqual(client.execute_command("BF.EXISTS", "seen", "item"), 1)
                self.assertEqual(client.execute_command("BF.MEXISTS", "imported", "a", "b"), [1, 1])

    def test_the_second_server_does_not_get_the_password_of_the_first(self):
        self.fill(0)
        self.redis.acl_setuser(
            "tool", enabled=True, passwords=["+secret"], keys=["*"], categories=["+@all"]
        )
        # A server without a password answers AUTH with an error, so that this would fail.
        code, out, err = run(
            "bfcopy",
            "-p",
            str(self.server.port),
            "--user",
            "tool",
            "--to",
            "redis://127.0.0.1:%d" % self.target.port,
            "seen",
            REDISCLI_AUTH="secret",
        )
        self.assertEqual(code, 0, err)

    def test_certificates_of_clients(self):
        self.redis.config_set("tls-auth-clients", "yes")
        tls = ("-p", str(self.tls_port), "--tls", "--cacert", self.file("ca.crt"))
        self.check_all(*tls, "--cert", self.file("client.crt"), "--key", self.file("client.key"))
        code, out, err = run("bfstat", "--once", *tls)
        self.assertEqual((code, out), (2, ""))
        self.assertIn("bfstat: no connection to 127.0.0.1:%d: " % self.tls_port, err)


class Messages(Base):
    """All tools say the same, and end with the same codes."""

    def arguments(self, tool, key="seen", target=None, set_name="urls"):
        """What a tool is called with, apart from the server."""
        to = "redis://127.0.0.1:%d" % (target or self.target).port
        return {
            "bfstat": ["--once"],
            "bfcopy": ["--to", to, key],
            "bfread": [key, "x"],
            "bforphans": ["--quiet"],
            "bfimport": ["--state", self.file("state"), set_name, key],
        }[tool]

    def check(self, tool, words, code, pattern, **environment):
        status, out, err = run(tool, *words, **environment)
        self.assertRegex(err, "^%s: %s\n$" % (tool, pattern))
        self.assertEqual(status, code, err)

    def test_no_server(self):
        port = str(server.free_port())
        for tool in TOOLS:
            words = self.arguments(tool)
            self.check(
                tool,
                ["-p", port, *words],
                2,
                "no connection to 127.0.0.1:%s: Connection refused" % port,
            )
            self.check(
                tool,
                ["-u", "unix:///nonexistent/socket", *words],
                2,
                "no connection to /nonexistent/socket: No such file or directory",
            )
            self.check(
                tool,
                ["-H", "nothing.invalid", *words],
                2,
                "no connection to nothing.invalid:6379: .+",
            )

    def test_no_module(self):
        plain = server.Server(module=False)
        self.addCleanup(plain.stop)
        plain.redis.sadd("urls", "a")
        self.fill(0)
        for tool in TOOLS:
            asked = self.server if tool == "bfcopy" else plain
            self.check(
                tool,
                ["-p", str(asked.port), *self.arguments(tool, target=plain)],
                2,
                "127.0.0.1:%d has no shardbloom module, or an old one" % plain.port,
            )
        self.assertEqual(plain.redis.keys(), [b"urls"])

    def test_wrong_types_and_missing_keys(self):
        self.redis.set("string", "x")
        self.redis.sadd("urls", "a")
        port = str(self.server.port)
        for tool in ("bfread", "bfcopy", "bfimport"):
            self.check(
                tool, ["-p", port, *self.arguments(tool, "string")], 2, "string is not a filter"
            )
        for tool in ("bfread", "bfcopy"):
            self.check(
                tool,
                ["-p", port, *self.arguments(tool, "nothing")],
                2,
                "there is no filter nothing",
            )
        self.check(
            "bfimport",
            ["-p", port, *self.arguments("bfimport", set_name="nothing")],
            2,
            "there is no set nothing",
        )
        self.check(
            "bfimport",
            ["-p", port, *self.arguments("bfimport", set_name="string")],
            2,
            "string is not a set",
        )

    def test_passwords(self):
        self.redis.config_set("requirepass", "secret")
        port = str(self.server.port)
        for tool in TOOLS:
            words = ["-p", port, *self.arguments(tool)]
            needed = (
                "127.0.0.1:%s requires a password: set REDISCLI_AUTH, or use -a or -u"
                % port
            )
            refused = "127.0.0.1:%s does not accept the user or the password" % port
            self.check(tool, words, 2, needed)
            self.check(
                tool, [*words, "-n", "2"], 2, needed
            )  # SELECT is refused before anything else
            self.check(tool, [*words, "-a", "wrong"], 2, refused)
            self.check(tool, words, 2, refused, REDISCLI_AUTH="wrong")
            self.check(tool, [*words, "--user", "nobody", "-a", "secret"], 2, refused)

    def test_permissions(self):
        self.fill(0)
        self.redis.acl_setuser(
            "little", enabled=True, nopass=True, keys=["*"], commands=["+ping", "+info"]
        )
        self.redis.acl_setuser(
            "elsewhere", enabled=True, nopass=True, keys=["other"], categories=["+@all"]
        )
        for user in ("little", "elsewhere"):
            for tool in TOOLS:
                words = [
                    "-p",
                    str(self.server.port),
                    "--user",
                    user,
                    "-a",
                    "any",
                    *self.arguments(tool),
                ]
                if (tool, user) == ("bfstat", "elsewhere"):
                    code, out, err = run(tool, *words)
                    self.assertEqual((code, err), (0, ""))
                    self.assertIn("1 more filters that this user may not ask", out)
                    continue
                self.check(
                    tool,
                    words,
                    2,
                    "(seen: )?127.0.0.1:%d does not permit it: .*permission.*" % self.server.port,
                )

    def test_output_that_nobody_reads(self):
        self.fill(0)
        for tool in TOOLS:
            reader, writer = os.pipe()
            os.close(reader)
            done = subprocess.run(
                [
                    os.path.join(server.ROOT, "scripts", tool),
                    "-p",
                    str(self.server.port),
                    *self.arguments(tool, "imported" if tool == "bfimport" else "seen"),
                ],
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
                timeout=60,
            )
            os.close(writer)
            last = done.stderr.splitlines()[-1]
            self.assertEqual(
                (done.returncode, last),
                (2, tool + ": the output was closed before everything was written"),
            )
            self.assertNotIn("Traceback", done.stderr)

    def test_ctrl_c(self):
        for tool in TOOLS:
            started = threading.Event()
            proxy = Proxy(
                self.server.port,
                b"PING",
                1,
                lambda: started.wait() and process.send_signal(signal.SIGINT),
            )
            process = subprocess.Popen(
                [
                    os.path.join(server.ROOT, "scripts", tool),
                    "-p",
                    str(proxy.port),
                    *self.arguments(tool),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                preexec_fn=server.die_with_parent,
            )
            started.set()
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out, err), (130, "", ""))
            proxy.close()

    def test_help(self):
        for tool in TOOLS:
            for word in ("-h", "--help"):
                code, out, err = run(tool, word)
                self.assertEqual((code, err), (0, ""))
                for option in (
                    "-u URL",
                    "-H HOST",
                    "-p PORT",
                    "-a PASSWORD",
                    "--user NAME",
                    "-n N",
                    "--tls",
                    "--cacert FILE",
                    "--cert FILE",
                    "--key FILE",
                    "--insecure",
                    "exit status:",
                    "REDISCLI_AUTH",
                ):
                    self.assertIn(option, out, tool)

    def test_options_that_are_wrong(self):
        for tool in TOOLS:
            words = self.arguments(tool)
            for wrong, pattern in (
                (
                    ["-u", "http://secret@host"],
                    r"not the URL of a server: http://host \(redis://, .*",
                ),
                (["-u", "secret"], r"not the URL of a server: secret.*"),
                (
                    ["-u", "redis://:secret@host:port"],
                    r"not the URL of a server: redis://host:port .*",
                ),
                (["-u", "redis://host/one"], "not the number of a database: one"),
                (["-u", "redis://host?color=red"], "unknown words in the URL of a server: color"),
                (["-u", "unix://"], "unix:// needs the path of a socket: .*"),
                (["-u", "redis://host", "-p", "1"], "give either a URL or --host and --port"),
                (["-p", "70000"], "not a port: 70000"),
                (["-n", "-1"], "not the number of a database: -1"),
                (["--cacert", "x"], "--cacert, --cert, --key and --insecure are for TLS: .*"),
                (["--tls", "--cacert", "/nonexistent"], "/nonexistent: No such file or directory"),
                (["-u", "unix:///x", "--tls"], "TLS is not for unix sockets"),
            ):
                self.check(tool, [*wrong, *words], 2, pattern)
            self.assertEqual(run(tool, "--nonsense", *words)[0], 2)
            self.assertEqual(run(tool, "-p", "x", *words)[0], 2)

    def test_certificates_that_are_not_accepted(self):
        for tool in TOOLS:
            words = ["-u", "rediss://127.0.0.1:%d" % self.tls_port, *self.arguments(tool)]
            self.check(
                tool,
                words,
                2,
                "no connection to 127.0.0.1:%d: its certificate is not accepted: .+"
                % self.tls_port,
            )
        self.redis.execute_command(
            "CONFIG",
            "SET",
            "tls-cert-file",
            self.file("elsewhere.crt"),
            "tls-key-file",
            self.file("elsewhere.key"),
        )
        for tool in TOOLS:
            words = [
                "-p",
                str(self.tls_port),
                "--tls",
                "--cacert",
                self.file("ca.crt"),
                *self.arguments(tool),
            ]
            self.check(
                tool,
                words,
                2,
                "no connection to 127.0.0.1:%d: its certificate is not accepted: "
                ".*IP address mismatch.*"
                % self.tls_port,
            )


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
