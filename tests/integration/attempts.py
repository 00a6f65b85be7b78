#!/usr/bin/python3
"""Requests that are carried out long after their client has asked again elsewhere: they sat in the socket of a node that
was stopped. Those that say which attempt they are (ATTEMPT) do nothing then, and each attempt has its own deadline."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cli_library import Driver
from harness import ClusterCase, RespError, as_dict, main, wait_until

OWNER_A = 'owner-a-0123456789'
OWNER_B = 'owner-b-0123456789'
LONG = 600000


class Late(ClusterCase):
    STEADY = True # but when the leader is stopped, until there is another one

    def copy_in(self, stopped, *words):
        """What a request is answered that sat in a stopped node, while the next attempt got the lock and gave it back."""
        others = [n for n in self.cluster.nodes if n is not stopped]
        leads = stopped is self.cluster.leader()
        if leads:
            self.cluster.unsteady()
        with stopped.client() as at_stopped:
            at_stopped.call('PING')
            stopped.pause()
            at_stopped.send('ACQUIRE', 'ghost', 'TTL', LONG, 'OWNER', OWNER_A)
            other = self.cluster.leader(among=others)
            if leads:
                self.cluster.steady(among=others)
            token = wait_until(lambda: other.call('ACQUIRE', 'ghost', 'TTL', LONG, 'OWNER', OWNER_A, *words), 'the lock')
            self.assertEqual(other.call('RELEASE', 'ghost', token), 1)
            stopped.resume()
            return at_stopped.read()

    def shown(self):
        return self.cluster.leader().call('SHOW', 'ghost')

    def test_a_copy_in_a_stopped_follower(self):
        late = self.copy_in(self.cluster.followers()[0], 'ATTEMPT', 2)
        self.assertIsInstance(late, RespError)
        self.assertEqual(late.word, 'LATE', late)
        self.assertIn('attempt 2 ', late.text)
        self.assertIsNone(self.shown())

    def test_a_copy_in_a_stopped_leader(self):
        late = self.copy_in(self.cluster.leader(), 'ATTEMPT', 2)
        self.assertIsInstance(late, RespError)
        self.assertIn(late.word, ('LATE', 'UNCERTAIN', 'NOLEADER'), late)
        self.assertIsNone(self.shown())

    def test_without_a_number_it_holds_the_lock_for_nobody(self):
        """What the numbers are there for: the test can fail."""
        self.assertIsInstance(self.copy_in(self.cluster.followers()[0]), int)
        self.assertIsNotNone(self.shown())

    def test_known_after_all_have_restarted(self):
        node = self.cluster.nodes[0]
        self.assertEqual(node.call('RELEASE', 'x', node.call('ACQUIRE', 'x', 'TTL', LONG, 'OWNER', OWNER_A, 'ATTEMPT', 7)), 1)
        for n in self.cluster.nodes:
            n.kill()
        for n in self.cluster.nodes:
            n.launch()
        for n in self.cluster.nodes:
            n.wait_ready()
            self.cluster.wait_serving(n)
        with self.assertRaises(RespError) as caught:
            node.call('ACQUIRE', 'x', 'OWNER', OWNER_A, 'ATTEMPT', 6)
        self.assertEqual(caught.exception.word, 'LATE')
        self.assertIsInstance(node.call('ACQUIRE', 'x', 'OWNER', OWNER_A, 'ATTEMPT', 8), int)

    def test_a_second_shorter_wait(self):
        """The first one's connection is still open, so nobody has cancelled it."""
        a, b = self.cluster.followers()
        token = a.call('ACQUIRE', 'busy', 'TTL', LONG, 'OWNER', OWNER_B)
        with a.client() as first, b.client() as second:
            first.send('ACQUIRE', 'busy', 'TTL', LONG, 'OWNER', OWNER_A, 'WAIT', LONG)
            wait_until(lambda: self.waiters() == 1, 'the first in the queue')
            self.assertIsNone(second.call('ACQUIRE', 'busy', 'TTL', LONG, 'OWNER', OWNER_A, 'WAIT', 500, 'ATTEMPT', 2))
            self.assertIsNone(first.read()) # the place was one
            self.assertEqual(self.waiters(), 0)
            self.assertEqual(a.call('RELEASE', 'busy', token), 1)
            self.assertIsNone(a.call('SHOW', 'busy')) # not granted to nobody

    def waiters(self):
        fields = self.cluster.leader().call('SHOW', 'busy')
        return as_dict(fields).get('waiters')

    def test_the_library_counts(self):
        """Its first sending sits in the old leader; it changes over, gets the lock and gives it back."""
        for n in range(3):
            old = self.cluster.leader()
            others = [node for node in self.cluster.nodes if node is not old]
            driver = Driver(','.join(self.cluster.addresses()))
            self.addCleanup(driver.close)
            lock = 'lock-%d' % n
            self.assertEqual(driver('acquire', lock, LONG, 0, LONG)[0], 'OK') # it knows the leader now
            self.assertEqual(driver('release', LONG)[0], 'OK')
            self.cluster.unsteady()
            old.pause()
            word, token, text = driver('acquire', lock, LONG, 0, LONG)
            self.assertEqual(word, 'OK', text)
            self.cluster.steady(among=others)
            self.assertEqual(driver('release', LONG)[0], 'OK')
            old.resume()
            self.cluster.wait_serving(old)
            self.assertIsNone(old.call('SHOW', lock))
            self.assertEqual(driver('acquire', lock, LONG, 0, LONG)[0], 'OK') # it learns from LATE where it was
            self.assertEqual(driver('release', LONG)[0], 'OK')


if __name__ == '__main__':
    main()
