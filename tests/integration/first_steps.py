#!/usr/bin/python3
"""The first steps of a new user: the blocks of docs/START.md as they stand there, and mistakes at the command line."""

import json
import os
import pwd
import re
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cli_library import patient_example
from clients_doc import patient
from harness import PATIENCE_S, Case, Cluster, RespError, Store, binary, main, try_again, wait_until
from harness.lab import ROOT, build_option, free_ports

DONE, NO, USAGE, UNKNOWN, MISSING = range(5)


class Hour(Case):
    def setUp(self):
        super().setUp()
        self.node = Cluster(self.lab, 1).start().nodes[0]
        self.store = Store(self.lab).start()
        self.env = dict(os.environ, FENCELOCK_NODES=self.node.address, FENCELOCK_STORE=self.store.address, FENCELOCK_TIMEOUT='120s')

    def run_cli(self, *args):
        done = subprocess.run([binary('fencelock')] + list(args), env=self.env, timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    # -- times ----------------------------------------------------------------------------------
    def test_a_number_that_was_meant_as_seconds(self):
        def acquire(*args):
            """On a busy machine a short lease may be over before its answer comes."""
            code, out, err = self.run_cli('acquire', *args)
            self.assertIn(code, (DONE, NO, UNKNOWN), err)
            return (out, err) if code == DONE else None
        _, err = try_again(lambda: acquire('a', '--ttl', '30'), 'a lease of 30 ms')
        self.assertIn("--ttl 30 is 30 milliseconds: write 30s if seconds are meant", err)
        for ttl, ms in (('30s', 30000), ('500ms', 500), ('2m', 120000), ('1h', 3600000), ('100', 100), ('50ms', 50)):
            out, err = try_again(lambda: acquire('lock-' + ttl, '--ttl', ttl, '--json'), 'a lease of ' + ttl)
            self.assertEqual(err, '')
            self.assertEqual(json.loads(out)['ttl_ms'], ms)
        self.assertIn('is not a time', self.run_cli('acquire', 'a', '--ttl', '5 s')[2])

    # -- run ------------------------------------------------------------------------------------
    def test_run_needs_a_name(self):
        code, out, err = self.run_cli('run', '--', 'echo', 'hi')
        self.assertEqual((code, out), (USAGE, ''))
        self.assertIn('write fencelock run NAME -- echo', err)
        self.assertEqual(self.run_cli('run', '--ttl', '60s', 'a', '--', 'echo', 'hi')[:2], (DONE, 'hi\n'))
        self.assertEqual(self.run_cli('run', '--ttl', '60s', 'a', 'echo', 'hi')[:2], (DONE, 'hi\n'))
        code, _, err = self.run_cli('redlock', 'run', '--', 'echo', 'hi')
        self.assertEqual(code, USAGE)
        self.assertIn('write fencelock redlock run NAME -- echo', err)

    def test_run_quiet(self):
        def waits(*options, said=b''):
            """What it says on stderr while it waits, and afterwards. Before its turn comes it must have said this."""
            token = self.node.call('ACQUIRE', 'q', 'TTL', 600000, 'OWNER', 'somebody-else-0123', 'WAIT', 200000, timeout=PATIENCE_S)
            child = self.kill_at_cleanup(subprocess.Popen(
                [binary('fencelock'), 'run', '--ttl', '60s', *options, 'q', '--', 'echo', 'hi'], env=self.env,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
            wait_until(lambda: self.node.info()['waits'] > 0, 'the waiter')
            time.sleep(0.5) # the place is told after 300 ms; when it comes later, this shows nothing
            seen = b''
            while said not in seen:
                piece = os.read(child.stderr.fileno(), 4096)
                self.assertTrue(piece, 'it ended with %r' % seen)
                seen += piece
            self.node.call('RELEASE', 'q', token)
            code, out, err = self.wait_child(child)
            self.assertEqual((code, out), (DONE, 'hi\n'))
            return seen.decode() + err
        def given_back():
            err = waits('--quiet')
            return None if 'not given back' in err else [err] # for which it has two seconds
        self.assertEqual(try_again(given_back, 'a lock that is given back in time'), [''])
        self.assertIn('waiting, place 1 of 1', waits(said=b'place 1 of 1'))
        self.node.call('ACQUIRE', 'q', 'TTL', 600000, 'OWNER', 'somebody-else-0123', 'WAIT', 200000, timeout=PATIENCE_S)
        code, _, err = self.run_cli('run', '--quiet', '--wait', '0', 'q', '--', 'echo', 'hi')
        self.assertEqual(code, 124)
        self.assertIn('another owner holds the lock', err)

    def test_deadline_of_the_environment(self):
        before = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000000
        code, out, _ = self.run_cli('run', 'a', '--ttl', '40s', '--', 'sh', '-c', 'echo $FENCELOCK_DEADLINE_MS')
        after = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000000
        self.assertEqual(code, DONE)
        self.assertGreater(int(out), before + 25000) # a quarter before the lease's end, and a margin for clocks
        self.assertLessEqual(int(out), after + 30000)

    def test_show_tells_who_runs_what(self):
        child = self.kill_at_cleanup(subprocess.Popen(
            [binary('fencelock'), 'run', '--ttl', '60s', 'who', '--', '/bin/sh', '-c', 'echo $PPID; read secret'], env=self.env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        pid = child.stdout.readline().decode().strip()
        value = json.loads(self.run_cli('show', 'who', '--json')[1])['value']
        fields = dict(word.split('=', 1) for word in value.split(' '))
        self.assertEqual(fields, {'user': pwd.getpwuid(os.geteuid()).pw_name, 'host': socket.gethostname(), 'pid': pid,
                                  'command': 'sh'})
        child.stdin.write(b'\n')
        self.assertEqual(self.wait_child(child)[0], DONE)
        for given in ('', 'mine'):
            code, out, _ = self.run_cli('run', '--ttl', '60s', '--value', given, 'who', '--', binary('fencelock'), 'show', 'who', '--json')
            self.assertEqual((code, json.loads(out)['value']), (DONE, given))

    # -- the storage ----------------------------------------------------------------------------
    def test_missing_and_stale_differ(self):
        code, out, err = self.run_cli('store', 'get', 'k')
        self.assertEqual((code, out), (MISSING, ''))
        self.assertIn("there is no key 'k'", err)
        self.assertEqual(self.run_cli('store', 'get', 'k', '--default', '0'), (DONE, '0', ''))
        self.assertEqual(self.run_cli('store', 'get', 'k', '--default', ''), (DONE, '', ''))
        code, out, _ = self.run_cli('store', 'get', 'k', '--json')
        self.assertEqual((code, json.loads(out)), (MISSING, {'found': False, 'key': 'k'}))
        code, out, _ = self.run_cli('store', 'get', 'k', '--json', '--default', 'x')
        self.assertEqual((code, json.loads(out)), (DONE, {'found': False, 'key': 'k', 'value': 'x'}))
        self.assertEqual(self.run_cli('store', 'set', 'k', 'v', '--lock', 'l', '--token', '7')[0], DONE)
        self.assertEqual(self.run_cli('store', 'get', 'k', '--default', '0'), (DONE, 'v', ''))
        code, out, _ = self.run_cli('store', 'get', 'k', '--default', '0', '--lock', 'l', '--token', '6')
        self.assertEqual((code, out), (NO, ''))

    def test_a_write_without_a_lock(self):
        for key in ('never-written', 'written'):
            with self.assertRaises(RespError) as raised:
                self.store.call('SET', key, 'v')
            self.assertEqual(raised.exception.word, 'NOTOKEN')
            self.assertIn('name the lock it belongs to', raised.exception.text)
            self.store.call('SET', 'written', 'v', 'FENCE', 'l', 1)

    # -- a second node --------------------------------------------------------------------------
    def test_a_second_node_is_told_of_peer(self):
        second = self.lab.start([binary('fencelockd'), '--data', self.lab.path('second'), '--peer', self.node.peer,
                                 '--listen', '127.0.0.1:%d' % free_ports(1)[0]], 'second')
        second.asked_to_end = True
        self.assertEqual(second.wait(), 1)
        self.assertIn('choose another port with --peer', second.output())

    # -- pages ----------------------------------------------------------------------------------
    def text(self, *path):
        with open(os.path.join(ROOT, *path), encoding='utf-8') as f:
            return f.read()

    def test_pages_paste_cleanly(self):
        text = self.text('README.md') + self.text('docs', 'START.md') + self.text('docs', 'JOBS.md')
        for block in re.findall(r'^```(\w*)\n(.*?)^```', text, re.M | re.S):
            if block[0] not in ('', 'sh'):
                continue
            block = block[1]
            self.assertEqual(subprocess.run(['bash', '-n'], input=block.encode()).returncode, 0, block)
            for line in block.splitlines():
                self.assertNotRegex(line, r'^\$ ', 'a prompt cannot be pasted')
                if not line.startswith((' ', '#')):
                    self.assertNotRegex(line.split('#')[0].rstrip().rstrip('\\'), r'\S {3,}[a-z]',
                                        'a remark without # would be an argument: %s' % line)

    def test_first_steps_and_then_clients(self):
        blocks = re.findall(r'^<!-- try -->\n```sh\n(.*?)^```', self.text('docs', 'START.md'), re.M | re.S)
        self.assertGreaterEqual(len(blocks), 3)
        script = 'set -u\ncd "%s"\n' % ROOT + '\n'.join(blocks)
        script = script.replace('$PWD/build/src/cli', os.path.dirname(binary('fencelock')))
        for port, real in ((7401, self.node.port), (7411, self.store.port)):
            self.assertIn(str(port), script)
            script = script.replace(str(port), str(real))
        def pasted():
            """`status` gives a node two seconds."""
            done = subprocess.run(['bash'], input=script.encode(), env=self.env, timeout=PATIENCE_S, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT)
            out = done.stdout.decode()
            return None if 'unreachable' in out else out
        out = try_again(pasted, 'a status in time')
        self.assertNotIn('not found', out)
        self.assertNotIn('ERR ', out)
        self.assertIn('STALE', out)
        self.assertIn('leader', out)
        program = patient(re.search(r'^```python\n(.*?)^```', self.text('docs', 'CLIENTS.md'), re.M | re.S).group(1))
        program = program.replace('7401', str(self.node.port)).replace('7411', str(self.store.port))
        done = subprocess.run([sys.executable, '-c', program], timeout=PATIENCE_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        self.assertEqual(self.store.call('GET', 'total'), b'1')

    def test_keepalive_example(self):
        program = self.lab.path('keepalive')
        build = os.path.dirname(os.path.dirname(os.path.dirname(binary('fencelock'))))
        sanitize = build_option('b_sanitize')
        subprocess.run(['cc', '-Wall', '-Wextra', '-Werror', patient_example(self.lab, 'keepalive.c'),
                        '-I' + os.path.join(ROOT, 'include'), os.path.join(build, 'src', 'client', 'libfencelock.a'),
                        '-lhiredis', '-lssl', '-lcrypto', '-lpthread', '-o', program]
                       + ([] if sanitize == 'none' else ['-fsanitize=' + sanitize]), check=True)
        done = subprocess.run([program, self.node.address, self.store.address, '20'], timeout=PATIENCE_S, stdout=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stdout), (0, b'20 of 20\n'))
        self.assertEqual(self.store.call('GET', 'progress'), b'20 of 20')
        self.assertIsNone(self.node.call('SHOW', 'progress'))


if __name__ == '__main__':
    main()
