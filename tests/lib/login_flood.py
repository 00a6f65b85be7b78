"""Clients of one address that log in for ever: each sends the next AUTH when it has the answer to the last one."""

import contextlib
import selectors
import threading

from harness import PATIENCE_S, Resp, wait_until
from harness.resp import encode


class LoginFlood:
    def __init__(self, address, source, clients, user, password):
        self.user, self.password = user, password
        self.busy = 0
        self.clients = [Resp(address, source=source, timeout=PATIENCE_S) for _ in range(clients)]
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        self.thread.join()
        for c in self.clients:
            c.close()

    def request(self):
        return encode('AUTH', self.user() if callable(self.user) else self.user, self.password)

    def wait_until_refused(self):
        """Until its address has all that it can get."""
        wait_until(lambda: self.busy > 0, 'a login that is one too many')

    def _run(self):
        with contextlib.closing(selectors.DefaultSelector()) as waiting:
            for c in self.clients:
                c.sock.setblocking(False)
                waiting.register(c.sock, selectors.EVENT_READ)
                c.sock.send(self.request())
            while not self.over.is_set():
                for key, _ in waiting.select(0.2):
                    answer = key.fileobj.recv(4096)
                    self.busy += answer.startswith(b'-BUSY')
                    key.fileobj.send(self.request())
