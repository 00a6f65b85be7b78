#!/usr/bin/python3
"""libfencelock-redlock as it is installed: alone, and together with libfencelock for tokens of a real cluster
and a real storage that checks them (docs/examples/redlock_counter.c)."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Cluster, Store, main
from harness.lab import ROOT, build_dir
from redlock_servers import RedlockCase
from cli_library import sanitizers

ALONE = r'''
#include <fencelock/redlock.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    fl_redlock *r;
    struct fl_redlock_options options;
    struct fl_redlock_lock lock;
    memset(&options, 0, sizeof options);
    options.servers = argc > 1 ? argv[1] : NULL;
    options.restarts_are_safe = true;
    if (fl_redlock_create(NULL, &options, &r, NULL, 0) != 0 ||
        fl_redlock_acquire(r, fl_str("report"), NULL, &lock) != 0 ||
        fl_redlock_remaining_ms(&lock) == 0 || fl_redlock_release(r, fl_str("report"), &lock) != 0) {
        return 1;
    }
    fl_redlock_close(r, NULL, NULL);
    puts("held");
    return 0;
}
'''


README_MAIN = r'''
#include <fencelock/redlock.h>
#include <fencelock/store_client.h>
#include <stdio.h>
#include <stdlib.h>
%s
int main(int argc, char **argv)
{
    fl_redlock *redlock = NULL;
    fl_client *tokens = NULL;
    fl_store *store = NULL;
    struct fl_redlock_options options = {.servers = argv[1], .restarts_are_safe = true};
    int rc = argc != 4 || fl_redlock_create(NULL, &options, &redlock, NULL, 0) != 0 ||
             fl_client_create(argv[2], NULL, &tokens) != 0 || fl_store_create(argv[3], 0, &store) != 0;
    if (rc == 0) {
        rc = add_one(redlock, tokens, store, fl_str("counter"));
    }
    fl_store_destroy(store);
    fl_client_destroy(tokens);
    fl_redlock_close(redlock, NULL, NULL);
    return rc != 0;
}
'''


class Library(RedlockCase):
    def setUp(self):
        super().setUp()
        self.headers = ['-I' + os.path.join(ROOT, 'include')]
        sanitize = sanitizers()
        self.more = ['-fsanitize=' + sanitize] if sanitize else []
        self.redlock = os.path.join(build_dir(), 'src', 'redlock')
        self.client = os.path.join(build_dir(), 'src', 'client')
        self.env = dict(os.environ, LD_LIBRARY_PATH=self.redlock + ':' + self.client)

    def build(self, compiler, source, *libraries):
        target = self.lab.path('program')
        subprocess.run([*compiler, '-Wall', '-Wextra', '-Werror', *self.headers, *self.more, source, *libraries,
                        '-o', target], check=True)
        return target

    def static(self):
        return [os.path.join(self.redlock, 'libfencelock-redlock.a'), '-luv', '-lhiredis', '-lssl', '-lcrypto']

    def shared(self):
        return ['-L' + self.redlock, '-lfencelock-redlock']

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
                done = subprocess.run([program, servers], stdout=subprocess.PIPE, timeout=240, env=self.env)
                self.assertEqual((done.returncode, done.stdout), (0, b'held\n'))

    def test_the_header_stands_alone(self):
        for language, standard in (('c', 'c99'), ('c', 'c11'), ('c++', 'c++11')):
            subprocess.run(['cc', '-x', language, '-std=' + standard, '-Wall', '-Wextra', '-Wpedantic', '-Werror',
                            '-fsyntax-only', *self.headers, '-include', 'fencelock/redlock.h', '/dev/null'], check=True)

    def test_only_our_names_are_exported(self):
        lines = subprocess.run(['nm', '-D', '--defined-only', os.path.join(self.redlock, 'libfencelock-redlock.so')],
                               check=True, stdout=subprocess.PIPE).stdout
        names = [line.split()[-1] for line in lines.decode().splitlines()]
        self.assertIn('fl_redlock_acquire', names)
        self.assertEqual([n for n in names if not n.startswith('fl_') and 'asan' not in n and 'ubsan' not in n], [])

    def test_the_ten_lines_of_the_readme(self):
        """README's function, as it stands there, in a program that gives it its three handles."""
        with open(os.path.join(ROOT, 'README.md')) as f:
            part = f.read().split('<!-- redlock in C -->\n```c\n', 1)[1]
        function = part.split('```', 1)[0]
        self.assertEqual(len(function.split('{\n', 1)[1].rsplit('}', 1)[0].strip().split('\n')), 10)
        source = self.lab.path('readme.c')
        with open(source, 'w') as f:
            f.write(README_MAIN % function)
        servers = self.redis(3)
        cluster = Cluster(self.lab, 1).start()
        store = Store(self.lab)
        store.start()
        program = self.build(['cc', '-std=c99'], source, os.path.join(self.client, 'libfencelock.a'), *self.static(),
                             '-pthread')
        arguments = [','.join(s.address for s in servers), ','.join(cluster.addresses()), store.address]
        together = [subprocess.Popen([program, *arguments], env=self.env) for _ in range(4)]
        self.assertEqual([p.wait(240) for p in together], [0] * 4)
        self.assertEqual(store.call('GET', 'n'), b'4')
        self.assertGone(servers, 'counter')

    def test_tokens_of_a_real_cluster_at_a_real_storage(self):
        servers = self.redis(3)
        cluster = Cluster(self.lab, 1).start()
        store = Store(self.lab)
        store.start()
        source = os.path.join(ROOT, 'docs', 'examples', 'redlock_counter.c')
        arguments = [','.join(s.address for s in servers), ','.join(cluster.addresses()), store.address, 'safe']
        both = ([os.path.join(self.client, 'libfencelock.a'), *self.static(), '-pthread'],
                [*self.shared(), '-L' + self.client, '-lfencelock'])
        expected = 0
        for libraries in both:
            program = self.build(['cc', '-std=c99'], source, *libraries)
            together = [subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, env=self.env)
                        for _ in range(4)]
            counted = sorted(int(p.communicate(timeout=240)[0]) for p in together)
            self.assertEqual([p.returncode for p in together], [0] * 4)
            self.assertEqual(counted, list(range(expected + 1, expected + 5)))
            expected += 4
        mark = store.call('MARK', 'counter')
        self.assertGreaterEqual(mark, 8)
        self.assertGone(servers, 'counter')
        # without a token source that answers there is no lock, and nothing stays behind
        cluster.nodes[0].kill()
        done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240,
                              env=self.env)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'no token', done.stderr)
        self.assertGone(servers, 'counter')


if __name__ == '__main__':
    main()
