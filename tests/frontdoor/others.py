#!/usr/bin/python3
"""Libraries beside those of libraries.py, unmodified, at the front door of a node: what they can do here, and what they are told
that they cannot. Clients that are set up for a Redis Cluster. Each is skipped, with the reason, where it cannot be had. In no
registry that is used here: sidekiq-unique-jobs, and ShedLock's providers for Jedis and Quarkus."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Case, Cluster, main, wait_until
from redlock_peers_lab import Peer, Unavailable

TTL = 60000


class Single(Case):
    TIMEOUT_S = 1200  # installing is part of it

    def node(self, *options):
        node = Cluster(self.lab, 1, options).start().nodes[0]
        wait_until(lambda: node.call('PING') == 'PONG', 'an answer')
        return node

    def peer(self, node, library, name='a'):
        try:
            peer = Peer(library, [node], self.lab.path('%s-%s.log' % (library, name)))
        except Unavailable as e:
            self.skipTest(str(e))
        self.addCleanup(peer.close)
        return peer


class Others(Single):
    def excludes(self, node, a, b):
        self.assertEqual(a('lock', 'job', TTL), 'held')
        self.assertEqual(b('lock', 'job', TTL), 'refused')
        self.assertEqual(len(node.call('LOCKS')[1]), 1)

    def is_free(self, node):
        self.assertEqual(node.call('LOCKS')[1], [])

    def check_without_del(self, library):
        """It gives back with a bare DEL, which is refused: the lock ends with its lease."""
        node = self.node()
        a = self.peer(node, library)
        self.excludes(node, a, self.peer(node, library, 'b'))
        self.assertIn('--front-door-del yes', a('unlock'))
        self.assertEqual(len(node.call('LOCKS')[1]), 1)

    def check_with_del(self, library):
        node = self.node('--front-door-del', 'yes')
        a, b = self.peer(node, library), self.peer(node, library, 'b')
        self.excludes(node, a, b)
        self.assertEqual(a('unlock'), 'done')
        self.is_free(node)
        self.assertEqual(b('lock', 'job', TTL), 'held')
        return b

    def test_shedlock(self):
        self.check_without_del('ShedLock')

    def test_shedlock_with_del(self):
        self.assertRegex(self.check_with_del('ShedLock')('extend', TTL), 'lost|error')  # it writes another value

    def test_celery_once(self):
        self.check_without_del('celery-once')

    def test_celery_once_with_del(self):
        self.check_with_del('celery-once')

    def test_celery_redbeat(self):
        self.assertIn('there are no transactions here', self.peer(self.node(), 'celery-redbeat')('lock', 'job', TTL))

    def test_laravel(self):
        node = self.node()
        a, b = self.peer(node, 'Laravel'), self.peer(node, 'Laravel', 'b')
        self.excludes(node, a, b)
        self.assertEqual(a('unlock'), 'freed')
        self.is_free(node)
        self.assertEqual(b('lock', 'job', TTL), 'held')
        self.assertEqual(a('unlock'), 'lost')
        self.assertEqual(len(node.call('LOCKS')[1]), 1)
        self.assertIn('unknown command', a('lock', 'for-ever', 0))  # SETNX

    def test_symfony(self):
        node = self.node()
        self.assertIn('is none of those that are served', self.peer(node, 'Symfony')('lock', 'job', TTL))
        self.is_free(node)


class ClusterClients(Single):
    """What a program prints that is set up for a Redis Cluster names the cause."""

    def check(self, library):
        answer = self.peer(self.node(), library)('lock', 'job', TTL)
        self.note(answer[:200])
        self.assertRegex(answer, 'it is not a Redis cluster|Cluster mode is not enabled on this node')  # redis-py's own words

    def test_redis_py(self):
        self.check('redis-py, cluster')

    def test_ioredis(self):
        self.check('ioredis, cluster')

    def test_go_redis(self):
        self.check('go-redis, cluster')

    def test_lettuce(self):
        self.check('Lettuce, cluster')


if __name__ == '__main__':
    main()
