"""One writer of the counter, as its own process: it does what it is told, step by step, so that a fault falls
between the same two steps in every run. A line of JSON comes in for each step, and one goes out."""

import json
import subprocess
import sys
import time

from harness import Resp, RespError
from harness.lab import binary

TTL_MS = 5000
WAIT_S, SHORT_WAIT_S = 30.0, 5.0
STORE_S = 120.0


class Writer:
    def __init__(self, redis, nodes):
        self.servers = ['--redis', redis, '--restarts-are-safe', '--budget', '250ms', '--json']
        self.nodes = nodes
        self.stores = {}
        self.token = None

    def tool(self, *words):
        """The answer of a command of `fencelock redlock`. The servers are said to keep their keys over a restart,
        which is not true of these: that is one of the faults."""
        done = subprocess.run([binary('fencelock'), 'redlock', *map(str, words), *self.servers],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return json.loads(done.stdout) if done.stdout else {'cause': 'the tool ended with %d' % done.returncode}

    def acquire(self, ttl_ms=TTL_MS):
        """On a busy machine a token may come too late for the lock's validity. With a short TTL that may go on and
        on: then the answer is no, and we are told a longer one."""
        until = time.monotonic() + (SHORT_WAIT_S if ttl_ms < TTL_MS else WAIT_S)
        tokens = [] if self.mode == 'off' else ['--nodes', self.nodes]
        tries = 0
        while True:
            began = time.monotonic()
            wait_ms = max(0, int((until - began) * 1000))
            got = self.tool('acquire', self.lock, '--ttl', '%dms' % ttl_ms, '--wait', '%dms' % wait_ms, *tokens)
            tries += 1
            if got.get('acquired'):
                break
            if time.monotonic() >= until:
                return {'word': 'failed', 'why': got.get('cause')}
        self.owner, self.token = got['owner'], got.get('token')
        self.deadline = began + got['valid_ms'] / 1000 # a little too early, never too late
        return {'word': 'acquired', 'token': self.token, 'deadline': self.deadline, 'tries': tries}

    def call(self, *words):
        """A command of the storage."""
        if self.store not in self.stores:
            self.stores[self.store] = Resp(self.store, timeout=STORE_S)
        try:
            return self.stores[self.store].call(*words)
        except OSError:
            del self.stores[self.store]
            raise

    def fence(self, wanted):
        return ['FENCE', self.lock, self.token] if wanted else []

    def read(self):
        """A claim comes before the first read: from then on no older token is accepted. Mode `writes` leaves it out
        and reads without the token, so a write of the holder before is accepted between our read and our write."""
        claims = self.mode == 'on'
        try:
            if claims:
                self.call('CLAIM', self.lock, self.token)
            self.value = int(self.call('GET', self.key, *self.fence(claims)) or 0)
        except RespError as e:
            return refusal(e)
        return {'word': 'read', 'value': self.value}

    def look(self):
        return {'word': 'valid' if time.monotonic() < self.deadline else 'over'}

    def write(self):
        try:
            self.call('SET', self.key, self.value + 1, *self.fence(self.mode != 'off'))
        except RespError as e:
            return refusal(e)
        except OSError:
            return {'word': 'unknown'}
        self.value += 1
        return {'word': 'written', 'value': self.value}

    def release(self):
        """Lost or not, there is nothing more to be done about it."""
        self.tool('release', self.lock, self.owner)
        return {'word': 'released'}

    def add(self):
        """Once more and once more, until one update has been acknowledged."""
        until = time.monotonic() + WAIT_S
        tries = 0
        while time.monotonic() < until:
            tries += 1
            if self.acquire()['word'] != 'acquired':
                continue
            got = self.read()
            if got['word'] == 'read' and self.look()['word'] == 'valid':
                got = self.write()
            self.release()
            if got['word'] == 'written':
                return {'word': 'added', 'tries': tries}
            if got['word'] in ('unknown', 'failed'):
                break
        return {'word': 'failed', 'why': 'no update was acknowledged'}

    def obey(self, order):
        """order: `do`, and what it is done to: lock, key, mode, store."""
        self.lock, self.key, self.mode, self.store = (order[k] for k in ('lock', 'key', 'mode', 'store'))
        if order['do'] == 'acquire':
            return self.acquire(order['ttl_ms'])
        return {'read': self.read, 'look': self.look, 'write': self.write, 'release': self.release,
                'add': self.add}[order['do']]()


def refusal(error):
    """STALE token SENT is below the mark MARK of lock NAME; ..."""
    if error.word != 'STALE':
        return {'word': 'failed', 'why': error.line}
    words = error.line.split()
    return {'word': 'refused', 'mark': int(words[words.index('mark') + 1])}


def main(redis, nodes):
    writer = Writer(redis, nodes)
    for line in sys.stdin:
        print(json.dumps(writer.obey(json.loads(line))), flush=True)
    return 0
