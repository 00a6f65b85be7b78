"""A TCP proxy that can fall silent, as a network does: connections stay, new ones are taken, and no byte
comes through in either direction. What was sent meanwhile is lost, not kept."""

import select
import socket
import threading
import time

from harness import PATIENCE_S, Case, Cluster


class SilentProxy:
    def __init__(self, target, delay_s=0):
        self.delay_s = delay_s # of each answer; the proxy carries nothing else meanwhile
        host, port = target.rsplit(':', 1)
        self.target = (host, int(port))
        self.silent = threading.Event()
        self.replace = None # (what passes, what passes instead), of one length
        self.heard = None # a bytearray: what has come, from both sides
        self.pairs = {}
        self.clients = set()
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        self.waker, self.woken = socket.socketpair()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def close(self):
        self.waker.close()
        self.thread.join(PATIENCE_S)
        for sock in [self.listener, self.woken, *self.pairs]:
            sock.close()

    def _accept(self):
        near, _ = self.listener.accept()
        try:
            far = socket.create_connection(self.target, PATIENCE_S)
        except OSError:
            near.close()
            return
        for sock in (near, far):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pairs[near], self.pairs[far] = far, near
        self.clients.add(near)

    def _forward(self, sock):
        other = self.pairs.get(sock)
        if other is None:
            return
        try:
            data = sock.recv(65536)
            if self.heard is not None:
                self.heard += data
            if self.replace is not None:
                data = data.replace(*self.replace)
            if self.delay_s and sock not in self.clients:
                time.sleep(self.delay_s)
            if data and not self.silent.is_set():
                other.sendall(data)
        except OSError:
            data = b''
        if not data and not self.silent.is_set():
            for end in (sock, other):
                self.pairs.pop(end, None)
                end.close()
        elif not data: # an end that the other side must not hear of; it is kept, and not read any more
            self.pairs.pop(sock, None)
            sock.close()
            self.pairs[other] = _ClosedEnd()

    def _run(self):
        while True:
            readable = select.select([self.listener, self.woken] + [s for s in self.pairs if s.fileno() >= 0], [], [])[0]
            for sock in readable:
                if sock is self.woken:
                    return
                if sock is self.listener:
                    self._accept()
                elif sock.fileno() >= 0:
                    self._forward(sock)


class SilentClusterCase(Case):
    """A test with a cluster that runs. With PROXIES a SilentProxy is in front of each node: clients that get their addresses
    from `nodes` reach the nodes only through these."""

    NODES = 1
    PROXIES = False

    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, self.NODES)
        self.proxies = []
        if self.PROXIES:
            self.proxies = [SilentProxy(node.address) for node in self.cluster.nodes]
            for node, proxy in zip(self.cluster.nodes, self.proxies):
                self.addCleanup(proxy.close)
                node.extra = ['--advertise', proxy.address]
        self.cluster.start()
        self.cluster.leader()
        self.nodes = ','.join(p.address for p in self.proxies or self.cluster.nodes)


class _ClosedEnd:
    """The other end of a connection whose end came during the silence."""

    def sendall(self, data):
        raise OSError('the other end is gone')

    def close(self):
        pass

    def fileno(self):
        return -1
