#!/usr/bin/python3
"""A state that is large enough for a child process to encode its snapshots: the node grants on meanwhile, and what the
child wrote is what the node starts from again."""

import os
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, ClusterCase, main, wait_until

LOCKS = 64000 # with 1 KiB each: enough that a child encodes it
VALUE = b'v' * 1024
CHUNK = 500


def children(pid):
    with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
        return f.read().split()


class LargeState(ClusterCase):
    NODES = 1

    def setUp(self):
        super().setUp()
        self.node = self.cluster.nodes[0]

    def acquire(self, first, count):
        with self.node.client(timeout=PATIENCE_S) as c:
            for i in range(first, first + count, CHUNK):
                answers = c.pipeline([('ACQUIRE', 'lock-%08d' % k, 'TTL', 3600000, 'OWNER', 'owner-%018d' % k, 'VALUE',
                                       VALUE) for k in range(i, i + CHUNK)])
                self.assertTrue(all(isinstance(a, int) for a in answers), answers[:3])

    def log_until(self, condition, what):
        """Asks for locks that are held, which changes nothing but makes the log longer: snapshots come of that."""
        def done():
            found = condition()
            if not found:
                self.acquire(0, CHUNK)
            return found
        return wait_until(done, what)

    def watch_children(self, pid):
        """Notes whether the node ever had one; what it still has at the end is looked at by the test."""
        over = threading.Event()
        seen = []
        def look():
            while not over.wait(0.001):
                try:
                    seen.extend(children(pid))
                except OSError:
                    return # the node has ended
        thread = threading.Thread(target=look)
        thread.start()
        def end():
            over.set()
            thread.join()
        self.addCleanup(end)
        return seen

    def test_snapshot_by_a_child(self):
        try:
            children(os.getpid())
        except OSError:
            self.skipTest('the kernel does not list the children of a process')
        seen = self.watch_children(self.node.process.pid)
        self.acquire(0, LOCKS)
        def whole():
            info = self.node.info()
            return info if seen and info['snapshot_last_bytes'] > 60000 * len(VALUE) else None
        info = self.log_until(whole, 'a snapshot of the whole, and a child that was seen') # whoever looks may miss one
        wait_until(lambda: not children(self.node.process.pid), 'the end of the child')
        self.assertEqual(info['locks_held'], LOCKS)
        token = self.node.call('ACQUIRE', 'one more', 'TTL', 3600000, 'OWNER', 'owner-of-one-more')
        self.node.kill()
        self.node.start()
        self.cluster.wait_serving(self.node)
        self.assertGreater(self.node.info()['snapshot_index'], 0)
        self.assertEqual(self.node.info()['locks_held'], LOCKS + 1)
        self.assertEqual(self.node.call('CHECK', 'one more', token), 1)

    def a_child_that_writes(self):
        """Its number, and its descriptors once it has closed those that it does not need."""
        def descriptors(child):
            folder = '/proc/%s/fd' % child
            return [os.readlink(os.path.join(folder, fd)) for fd in os.listdir(folder)]
        def writes():
            for child in children(self.node.process.pid):
                try:
                    if any('snapshot-' in name for name in descriptors(child)):
                        return int(child), descriptors(child)
                except OSError:
                    continue
            return None
        return self.log_until(writes, 'a child that writes')

    def test_a_child_has_no_connection_of_its_node(self):
        """Else whoever is hung up on hears nothing before the child has ended."""
        self.acquire(0, LOCKS)
        clients = [self.node.client() for _ in range(20)]
        for c in clients[:10]:
            c.close() # so that some have higher numbers than what the child needs
        _, names = self.a_child_that_writes()
        for c in clients[10:]:
            c.close()
        self.assertEqual([n for n in names if n.startswith('socket:') or n.endswith('/lock') or 'segment-' in n], [])

    def test_a_child_does_not_outlive_its_node(self):
        """Else it would write into the directory of the node that is started there."""
        self.acquire(0, LOCKS)
        def stopped():
            child, _ = self.a_child_that_writes()
            try:
                os.kill(child, signal.SIGSTOP)
                return child if str(child) in children(self.node.process.pid) else None
            except OSError:
                return None
        child = wait_until(stopped, 'a child that is stopped while it writes')
        self.addCleanup(self.end, child)
        self.node.kill()
        wait_until(lambda: self.is_over(child), 'the end of the child')

    @staticmethod
    def is_over(pid):
        try:
            with open('/proc/%d/stat' % pid) as f:
                return f.read().rsplit(')', 1)[1].split()[0] in 'ZX'
        except OSError:
            return True

    @classmethod
    def end(cls, pid):
        if not cls.is_over(pid):
            os.kill(pid, signal.SIGKILL)

    def test_killed_with_its_child(self):
        """Whatever a child was doing when its node died is gone, and nothing of the node's stays with it."""
        pid = self.node.process.pid
        self.acquire(0, LOCKS)
        before = self.node.info()['snapshots']
        seen = self.watch_children(pid)
        self.log_until(lambda: seen or self.node.info()['snapshots'] > before, 'a snapshot')
        self.node.kill()
        # Its port, its lock on the directory: both must be free at once.
        self.node.start()
        self.cluster.wait_serving(self.node)
        self.assertEqual(self.node.info()['locks_held'], LOCKS)


if __name__ == '__main__':
    main()
