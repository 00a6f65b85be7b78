#!/usr/bin/python3
"""Thousands of locks of one process, on one client with 256 descriptors, while the leader is killed, stopped and cut off: none is
lost."""

import os
import resource
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, main, wait_until
from harness.lab import build_dir
from partitions import NamespaceCase

CONNECTIONS_MOST = 4


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


class Many:
    def __init__(self, nodes, locks, ttl_ms, *how, wrapper=()):
        path = os.path.join(build_dir(), 'tests', 'unit', 'client', 'many_driver')
        self.child = subprocess.Popen([*wrapper, path, nodes, str(locks), str(ttl_ms), *how], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True, preexec_fn=few_descriptors)

    def taken(self):
        return self.child.stdout.readline()

    def look(self):
        self.child.stdin.write('look\n')
        self.child.stdin.flush()
        return [int(word) for word in self.child.stdout.readline().split()]

    def end(self):
        self.child.stdin.close()
        self.child.stdout.close()
        return self.child.wait(PATIENCE_S)


class Holding:
    def hold(self, locks, ttl_ms, *how, wrapper=()):
        self.many = Many(','.join(self.cluster.addresses()), locks, ttl_ms, *how, wrapper=wrapper)
        self.addCleanup(lambda: self.assertEqual(self.many.end(), 0))
        self.assertEqual(self.many.taken(), 'taken %d\n' % locks)
        self.locks = locks
        self.most, self.later_ms = 0, ttl_ms - ttl_ms // 100 - 2 # a lease that was asked for now ends then

    def none_is_lost(self, what):
        """All locks are renewed after now."""
        held, lost, _, _, soonest, now = self.many.look()
        self.assertEqual((held, lost), (self.locks, 0), what)

        def renewed():
            held, lost, sockets, _, soonest, _ = self.many.look()
            self.assertEqual((held, lost), (self.locks, 0), what)
            self.most = max(self.most, sockets)
            return soonest > now + self.later_ms
        wait_until(renewed, what='the renewal of all locks after ' + what)
        self.assertLessEqual(self.many.look()[2], CONNECTIONS_MOST)


class ManyLocks(Holding, Case):
    def start(self, *how):
        self.cluster = Cluster(self.lab, 3).start()
        self.hold(*how)

    def test_with_leases_of_their_own(self):
        self.start(3000, 60000)
        leader = self.cluster.leader()
        leader.kill()
        self.none_is_lost('a kill of the leader')
        leader.start()
        self.cluster.wait_caught_up()
        leader = self.cluster.leader()
        leader.pause()
        try:
            self.none_is_lost('a stop of the leader')
        finally:
            leader.resume()
        self.none_is_lost('the end of the stop')
        self.note('%d connections at most, %d ms of processor time' % (self.most, self.many.look()[3]))

    def test_ten_thousand_on_one_session(self):
        self.start(10000, 60000, 'session')
        self.cluster.leader().kill()
        self.none_is_lost('a kill of the leader')
        self.note('%d ms of processor time' % self.many.look()[3])

    def test_ten_fail_overs(self):
        self.start(3000, 60000, 'session')
        for _ in range(10):
            leader = self.cluster.leader()
            leader.kill()
            wait_until(lambda: self.cluster.leader() is not leader, what='the next leader')
            leader.start()
            self.cluster.wait_caught_up()
        self.none_is_lost('ten fail-overs')


class CutOff(Holding, NamespaceCase):
    def test_the_leader_is_cut_off(self):
        self.hold(3000, 60000, wrapper=self.inside)
        self.cut(self.cluster.leader().id)
        self.none_is_lost('a partition')
        self.heal()
        self.none_is_lost('its end')


if __name__ == '__main__':
    main()
