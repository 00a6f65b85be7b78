#!/usr/bin/python3
"""Every kind of trouble on 0 to N of N servers, for N of 1, 3 and 5: a minority does not matter, a majority is an
outage that is told by its name, and nothing stays behind on any server, neither at once nor when it is well again."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import main, wait_until
from redlock_lab import LONG_MS, PATIENT_MS, Redis
from redlock_servers import RedlockCase
from cli_library import needs_valgrind

BUDGET_MS = 500 # of servers that say nothing


class Matrix(RedlockCase):
    def one(self, d, n, bad, name, cause):
        a = d('acquire', 0, name, LONG_MS, 0, 0)
        if bad > (n - 1) // 2:
            self.assertEqual((a.ok, a.cause), (False, cause), a)
            return
        self.assertTrue(a.ok, a)
        self.assertNotIn('yes', a.statuses[:bad])
        self.assertGreaterEqual(a.statuses.count('yes'), n // 2 + 1)
        self.assertTrue(d('extend', 0, name, LONG_MS)['result'] == 'OK')
        self.assertTrue(d('release', 0, name)['result'] == 'OK')

    def sweep(self, cause, hurt, heal=None, endpoints=None, warm=False, args=(), prepare=None, **options):
        """hurt(some) and heal(some) take the servers (or what endpoints(servers) made of them) that are in trouble."""
        for n in (1, 3, 5):
            servers = [Redis(self.lab, 'redis%d.%d' % (n, i), *args) for i in range(n)]
            points = endpoints(servers) if endpoints else servers
            if prepare:
                prepare(servers)
            for bad in range(n + 1):
                name = 'lock%d' % bad
                with self.subTest(servers=n, bad=bad):
                    d = None
                    if cause == 'too slow' and bad > (n - 1) // 2: # else none of them is waited for
                        options['budget'] = BUDGET_MS
                    elif cause == 'too slow':
                        options['budget'] = PATIENT_MS
                    if warm:
                        d = self.driver(points, **options)
                        self.warm(d)
                    hurt(points[:bad], name)
                    d = d or self.driver(points, **options)
                    self.one(d, n, bad, name, cause)
                    if heal:
                        heal(points[:bad], name)

                    def gone():
                        d('status') # a turn for the loop
                        return all(s.call('EXISTS', name) == 0 for s in servers)
                    wait_until(gone, 'the key is gone everywhere')
                    self.assertEqual(d.close(), 0)
            for s in servers:
                if s.process.running():
                    s.process.kill()

    def test_dead(self):
        self.sweep('unreachable', lambda some, name: [s.process.kill() for s in some],
                   lambda some, name: [s.start() for s in some])

    def test_hung(self):
        """The SETs are done when it goes on, and the releases behind them."""
        self.sweep('too slow', lambda some, name: [s.process.pause() for s in some],
                   lambda some, name: [s.process.resume() for s in some], warm=True, loop=True)

    def test_slow(self):
        """Their answers come when nobody waits for them any more."""
        self.sweep('too slow', lambda some, name: [p.hold_answers() for p in some], lambda some, name: [p.let_go() for p in some],
                   endpoints=lambda servers: [self.proxy(s) for s in servers], warm=True, loop=True)

    def test_cut_after_the_set_and_before_its_answer(self):
        """The releases follow on new connections."""
        def rule(r):
            return lambda some, name: [setattr(p, 'rule', r) for p in some]
        self.sweep('unreachable', rule(lambda data: 'drop' if b'\r\nSET\r\n' in data else None), rule(None),
                   endpoints=lambda servers: [self.proxy(s) for s in servers], warm=True, loop=True)

    def test_readonly(self):
        self.sweep('refused', lambda some, name: [s.call('REPLICAOF', '127.0.0.1', '1') for s in some],
                   lambda some, name: [s.call('REPLICAOF', 'NO', 'ONE') for s in some], warm=True)

    def test_misconf(self):
        """A failed save is remembered; whether it matters is a matter of the configuration."""
        def fail_to_save(servers):
            for s in servers:
                s.call('CONFIG', 'SET', 'dbfilename', 'no')
                os.makedirs(self.lab.path(s.name, 'no', 'x')) # a directory that is not empty cannot be replaced
                s.call('BGSAVE')
            for s in servers:
                wait_until(lambda s=s: b'rdb_last_bgsave_status:err' in s.call('INFO', 'persistence'), 'a failed save')

        def save(value):
            return lambda some, name: [s.call('CONFIG', 'SET', 'save', value) for s in some]
        self.sweep('refused', save('3600 1'), save(''), args=('--enable-protected-configs', 'yes'), prepare=fail_to_save)

    def test_out_of_memory(self):
        def limit(value):
            return lambda some, name: [s.call('CONFIG', 'SET', 'maxmemory', value) for s in some]
        self.sweep('refused', limit('1'), limit('0'))

    def test_wrong_type(self):
        self.sweep('contended', lambda some, name: [s.call('HSET', name, 'uuid:1', '1') for s in some],
                   lambda some, name: [s.call('DEL', name) for s in some])

    def test_held_by_another(self):
        self.sweep('contended', lambda some, name: [s.call('SET', name, 'theirs') for s in some],
                   lambda some, name: [s.call('DEL', name) for s in some])

    def test_wrong_password(self):
        def password(value):
            def change(some, name):
                for s in some:
                    s.call('CONFIG', 'SET', 'requirepass', value)
                    s.password = value
            return change
        self.sweep('refused', password('other'), password('right'), args=(), password='right',
                   prepare=lambda servers: password('right')(servers, None))

    def test_loading(self):
        """A real server that takes its time to load what it had saved."""
        self.sweep('refused', self.load_slowly, self.wait_loaded)

    def load_slowly(self, some, name):
        """Answers between one key and the next, for more than a minute: the first of several has to be at it still when
        the last has begun and all have been asked."""
        for s in some:
            s.call('FLUSHALL')
            s.call('CONFIG', 'SET', 'rdbcompression', 'no')
            s.call('EVAL', "for i = 1, 4000 do redis.call('SET', 'k' .. i, string.rep('x', 1100)) end", 0)
            s.call('SAVE')
            s.process.kill()
            plain = s.args
            s.args = (*plain, '--key-load-delay', '20000', '--loading-process-events-interval-bytes', '1024')
            s.start()
            s.args = plain

    def wait_loaded(self, some, name):
        for s in some:
            s.process.kill()
            s.start()
            wait_until(lambda s=s: b'loading:0' in s.call('INFO', 'persistence'), 'it has loaded')


class Memory(RedlockCase):
    def test_valgrind(self):
        """A life on a loop and one of blocking calls, with a server that dies and one that hangs, without a leak or a
        read of something that is not there."""
        needs_valgrind(self)
        wrapper = ('valgrind', '-q', '--leak-check=full', '--show-leak-kinds=all', '--errors-for-leak-kinds=all',
                   '--error-exitcode=99')
        for loop in (False, True):
            servers = self.redis(5)
            d = self.driver(servers, loop=loop, wrapper=wrapper)
            self.assertTrue(d('acquire', 0, 'a', LONG_MS, PATIENT_MS, 0).ok)
            self.assertTrue(d('extend', 0, 'a', LONG_MS).ok)
            self.assertEqual(d('acquire', 1, 'a', LONG_MS, 0, 0).cause, 'contended')
            self.assertEqual(d('check')['result'], 'OK')
            self.assertTrue(d('fenced', 2, 'b', LONG_MS, 0, 0, 0, 7, 10).ok)
            self.assertEqual(d('fenced', 3, 'c', LONG_MS, 0, 0, -1004, 7, 10).cause, 'no token')
            if loop:
                d.send('contend', 8, 3, 'd', LONG_MS, LONG_MS, 1)
                self.assertEqual(d.read()['grants'], [3] * 8)
            servers[0].process.kill()
            servers[1].process.pause()
            self.assertTrue(d('acquire', 4, 'e', LONG_MS, PATIENT_MS, 0).ok)
            self.assertTrue(d('release', 4, 'e').ok)
            servers[2].process.kill()
            self.assertFalse(d('acquire', 5, 'f', 10000, 0, 0).ok)
            servers[1].process.resume()
            servers[0].start()
            self.assertTrue(d('keep', 6, 'g', LONG_MS, PATIENT_MS, LONG_MS).ok)
            if loop:
                d.send('acquire', 7, 'a', LONG_MS, LONG_MS, 0) # in flight when everything ends
            self.assertEqual(d.close(), 0) # 99 when valgrind found something
            for s in servers:
                if s.process.running():
                    s.process.kill()


if __name__ == '__main__':
    main()
