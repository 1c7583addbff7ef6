#!/usr/bin/python3
"""examples/worker: every way to reach a server or a cluster, and what it says when it can't."""

import os
import subprocess
import sys
import time
import unittest

import server
from result import run_tests
from worker import WORKER

HAS_TLS = (
    b"built without"
    not in subprocess.run([WORKER, "--help"], stdout=subprocess.PIPE, check=True).stdout
)


def run_worker(*arguments, data=b"a\nb\na\n", **environment):
    """Exit code, output, messages."""
    clean = {name: value for name, value in os.environ.items() if name != "REDISCLI_AUTH"}
    done = subprocess.run(
        [WORKER, "-q", *arguments],
        input=data,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
        env={**clean, **environment},
    )
    return done.returncode, done.stdout, done.stderr.decode()


class Ways(unittest.TestCase):
    def start_server(self, *arguments, **options):
        one = server.Server(*arguments, **options)
        self.addCleanup(one.stop)
        return one

    def check(self, client, *arguments, **environment):
        """The worker marks its lines where this client finds them."""
        client.flushall()
        self.assertEqual(run_worker(*arguments, **environment), (0, b"a\nb\n", ""), arguments)
        self.assertEqual(client.execute_command("BF.CARD", "seen"), 2, arguments)

    def test_host_port_and_database(self):
        one = self.start_server()
        port = str(one.port)
        self.check(one.redis, "-p", port)
        self.check(one.redis, "-H", "localhost", "--port", port, "--db", "0")
        self.check(one.client(db=3), "--host", "127.0.0.1", "-p", port, "-n", "3")
        self.check(one.redis, "-u", "redis://127.0.0.1:" + port)
        self.check(one.client(db=3), "--url", "redis://localhost:%s/3" % port)
        self.check(one.client(db=3), "--url", "redis://localhost:%s?db=3" % port)
        self.check(one.client(db=4), "-n", "4", "--url", "redis://localhost:%s/3" % port)
        self.check(one.client(db=4), "--url", "redis://localhost:%s/3" % port, "-n", "4")

    def test_passwords_and_users(self):
        one = self.start_server()
        port, password = str(one.port), "s:e@c/r%t"
        quoted = "s%3Ae%40c%2Fr%25t"
        one.redis.execute_command("ACL", "SETUSER", "ann", "on", ">" + password, "~*", "+@all")
        one.redis.config_set("requirepass", password)
        client = one.redis = one.client(password=password)
        self.check(client, "-p", port, "-a", password)
        self.check(client, "-p", port, REDISCLI_AUTH=password)
        self.check(client, "-p", port, "-a", password, REDISCLI_AUTH="wrong")
        self.check(client, "-p", port, "--user", "ann", "--password", password)
        self.check(client, "-p", port, "--user", "ann", REDISCLI_AUTH=password)
        for login in (":" + quoted, "ann:" + quoted, "default:" + quoted, quoted):
            self.check(
                client, "-u", "redis://%s@127.0.0.1:%s" % (login, port), REDISCLI_AUTH="wrong"
            )
        self.check(client, "-u", "redis://ann:wrong@127.0.0.1:" + port, "-a", password)
        code, out, err = run_worker("-p", port)
        self.assertEqual((code, out), (2, b""))
        self.assertIn(
            "worker: 127.0.0.1:%s requires a password:"
            " set REDISCLI_AUTH, or use -a or -u\n" % port,
            err,
        )
        for wrong in (("-a", "x"), ("--user", "nobody", "-a", password)):
            code, out, err = run_worker("-p", port, *wrong)
            self.assertEqual((code, out), (2, b""))
            self.assertIn(
                "worker: 127.0.0.1:%s does not accept the user or the password\n" % port, err
            )

    def test_sockets(self):
        one = self.start_server("--unixsocket", "redis.sock")
        path = os.path.join(one.dir, "redis.sock")
        self.check(one.redis, "-u", "unix://" + path)
        self.check(one.client(db=2), "-u", "unix://" + path + "?db=2")
        one.redis.execute_command("ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all")
        self.check(one.redis, "-u", "unix://ann:secret@" + path)
        code, _, err = run_worker("-u", "unix://" + path + "?db=99")
        self.assertEqual(code, 2)
        self.assertIn("DB index is out of range", err)

    def test_tls(self):
        for arguments in (["-u", "rediss://127.0.0.1"], ["--tls"]):
            if not HAS_TLS:
                code, out, err = run_worker(*arguments)
                self.assertEqual((code, out), (2, b""))
                self.assertEqual(
                    err,
                    "worker: this worker was built without TLS, since the hiredis of the system has"
                    " none\n",
                )
        if HAS_TLS:
            self.use_tls()

    def use_tls(self):
        plain = self.start_server()
        for name, subject in (("good", "IP:127.0.0.1"), ("other", "DNS:elsewhere.example")):
            command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"]
            command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=" + name]
            command += ["-addext", "subjectAltName=" + subject]
            command += ["-keyout", name + ".key", "-out", name + ".crt"]
            subprocess.run(
                command, cwd=plain.dir, check=True, stderr=subprocess.DEVNULL, timeout=60
            )
            port, file = str(server.free_port()), os.path.join(plain.dir, name)
            one = self.start_server("--tls-port", port, "--tls-cert-file", file + ".crt",
                                    "--tls-key-file", file + ".key", "--tls-auth-clients", "no")
            trust = ("--cacert", file + ".crt")
            if name == "good":
                self.check(one.redis, "-u", "rediss://127.0.0.1:" + port, *trust)
                self.check(one.client(db=3), "-p", port, "--tls", "-n", "3", *trust)
                trust = ()
            code, out, err = run_worker("-u", "rediss://127.0.0.1:" + port, *trust)
            self.assertEqual((code, out), (2, b""))
            self.assertIn("its certificate is not accepted", err)

    def test_wrong_words(self):
        for arguments, words in (
            (["-u", "http://a"], "not the URL of a server (redis://, rediss:// or unix://)"),
            (["-u", "127.0.0.1:6379"], "not the URL of a server (redis://, rediss:// or unix://)"),
            (["-u", "redis://:secret@a:port"], "not a port"),
            (["-u", "redis://a/x"], "not the number of a database"),
            (["-u", "redis://a?protocol=3"], "unknown words in the URL of a server"),
            (["-u", "redis://[::1"], "the URL has a [ without a ]"),
            (["-u", "unix://"], "unix:// needs the path of a socket: unix:///run/redis/redis.sock"),
            (["-u", "redis://a", "-p", "6379"], "give either a URL or --host and --port"),
            (["--cacert", "/etc/hosts"], "--cacert is for TLS: give --tls or a rediss:// URL"),
            (["-p", "65536"], "not a port: 65536"),
            (["-n", "one"], "not the number of a database: one"),
        ):
            self.assertEqual(run_worker(*arguments), (2, b"", "worker: " + words + "\n"))


class Obstacles(unittest.TestCase):
    """The messages are those of the other tools."""

    def obstacle(self, *arguments, data=b"a\n", **environment):
        code, out, err = run_worker(*arguments, data=data, **environment)
        self.assertEqual((code, out), (2, b""), err)
        self.assertTrue(err.endswith("worker: stopped after 0 lines, 0 new, 0 seen\n"), err)
        return err

    def test_no_server(self):
        port = server.free_port()
        err = self.obstacle("-p", str(port))
        self.assertIn("worker: no connection to 127.0.0.1:%d: Connection refused\n" % port, err)
        self.assertEqual(err.count("trying again"), 6)
        err = self.obstacle("-u", "unix:///no/such/socket")
        self.assertIn("worker: no connection to /no/such/socket: No such file or directory\n", err)

    def test_no_module(self):
        one = server.Server(module=False)
        self.addCleanup(one.stop)
        err = self.obstacle("-p", str(one.port))
        self.assertIn(
            "worker: 127.0.0.1:%d has no shardbloom module, or an old one\n" % one.port, err
        )

    def test_wrong_type_and_permission(self):
        one = server.Server()
        self.addCleanup(one.stop)
        one.redis.set("string", "x")
        self.assertIn(
            "worker: string is not a filter\n", self.obstacle("-p", str(one.port), "-k", "string")
        )
        one.redis.execute_command(
            "ACL", "SETUSER", "reader", "on", ">x", "~seen*", "+bf.exists", "+bf.card"
        )
        one.redis.execute_command("ACL", "SETUSER", "adder", "on", ">x", "~seen*", "+bf.insert")
        login = ("-p", str(one.port), "-a", "x", "--user")
        refusal = "worker: 127.0.0.1:%d does not permit it: " % one.port
        self.assertIn(refusal, self.obstacle(*login, "reader"))
        self.assertIn(refusal, self.obstacle(*login, "adder", "-k", "other"))
        # To add is all that a worker needs.
        self.assertEqual(run_worker(*login, "adder"), (0, b"a\nb\n", ""))


class Cluster(unittest.TestCase):
    """Two nodes with half of the slots each; a filter moves between them while a worker runs."""

    def setUp(self):
        self.nodes = []
        for _ in range(2):
            node = server.Server("--cluster-enabled", "yes", "--cluster-config-file", "nodes",
                                 "--cluster-port", str(server.free_port()))
            self.addCleanup(node.stop)
            self.nodes.append(node)
        first, second = self.nodes
        first.redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 8191)
        second.redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 8192, 16383)
        bus = second.redis.config_get("cluster-port")["cluster-port"]
        first.redis.execute_command("CLUSTER", "MEET", "127.0.0.1", second.port, bus)
        self.wait(
            lambda: all(
                len(self.slots(node)) == 2 and self.info(node) == "ok" for node in self.nodes
            )
        )

    def slots(self, node):
        return node.redis.execute_command("CLUSTER SLOTS")

    def info(self, node):
        return node.redis.execute_command("CLUSTER INFO")["cluster_state"]

    def wait(self, condition):
        end = time.monotonic() + server.WAIT
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def slot(self, key):
        return self.nodes[0].redis.execute_command("CLUSTER", "KEYSLOT", key)

    def test_any_node_will_do(self):
        keys = ["seen%d" % n for n in range(8)]
        self.assertEqual({self.slot(key) < 8192 for key in keys}, {True, False})
        for key in keys:
            for node, expected in zip(self.nodes, (b"a\nb\n", b"")):
                self.assertEqual(run_worker("-p", str(node.port), "-k", key), (0, expected, ""))

    def migrate(self, key, source, target):
        """All keys of the slot, as any tool does it; the worker is asked in the middle."""
        slot = self.slot(key)
        names = [node.redis.execute_command("CLUSTER", "MYID") for node in self.nodes]
        ids = [name.decode() if isinstance(name, bytes) else name for name in names]
        target.redis.execute_command(
            "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[self.nodes.index(source)]
        )
        source.redis.execute_command(
            "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[self.nodes.index(target)]
        )
        for name in source.redis.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 1000):
            source.redis.execute_command("MIGRATE", "127.0.0.1", target.port, name, 0, 10000)
        yield
        for node in (target, source):
            node.redis.execute_command(
                "CLUSTER", "SETSLOT", slot, "NODE", ids[self.nodes.index(target)]
            )
        yield

    def test_a_filter_that_moves(self):
        key = next("seen%d" % n for n in range(100) if self.slot("seen%d" % n) < 8192)
        source, target = self.nodes
        worker = subprocess.Popen(
            [WORKER, "-p", str(source.port), "-k", key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=server.die_with_parent,
        )

        def feed(*lines):
            worker.stdin.write(b"".join(line + b"\n" for line in lines))
            worker.stdin.flush()

        feed(b"a", b"b")
        self.assertEqual(worker.stdout.readline() + worker.stdout.readline(), b"a\nb\n")
        steps = self.migrate(key, source, target)
        next(steps)
        feed(b"b", b"c")  # the source says ASK
        self.assertEqual(worker.stdout.readline(), b"c\n")
        next(steps)
        feed(b"c", b"a", b"d")  # and now MOVED
        self.assertEqual(worker.stdout.readline(), b"d\n")
        out, err = worker.communicate(timeout=60)
        self.assertEqual((worker.returncode, out), (0, b""), err)
        self.assertNotIn(b"vanished", err)
        self.assertEqual(target.redis.execute_command("BF.CARD", key), 4)


if __name__ == "__main__":
    sys.exit(run_tests(sys.modules[__name__]))
