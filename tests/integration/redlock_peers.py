#!/usr/bin/python3
"""The same keys on the same real Redis servers, shared with other libraries: what one holds the other is refused,
and neither deletes or extends what the other holds. Each library is installed by its own package manager, and
skipped, with the reason, where that cannot be done."""

import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, main, seed, wait_until
from redlock_lab import LONG_MS, PATIENT_MS
from redlock_peers_lab import Peer, Unavailable
from redlock_servers import RedlockCase

# Theirs, longer than any machine stands still. A lock that a library has set and believes not to hold ends by itself, and in time.
THEIR_MS = 120000
SHORT_MS = 1000 # python-redis-lock counts in whole seconds


class Sharing:
    """Ours and theirs on the same servers. The checks run one after the other, and leave nothing behind."""

    def __init__(self, case, library, servers, key_format, extends, foreign):
        self.case, self.servers, self.extends, self.foreign = case, servers, extends, foreign
        self.key_format = key_format
        self.quorum = len(servers) // 2 + 1
        self.library = library
        self.theirs = self.new_peer('theirs')
        self.ours = self.new_driver()
        # A first call each: connections, scripts, a virtual machine that is getting warm.
        self.they_lock('warm')
        self.theirs('unlock')
        self.we_lock('warm')
        self.ours.release('warm')
        self.all_gone('warm')

    def new_peer(self, name):
        peer = Peer(self.library, self.servers, self.case.lab.path(name + '.log'))
        self.case.addCleanup(peer.close)
        return peer

    def new_driver(self):
        return self.case.driver(self.servers, format=self.key_format, retry=5, retry_cap=100)

    def key(self, name):
        return self.key_format.replace('%s', name)

    # -- what is on the servers ---------------------------------------------------------------
    def servers_with_key(self, name):
        return sum(s.call('EXISTS', self.key(name)) for s in self.servers)

    def servers_with_value(self, name, value):
        """On how many servers the key holds a value of ours."""
        return sum(s.call('TYPE', self.key(name)) == 'string' and s.get(self.key(name)) == value for s in self.servers)

    def quorum_ttl_ms(self, name):
        """The longest time that the keys of a quorum have left at least."""
        return sorted(s.call('PTTL', self.key(name)) for s in self.servers)[-self.quorum]

    def all_gone(self, name):
        wait_until(lambda: self.servers_with_key(name) == 0, 'the key %s is gone' % name)

    # -- what both do -------------------------------------------------------------------------
    def they_lock(self, name, ttl_ms=THEIR_MS):
        """On a free key. Slow machines may need more than one attempt, since TTLs are short."""
        wait_until(lambda: self.theirs('lock', name, ttl_ms) == 'held', 'their lock of ' + name)

    def we_lock(self, name, ttl_ms=LONG_MS):
        answer = self.ours.acquire(name, ttl_ms, wait=PATIENT_MS)
        self.case.assertTrue(answer.ok, answer)
        return answer['value']

    def they_are_refused(self, name):
        answer = self.theirs('lock', name, THEIR_MS)
        if self.foreign: # it finds a key of another type than its own
            self.case.assertRegex(answer, '^refused$|^error .*WRONGTYPE')
        else:
            self.case.assertEqual(answer, 'refused')

    def we_are_refused(self, name):
        answer = self.ours.acquire(name, LONG_MS)
        self.case.assertEqual((answer.result, answer.cause), ('ENOTHELD', 'contended'), answer)

    def they_free(self, name):
        self.case.assertIn(self.theirs('unlock'), ('freed', 'done'))
        self.all_gone(name)

    def we_free(self, name):
        answer = self.ours.release(name)
        self.case.assertTrue(answer.ok, answer)
        self.all_gone(name)

    # -- the checks ---------------------------------------------------------------------------
    def check_they_hold(self):
        self.they_lock('a')
        self.we_are_refused('a')
        self.case.assertGreaterEqual(self.servers_with_key('a'), self.quorum) # our failed attempt took nothing away
        self.they_free('a')
        self.we_lock('a')
        self.we_free('a')

    def check_we_hold(self):
        value = self.we_lock('b')
        self.they_are_refused('b')
        self.case.assertGreaterEqual(self.servers_with_value('b', value), self.quorum)
        self.we_free('b')
        self.they_lock('b')
        self.they_free('b')

    def check_theirs_expires(self):
        """We wait for it, and get it when it has expired, not before; their late release takes nothing of ours."""
        began = time.monotonic()
        self.they_lock('c', SHORT_MS)
        value = self.we_lock('c')
        self.case.assertGreater(time.monotonic() - began, 0.95 * SHORT_MS / 1000)
        answer = self.theirs('unlock')
        if not self.foreign: # which reports nothing of that
            self.case.assertIn(answer, ('lost', 'done'))
        self.case.assertGreaterEqual(self.servers_with_value('c', value), self.quorum)
        self.they_are_refused('c')
        self.we_free('c')

    def check_ours_expires(self):
        """They get it then; our late release and our late extend take nothing of theirs and give us nothing."""
        self.we_lock('d', SHORT_MS)
        self.all_gone('d')
        self.they_lock('d')
        self.case.assertEqual(self.ours.extend('d', LONG_MS).cause, 'lost')
        causes = []
        # The servers have 50 ms for a release, a twentieth of the TTL.
        wait_until(lambda: causes.append(self.ours.release('d').cause) or causes[-1] != 'too slow', 'an answer to a release')
        self.case.assertEqual(causes[-1], 'lost')
        self.case.assertGreaterEqual(self.servers_with_key('d'), self.quorum)
        self.we_are_refused('d')
        self.they_free('d')

    def check_they_extend(self):
        self.they_lock('e')
        self.case.assertLessEqual(self.quorum_ttl_ms('e'), THEIR_MS)
        self.case.assertEqual(self.theirs('extend', 2 * THEIR_MS), 'held')
        self.case.assertGreater(self.quorum_ttl_ms('e'), THEIR_MS)
        self.we_are_refused('e')
        self.they_free('e')

    def check_they_extend_in_vain(self):
        """What has expired and is ours now."""
        self.they_lock('f', SHORT_MS)
        self.all_gone('f')
        value = self.we_lock('f')
        self.case.assertNotEqual(self.theirs('extend', THEIR_MS), 'held')
        self.case.assertGreaterEqual(self.servers_with_value('f', value), self.quorum)
        self.we_free('f')

    def check_we_extend(self):
        self.we_lock('g')
        answer = self.ours.extend('g', 2 * LONG_MS)
        self.case.assertTrue(answer.ok, answer)
        self.case.assertGreater(self.quorum_ttl_ms('g'), LONG_MS)
        self.they_are_refused('g')
        self.we_free('g')

    def check_a_race(self):
        """Two of each, all at once: never two inside."""
        inside, overlaps, counts = [], [], {}
        chooser = random.Random(seed())

        def work(who, lock, unlock):
            pause = random.Random(chooser.random())
            for _ in range(4):
                while not lock():
                    time.sleep(pause.uniform(0, 0.02))
                overlaps.extend(inside)
                inside.append(who)
                time.sleep(pause.uniform(0, 0.01))
                inside.remove(who)
                counts[who] = counts.get(who, 0) + 1
                unlock()

        peers = {'theirs': self.theirs, 'theirs too': self.new_peer('theirs too')}
        drivers = {'ours': self.ours, 'ours too': self.new_driver()}
        threads = [threading.Thread(target=work, args=(who, lambda p=p: p('lock', 'h', THEIR_MS) == 'held',
                                                       lambda p=p: p('unlock')), daemon=True)
                   for who, p in peers.items()]
        threads += [threading.Thread(target=work, args=(who, lambda d=d: d.acquire('h', LONG_MS, wait=200).ok,
                                                        lambda d=d: d.release('h')), daemon=True)
                    for who, d in drivers.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        self.case.assertEqual(overlaps, [])
        self.case.assertEqual(sorted(counts.values()), [4] * 4)
        self.all_gone('h')

    def run(self):
        checks = ['they_hold', 'we_hold', 'theirs_expires', 'ours_expires', 'we_extend', 'a_race']
        if self.extends:
            checks += ['they_extend', 'they_extend_in_vain']
        for name in checks:
            getattr(self, 'check_' + name)()
        self.case.note('%d checks; Redis servers: %d' % (len(checks), len(self.servers)))


class Peers(RedlockCase):
    TIMEOUT_S = 1400 # installing is part of it

    def share(self, library, servers=3, key_format='%s', extends=True, foreign=False):
        try:
            Sharing(self, library, self.redis(servers), key_format, extends, foreign).run()
        except Unavailable as e:
            self.skipTest('%s: %s' % (library, e))

    def test_node_redlock_4(self):
        self.share('node-redlock 4')

    def test_node_redlock_5(self):
        self.share('node-redlock 5')

    def test_redis_py_of_the_distribution(self):
        self.share("redis-py's Lock (Debian)", servers=1)

    def test_redis_py(self):
        self.share("redis-py's Lock", servers=1)

    def test_redlock_py(self):
        self.share('redlock-py', extends=False)

    def test_pottery(self):
        self.share('pottery', key_format='redlock:%s')

    def test_python_redis_lock(self):
        self.share('python-redis-lock', servers=1, key_format='lock:%s')

    def test_redsync(self):
        self.share('redsync')

    def test_redislock_of_bsm(self):
        self.share('bsm/redislock', servers=1)

    def test_redisson(self):
        """Its locks are hashes: both sides exclude each other all the same, theirs by an error."""
        self.share('Redisson', extends=False, foreign=True)

    def test_rslock(self):
        self.share('rslock')

    def test_redlock_rb(self):
        self.share('redlock-rb')

    def test_redlock_php(self):
        self.share('redlock-php', extends=False)


if __name__ == '__main__':
    main()
