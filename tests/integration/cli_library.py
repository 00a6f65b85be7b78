#!/usr/bin/python3
"""libfencelock between calls (connections kept and replaced, the leader learned, leases), and as it is
installed: pkg-config, static and shared, C and C++, and the example of docs/examples."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Deadline, main, try_again, wait_until
from harness.lab import ROOT, build_dir, build_option
from scripted_server import CLOSE, HANG, ScriptedServer, bulk


def leader_is(address):
    return b'*2\r\n:1\r\n' + bulk(address.encode())


def patient_example(lab, name):
    """The path of an example of docs/examples whose times no machine outlasts. That it compiles as it is printed is seen on the way."""
    printed = os.path.join(ROOT, 'docs', 'examples', name)
    subprocess.run(['cc', '-fsyntax-only', '-Wall', '-Wextra', '-Werror', '-I' + os.path.join(ROOT, 'include'), printed], check=True)
    with open(printed, encoding='utf-8') as f:
        text = f.read()
    patient = '&(struct fl_client_options){.timeout_ms = 240000, .attempt_ms = 60000}'
    for short, long in ((r'\.ttl_ms = \d+, \.wait_ms = \d+', '.ttl_ms = 600000, .wait_ms = 600000'),
                        (r'fl_open\(argv\[1\], NULL,', 'fl_open(argv[1], %s,' % patient),
                        (r'fl_store_open\(argv\[2\], NULL,', 'fl_store_open(argv[2], %s,' % patient)):
        text, n = re.subn(short, long, text)
        if n != 1:
            raise AssertionError('%d times %s in %s' % (n, short, name))
    with open(lab.path(name), 'w', encoding='utf-8') as f:
        f.write(text)
    return lab.path(name)


class Driver:
    def __init__(self, *addresses, wrapper=(), times=None):
        path = os.path.join(build_dir(), 'tests', 'unit', 'client', 'client_driver')
        self.child = subprocess.Popen([*wrapper, path, *addresses], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True, env={**os.environ, **(times or {})})

    def send(self, *words):
        self.child.stdin.write(' '.join(str(w) for w in words) + '\n')
        self.child.stdin.flush()

    def read(self):
        name, number, text = self.child.stdout.readline().rstrip('\n').split(' ', 2)
        return name, int(number), text

    def __call__(self, *words):
        self.send(*words)
        return self.read()

    def close(self):
        self.child.stdin.close()
        self.child.stdout.close()
        return self.child.wait(PATIENCE_S)


class LibraryCase(Case):
    TIMES = None

    def server(self, *script, **options):
        server = ScriptedServer(script, **options)
        self.addCleanup(server.close)
        return server

    def driver(self, *servers, store=None, **options):
        addresses = [','.join(s.address for s in servers)] + ([store.address] if store else [])
        driver = Driver(*addresses, times=self.TIMES, **options)
        self.addCleanup(lambda: self.assertEqual(driver.close(), 0))
        return driver


class PatientCase(LibraryCase):
    """For what is sent how often: no server is so late that it is asked again. A health probe, for which it takes less, finds
    none that is healthy, so the calls stay where they are."""

    TIMES = {'DRIVER_ATTEMPT_MS': '60000', 'DRIVER_TIMEOUT_MS': '240000'}

    def server(self, *script, **options):
        return super().server(*script, probe=b'-NOLEADER x\r\n', **options)


class BetweenCalls(PatientCase):
    def test_one_connection_serves_many_calls(self):
        s = self.server(b':7\r\n')
        d = self.driver(s)
        for _ in range(5):
            self.assertEqual(d('token', 'x'), ('OK', 7, ''))
        self.assertEqual((s.connections, s.leader_requests), (1, 1))

    def test_no_thread_is_started(self):
        s = self.server(b':7\r\n')
        d = self.driver(s)
        d('acquire', 'x', 600000, 1000, 0)
        self.assertEqual(d('threads')[1], 1)

    def test_the_leader_is_learned_and_preferred(self):
        a, b = self.server(b':7\r\n'), self.server(b':7\r\n')
        a.leader = b.leader = leader_is(b.address)
        d = self.driver(a, b)
        for _ in range(6):
            self.assertEqual(d('token', 'x')[0], 'OK')
        self.assertLessEqual(len(a.requests), 1)
        self.assertGreaterEqual(len(b.requests), 5)

    def test_a_leader_outside_the_list_is_followed(self):
        a, b = self.server(b':7\r\n'), self.server(b':9\r\n')
        a.leader = b.leader = leader_is(b.address)
        d = self.driver(a)
        self.assertEqual([d('token', 'x')[1] for _ in range(3)], [7, 9, 9])

    def test_a_leader_that_cannot_be_reached_is_left_alone(self):
        dead = self.server(b'', listen=False)
        a = self.server(b':7\r\n', leader=leader_is(dead.address))
        d = self.driver(a)
        for _ in range(4):
            self.assertEqual(d('token', 'x'), ('OK', 7, ''))

    def test_a_leader_that_does_not_serve_is_not_asked_again_at_once(self):
        def six_times():
            bad = self.server(CLOSE)
            a = self.server(b':7\r\n', leader=leader_is(bad.address))
            d = self.driver(a)
            soon = Deadline(25)
            for _ in range(6):
                self.assertEqual(d('token', 'x'), ('OK', 7, ''))
            return None if soon.passed() else bad # after half a minute it is asked again
        self.assertEqual(try_again(six_times, 'six calls within half a minute').connections, 1)

    def test_nonsense_for_a_leader_is_ignored(self):
        for leader in (b'*2\r\n:1\r\n$3\r\nfoo\r\n', b'*2\r\n:1\r\n$-1\r\n', b'+OK\r\n', b'*0\r\n', b'-ERR what?\r\n',
                       b'*2\r\n:1\r\n*1\r\n:1\r\n', leader_is('h:' + '1' * 300)):
            s = self.server(b':7\r\n', leader=leader)
            d = self.driver(s)
            for _ in range(3):
                self.assertEqual(d('token', 'x'), ('OK', 7, ''))

    def test_members_and_their_changes(self):
        def member(number, state, *more):
            fields = [b'id', None, b'state', state, *more]
            return b'*%d\r\n' % len(fields) + b''.join(b':%d\r\n' % number if f is None else bulk(f) for f in fields)
        members = b'*3\r\n' + member(1, b'voter', b'role', b'leader', b'client_address', b'h:1') + member(2, b'joining') + b'*0\r\n'
        s = self.server(members, b'+OK\r\n', b'+OK\r\n', b'+OK\r\n', b'+OK\r\n', b'+OK\r\n', b'-ERR node 9 is not a member\r\n',
                        CLOSE, b'-ERR node 9 is not a member\r\n', b'+nonsense\r\n', b'$3\r\nx:1\r\n')
        s.leader = leader_is(s.address)
        d = self.driver(s)
        self.assertEqual(d('members'), ('OK', 2, '1 voter leader h:1;2 joining  ;')) # what is no member is left out
        for sent, words in ((('add', 4, 'h:4'), 'ADD 4 h:4 LEARNER'), (('replace', 4, 'h:5', 'ab'), 'REPLACE 4 h:5 OF ab'),
                            (('move', 4, 'h:6'), 'MOVE 4 h:6 FORCE'), (('remove', 4), 'REMOVE 4 FORCE'), (('transfer', 0), 'TRANSFER')):
            self.assertEqual(d(*sent), ('OK', 0, ''))
            self.assertEqual(b' '.join(s.requests[-1]).decode(), 'CLUSTER ' + words)
        name, _, text = d('remove', 9)
        self.assertEqual(name, 'EDENIED')
        self.assertIn('node 9 is not a member', text)
        self.assertEqual(d('remove', 9)[0], 'EUNCERTAIN') # the attempt before may have removed it
        self.assertEqual(d('members')[0], 'EPROTO')

    def test_a_connection_that_the_server_closed_is_replaced(self):
        s = self.server((b':1\r\n', CLOSE))
        d = self.driver(s)
        for n in range(1, 4): # a request on the dead connection would have an unknown outcome
            self.assertEqual(d('break', 'x', 60000)[0], 'OK')
            self.assertEqual(s.connections, n)
            wait_until(lambda: d('closed')[1] == 1, what='the end of the connection')

    def test_unasked_bytes_are_not_taken_for_an_answer(self):
        s = self.server(b':7\r\n:666\r\n', b':8\r\n')
        d = self.driver(s)
        self.assertEqual(d('token', 'x')[1], 7)
        self.assertEqual(d('token', 'x')[1], 8)
        self.assertEqual(s.connections, 2)

    def test_a_late_answer_is_not_taken_for_the_next(self):
        given_up = threading.Event()
        def answer(request):
            if request[0] != b'ACQUIRE':
                return b':5\r\n'
            given_up.wait(PATIENCE_S)
            return b':1\r\n'
        s = self.server(answer)
        d = self.driver(s)
        for timeout in (1, 10, 100, 1000, 10000): # too short to succeed, but long enough to ask
            d('acquire', 'x', 60000, 0, timeout) # sets the name
            if s.words():
                break
        self.assertIn('ACQUIRE', s.words())
        given_up.set()
        self.assertEqual(d('check', 500)[0], 'EINVAL') # never granted, so there is no token to check
        self.assertEqual(d('token', 'y')[:2], ('OK', 5))

    def test_turned_away_servers_are_passed_over(self):
        full = self.server((b'', CLOSE), leader=(b'-LIMIT too many connections\r\n', CLOSE))
        good = self.server(b':1\r\n')
        d = self.driver(full, good)
        for _ in range(6):
            self.assertEqual(d('break', 'x', 60000)[0], 'OK') # not EUNCERTAIN: surely not done there

    def test_each_call_sets_or_clears_the_error(self):
        s = self.server(b'-LIMIT tokens\r\n', b':7\r\n')
        d = self.driver(s)
        name, _, text = d('token', 'x')
        self.assertEqual(name, 'ELIMIT')
        self.assertIn('LIMIT tokens', text)
        self.assertEqual(d('token', 'x'), ('OK', 7, ''))
        self.assertEqual(d('token', 'n' * 256)[0], 'EINVAL')


class Limits(PatientCase):
    """The largest answers that are taken, and the next larger ones."""

    def show(self, answer):
        return self.driver(self.server(answer))('show', 'x')

    def test_elements(self):
        most = 262144
        self.assertEqual(self.show(b'*%d\r\n' % most + b':1\r\n' * most)[0], 'OK')
        # Asked once: what may be repeated is, until the time is over, and the time may be what it ends with.
        name, _, text = self.driver(self.server(b'*%d\r\n' % (most + 2) + b':1\r\n' * (most + 2)))('info')
        self.assertEqual(name, 'EPROTO')
        self.assertIn('too large', text)

    def test_bytes(self):
        lock = self.server(b':7\r\n')
        most = (64 << 20) - 64 # the ceiling counts what frames the value
        store = self.server(bulk(b'v' * most))
        name, _, text = self.driver(lock, store=store)('get', 'k', 'l', 7)
        self.assertEqual((name, len(text)), ('OK', most))
        # Asked once: what may be repeated is, until the time is over.
        name, _, text = self.driver(self.server(bulk(b'v' * (64 << 20))))('info')
        self.assertEqual(name, 'EPROTO')
        self.assertIn('too large', text)


class Leases(PatientCase):
    def test_renew_moves_the_deadline_and_its_loss_ends_it(self):
        def slow(_):
            time.sleep(0.2)
            return b':1\r\n'
        s = self.server(b':7\r\n', slow, b':0\r\n')
        d = self.driver(s)
        self.assertEqual(d('acquire', 'x', 600000, 0, 0)[:2], ('OK', 7))
        first = d('remaining')[1]
        self.assertTrue(300000 < first <= 600000 - 6002, first)
        self.assertEqual(d('renew', 0)[0], 'OK')
        self.assertLessEqual(d('remaining')[1], 600000 - 6002 - 190) # counted from before the sending
        self.assertEqual(d('renew', 0)[0], 'ENOTHELD')
        self.assertEqual(d('remaining')[1], 0)

    def test_renew_that_fails_leaves_the_deadline(self):
        for timeout in (400, 4000, 40000): # long enough to ask
            s = self.server(b':7\r\n', HANG)
            d = self.driver(s)
            d('acquire', 'x', 600000, 0, 0)
            outcome = d('renew', timeout)[0]
            if 'RENEW' in s.words():
                break
        self.assertEqual(outcome, 'EUNCERTAIN')
        self.assertGreater(d('remaining')[1], 300000)

    def test_a_lease_that_ends_before_its_answer_is_not_believed(self):
        def slow(_):
            time.sleep(0.25)
            return b':7\r\n'
        def slow_yes(_):
            time.sleep(0.25)
            return b':1\r\n'
        s = self.server(slow, slow_yes)
        d = self.driver(s)
        self.assertEqual(d('acquire', 'x', 100, 0, 60000)[0], 'EUNCERTAIN')


class StoreClient(PatientCase):
    def test_stale_brings_the_mark(self):
        lock = self.server(b':7\r\n')
        s = self.server(b'-STALE token 7 is below the mark 9 of lock l\r\n', bulk(b'v'), b'$-1\r\n', b'-WRONGLOCK x\r\n')
        d = self.driver(lock, store=s)
        self.assertEqual(d('claim', 'l', 7)[:2], ('ESTALE', 9))
        self.assertEqual(d('get', 'k', 'l', 7), ('OK', 0, 'v'))
        self.assertEqual(d('get', 'k', 'l', 7)[0], 'ENOTFOUND')
        self.assertEqual(d('get', 'k', 'l', 7)[0], 'EWRONGLOCK')
        self.assertEqual(s.leader_requests, 0)
        self.assertEqual(d('claim', 'l', 0)[0], 'EINVAL')


class Memory(PatientCase):
    def test_valgrind(self):
        needs_valgrind(self)
        a = self.server(b':7\r\n', CLOSE, (b'*2\r\n$1', CLOSE), b'*2\r\n+name\r\n$1\r\nx\r\n', b'*1\r\n:1\r\n',
                        b'*2147483647\r\n', b'-LIMIT x\r\n', b':7\r\n')
        s = self.server(bulk(b'v'), b'-STALE token 7 is below the mark 9\r\n', CLOSE, bulk(b'v'))
        d = self.driver(a, store=s, wrapper=('valgrind', '-q', '--leak-check=full', '--show-leak-kinds=all',
                                             '--errors-for-leak-kinds=all', '--error-exitcode=99'))
        d('acquire', 'x', 60000, 0, 0)
        for words in (('show', 'x'), ('show', 'x'), ('show', 'x'), ('token', 'x'), ('token', 'x'), ('release', 300),
                      ('get', 'k', 'l', 7), ('get', 'k', 'l', 7), ('get', 'k', 'l', 7), ('break', 'x', 300)):
            d(*words)
        self.assertEqual(d.close(), 0) # 99 when valgrind found something


def sanitizers():
    value = build_option('b_sanitize')
    return '' if value == 'none' else value


def needs_valgrind(test):
    if shutil.which('valgrind') is None:
        test.skipTest('valgrind is not installed')
    if sanitizers():
        test.skipTest('valgrind and the sanitizers do not go together')


class Installed(PatientCase):
    """The files that `meson install` would put in place, put in a directory of our own."""

    def setUp(self):
        super().setUp()
        plan = json.loads(subprocess.run(['meson', 'introspect', '--installed', build_dir()], check=True,
                                         stdout=subprocess.PIPE).stdout)
        self.prefix = self.lab.path('prefix')
        headers = [s for s in plan if s.endswith('.h')]
        # Links are listed too, without a folder.
        libraries = [s for s in plan if os.path.isabs(s) and os.path.basename(s).startswith('libfencelock.')]
        pc = [s for s in plan if os.path.basename(s) == 'fencelock.pc']
        self.assertTrue(headers and libraries and len(pc) == 1, plan)
        configured = build_option('prefix')
        for source in headers + libraries + pc:
            target = os.path.join(self.prefix, os.path.relpath(plan[source], configured))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(source, target)
            if source.endswith('.pc'):
                self.pc_dir = os.path.dirname(target)
            if '.so.' in source:
                self.lib_dir = os.path.dirname(target)
                self.so = target
        major = self.so.split('.so.')[1].split('.')[0]
        for link in ('libfencelock.so', 'libfencelock.so.' + major):
            os.symlink(os.path.basename(self.so), os.path.join(self.lib_dir, link))
        sanitize = sanitizers()
        self.more = ['-fsanitize=' + sanitize] if sanitize else []

    def pkg_config(self, *args):
        out = subprocess.run(['pkg-config', '--define-variable=prefix=' + self.prefix, *args, 'fencelock'], check=True,
                             env=dict(os.environ, PKG_CONFIG_PATH=self.pc_dir), stdout=subprocess.PIPE).stdout
        return out.decode().split()

    def build(self, compiler, source, *flags):
        target = self.lab.path('program')
        subprocess.run([*compiler, source, *flags, *self.more, '-o', target], check=True)
        return target

    def run_counter(self, program):
        def counted():
            lock = self.server(b':33\r\n', b':1\r\n')
            store = self.server(bulk(b'41'), b'+OK\r\n')
            done = subprocess.run([program, lock.address, store.address], stdout=subprocess.PIPE, timeout=PATIENCE_S,
                                  env=dict(os.environ, LD_LIBRARY_PATH=self.lib_dir))
            store.settle()
            return None if store.late else (lock, store, done) # then a client of a storage asks twice
        lock, store, done = try_again(counted, 'a storage in time')
        self.assertEqual((done.returncode, done.stdout), (0, b'42\n'))
        self.assertEqual(lock.words(), ['ACQUIRE', 'RELEASE'])
        self.assertEqual(store.requests, [[b'GET', b'n', b'FENCE', b'counter', b'33'],
                                          [b'SET', b'n', b'42', b'FENCE', b'counter', b'33']])

    def test_the_example_shared(self):
        source = os.path.join(ROOT, 'docs', 'examples', 'counter.c')
        with open(source) as f:
            self.assertLessEqual(len(f.readlines()), 40)
        self.run_counter(self.build(['cc', '-std=c99', '-Wall', '-Wextra', '-Werror'], patient_example(self.lab, 'counter.c'),
                                    *self.pkg_config('--cflags', '--libs')))

    def test_the_example_static(self):
        source = patient_example(self.lab, 'counter.c')
        flags = self.pkg_config('--static', '--cflags', '--libs')
        flags = [os.path.join(self.lib_dir, 'libfencelock.a') if f == '-lfencelock' else f for f in flags]
        program = self.build(['cc', '-Wall', '-Wextra', '-Werror'], source, *flags)
        needed = subprocess.run(['ldd', program], check=True, stdout=subprocess.PIPE).stdout
        self.assertNotIn(b'libfencelock', needed)
        self.run_counter(program)

    def test_the_six_lines(self):
        """The program at the top of client.h, as it stands there."""
        with open(os.path.join(ROOT, 'include', 'fencelock', 'client.h'), encoding='utf-8') as f:
            lines = re.search(r'^ \*\n((?: \*     .*\n)+)', f.read(), re.M).group(1).replace(' *     ', '    ')
        s = self.server(b'+OK\r\n', b':33\r\n', b':1\r\n')
        self.assertIn('"10.0.0.1:7401,10.0.0.2:7401"', lines)
        source = self.lab.path('six.c')
        with open(source, 'w', encoding='utf-8') as f:
            f.write('#include <fencelock/client.h>\n#include <inttypes.h>\n#include <stdio.h>\n'
                    'static int pieces = 3;\nstatic bool more(void) { return pieces-- > 0; }\n'
                    'static void write_with(fl_token t) { printf("%%" PRIu64 "\\n", t); }\n'
                    'int main(void)\n{\n%s    return 0;\n}\n' % lines.replace('10.0.0.1:7401,10.0.0.2:7401', s.address))
        program = self.build(['cc', '-std=c99', '-Wall', '-Wextra', '-Werror'], source, *self.pkg_config('--cflags', '--libs'))
        done = subprocess.run([program], stdout=subprocess.PIPE, timeout=PATIENCE_S, env=dict(os.environ, LD_LIBRARY_PATH=self.lib_dir))
        self.assertEqual((done.returncode, done.stdout), (0, b'33\n' * 3))
        self.assertEqual(s.words(), ['SESSION', 'ACQUIRE', 'RELEASE'])

    def test_examples_are_short(self):
        folder = os.path.join(ROOT, 'docs', 'examples')
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding='utf-8') as f:
                self.assertLessEqual(len(f.readlines()), 40, name)

    def test_cpp(self):
        if shutil.which('c++') is None:
            self.skipTest('there is no C++ compiler')
        source = os.path.join(ROOT, 'tests', 'unit', 'client', 'headers.cc')
        program = self.build(['c++', '-Wall', '-Wextra', '-Wpedantic', '-Werror'], source,
                             *self.pkg_config('--cflags', '--libs'))
        subprocess.run([program], check=True, env=dict(os.environ, LD_LIBRARY_PATH=self.lib_dir))

    def test_each_header_stands_alone(self):
        for name in ('types.h', 'client.h', 'store_client.h'):
            for language, standard in (('c', 'c99'), ('c', 'c11'), ('c++', 'c++11')):
                if language == 'c++' and shutil.which('c++') is None:
                    continue
                subprocess.run(['cc', '-x', language, '-std=' + standard, '-Wall', '-Wextra', '-Wpedantic', '-Werror',
                                '-fsyntax-only', *self.pkg_config('--cflags'), '-include', 'fencelock/' + name,
                                '/dev/null'], check=True)

    def test_a_breach_of_the_binary_interface_is_seen(self):
        """The check that is run against the dump of the last release: here against one of this build, whole and with another name."""
        if shutil.which('abidiff') is None or sanitizers():
            self.skipTest('abidiff is not here, or this is a build with sanitizers')
        whole, other = self.lab.path('whole.abi'), self.lab.path('other.abi')
        def abi(*words):
            return subprocess.run([os.path.join(ROOT, 'tests', 'abi'), *words], stdout=subprocess.PIPE, check=False, text=True)
        self.assertEqual(abi('dump', build_dir(), whole).returncode, 0)
        self.assertEqual(abi('check', build_dir(), whole).returncode, 0)
        with open(whole, encoding='utf-8') as f, open(other, 'w', encoding='utf-8') as g:
            g.write(f.read().replace('fl_settle', 'fl_sattle'))
        done = abi('check', build_dir(), other)
        self.assertEqual(done.returncode, 1)
        self.assertIn('fl_sattle', done.stdout)

    def test_only_our_names_are_exported(self):
        lines = subprocess.run(['nm', '-D', '--defined-only', self.so], check=True, stdout=subprocess.PIPE).stdout
        names = [line.split()[-1] for line in lines.decode().splitlines()]
        ours = [n for n in names if n.startswith('fl_')]
        self.assertIn('fl_lock_take', ours)
        foreign = [n for n in names if not n.startswith('fl_') and 'asan' not in n and 'ubsan' not in n]
        self.assertEqual(foreign, [])


if __name__ == '__main__':
    main()
