#!/usr/bin/python3
"""Handles of the libraries that exist before fork(): in a child they are the child's, and the parent notices nothing.
tests/unit/client/fork_driver.c has the scenarios, one for each kind of handle."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Store, free_ports, main
from harness.lab import build_dir
from redlock_lab import Redis
from tls_lab import Certs


class ForkTest(Case):
    def scenario(self, name, *args):
        driver = os.path.join(build_dir(), 'tests', 'unit', 'client', 'fork_driver')
        done = subprocess.run([driver, name, *args], capture_output=True, text=True, timeout=2 * PATIENCE_S)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, 'right\n', ''))

    def nodes(self):
        return ','.join(node.address for node in Cluster(self.lab, 1).start().nodes)

    def servers(self):
        return ','.join(Redis(self.lab, 'redis-%d' % i).address for i in range(3))

    def test_01_a_blocking_client(self):
        self.scenario('client', self.nodes())

    def test_02_a_blocking_client_with_tls(self):
        certs = Certs(self.lab)
        certs.make('server', 'server', 'localhost', '127.0.0.1')
        cluster = Cluster(self.lab, 1)
        at = '127.0.0.1:%d' % free_ports(1)[0]
        cluster.nodes[0].extra = ['--tls-port', at, *certs.daemon('server', tls_auth_clients='no')]
        cluster.start()
        self.scenario('client', at, certs.crt('ca'))

    def test_03_a_storage_never_answers_with_another_process_key(self):
        store = Store(self.lab)
        store.start()
        self.scenario('store', store.address)

    def test_04_calls_and_locks_on_an_event_loop(self):
        self.scenario('async', self.nodes())

    def test_05_locks_that_a_thread_keeps(self):
        self.scenario('keepalive', self.nodes())

    def test_06_fork_and_stop_while_threads_are_at_work(self):
        self.scenario('storm', self.nodes())

    def test_07_marks_belong_to_the_process_that_opened_them(self):
        self.scenario('marks', self.lab.path('marks'))

    def test_08_redlock_with_blocking_calls(self):
        self.scenario('redlock', self.servers())

    def test_09_redlock_on_an_event_loop(self):
        self.scenario('redlock_loop', self.servers())

    def test_10_redlock_with_tokens(self):
        self.scenario('redlock_tokens', self.servers(), self.nodes())


if __name__ == '__main__':
    main()
