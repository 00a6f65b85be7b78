"""A client process. It repeats its workload's turn until SIGTERM, and writes what it asked and was told to a history.

SIGUSR1 makes it stop itself (SIGSTOP) just before its next write, or its next release when it writes nothing: between
the grant and the use of it. The operation is invoked after that, so the record says when it really went out."""

import argparse
import os
import random
import signal
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE), os.path.join(HERE, '..', '..', 'lib')]
from faultlab.history import Recorder
from harness import Resp, RespError

NOT_DONE = ('NOLEADER', 'BUSY', 'LIMIT')


class Silence(Exception):
    """No definite answer: the text says why."""


class Server:
    """Asks one of several addresses over one connection."""

    def __init__(self, addresses, first, timeout, extra):
        self.addresses, self.at, self.timeout, self.extra = addresses, first % len(addresses), timeout, extra
        self.connection = None

    def drop(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def elsewhere(self):
        self.drop()
        self.at = (self.at + 1) % len(self.addresses)

    def once(self, *args):
        """The answer, or RespError, or Silence. ConnectionRefusedError: surely nothing was sent."""
        if self.connection is None:
            try:
                self.connection = Resp(self.addresses[self.at], timeout=self.timeout)
            except OSError as e:
                raise ConnectionRefusedError(str(e)) from None
        self.look_for_extra()
        try:
            return self.connection.call(*args)
        except OSError as e:
            self.drop()
            raise Silence('%s: %s' % (type(e).__name__, e)) from None

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


class Client:
    def __init__(self, options):
        self.o = options
        self.random = random.Random(options.seed * 1009 + options.number)
        self.recorder = Recorder(options.history)
        self.process, self.ops = options.number, 0
        self.stopping = self.pause_next = False
        self.nodes = Server(options.nodes.split(','), options.number, options.node_timeout, self.extra)
        self.store = Server([options.store], 0, options.store_timeout, self.extra) if options.store else None
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
        op = self.invoke(f, **fields)
        end = time.monotonic() + give_up_s
        unknown = None
        while True:
            try:
                answer = self.nodes.once(*args)
                self.complete('ok', f, op, retried=unknown is not None,
                              **({'token': answer} if f == 'acquire' else {'found': answer}))
                return True, answer
            except RespError as e:
                if e.word == 'UNCERTAIN':
                    unknown = e.line
                elif e.word not in NOT_DONE:
                    self.complete('fail', f, op, error=e.line)
                    return False, None
                error = e.line
            except Silence as e:
                unknown = error = str(e)
            except ConnectionRefusedError as e:
                error = 'refused: %s' % e
            self.nodes.elsewhere()
            if time.monotonic() > end:
                self.complete('info' if unknown else 'fail', f, op, error=unknown or error)
                return False, None
            time.sleep(0.01)

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
        except Silence as e:
            self.complete('info', f, op, error=str(e))
            return 'info', None
        if f == 'read':
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
    def acquire(self):
        """Returns (lock, token), token None when somebody else has it or nobody knows."""
        lock = 'lock-%d' % self.random.randrange(self.o.locks)
        owner = 'client-%03d-turn-%08d-%08x' % (self.o.number, self.ops, self.random.getrandbits(32))
        args = ['ACQUIRE', lock, 'TTL', self.o.ttl_ms, 'OWNER', owner]
        if self.random.random() < 0.8:
            args += ['WAIT', self.random.choice((100, 1000, 3000))]
        return lock, self.ask_nodes('acquire', args, 12.0, lock=lock, owner=owner, ttl=self.o.ttl_ms / 1000.0)[1]

    def release(self, lock, token):
        self.ask_nodes('release', ['RELEASE', lock, token], 6.0, lock=lock, token=token)

    def turn_counter(self):
        """Reads a counter under a lock, adds one, writes it back. The value is `count id`, where the id is that of the
        add that wrote it: with what each add was based on, the whole lineage of a value can be told."""
        lock, token = self.acquire()
        if token is None:
            return
        key = 'counter-of-' + lock
        for _ in range(self.random.choice((1, 1, 1, 2, 4))):
            args = ['GET', key] if self.o.check_writes_only else ['GET', key, 'FENCE', lock, token]
            kind, value = self.ask_store('read', args, lock=lock, key=key, token=None if self.o.check_writes_only else token)
            if kind != 'ok':
                break
            count, based_on = value.split() if value else ('0', 'nothing')
            self.think()
            self.maybe_pause()
            mine = 'a%d-%d' % (self.o.number, self.ops)
            new = '%d %s' % (int(count) + 1, mine)
            kind, _ = self.ask_store('add', ['SET', key, new, 'FENCE', lock, token], lock=lock, key=key, token=token,
                                     id=mine, based_on=based_on, count=int(count) + 1)
            if kind != 'ok':
                break # refused, or unknown: then nothing more may be written under this token
        if self.random.random() < 0.9:
            self.release(lock, token)

    def turn_lock(self):
        """The lock alone: renews, checks, releases; sometimes keeps it for longer than its lease, which only renewals
        make possible; sometimes walks away and lets it expire."""
        lock, token = self.acquire()
        if token is None:
            return
        if self.random.random() < 0.25:
            for _ in range(self.random.choice((2, 3))):
                time.sleep(self.random.uniform(0.5, 0.8) * self.o.ttl_ms / 1000.0)
                self.maybe_pause()
                self.ask_nodes('renew', ['RENEW', lock, token], 6.0, lock=lock, token=token, ttl=self.o.ttl_ms / 1000.0)
        for _ in range(self.random.randrange(4)):
            self.think()
            self.maybe_pause()
            if self.random.random() < 0.5:
                self.ask_nodes('renew', ['RENEW', lock, token], 6.0, lock=lock, token=token, ttl=self.o.ttl_ms / 1000.0)
            else:
                self.ask_nodes('check', ['CHECK', lock, token], 6.0, lock=lock, token=token)
        if self.random.random() < 0.85:
            self.release(lock, token)
            if self.random.random() < 0.2:
                self.ask_nodes('check', ['CHECK', lock, token], 6.0, lock=lock, token=token)

    def run(self):
        turn = {'counter': self.turn_counter, 'lock': self.turn_lock}[self.o.workload]
        print('ready: client %d' % self.o.number, flush=True)
        while not self.stopping:
            turn()
            self.think()
        self.recorder.close()


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--workload', required=True)
    p.add_argument('--number', type=int, required=True)
    p.add_argument('--clients', type=int, required=True)
    p.add_argument('--nodes', required=True)
    p.add_argument('--store', default='')
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
