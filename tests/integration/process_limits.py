#!/usr/bin/python3
"""What a daemon is started in: closed descriptors, a log that nobody reads, an output that takes nothing."""

import fcntl
import os
import resource
import shlex
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Store, binary, main, wait_until


class Surroundings(Case):
    def popen(self, server, shell='', **options):
        """Starts a server as its user's script would, without the file that the harness gives it."""
        child = subprocess.Popen(['/bin/sh', '-c', 'exec %s %s' % (shlex.join(map(str, server.argv())), shell)], start_new_session=True, **options)

        def end():
            if child.poll() is None:
                child.kill()
            child.wait()
        self.addCleanup(end)
        return child

    def answers(self, server, *words):
        def asked():
            try:
                return server.call(*words) is not None
            except OSError:
                return False
        wait_until(asked, 'an answer')

    def test_closed_descriptors(self):
        """Else what is printed goes into whatever got the numbers 0, 1 and 2: the loop's own pipes, or a file of the database."""
        for server, words in ((Cluster(self.lab, 1).nodes[0], ('TOKEN', 'x')), (Store(self.lab), ('CLAIM', 'x', 1))):
            for closed in ('<&- >&- 2>&-', '2>&-', '>&- 2>&-'):
                child = self.popen(server, '--log-level debug ' + closed, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
                self.answers(server, *words)
                opened = [os.readlink('/proc/%d/fd/%d' % (child.pid, fd)) for fd in (0, 1, 2)]
                self.assertEqual(set(opened), {'/dev/null'})
                child.send_signal(signal.SIGHUP)
                child.send_signal(signal.SIGUSR1)
                self.answers(server, *words[:2] + words[2:])
                child.terminate()
                self.assertEqual(child.wait(PATIENCE_S), 0, closed)

    def test_a_log_that_nobody_reads(self):
        """A full pipe must not stop the daemon; how much of the log is lost is said when somebody reads again."""
        for server, words in ((Cluster(self.lab, 1).nodes[0], ('TOKEN', 'x')), (Store(self.lab), ('CLAIM', 'x', 1))):
            reader, writer = os.pipe()
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
            os.write(writer, b'-' * 4095 + b'\n')
            child = self.popen(server, '--log-level debug', stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=writer)
            os.close(writer)
            self.answers(server, *words)
            self.assertEqual(os.read(reader, 4096)[-1:], b'\n')
            child.terminate()
            self.assertEqual(child.wait(PATIENCE_S), 0)
            with os.fdopen(reader, encoding='utf-8') as f:
                said = f.read()
            self.assertRegex(said, r'warning daemon +lines were lost: nobody read the log lines=[1-9]')
            self.assertIn('SIGTERM', said)

    def test_results_that_cannot_be_written(self):
        store, node = Store(self.lab).start(), Cluster(self.lab, 1).start().nodes[0]
        backup, state = self.lab.path('store.backup'), self.lab.path('state.backup')
        self.assertEqual(store.terminate(), 0)
        subprocess.run([binary('fencelock'), 'backup', state, '--nodes', node.address, '--timeout', '120s'], check=True, capture_output=True)
        argv = [binary('fencelock-store'), '--backup', backup, '--data', store.data]
        subprocess.run(argv, check=True, capture_output=True)
        daemon = [binary('fencelockd'), '--id', '1', '--cluster', '1=127.0.0.1:1']
        for argv in ([binary('fencelock-store'), '--verify', backup], [binary('fencelock-store'), '--help'],
                     [binary('fencelock-store'), '--restore', backup, '--data', self.lab.path('r'), '--above', '9'],
                     [binary('fencelockd'), '--help'], [binary('fencelockd'), '--version'],
                     daemon + ['--data', self.lab.path('checked'), '--check'], daemon + ['--data', self.lab.path('new'), '--restore', state],
                     [binary('fencelock'), 'backup', '--verify', state]):
            with open('/dev/full', 'wb') as full:
                done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
            self.assertNotEqual(done.returncode, 0, argv)
            self.assertIn('cannot write the result', done.stderr, argv)

    def test_the_limit_on_the_size_of_files(self):
        """The kernel's signal would end a program without a word, and what it had begun would stay."""
        store = Store(self.lab).start()
        store.call('SET', 'key', 'x' * 30000, 'FENCE', 'lock', 1)
        online, offline = self.lab.path('online'), self.lab.path('offline')

        def limited(limit, argv):
            done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
            self.assertGreater(done.returncode, 0, done.stderr)
            self.assertIn('fencelock-store: ', done.stderr)
        limited(4096, [binary('fencelock-store'), '--backup', online, '--data', store.data])
        self.assertEqual(store.terminate(), 0)
        limited(4096, [binary('fencelock-store'), '--backup', offline, '--data', store.data])
        for limit in (0, 4096, 8192, 9 * 1024):
            limited(limit, [binary('fencelock-store'), '--data', self.lab.path('fresh'), '--listen', store.address])
        left = [n for n in os.listdir(os.path.dirname(online)) if n.startswith(('online', 'offline'))]
        self.assertEqual(left, [])

    def test_a_full_disk_at_the_start(self):
        """The index of SQLite's WAL is mapped: without room for it, writing to it would be a signal that ends a process without a word."""
        small = self.lab.path('small')
        os.mkdir(small)
        made = subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', small], capture_output=True, text=True)
        if made.returncode != 0:
            raise unittest.SkipTest('cannot mount a file system: ' + made.stderr.strip())
        self.addCleanup(subprocess.run, ['umount', '-l', small], check=True)
        store = Store(self.lab)
        store.data = small + '/store'
        store.start()
        store.call('SET', 'key', 'value', 'FENCE', 'lock', 1)
        self.assertEqual(store.terminate(), 0)
        try:
            with open(small + '/full', 'wb') as f:
                while True:
                    f.write(b'x' * 4096)
                    f.flush()
        except OSError:
            pass
        done = subprocess.run(store.argv(), capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn('fencelock-store: ', done.stderr)
        os.unlink(small + '/full')
        self.assertEqual(store.start().call('GET', 'key'), b'value')


if __name__ == '__main__':
    main()
