"""What tests of TLS are built from: certificates by deploy/certs, a client that speaks TLS, and a proxy that keeps
every byte that is on the wire."""

import os
import socket
import ssl
import subprocess
import threading

from harness import ANSWER_S, PATIENCE_S, Deadline, Lateness, Resp, RespError, Retries
from harness.lab import free_ports

CERTS = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'deploy', 'certs'))


class Certs:
    """A CA in a directory of its own, and what it has signed."""

    def __init__(self, lab, name='certs'):
        self.dir = lab.path(name)
        self.make('ca')

    def make(self, *words, **env):
        subprocess.run([CERTS, self.dir, *words], check=True, capture_output=True, env=dict(os.environ, **env))

    def expired(self, *words):
        """A certificate of two days, made a week ago."""
        subprocess.run(['faketime', '-f', '-7d', CERTS, self.dir, *words], check=True, capture_output=True,
                       env=dict(os.environ, DAYS='2', FORCE='1'))

    def crt(self, name):
        return os.path.join(self.dir, name + '.crt')

    def key(self, name):
        return os.path.join(self.dir, name + '.key')

    def daemon(self, name='server', **more):
        """Options of a daemon; words of `more` with _ for -."""
        options = {'tls_cert_file': self.crt(name), 'tls_key_file': self.key(name), 'tls_ca_cert_file': self.crt('ca'),
                   **more}
        return [w for k, v in options.items() if v is not None for w in ('--' + k.replace('_', '-'), v)]

    def tool(self, name=None):
        """Options of fencelock and of redis-cli."""
        own = ['--cert', self.crt(name), '--key', self.key(name)] if name else []
        return ['--tls', '--cacert', self.crt('ca')] + own

    def context(self, name=None, version=None):
        context = ssl.create_default_context(cafile=self.crt('ca'))
        if name:
            context.load_cert_chain(self.crt(name), self.key(name))
        if version:
            context.minimum_version = context.maximum_version = version
        return context


class TlsResp(Resp):
    """A raw RESP client over TLS."""

    def __init__(self, address, context, timeout=ANSWER_S):
        super().__init__(address, timeout=timeout)
        try:
            self.sock = context.wrap_socket(self.sock, server_hostname=address.rpartition(':')[0])
        except BaseException:
            self.sock.close()
            raise


class Handshaker:
    """A client whose bytes we carry."""

    def __init__(self, context):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname='127.0.0.1')

    def step(self):
        """What it has to say now, and whether it has no more to hear."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return self.outgoing.read(), False
        return self.outgoing.read(), True


class Tap:
    """A proxy in front of an address: `seen` is all that went through it, both ways."""

    def __init__(self, target):
        self.target = (target.rpartition(':')[0], int(target.rpartition(':')[2]))
        self.seen = bytearray()
        self.listener = socket.create_server(('127.0.0.1', free_ports(1)[0]))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.target)
            except OSError:
                return
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source, sink):
        try:
            while data := source.recv(65536):
                self.seen += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def keeps_its_term(case, leader, strike, strikers, ask, has_struck):
    """Whether a leader with LONG_ELECTION_TIMEOUT does while so many threads strike() again and again: for five seconds, which is more
    than two times of an election, and until has_struck(). ask() is what its clients do meanwhile."""
    term, over = leader.info()['term'], threading.Event()

    def storm():
        while not over.is_set():
            try:
                strike()
            except OSError:
                pass
    threads = [threading.Thread(target=storm, daemon=True) for _ in range(strikers)]
    for t in threads:
        t.start()
    deadline, patience = Deadline(5), Deadline(PATIENCE_S)
    try:
        while not deadline.passed() or not has_struck():
            ask()
            case.assertFalse(patience.passed(), 'no storm')
    except RespError as e: # it has lost its term, or tries to get it back
        case.assertIn(e.word, ('UNCERTAIN', 'NOLEADER'))
        return False
    finally:
        over.set()
        for t in threads:
            t.join(PATIENCE_S)
    info = leader.info()
    return (info['term'], int(info['leader_id'])) == (term, leader.id)


def assert_no_storm_costs_a_term(case, keeps_term):
    """keeps_term(): a storm, and whether the leader kept its term. That a slow machine cost it needs evidence, as in any second try."""
    retries = Retries()
    for _ in range(5):
        with Lateness() as late:
            if keeps_term():
                return
        case.assertTrue(retries.allowed(late, 500), 'a storm cost a term again, and processes were woken %.0f ms late' % late.most_ms)
    case.fail('each storm cost a term')
