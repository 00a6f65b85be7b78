"""Clients under load, and the oracle that judges what they saw.

Each client is a thread with one connection. It acquires a lock, perhaps checks and renews it, and
releases it. When a node fails or answers UNCERTAIN it goes to the next node and asks again with the
same owner. Everything it asks is recorded with the time it was first sent and the time it was answered.

Rules of the oracle (times are this process's monotonic clock):
  1. No two grants share a token.
  2. A grant that was asked for after another was answered has the larger token.
  3. An acknowledged grant stays: until the lease may have expired (first sent + ttl, and so for each
     acknowledged renewal), or until its release was sent, nobody else is granted the lock, and the
     holder's own CHECK, RENEW and RELEASE find it.
  4. An acknowledged release stays: the token is never found again.
"""

import itertools
import random
import threading
import time

from .resp import Resp, RespError
from .wait import PATIENCE_S, seed, wait_until


class Grant:
    __slots__ = ('lock', 'owner', 'token', 'sent', 'answered', 'safe_until', 'release_sent', 'released')

    def __init__(self, lock, owner, token, sent, answered, ttl_s):
        self.lock, self.owner, self.token = lock, owner, token
        self.sent, self.answered = sent, answered
        self.safe_until = sent + ttl_s
        self.release_sent = None  # when it was first sent
        self.released = None      # when it was acknowledged


class _Stopped(Exception):
    pass


class _Client(threading.Thread):
    """One client. What goes against rule 3 or 4 in its own sight it writes to load.violations."""

    def __init__(self, load, number):
        super().__init__(name='client%d' % number, daemon=True)
        self.load = load
        self.random = random.Random(seed() * 1000 + number)
        self.number = number
        self.at = number % len(load.addresses)
        self.connection = None
        self.grants = []
        self.answers = {}
        self.longest_wait = 0.0
        self.crash = None

    def run(self):
        try:
            turn = 0
            while not self.load.stopping.is_set():
                turn += 1
                self._turn('load-%d-client-%04d-turn-%08d' % (self.load.number, self.number, turn))
        except _Stopped:
            pass
        except Exception as e: # told by Load.stop()
            self.crash = e
        finally:
            self._drop()

    # -- asking ---------------------------------------------------------------------------------
    def _drop(self):
        if self.connection:
            self.connection.close()
            self.connection = None

    def _next_node(self):
        self._drop()
        self.at = (self.at + 1) % len(self.load.addresses)
        time.sleep(0.005)

    def _count(self, what):
        self.answers[what] = self.answers.get(what, 0) + 1

    def _ask(self, *args):
        """Asks until there is a definite answer. Returns (answer, first sent, answered, certain):
        certain is false when an earlier try may have been carried out."""
        sent = time.monotonic()
        certain = True
        while True:
            if self.load.aborting.is_set():
                raise _Stopped
            try:
                if self.connection is None:
                    self.connection = Resp(self.load.addresses[self.at], timeout=self.load.timeout)
                answer = self.connection.call(*args)
                answered = time.monotonic()
                self.longest_wait = max(self.longest_wait, answered - sent)
                self._count(args[0])
                return answer, sent, answered, certain
            except RespError as e:
                self._count(e.word)
                if e.word == 'UNCERTAIN':
                    certain = False
                elif e.word not in ('NOLEADER', 'BUSY', 'LOADING'):
                    raise
                self._next_node()
            except ConnectionRefusedError:
                self._count('refused')
                self._next_node()
            except OSError:
                self._count('lost')
                certain = False
                self._next_node()

    # -- one turn: acquire, use, release ----------------------------------------------------------
    def _turn(self, owner):
        load = self.load
        lock = load.lock_prefix + str(self.random.randrange(load.locks))
        request = ['ACQUIRE', lock, 'TTL', load.ttl_ms, 'OWNER', owner]
        if self.random.random() < load.wait_share:
            request += ['WAIT', load.wait_ms]
        token, sent, answered, _ = self._ask(*request)
        if token is None:
            return
        grant = Grant(lock, owner, token, sent, answered, load.ttl_ms / 1000.0)
        self.grants.append(grant)
        for _ in range(self.random.randrange(3)):
            if self.random.random() < 0.5:
                self._expect(grant, *self._ask('CHECK', lock, token))
            else:
                found, renew_sent, renewed, certain = self._ask('RENEW', lock, token, 'TTL', load.ttl_ms)
                self._expect(grant, found, renew_sent, renewed, certain)
                if found == 1 and certain:
                    grant.safe_until = max(grant.safe_until, renew_sent + load.ttl_ms / 1000.0)
        if self.random.random() < load.abandon_share:
            return
        grant.release_sent = time.monotonic()
        found, release_sent, released, certain = self._ask('RELEASE', lock, token)
        if certain:
            self._expect(grant, found, release_sent, released, certain)
        grant.released = released
        if self.random.random() < 0.2:
            found = self._ask('CHECK', lock, token)[0]
            if found != 0:
                load.violations.append('rule 4: token %d of %s was released and is held again' % (token, lock))

    def _expect(self, grant, found, sent, answered, certain):
        if found not in (0, 1):
            self.load.violations.append('answer %r where 0 or 1 was due' % (found,))
        elif found == 0 and answered < grant.safe_until:
            self.load.violations.append('rule 3: %s did not find token %d of %s, %.3f s before its lease could end'
                                        % (grant.owner, grant.token, grant.lock, grant.safe_until - answered))


class Load:
    """`clients` threads on `locks` locks, spread over the addresses. No two loads use the same owner: a late copy of a request may
    have left a former owner a lock (adr/0008), and a request of that owner would get the old token."""

    numbers = itertools.count(1)

    def __init__(self, addresses, clients=8, locks=4, ttl_ms=20000, wait_share=0.5, wait_ms=5000, abandon_share=0.0,
                 timeout=10.0, lock_prefix='load-'):
        self.addresses = list(addresses)
        self.locks, self.ttl_ms = locks, ttl_ms
        self.wait_share, self.wait_ms, self.abandon_share = wait_share, wait_ms, abandon_share
        self.timeout = timeout
        self.lock_prefix = lock_prefix
        self.number = next(self.numbers)
        self.violations = []
        self.stopping = threading.Event()
        self.aborting = threading.Event()
        self.clients = [_Client(self, i) for i in range(clients)]

    def start(self):
        for client in self.clients:
            client.start()
        return self

    def grants(self):
        return [g for client in self.clients for g in list(client.grants)]

    def grants_answered(self):
        return sum(len(client.grants) for client in self.clients)

    def wait_more_grants(self, n=30, seconds=PATIENCE_S):
        wanted = self.grants_answered() + n
        wait_until(lambda: self.grants_answered() >= wanted, '%d more grants' % n, seconds=seconds)

    def answers(self):
        """How often each command was answered, and each error word and lost connection was met."""
        total = {}
        for client in self.clients:
            for word, n in list(client.answers.items()):
                total[word] = total.get(word, 0) + n
        return total

    def longest_wait(self):
        return max(client.longest_wait for client in self.clients)

    def stop(self, seconds=PATIENCE_S):
        """Lets every client finish its turn, and returns all grants."""
        self.stopping.set()
        end = time.monotonic() + seconds
        for client in self.clients:
            client.join(max(0.0, end - time.monotonic()))
        stuck = [client.name for client in self.clients if client.is_alive()]
        self.aborting.set()
        for client in self.clients:
            client.join(self.timeout + 5.0)
        for client in self.clients:
            if client.crash:
                raise client.crash
        if stuck:
            raise AssertionError('no definite answer within %g s for %s; answers so far: %r'
                                 % (seconds, ', '.join(stuck), self.answers()))
        return self.grants()

    def check(self):
        """Judges the whole record; raises AssertionError with the first few violations."""
        wrong = list(self.violations) + judge(self.grants())
        if wrong:
            raise AssertionError('%d violations, the first:\n  %s' % (len(wrong), '\n  '.join(wrong[:10])))


def judge(grants):
    """Rules 1 to 3 over a record of grants; a list of violations in words."""
    wrong = []
    by_token = {}
    for g in grants:
        other = by_token.setdefault(g.token, g)
        if other is not g and (other.lock, other.owner) != (g.lock, g.owner):
            wrong.append('rule 1: token %d was granted for %s to %s and for %s to %s'
                         % (g.token, other.lock, other.owner, g.lock, g.owner))
    answered = sorted(grants, key=lambda g: g.answered)
    at, highest = 0, None
    for g in sorted(grants, key=lambda g: g.sent):
        while at < len(answered) and answered[at].answered < g.sent:
            if highest is None or answered[at].token > highest.token:
                highest = answered[at]
            at += 1
        if highest is not None and g.token <= highest.token and (g.lock, g.owner) != (highest.lock, highest.owner):
            wrong.append('rule 2: token %d of %s was asked for %.3f s after token %d of %s had been answered'
                         % (g.token, g.lock, g.sent - highest.answered, highest.token, highest.lock))
    of_lock = {}
    for g in sorted(grants, key=lambda g: g.token):
        of_lock.setdefault(g.lock, []).append(g)
    for row in of_lock.values():
        for first, second in zip(row, row[1:]):
            until = first.safe_until if first.release_sent is None else min(first.safe_until, first.release_sent)
            if second.answered < until and first.owner != second.owner:
                wrong.append('rule 3: %s had token %d of %s for at least %.3f s more when %s was granted token %d'
                             % (first.owner, first.token, first.lock, until - second.answered, second.owner,
                                second.token))
    return wrong
