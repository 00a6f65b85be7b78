#!/usr/bin/python3
"""What an operator sees of the daemons: lines of the log, and messages to the service manager."""

import datetime
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Deadline, Lateness, Retries, Store, binary, main, try_again, wait_until

LINE = re.compile(r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (error|warning|info|debug) +(\w+) +(.*)$')


def fields(message):
    return dict(re.findall(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)', message))


class Log(Case):
    def setUp(self):
        super().setUp()
        self.retries = Retries()

    def lines(self, server):
        """(level, part, message) of each line; a line of another shape fails the test."""
        found = []
        for line in server.process.output().splitlines():
            if line.startswith('ready: '):
                continue
            match = LINE.match(line)
            self.assertIsNotNone(match, 'not a line of the log: %r' % line)
            found.append(match.groups())
        return found

    def said(self, server, words, part=None):
        return [m for _, p, m in self.lines(server) if words in m and part in (None, p)]

    def wait_said(self, server, words, times=1):
        wait_until(lambda: len(self.said(server, words)) >= times, '%r in the log of %s' % (words, server.name))
        return self.said(server, words)

    def test_a_first_start_tells_for_whom_it_waits(self):
        cluster = Cluster(self.lab, 3)
        one, two, three = cluster.nodes
        one.launch()
        self.wait_said(one, 'waiting for node 2 (%s), node 3 (%s); the first time all members must be up' % (two.peer, three.peer))
        two.launch()
        self.wait_said(one, 'node 2 is connected')
        three.launch()
        for node in cluster.nodes:
            cluster.wait_serving(node)

    def test_members_go_and_come_and_leadership_is_lost(self):
        cluster = Cluster(self.lab, 3).start()
        leader = cluster.leader()
        follower, other = [n for n in cluster.nodes if n is not leader]
        for node in (leader, other): # a busy node may have met one of the others only
            self.wait_said(node, 'node %d is connected' % follower.id)
        follower.kill()
        gone = {'member': str(follower.id), 'address': follower.peer, 'connected': '2', 'of': '3'}
        wait_until(lambda: gone in [fields(line) for line in self.said(leader, 'node %d is gone' % follower.id)], 'word that it is gone')
        self.wait_said(other, 'node %d is gone' % follower.id) # before it is back
        before = len(self.said(leader, 'node %d is connected' % follower.id))
        follower.start()
        self.wait_said(leader, 'node %d is connected' % follower.id, before + 1)
        # An orderly end, and one without a word: the reason is told, and who leads next.
        cluster.wait_serving(follower)
        leader = try_again(lambda: self.hands_over(cluster), 'a leader that hands over')
        others = [n for n in cluster.nodes if n is not leader]
        second = cluster.leader(among=others)
        last = [n for n in others if n is not second][0]
        last.kill()
        wait_until(lambda: any('reason="a majority of the nodes was not heard"' in line
                               for line in self.said(second, 'this node leads no more')), 'the reason')
        self.wait_said(second, 'there is no leader, and no connection to')
        leader.start()
        cluster.wait_serving(second)
        self.wait_said(second, 'leads leader=')

    def hands_over(self, cluster):
        """The leader, terminated; None when it was none any more: on a busy machine others are elected."""
        leader = cluster.leader()
        asked = datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.%f')
        with Lateness() as late:
            leader.terminate()
        last = [line for line in leader.process.output().splitlines() if 'this node leads' in line][-1]
        if 'leads no more reason="handed over"' in last:
            return leader
        if 'leads no more' not in last or (last > asked and 'another node called an election' not in last):
            # It gives up where nobody takes over within an election time-out.
            self.assertTrue(self.retries.allowed(late, 100), 'asked to end at %s: %s' % (asked, last))
        leader.start()
        cluster.wait_serving(leader)
        return None

    def test_json(self):
        node = Cluster(self.lab, 1, extra=['--log-format', 'json']).start().nodes[0]
        store = Store(self.lab).start('--log-format', 'json', '--log-level', 'debug')
        for server, part, message in ((node, 'cluster', 'this node leads and takes commands'),
                                      (store, 'store', 'the database is open')):
            self.assertEqual(server.terminate(), 0)
            lines = [json.loads(x) for x in server.process.output().splitlines() if not x.startswith('ready: ')]
            found = [x for x in lines if x['part'] == part and x['message'] == message]
            self.assertEqual(len(found), 1, lines)
            for line in lines:
                self.assertRegex(line['time'], r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
                self.assertIn(line['level'], ('error', 'warning', 'info', 'debug'))
        self.assertEqual(found[0]['keys'], 0)

    def test_signal_changes_the_level(self):
        node = Cluster(self.lab, 1, extra=['--log-level', 'warning']).start().nodes[0]
        store = Store(self.lab).start('--log-level', 'error')
        for server, usual in ((node, 'warning'), (store, 'error')):
            self.assertEqual([x for x in self.lines(server) if x[0] == 'info'], [])
            server.process.signal(signal.SIGUSR1)
            self.wait_said(server, 'level=debug')
            server.process.signal(signal.SIGUSR1)
            self.wait_said(server, 'level=%s' % usual)
            self.assertEqual(server.terminate(), 0)
            self.assertEqual(self.said(server, 'stopped'), [])

    def test_wrong_words(self):
        for program, option in (('fencelockd', '--log-format'), ('fencelock-store', '--log-format'),
                                ('fencelock-store', '--log-level')):
            process = self.lab.start([binary(program), option, 'xml'], program + option)
            process.asked_to_end = True
            self.assertEqual(process.wait(), 2)
            self.assertIn("%s: 'xml' is none of " % option, process.output())


class Manager(Case):
    """The part of systemd: a socket for datagrams."""

    def setUp(self):
        super().setUp()
        folder = tempfile.mkdtemp(prefix='fencelock-notify-') # a socket's path is short
        self.addCleanup(shutil.rmtree, folder)
        self.path = os.path.join(folder, 'notify')
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.socket.close)
        self.socket.bind(self.path)
        self.socket.settimeout(PATIENCE_S)
        self.status = ''

    def start(self, argv, name, address=None, **more):
        env = dict({'NOTIFY_SOCKET': address or self.path}, **more)
        return self.lab.start(argv, name, env=env)

    def words(self):
        words = dict(line.split('=', 1) for line in self.socket.recv(4096).decode().split('\n'))
        self.status = words.get('STATUS', self.status)
        return words

    def wait_words(self, **wanted):
        deadline = Deadline(PATIENCE_S)
        while not deadline.passed():
            words = self.words()
            if all(re.search(wanted[k], words.get(k, '')) for k in wanted):
                return words
        self.fail('%r was not said' % wanted)

    def wait_status(self, wanted):
        """It is said only when it changes, so it may be what was said last."""
        deadline = Deadline(PATIENCE_S)
        while not re.search(wanted, self.status):
            self.assertFalse(deadline.passed(), '%r was not said, last %r' % (wanted, self.status))
            self.words()

    def take_all(self):
        self.socket.settimeout(0)
        try:
            while True:
                self.socket.recv(4096)
        except BlockingIOError:
            self.socket.settimeout(PATIENCE_S)

    def stop(self, server):
        server.process.asked_to_end = True
        self.take_all() # what finds no room is lost
        server.process.signal(signal.SIGTERM)
        self.wait_words(STOPPING='^1$')
        self.assertEqual(server.process.wait(), 0)

    def test_node(self):
        cluster = Cluster(self.lab, 1)
        node = cluster.nodes[0]
        node.process = self.start(node.argv(), 'node1', WATCHDOG_USEC='200000')
        words = self.wait_words(READY='^1$')
        self.assertRegex(words['STATUS'], '^node 1 ')
        node.wait_ready()
        cluster.wait_serving(node)
        self.wait_status('^node 1 leads, 1 of 1 node connected, term [0-9]+')
        for _ in range(3):
            self.wait_words(WATCHDOG='^1$')
        self.stop(node)

    def test_a_loop_that_does_not_turn_is_not_alive(self):
        cluster = Cluster(self.lab, 1)
        node = cluster.nodes[0]
        node.process = self.start(node.argv(), 'node1', WATCHDOG_USEC='100000')
        self.wait_words(WATCHDOG='^1$')
        node.pause()
        self.take_all()
        self.socket.settimeout(1)
        self.assertRaises(socket.timeout, self.socket.recv, 4096)
        node.resume()
        self.socket.settimeout(PATIENCE_S)
        self.wait_words(WATCHDOG='^1$')

    def test_store_and_an_abstract_socket(self):
        name = '\0fencelock-test-notify-%d' % os.getpid()
        self.socket.close()
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(name)
        self.socket.settimeout(PATIENCE_S)
        store = Store(self.lab)
        store.process = self.start(store.argv(), 'store', address='@' + name[1:], WATCHDOG_USEC='500000')
        words = self.wait_words(READY='^1$')
        self.assertEqual(words['STATUS'], '0 keys, 0 marks')
        store.wait_ready()
        store.call('CLAIM', 'lock', 7)
        self.wait_status('^0 keys, 1 mark$')
        self.stop(store)

    def test_a_watchdog_for_another_process_and_a_socket_that_is_none(self):
        node = Cluster(self.lab, 1).nodes[0]
        node.process = self.start(node.argv(), 'node1', WATCHDOG_USEC='100000', WATCHDOG_PID='1')
        self.wait_words(READY='^1$')
        while 'leads' not in self.status: # a second later: ten watchdogs would have been in front of it
            self.assertNotIn('WATCHDOG', self.words())
        self.assertEqual(node.terminate(), 0)
        node.process = self.start(node.argv(), 'node1', address='nonsense')
        node.wait_ready()
        self.assertEqual(node.terminate(), 0)


if __name__ == '__main__':
    main()
