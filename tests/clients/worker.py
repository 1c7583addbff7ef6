"""What the tests of examples/worker share: where it is, and how to talk to one that runs."""

import os
import threading
import unittest

import server

WORKER = os.environ.get("WORKER") or os.path.join(server.ROOT, "build", "worker")


class Talk(unittest.TestCase):
    """With a worker that Popen has started, all of whose pipes are ours."""

    def feed(self, worker, *lines):
        worker.stdin.write(b"".join(line + b"\n" for line in lines))
        worker.stdin.flush()

    def wait_for(self, worker, text):
        """Reads what the worker says until it has said this."""
        said = b""
        limit = threading.Timer(server.WAIT, worker.kill)  # then readline() comes to the end
        limit.start()
        while text not in said:
            line = worker.stderr.readline()
            self.assertTrue(line, said)
            said += line
        limit.cancel()
        return said
