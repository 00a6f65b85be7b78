"""A server that misbehaves on purpose: it answers each request with the next step of a script.

    with ScriptedServer([b':7\\r\\n', CLOSE, (b'$5\\r\\nhal', CLOSE)]) as s: ...

A step is bytes to send (possibly half an answer, or garbage), CLOSE (the connection ends without
another byte), RESET (it ends with a TCP reset), HANG (no answer, the connection stays), STALL (as HANG,
and later connections are not served either), or a tuple of steps. A step may be a function of the
request that returns one. When the script is over, its last step is repeated. LEADER, PING and the
health probe of clients (CHECK fencelock 1) are answered apart from the script;
`requests` has everything else, in order, as lists of bytes.

A client gives up a request whose answer takes a second or so, and asks again: on a busy machine the
server may be that slow. `late` tells that it was. After settle() all that clients have sent before
they ended has been taken, and go_back(state()) has the script begin again where it was.
"""

import select
import socket
import struct
import threading

from harness import PATIENCE_S
from harness.resp import close_all, read_request

CLOSE, RESET, HANG, STALL = 'close', 'reset', 'hang', 'stall'


def bulk(data):
    return b'$%d\r\n%s\r\n' % (len(data), data)


class ScriptedServer:
    def __init__(self, script, leader=b'*-1\r\n', probe=b':0\r\n', listen=True):
        self.script = list(script)
        self.leader = leader
        self.probe = probe
        self.requests = []
        self.leader_requests = 0
        self.pings = 0
        self.probes = 0
        self.connections = 0
        self.late = False
        self.lock = threading.Lock()
        self.open = []
        self.serving = []
        self.markers = {} # the address of a connection of settle() -> it was accepted
        self.stalled = False
        self.listens = False
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        if listen: # else: the port is ours, and connecting to it is refused
            self.listen()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.listens = False
        close_all([self.listener] + self.open)

    def listen(self):
        self.listener.listen(64)
        self.listens = True
        threading.Thread(target=self._accept, daemon=True).start()

    def words(self):
        """The first word of each request."""
        with self.lock:
            return [r[0].decode() for r in self.requests]

    def settle(self):
        """For when all clients have ended: waits until the ends of all their connections were seen."""
        if not self.listens:
            return
        with socket.socket() as marker: # accepted after all that came before
            marker.bind(('127.0.0.1', 0))
            accepted = self.markers[marker.getsockname()] = threading.Event()
            marker.connect(self.listener.getsockname())
            if not accepted.wait(PATIENCE_S):
                raise AssertionError('a connection was not accepted')
        for thread in self.serving:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                raise AssertionError('a connection did not end')
        self.serving = []

    def state(self):
        with self.lock:
            return (list(self.script), list(self.requests), self.leader_requests, self.pings, self.probes, self.connections,
                    self.stalled)

    def go_back(self, state):
        with self.lock:
            (self.script, self.requests, self.leader_requests, self.pings, self.probes, self.connections,
             self.stalled) = state
            self.late = False

    def _accept(self):
        while True:
            try:
                sock, address = self.listener.accept()
            except OSError:
                return
            marker = self.markers.pop(address, None)
            if marker is not None:
                sock.close()
                marker.set()
                continue
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            with self.lock:
                self.connections += 1
                self.open.append(sock)
                self.serving.append(thread)
            thread.start()

    def _serve(self, sock):
        try:
            reader = sock.makefile('rb')
            while True:
                request = read_request(reader)
                if request is None:
                    return
                self._note_late(sock)
                if not self._answer(sock, request):
                    return
        except (OSError, ValueError):
            pass

    def _note_late(self, sock):
        """No client closes its connection before it has the answer, unless that takes too long."""
        try:
            poll = select.poll()
            poll.register(sock, select.POLLRDHUP)
            self.late = bool(poll.poll(0)) or self.late
        except (OSError, ValueError): # close()
            pass

    def _answer(self, sock, request):
        with self.lock:
            if self.stalled:
                return True
            if request[0] == b'LEADER':
                self.leader_requests += 1
                step = self.leader
            elif request[0] == b'PING':
                self.pings += 1
                step = b'+PONG\r\n'
            elif request == [b'CHECK', b'fencelock', b'1']:
                self.probes += 1
                step = self.probe
            else:
                self.requests.append(request)
                step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return self._do(sock, request, step)

    def _do(self, sock, request, step):
        if callable(step):
            return self._do(sock, request, step(request))
        if isinstance(step, tuple):
            return all(self._do(sock, request, part) for part in step)
        if isinstance(step, bytes):
            self._note_late(sock)
            sock.sendall(step)
            return True
        if step == HANG:
            return True
        if step == STALL:
            self.stalled = True
            return True
        if step == RESET:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
            sock.close()
            return False
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()
        return False
