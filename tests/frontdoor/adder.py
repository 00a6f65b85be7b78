"""A client of the demonstration: redlock-py as it is on PyPI, a counter behind fencelock-store, and one addition after the
other, until SIGTERM. SIGUSR1 makes it stop itself (SIGSTOP) between the read and the write of its next addition.

adder.py LOCKS STORE KEY tokens|plain     LOCKS: HOST:PORT,... as a program gives them to the library

Lines out: `ready`, `read N`, `stopping`, `added N`, `stale`, `lost` (the lock was gone before there was a token), `error TEXT`."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
import redis
from harness.resp import Resp, RespError
from redis.backoff import NoBackoff
from redis.retry import Retry
from redlock import MultipleRedlockException, Redlock

TTL_MS = 800


def tell(text):
    print(text, flush=True)


class Adder:
    def __init__(self, locks, store, key, tokens):
        servers = [redis.Redis(host=host, port=int(port), socket_timeout=3, retry=Retry(NoBackoff(), 0))
                   for host, port in (a.split(':') for a in locks.split(','))]
        self.dlm = Redlock(servers, retry_count=8, retry_delay=0.02)
        self.store, self.key, self.tokens = Resp(store, timeout=240), key, tokens == 'tokens'
        self.ending = self.stop_next = False
        signal.signal(signal.SIGTERM, self.on_term)
        signal.signal(signal.SIGUSR1, self.on_stop)

    def on_term(self, *_):
        self.ending = True

    def on_stop(self, *_):
        self.stop_next = True

    def maybe_stop(self):
        if self.stop_next:
            self.stop_next = False
            tell('stopping')
            os.kill(os.getpid(), signal.SIGSTOP)

    def fence(self, lock):
        """What goes with each request to the storage; None when the lock is no longer ours. The line of docs/FRONTDOOR.md."""
        if not self.tokens:
            return ()
        token = self.dlm.servers[0].execute_command('LOCKTOKEN', lock.resource, lock.key)
        return None if token is None else ('FENCE', self.key, token)

    def under(self, lock):
        """Reads, adds one, writes, with the lock held."""
        fence = self.fence(lock)
        if fence is None:
            return 'lost'
        n = int(self.store.call('GET', 'n-' + self.key, *fence) or 0)
        tell('read %d' % n)
        self.maybe_stop()
        try:
            self.store.call('SET', 'n-' + self.key, n + 1, *fence)
        except RespError as e:
            if e.word != 'STALE':
                raise
            return 'stale'
        return 'added %d' % (n + 1)

    def turn(self):
        lock = self.dlm.lock(self.key, TTL_MS)
        if lock:
            try:
                tell(self.under(lock))
            finally:
                self.dlm.unlock(lock)
                time.sleep(0.005)  # the others get a chance

    def run(self):
        tell('ready')
        while not self.ending:
            try:
                self.turn()
            except RespError as e:
                if e.word != 'STALE':  # of the read: somebody newer has read before
                    raise
                tell('stale')
            except (redis.exceptions.RedisError, MultipleRedlockException) as e:  # a server is down
                tell('error ' + ' '.join(str(e).split())[:200])
                time.sleep(0.02)


if __name__ == '__main__':
    Adder(*sys.argv[1:5]).run()
