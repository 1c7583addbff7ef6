"""A way to a server on which something happens at an exact point: before the n-th time that a word
goes by.
"""

import socket
import threading


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes everything on to the server at another port.

    When a client sends the word for the n-th time, hook() is called before the command goes on.
    That is exact for clients that wait for each reply: what they send at once is one command.
    """

    def __init__(self, port, word, n, hook):
        self.port_behind, self.word, self.left, self.hook = port, word, n, hook
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.port_behind))
            threading.Thread(target=self.pass_on, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.pass_on, args=(server, client, False), daemon=True).start()

    def pass_on(self, source, target, watched):
        try:
            while True:
                data = source.recv(1 << 20)
                if not data:
                    break
                if watched and self.left > 0:
                    self.left -= data.count(self.word)
                    if self.left <= 0:
                        self.hook()
                target.sendall(data)
        except OSError:
            pass
        for one in (source, target):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
