"""A proxy before a server whose answers can be lost, kept back or made up.

Faults(port) listens on a port of its own. It passes on commands one by one, and everything the
server answers, unless it is told otherwise for the commands whose name is `command`:

    cut(n)       the n-th such command from now on is carried out, and instead of an answer the
                 connection is closed
    hold()       their answers are kept back, until release(); `held` is set when one is
    answer(...)  each text is the answer to one of them, which the server does not see
"""

import contextlib
import socket
import threading


class Faults:
    def __init__(self, port, command=b"BF.INSERT"):
        self.port_behind = port
        self.command = command
        self.lock = threading.Lock()
        self.ncut = 0
        self.answers = []
        self.held = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.commands = []  # what came, but for the items
        self.sockets = []
        self.closing = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def cut(self, n=1):
        with self.lock:
            self.ncut = n

    def answer(self, *texts):
        with self.lock:
            self.answers += [text.encode() + b"\r\n" for text in texts]

    def hold(self):
        self.held.clear()
        self.may_answer.clear()

    def release(self):
        self.may_answer.set()

    def close(self):
        self.closing = True  # an answer that is held back is lost, not sent at the last moment
        self.release()
        for each in [self.listener, *self.sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(client)
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        """A connection. One command at a time: whoever is behind it must not pipeline."""
        try:
            with client, socket.create_connection(("127.0.0.1", self.port_behind)) as server:
                self.sockets.append(server)
                reader, answers = client.makefile("rb"), server.makefile("rb")
                while True:
                    command = read_reply(reader)
                    if not command:
                        return
                    words = command.split(b"\r\n")[2:12:2]
                    matches = words[0].upper() == self.command
                    self.commands.append(words)
                    with self.lock:
                        answer = self.answers.pop(0) if matches and self.answers else None
                        cut = matches and self.ncut == 1
                        self.ncut -= matches and self.ncut > 0
                    if answer is None:
                        server.sendall(command)
                        answer = read_reply(answers)
                    if not answer or cut:
                        return
                    if matches and not self.may_answer.is_set():
                        self.held.set()
                        self.may_answer.wait()
                        if self.closing:
                            return
                    client.sendall(answer)
        except OSError:
            pass


def read_reply(stream):
    """A command or a reply, as its bytes; empty at the end of the stream."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        return b""
    kind, rest = line[:1], line[1:-2]
    if kind == b"$" and rest != b"-1":
        return line + stream.read(int(rest) + 2)
    if kind == b"*" and rest != b"-1":
        return line + b"".join(read_reply(stream) for _ in range(int(rest)))
    return line
