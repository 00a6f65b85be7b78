#!/usr/bin/python3
"""CLUSTER CONFIG: limits that change while the cluster runs, on all nodes."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Case, Cluster, RespError, main

OWNER = 'owner-a-0123456789'


class ClusterConfig(Case):
    def limits(self, node):
        row = [x.decode() if isinstance(x, bytes) else x for x in node.call('CLUSTER', 'CONFIG', 'GET')]
        return dict(zip(row[::2], row[1::2]))

    def refused(self, node, *args):
        with self.assertRaises(RespError) as caught:
            node.call('CLUSTER', 'CONFIG', *args)
        return caught.exception.word, str(caught.exception)

    def test_limits(self):
        cluster = Cluster(self.lab, 3, extra=['--locks-max', '3']).start()
        follower = cluster.followers()[0]
        for i in range(3):
            self.assertGreater(follower.call('ACQUIRE', 'lock-%d' % i, 'TTL', 600000, 'OWNER', OWNER), 0)
        with self.assertRaises(RespError) as caught:
            follower.call('ACQUIRE', 'lock-3', 'TTL', 600000, 'OWNER', OWNER)
        self.assertEqual(caught.exception.word, 'LIMIT')
        self.assertIn(follower.call('CLUSTER', 'CONFIG', 'SET', 'locks-max', 4), ('OK', b'OK'))
        self.assertGreater(follower.call('ACQUIRE', 'lock-3', 'TTL', 600000, 'OWNER', OWNER), 0)
        self.assertEqual(len(set(cluster.wait_same_state())), 1)
        for node in cluster.nodes:
            self.assertEqual(self.limits(node)['locks-max'], 4)
        word, text = self.refused(follower, 'SET', 'locks-max', 3)
        self.assertEqual(word, 'LIMIT')
        self.assertIn('4 are in use', text)
        cluster.terminate()
        cluster.start()
        self.assertEqual(self.limits(cluster.nodes[0])['locks-max'], 4) # not what the options say

    def test_who_may_and_what_is_wrong(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        for args in (('SET', 'locks-max'), ('SET', 'locks', 5), ('SET', 'locks-max', 0), ('SET', 'locks-max', 2**32),
                     ('LIST',), ('GET', 'locks-max')):
            self.assertEqual(self.refused(node, *args)[0], 'ERR', args)
        node.call('ACL', 'SETUSER', 'reader', 'on', '>geheim', '~*', '+@see')
        with node.client() as c:
            c.call('AUTH', 'reader', 'geheim')
            for args in (('GET',), ('SET', 'locks-max', 5)):
                with self.assertRaises(RespError) as caught:
                    c.call('CLUSTER', 'CONFIG', *args)
                self.assertEqual(caught.exception.word, 'NOPERM')


if __name__ == '__main__':
    main()
