"""A client process. It repeats its workload until SIGTERM, and writes its requests and their answers to a history.

SIGUSR1 makes it stop itself (SIGSTOP) just before its next write, or its next release when it writes nothing: between
the grant and the use of it. The operation is invoked after that, so the record says when it really went out."""

import argparse
import os
import random
import signal
import socket
import ssl
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, '..', '..', 'lib')]
from faultlab.asking import NOT_DONE, RetriedOperation, NoAnswer
from faultlab.front_door import FrontDoor
from faultlab.history import Recorder
from faultlab.workloads import WORKLOADS
from faultlab.users import PASSWORD
from harness import Resp, RespError
from tls_lab import TlsResp


class Server:
    """Asks one of several addresses over one connection."""

    def __init__(self, addresses, first, timeout, extra, certs='', user=''):
        self.addresses, self.at, self.timeout, self.extra = addresses, first % len(addresses), timeout, extra
        self.connection = None
        self.context = None
        self.user = '' if certs else user # a certificate says who we are
        if certs:
            self.context = ssl.create_default_context(cafile=os.path.join(certs, 'ca.crt'))
            self.context.load_cert_chain(os.path.join(certs, 'clients.crt'), os.path.join(certs, 'clients.key'))

    def connect(self, address, timeout):
        return TlsResp(address, self.context, timeout) if self.context else Resp(address, timeout=timeout)

    def drop(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def elsewhere(self):
        self.drop()
        self.at = (self.at + 1) % len(self.addresses)

    def once(self, *args):
        """The answer, or RespError, or NoAnswer. ConnectionRefusedError: surely nothing was sent."""
        if self.connection is None:
            try:
                self.connection = self.connect(self.addresses[self.at], self.timeout)
                self.log_in()
            except OSError as e:
                self.drop()
                raise ConnectionRefusedError(str(e)) from None
        self.look_for_extra()
        try:
            return self.connection.call(*args)
        except OSError as e:
            self.drop()
            raise NoAnswer('%s: %s' % (type(e).__name__, e)) from None

    def log_in(self):
        if not self.user:
            return
        try:
            self.connection.call('AUTH', self.user, PASSWORD)
        except RespError as e:
            if e.word not in NOT_DONE + ('UNCERTAIN', 'NOAUTH'): # no leader said what the password is
                raise
            raise OSError('%s: %s' % (e.word, e.text)) from None

    def look_for_extra(self):
        """Between requests nothing may come from a server but the end of the connection."""
        c = self.connection
        c.sock.setblocking(False)
        try:
            data = c.sock.recv(4096)
        except BlockingIOError:
            data = b''
        except OSError:
            data = b''
        finally:
            c.sock.settimeout(self.timeout)
        if data or len(c.buffer) > c.at:
            self.extra(repr(data or c.buffer[c.at:]))


class Redlock:
    """The lock is held on a quorum of Redis servers, by our library in a process of its own; the token comes from the
    nodes once it is held."""

    def __init__(self, client):
        from redlock_lab import Driver
        self.client = client
        self.driver = Driver(client.o.redis.split(','), budget=300)

    def acquire(self, lock):
        c = self.client
        op = c.invoke('redlock', lock=lock)
        answer = self.driver.acquire(lock, c.o.ttl_ms, c.random.choice((0, 200, 1000)))
        c.complete('ok' if answer.ok else 'fail', 'redlock', op)
        if not answer.ok:
            return None
        return c.ask_nodes('token', ['TOKEN', lock], 6.0, lock=lock, owner='%d-%d' % (c.o.number, c.ops))[1]

    def release(self, lock):
        c = self.client
        op = c.invoke('redlock release', lock=lock)
        c.complete('ok' if self.driver.release(lock).ok else 'fail', 'redlock release', op)


class Client:
    def __init__(self, options):
        self.o = options
        self.random = random.Random(options.seed * 1009 + options.number)
        self.recorder = Recorder(options.history)
        self.process, self.ops = options.number, 0
        self.stopping = self.pause_next = False
        self.nodes = Server(options.nodes.split(','), options.number, options.node_timeout, self.extra,
                            options.certs, options.user)
        self.store = Server([options.store], 0, options.store_timeout, self.extra, user=options.user) if options.store else None
        self.lists, self.drawn = {}, {} # of a lock: number of its list; tokens drawn for it
        self.redlock = Redlock(self) if options.redis else None
        self.front_door = FrontDoor(self) if options.front_door else None
        signal.signal(signal.SIGTERM, self.on_term)
        signal.signal(signal.SIGUSR1, self.on_pause)

    def on_term(self, *_):
        self.stopping = True

    def on_pause(self, *_):
        self.pause_next = True

    # -- the record ---------------------------------------------------------------------------------
    def note(self, kind, **fields):
        event = {'t': time.monotonic(), 'type': kind, 'process': self.process, 'client': self.o.number}
        event.update(fields)
        self.recorder.write(event)

    def extra(self, what):
        self.note('extra', f='extra', error='bytes that nobody asked for: ' + what[:200])

    def invoke(self, f, **fields):
        self.ops += 1
        op = '%d-%d' % (self.o.number, self.ops)
        self.note('invoke', f=f, op=op, **fields)
        return op

    def complete(self, kind, f, op, **fields):
        self.note(kind, f=f, op=op, **fields)
        if kind == 'info':
            self.process += self.o.clients

    # -- asking -------------------------------------------------------------------------------------
    def ask_nodes(self, f, args, give_up_s, **fields):
        """One operation on the cluster, asked again (it can be: it names its owner or its token) until somebody
        gives a definite answer. Returns (ok, answer)."""
        with RetriedOperation(self, f, give_up_s, **fields) as a:
            answer = a.ask(lambda: self.nodes.once(*args))
            if answer is a.NOTHING:
                return False, None
            a.complete('ok', **({'token': answer} if f in ('acquire', 'token') else {'found': answer}))
            return True, answer

    def ask_store(self, f, args, **fields):
        """One operation on the storage, sent once. Returns (kind, answer or error word)."""
        op = self.invoke(f, **fields)
        try:
            answer = self.store.once(*args)
        except RespError as e:
            self.complete('fail', f, op, error=e.line)
            return 'fail', e.word
        except ConnectionRefusedError as e:
            self.complete('fail', f, op, error='refused: %s' % e)
            return 'fail', None
        except NoAnswer as e:
            self.complete('info', f, op, error=str(e))
            time.sleep(0.02) # nobody learns anything from a storage that is not there
            return 'info', None
        if f in ('read', 'get'):
            answer = answer.decode() if answer is not None else None
            self.complete('ok', f, op, value=answer)
        else:
            self.complete('ok', f, op)
        return 'ok', answer

    def maybe_pause(self):
        if self.pause_next:
            self.pause_next = False
            os.kill(os.getpid(), signal.SIGSTOP)

    def think(self):
        time.sleep(self.random.expovariate(1.0) * self.o.think_ms / 1000.0)

    # -- workloads ----------------------------------------------------------------------------------
    def acquire(self, lock=None, words=(), **fields):
        """Returns (lock, token), token None when somebody else has it or nobody knows."""
        lock = lock or 'lock-%d' % self.random.randrange(self.o.locks)
        if self.redlock:
            return lock, self.redlock.acquire(lock)
        if self.front_door:
            return lock, self.front_door.acquire(lock, self.random.choice((0, 0.1, 1.0, 3.0)))
        owner = 'client-%03d-turn-%08d-%08x' % (self.o.number, self.ops, self.random.getrandbits(32))
        args = ['ACQUIRE', lock, 'TTL', self.o.ttl_ms, 'OWNER', owner]
        if self.random.random() < 0.8:
            args += ['WAIT', self.random.choice((100, 1000, 3000))]
        return lock, self.ask_nodes('acquire', args + list(words), 12.0, lock=lock, owner=owner,
                                    ttl=self.o.ttl_ms / 1000.0, **fields)[1]

    def release(self, lock, token):
        if self.redlock:
            self.redlock.release(lock)
            return
        if self.front_door:
            self.front_door.release(lock, token)
            return
        self.ask_nodes('release', ['RELEASE', lock, token], 6.0, lock=lock, token=token)

    def renew(self, lock, token):
        if self.front_door:
            self.front_door.renew(lock, token)
            return
        self.ask_nodes('renew', ['RENEW', lock, token], 6.0, lock=lock, token=token, ttl=self.o.ttl_ms / 1000.0)

    def check(self, lock, token):
        if self.front_door:
            self.front_door.check(lock, token)
            return
        self.ask_nodes('check', ['CHECK', lock, token], 6.0, lock=lock, token=token)

    def read(self, lock, key, token):
        """A read that claims, unless that is what this run leaves out."""
        args = ['GET', key] if self.o.check_writes_only else ['GET', key, 'FENCE', lock, token]
        return self.ask_store('read', args, lock=lock, key=key, token=None if self.o.check_writes_only else token)

    def run(self):
        workload = WORKLOADS[self.o.workload]
        print('ready: client %d' % self.o.number, flush=True)
        while not self.stopping:
            workload(self)
            self.think()
        self.recorder.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--workload', required=True)
    p.add_argument('--number', type=int, required=True)
    p.add_argument('--clients', type=int, required=True)
    p.add_argument('--nodes', required=True)
    p.add_argument('--certs', default='')
    p.add_argument('--user', default='')
    p.add_argument('--store', default='')
    p.add_argument('--redis', default='')
    p.add_argument('--front-door', action='store_true', help='take locks as a library for Redis does')
    p.add_argument('--history', required=True)
    p.add_argument('--seed', type=int, required=True)
    p.add_argument('--locks', type=int, default=2)
    p.add_argument('--ttl-ms', type=int, default=800)
    p.add_argument('--think-ms', type=float, default=5.0)
    p.add_argument('--node-timeout', type=float, default=4.0)
    p.add_argument('--store-timeout', type=float, default=8.0)
    p.add_argument('--check-writes-only', action='store_true')
    socket.setdefaulttimeout(30)
    Client(p.parse_args()).run()


if __name__ == '__main__':
    main()
