#!/usr/bin/python3
"""libfencelock under ThreadSanitizer (its thread, and threads that ask about its locks) and under
valgrind, on real nodes. With --full, all tests of held_locks.py under ThreadSanitizer instead of some."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from cli_library import needs_valgrind, sanitizers
from harness import PATIENCE_S, main
from harness.lab import ROOT, build_dir
from held_locks import DEADLINE, OTHER, RELEASED, SHELLS, Driver, HoldCase

FULL = '--full' in sys.argv
if FULL:
    sys.argv.remove('--full')
SOME = ('come_and_go', 'many_at_once', 'test_sessions', 'threads_that_ask', 'Stopped', 'Storage')
VALGRIND = ('valgrind', '-q', '--leak-check=full', '--show-leak-kinds=all', '--errors-for-leak-kinds=all',
            '--error-exitcode=99')


class Races(HoldCase):
    def make(self, *command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout.decode(errors='replace')[-3000:])

    def test_held_locks_under_thread_sanitizer(self):
        if sanitizers():
            self.skipTest('this build has other sanitizers')
        made = self.lab.path('tsan')
        self.make('meson', 'setup', made, ROOT, '-Db_sanitize=thread', '-Db_lundef=false', '-Dwerror=false')
        self.make('ninja', '--quiet', '-C', made, 'tests/unit/client/hold_driver', 'tests/unit/client/test_client_threads')
        driver = os.path.join(made, 'tests', 'unit', 'client', 'hold_driver')
        tried = subprocess.run([driver], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
        if tried.returncode != 2: # its usage
            self.skipTest('ThreadSanitizer does not run on this kernel: %s'
                          % tried.stdout.decode(errors='replace').strip()[:200])
        # 8 threads, 1,000 locks, callbacks that call back, and a client that is closed at any moment.
        threads = subprocess.run([os.path.join(os.path.dirname(driver), 'test_client_threads')], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, timeout=300, env=dict(os.environ, TSAN_OPTIONS='exitcode=66'))
        self.assertEqual(threads.returncode, 0, threads.stdout.decode(errors='replace')[-4000:])
        # Servers of the build, and the client of this one.
        overlay = self.lab.path('overlay')
        os.makedirs(os.path.join(overlay, 'tests', 'unit', 'client'))
        os.symlink(os.path.join(build_dir(), 'src'), os.path.join(overlay, 'src'))
        os.symlink(driver, os.path.join(overlay, 'tests', 'unit', 'client', 'hold_driver'))
        words = [] if FULL else [w for word in SOME for w in ('-k', word)]
        done = subprocess.run([sys.executable, os.path.join(HERE, 'held_locks.py'), *words], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=800,
                              env=dict(os.environ, FENCELOCK_BUILD=overlay, TSAN_OPTIONS='exitcode=66'))
        out = done.stdout.decode(errors='replace')
        self.assertEqual(done.returncode, 0, out[-4000:])
        self.note(out.strip().splitlines()[-1])


class Valgrind(HoldCase):
    def setUp(self):
        needs_valgrind(self)
        super().setUp()
        os.environ['DRIVER_ATTEMPT_MS'] = '60000' # under valgrind, beside others
        self.addCleanup(os.environ.pop, 'DRIVER_ATTEMPT_MS')

    def test_every_shell(self):
        for shell in SHELLS:
            d = Driver(shell, self.nodes, wrapper=VALGRIND)
            token = d.hold('a', ttl=600000)
            self.call('ACQUIRE', 'b', 'TTL', 600000, 'OWNER', OTHER)
            self.assertEqual(d.take('b')[2], 'ENOTHELD')
            self.assertEqual(d('open', 'session-0123456789', 600000)[2], 'OK')
            held = d('under', 'session-0123456789', 'c', 0)
            self.assertEqual(held[2], 'OK')
            self.assertEqual(d('release', 'c')[2], 'OK')
            if shell != 'thread': # a wait that ends with its session, and one that is open at the end
                d.say('under', 'session-0123456789', 'b', 500000)
                self.assertEqual(sorted((d('release', 'session-0123456789'), d.next()))[1][2], 'ENOSESSION')
                d.say('take', 'b', 30000, 500000, 0, 0)
            self.assertEqual(self.call('CHECK', 'a', token), 1)
            self.assertEqual(d('release', 'a')[2], 'OK')
            d.hold('d-' + shell, ttl=600000) # never given back
            self.assertEqual(d.end(), (0, ''), shell) # 99 and words when valgrind found something

    def test_a_lock_that_is_lost(self):
        for shell in SHELLS:
            d = Driver(shell, self.nodes, wrapper=VALGRIND)
            for ttl in (1500, 15000, 60000): # a busy machine may outlast a lease before the answer is there
                name = 'x-%s-%d' % (shell, ttl)
                if d.take(name, ttl=ttl)[2] == 'OK':
                    break
            self.cluster.nodes[0].pause()
            line = d.next()
            while line[2] != 'lost':
                line = d.next()
            self.assertEqual(line[3], str(DEADLINE))
            self.cluster.nodes[0].resume()
            self.assertEqual(d('look', name)[2:4], ['lost', str(DEADLINE)])
            self.assertIn(d('release', name)[2], ('OK', 'ENOTHELD', 'EUNCERTAIN'))
            self.assertEqual(d.end(), (0, ''), shell)


if __name__ == '__main__':
    main()
