#!/usr/bin/python3
"""Three nodes, any of which serves any client, and the clients people have already."""

import os
import subprocess
import sys
import time

import redis

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, ClusterCase, RespError, as_dict, main, wait_until

OWNER_A, OWNER_B = 'owner-a-0123456789', 'owner-b-0123456789'


class ThreeNodes(ClusterCase):
    STEADY = True

    def test_any_node_grants_and_refuses(self):
        self.cluster.leader()
        last = 0
        for i, first in enumerate(self.cluster.nodes):
            name = 'lock-%d' % i
            token = first.call('ACQUIRE', name, 'TTL', 600000, 'OWNER', OWNER_A)
            self.assertGreater(token, last)
            last = token
            for node in self.cluster.nodes:
                self.assertIsNone(node.call('ACQUIRE', name, 'TTL', 600000, 'OWNER', OWNER_B))
                self.assertEqual(node.call('ACQUIRE', name, 'TTL', 600000, 'OWNER', OWNER_A), token)
                self.assertEqual(node.call('CHECK', name, token), 1)
                self.assertEqual(node.call('RENEW', name, token), 1)

    def test_expired_on_one_node_granted_on_another(self):
        last = 0
        for i in range(6):
            a, b = self.cluster.nodes[i % 3], self.cluster.nodes[(i + 1) % 3]
            first = a.call('ACQUIRE', 'x', 'TTL', 100, 'OWNER', OWNER_A + str(i))
            self.assertGreater(first, last)
            with b.client() as c:
                last = wait_until(lambda: c.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_B), 'expiry')
            self.assertGreater(last, first)
            self.assertEqual(a.call('RELEASE', 'x', first), 0)
            self.assertEqual(a.call('RELEASE', 'x', last), 1)

    def test_a_waiter_on_one_node_gets_what_is_released_on_another(self):
        for holder in self.cluster.nodes:
            for waiter in self.cluster.nodes:
                token = holder.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
                with waiter.client() as c:
                    c.send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_B, 'WAIT', 600000)
                    wait_until(lambda: self.waits(holder) == 1, what='the waiter in the queue')
                    self.assertEqual(holder.call('RELEASE', 'x', token), 1)
                    granted = c.read()
                    self.assertGreater(granted, token)
                    self.assertEqual(c.call('RELEASE', 'x', granted), 1)

    @staticmethod
    def waits(node):
        page = node.call('LOCKS', 'MATCH', 'x')
        return as_dict(page[1][0])['waiters'] if page[1] else 0

    def test_reads_and_renewals_write_nothing(self):
        """What only asks or renews is answered by a round of the leader, through any node."""
        token = self.cluster.nodes[0].call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
        self.assertEqual(self.cluster.nodes[0].call('SESSION', 'OPEN', OWNER_B, 'TTL', 600000), 'OK')
        self.assertEqual(self.cluster.nodes[0].call('SET', 'k', 'v', 'NX', 'PX', 600000), 'OK')
        leader = self.cluster.leader()
        for node in self.cluster.nodes:
            wait_until(lambda: node.info()['applied_index'] == leader.info()['applied_index'], 'all is applied')
        before = [node.info() for node in self.cluster.nodes]
        for node in self.cluster.nodes:
            with node.client() as c:
                for _ in range(200):
                    self.assertEqual(c.call('CHECK', 'x', token), 1)
                    self.assertEqual(as_dict(c.call('SHOW', 'x'))['token'], token)
                    self.assertEqual(c.call('RENEW', 'x', token), 1)
                    self.assertEqual(c.call('SESSION', 'RENEW', OWNER_B), 1)
                    self.assertEqual(c.call('SET', 'k', 'v', 'XX', 'PX', 600000), 'OK')
        for node, then in zip(self.cluster.nodes, before):
            now = node.info()
            for field in ('log_writes', 'last_index'):
                # The nodes tell their versions when they have met; 3000 requests are many more.
                self.assertLess(int(now[field]) - int(then[field]), 10, 'node %s: %s' % (node.id, field))

    def test_a_wait_that_ends_answers_nil(self):
        self.cluster.nodes[0].call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
        for node in self.cluster.nodes:
            with node.client() as c:
                began = time.monotonic()
                self.assertIsNone(c.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_B, 'WAIT', 200))
                self.assertGreaterEqual(time.monotonic() - began, 0.199)

    def test_waiters_are_served_in_their_order(self):
        token = self.cluster.nodes[0].call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
        clients = []
        try:
            for i in range(9):
                c = self.cluster.nodes[i % 3].client()
                clients.append(c)
                c.send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', 'waiter-%d-0123456789' % i, 'WAIT', 600000)
                wait_until(lambda: self.waits(self.cluster.nodes[1]) == i + 1, what='waiter %d in the queue' % i)
            for c in clients:
                self.assertEqual(self.cluster.nodes[2].call('RELEASE', 'x', token), 1)
                granted = c.read()
                self.assertGreater(granted, token)
                token = granted
        finally:
            for c in clients:
                c.close()

    def test_a_dropped_connection_gives_up_its_wait(self):
        token = self.cluster.nodes[0].call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_A)
        for node in self.cluster.nodes:
            c = node.client()
            c.send('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER_B, 'WAIT', 600000)
            wait_until(lambda: self.waits(node) == 1, what='the waiter in the queue')
            c.close()
            wait_until(lambda: self.waits(node) == 0, what='the end of a wait whose client is gone')
        self.assertEqual(self.cluster.nodes[0].call('RELEASE', 'x', token), 1)
        self.assertIsNone(self.cluster.nodes[0].call('SHOW', 'x'))

    def test_redis_cli_on_each_node(self):
        def cli(node, *args):
            done = subprocess.run(['redis-cli', '-p', str(node.port), *args], capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.strip()
        last = 0
        for node in self.cluster.nodes:
            token = int(cli(node, 'ACQUIRE', 'NAME', 'TTL', '60000'))
            self.assertGreater(token, last)
            self.assertEqual(cli(node, 'ACQUIRE', 'NAME', 'TTL', '60000'), '')
            self.assertEqual(cli(node, 'CHECK', 'NAME', str(token)), '1')
            self.assertEqual(cli(node, '-3', 'RELEASE', 'NAME', str(token)), '1')
            self.assertIn('ERR', cli(node, 'ACQUIRE'))
            self.assertEqual(cli(node, 'PING'), 'PONG')
            last = token

    def test_the_redis_client_of_python_on_each_node(self):
        last = 0
        for node in self.cluster.nodes:
            r = redis.Redis(host='127.0.0.1', port=node.port, client_name='a-stock-client', socket_timeout=PATIENCE_S)
            self.assertTrue(r.ping())
            token = r.execute_command('ACQUIRE', 'py', 'TTL', 600000, 'OWNER', OWNER_A)
            self.assertGreater(token, last)
            self.assertIsNone(r.execute_command('ACQUIRE', 'py', 'TTL', 600000, 'OWNER', OWNER_B))
            with self.assertRaises(redis.ResponseError):
                r.execute_command('ACQUIRE')
            pipe = r.pipeline(transaction=False)
            for _ in range(100):
                pipe.execute_command('TOKEN', 'py')
            tokens = pipe.execute()
            self.assertEqual(tokens, sorted(set(tokens)))
            self.assertEqual(r.execute_command('RELEASE', 'py', token), 1)
            self.assertIn('redis_version' if 'redis_version' in r.info() else 'leader_id', r.info())
            last = tokens[-1]
            r.close()

    def test_resp3_on_each_node(self):
        for node in self.cluster.nodes:
            with node.client() as c:
                hello = c.call('HELLO', 3)
                self.assertIsInstance(hello, dict)
                self.assertEqual(hello[b'proto'], 3)
                token = c.call('ACQUIRE', 'r3', 'TTL', 600000, 'OWNER', OWNER_A)
                c.send('ACQUIRE', 'r3', 'TTL', 600000, 'OWNER', OWNER_B)
                self.assertIsNone(c.read())
                show = c.call('SHOW', 'r3')
                self.assertIsInstance(show, dict)
                self.assertEqual(show[b'token'], token)
                self.assertEqual(c.call('RELEASE', 'r3', token), 1)
                with self.assertRaises(RespError) as e:
                    c.call('HELLO', 9)
                self.assertEqual(e.exception.word, 'NOPROTO')
                self.assertEqual(c.call('HELLO', 2)[:1], [b'server'])

    def test_replicas_agree(self):
        with self.cluster.nodes[0].client() as c:
            c.pipeline([('ACQUIRE', 'lock-%d' % i, 'TTL', 3600000) for i in range(1000)])
        hashes = self.cluster.wait_same_state()
        self.assertEqual(len(hashes), 3)
        self.assertEqual(len(set(hashes)), 1)

    def test_everybody_knows_the_leader(self):
        leader = self.cluster.leader()
        for node in self.cluster.nodes:
            number, address = node.call('LEADER')
            self.assertEqual((number, address.decode()), (leader.id, leader.address))

    def test_two_nodes_are_enough_and_one_is_not(self):
        a, b, c = self.cluster.unsteady().nodes # one alone is not to wait for long
        c.kill()
        self.cluster.leader()
        first = wait_until(lambda: a.call('ACQUIRE', 'x', 'TTL', 600, 'OWNER', OWNER_A), 'a grant by two')
        b.kill()
        with self.assertRaises(RespError) as e: # a grant may not be made up by one node alone
            a.call('ACQUIRE', 'y', 'TTL', 600, 'OWNER', OWNER_A)
        self.assertIn(e.exception.word, ('NOLEADER', 'UNCERTAIN'))
        b.start()
        self.assertGreater(wait_until(lambda: a.call('ACQUIRE', 'z', 'TTL', 600, 'OWNER', OWNER_B), 'a grant by two again'), first)


if __name__ == '__main__':
    main()
