#!/usr/bin/python3
"""Thousands of locks of one process, on one client with 256 descriptors, while the leader is killed and stopped: none is lost."""

import os
import resource
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, main, wait_until
from harness.lab import build_dir

CONNECTIONS_MOST = 4


def few_descriptors():
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))


class Many:
    def __init__(self, nodes, locks, ttl_ms):
        path = os.path.join(build_dir(), 'tests', 'unit', 'client', 'many_driver')
        self.child = subprocess.Popen([path, nodes, str(locks), str(ttl_ms)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
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


class ManyLocks(Case):
    def start(self, locks, ttl_ms):
        self.cluster = Cluster(self.lab, 3).start()
        self.many = Many(','.join(self.cluster.addresses()), locks, ttl_ms)
        self.addCleanup(lambda: self.assertEqual(self.many.end(), 0))
        self.assertEqual(self.many.taken(), 'taken %d\n' % locks)
        self.locks = locks

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

    def through_faults(self, locks, ttl_ms):
        self.start(locks, ttl_ms)
        self.most, self.later_ms = 0, ttl_ms - ttl_ms // 100 - 2 # a lease that was asked for now ends then
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

    def test_with_leases_of_their_own(self):
        self.through_faults(3000, 60000)


if __name__ == '__main__':
    main()
