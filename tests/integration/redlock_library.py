#!/usr/bin/python3
"""Redlock of libfencelock as it is installed: alone, and with tokens of a real cluster
and a real storage that checks them (docs/examples/redlock_counter.c)."""

import os
import shutil
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Cluster, Deadline, Store, main, try_again
from harness.lab import ROOT, build_dir
from redlock_servers import RedlockCase
from cli_library import sanitizers

ALONE = r'''
#include <fencelock/redlock.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    fl_client *r;
    fl_lock *lock;
    struct fl_redlock_options options;
    struct fl_take how;
    memset(&options, 0, sizeof options);
    memset(&how, 0, sizeof how);
    options.servers = argc > 1 ? argv[1] : NULL;
    options.restarts_are_safe = true;
    options.budget_ms = options.connect_ms = options.hung_ms = 240000; /* the machine may be busy */
    options.max_ttl_ms = how.ttl_ms = 20 * 240000;
    if (fl_redlock_open(&options, &r) != 0 || fl_lock_take(r, "report", &how, &lock) != 0 ||
        fl_lock_state(lock) == FL_HOLD_LOST || fl_lock_release(lock) != 0) {
        return 1;
    }
    fl_close(r);
    puts("held");
    return 0;
}
'''


PAGE_MAIN = r'''
#include <fencelock/redlock.h>
#include <fencelock/store_client.h>
#include <stdio.h>
#include <stdlib.h>
%s
int main(int argc, char **argv)
{
    fl_client *redlock = NULL;
    fl_client *tokens = NULL;
    fl_store *store = NULL;
    struct fl_redlock_options options = {.servers = argv[1], .restarts_are_safe = true, .budget_ms = 60000};
    int rc = argc != 4 || fl_open(argv[2], NULL, &tokens) != 0;
    options.tokens = tokens;
    rc = rc || fl_redlock_open(&options, &redlock) != 0 || fl_store_open(argv[3], &(struct fl_client_options){.timeout_ms = 240000}, &store) != 0;
    if (rc == 0) {
        do { /* -1: not acquired. On a busy machine both may happen, and nothing was added then. */
            rc = add_one(redlock, store, "counter");
        } while (rc == -1 || rc == FL_ESTALE);
    }
    fl_store_close(store);
    fl_close(redlock);
    fl_close(tokens);
    return rc != 0;
}
'''


class Library(RedlockCase):
    def setUp(self):
        super().setUp()
        self.headers = ['-I' + os.path.join(ROOT, 'include')]
        sanitize = sanitizers()
        self.more = ['-fsanitize=' + sanitize] if sanitize else []
        self.client = os.path.join(build_dir(), 'src', 'client')
        self.env = dict(os.environ, LD_LIBRARY_PATH=self.client)

    def build(self, compiler, source, *libraries):
        target = self.lab.path('program')
        subprocess.run([*compiler, '-Wall', '-Wextra', '-Werror', *self.headers, *self.more, source, *libraries,
                        '-o', target], check=True)
        return target

    def static(self):
        return [os.path.join(self.client, 'libfencelock.a'), '-lhiredis', '-lssl', '-lcrypto', '-pthread']

    def shared(self):
        return ['-L' + self.client, '-lfencelock']

    def test_alone(self):
        servers = ','.join(s.address for s in self.redis(3))
        for compiler, name in ((['cc', '-std=c99'], 'alone.c'), (['c++', '-std=c++11'], 'alone.cc')):
            if shutil.which(compiler[0]) is None:
                continue
            source = self.lab.path(name)
            with open(source, 'w') as f:
                f.write(ALONE)
            for libraries in (self.static(), self.shared()):
                program = self.build(compiler, source, *libraries)
                done = subprocess.run([program, servers], stdout=subprocess.PIPE, timeout=PATIENCE_S, env=self.env)
                self.assertEqual((done.returncode, done.stdout), (0, b'held\n'))

    def test_the_header_stands_alone(self):
        for language, standard in (('c', 'c99'), ('c', 'c11'), ('c++', 'c++11')):
            subprocess.run(['cc', '-x', language, '-std=' + standard, '-Wall', '-Wextra', '-Wpedantic', '-Werror',
                            '-fsyntax-only', *self.headers, '-include', 'fencelock/redlock.h', '/dev/null'], check=True)

    def test_only_our_names_are_exported(self):
        lines = subprocess.run(['nm', '-D', '--defined-only', os.path.join(self.client, 'libfencelock.so')],
                               check=True, stdout=subprocess.PIPE).stdout
        names = [line.split()[-1] for line in lines.decode().splitlines()]
        self.assertIn('fl_redlock_open', names)
        self.assertEqual([n for n in names if not n.startswith('fl_') and 'asan' not in n and 'ubsan' not in n], [])

    def test_the_function_of_the_page(self):
        """The function of docs/REDLOCK.md, as it stands there, in a program that gives it its three handles."""
        with open(os.path.join(ROOT, 'docs', 'REDLOCK.md')) as f:
            part = f.read().split('<!-- redlock in C -->\n```c\n', 1)[1]
        function = part.split('```', 1)[0]
        source = self.lab.path('page.c')
        with open(source, 'w') as f:
            f.write(PAGE_MAIN % function)
        servers = self.redis(3)
        cluster = Cluster(self.lab, 1).start()
        store = Store(self.lab)
        store.start()
        program = self.build(['cc', '-std=c99'], source, *self.static())
        arguments = [','.join(s.address for s in servers), ','.join(cluster.addresses()), store.address]
        together = [subprocess.Popen([program, *arguments], env=self.env) for _ in range(4)]
        self.assertEqual([p.wait(PATIENCE_S) for p in together], [0] * 4)
        self.assertEqual(store.call('GET', 'n'), b'4')
        self.assertGone(servers, 'counter')

    def count_together(self, n, argv):
        """n at once run the example until each has counted, which on a busy machine may take more than one run: its lock is for
        5 s, and its servers have 50 ms. The numbers counted, and how many writes had no answer."""
        counted, unknown, patience = [], [], Deadline(PATIENCE_S)

        def count():
            while not patience.passed():
                try:
                    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, check=False,
                                          timeout=max(1.0, patience.left()))
                except subprocess.TimeoutExpired:
                    return
                said = done.stdout.decode().strip()
                if said.isdigit(): # whatever became of its lock then
                    counted.append(int(said))
                    return
                if done.returncode != 1 or (not said and b'not acquired' not in done.stderr):
                    return # and one is missing
                if said and 'mark' not in said: # that of a newer holder
                    unknown.append(said)
        threads = [threading.Thread(target=count, daemon=True) for _ in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience.left() + 60) # each ends by itself
        return sorted(counted), len(unknown)

    def test_tokens_of_a_real_cluster_at_a_real_storage(self):
        servers = self.redis(3)
        cluster = Cluster(self.lab, 1).start()
        store = Store(self.lab)
        store.start()
        source = os.path.join(ROOT, 'docs', 'examples', 'redlock_counter.c')
        arguments = [','.join(s.address for s in servers), ','.join(cluster.addresses()), store.address, 'safe']
        both = (self.static(), self.shared())
        expected = 0
        for libraries in both:
            program = self.build(['cc', '-std=c99'], source, *libraries)
            counted, unknown = self.count_together(4, [program, *arguments])
            self.assertEqual(len(set(counted)), 4, counted)
            self.assertLessEqual(set(counted), set(range(expected + 1, expected + 5 + unknown)))
            expected = int(store.call('GET', 'n'))
            self.assertIn(expected, range(max(counted), max(counted) + unknown + 1))
        mark = store.call('MARK', 'counter')
        self.assertGreaterEqual(mark, 8)
        self.assertGone(servers, 'counter')
        # without a token source that answers there is no lock, and nothing stays behind
        cluster.nodes[0].kill()

        def told():
            done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE_S,
                                  env=self.env)
            self.assertEqual(done.returncode, 1)
            if b'no token' in done.stderr:
                return True
            self.assertRegex(done.stderr, b'too slow|unreachable') # the servers
            return False
        try_again(told, 'it says that there is no token')
        self.assertGone(servers, 'counter')


if __name__ == '__main__':
    main()
