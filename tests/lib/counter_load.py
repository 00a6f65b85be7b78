"""Sixteen clients that add to one counter behind fencelock-store, each time under a lock and with its token, while leaders are killed.
In the end the counter has every addition that was acknowledged."""

import threading

from harness import PATIENCE_S, RespError, wait_until

CLIENTS = 16


class CounterLoad:
    def __init__(self, cluster, store):
        self.cluster, self.store = cluster, store
        self.added, self.refused, self.failures, self.stop = [], [], [], threading.Event()

    def add(self, client, token, owner=None):
        """Read, add one, write."""
        try:
            value = int(client.call('GET', 'n', 'FENCE', 'counter', token) or 0)
            client.call('SET', 'n', value + 1, 'FENCE', 'counter', token)
            self.added.append((token, owner))
        except RespError as e:
            if e.word != 'STALE':
                raise
            self.refused.append(token)

    def client(self, number, once):
        try:
            with self.store.client(30) as c:
                while not self.stop.is_set():
                    once(number, c)
        except BaseException as e:
            self.failures.append(e)

    def run(self, once, goals):
        """once(number, client): takes the lock, calls add(), gives it back. goals: after so many additions a leader is killed."""
        threads = [threading.Thread(target=self.client, args=(i, once)) for i in range(CLIENTS)]
        for t in threads:
            t.start()
        for goal in goals:
            wait_until(lambda: len(self.added) >= goal or self.failures, '%d additions' % goal)
            leader = self.cluster.leader()
            leader.kill()
            wait_until(lambda: len(self.added) >= goal + 10 or self.failures, 'additions without a node')
            leader.start()
        self.stop.set()
        for t in threads:
            t.join(PATIENCE_S)

    def check(self, case):
        case.assertEqual(self.failures, [])
        case.assertEqual(len({token for token, _ in self.added}), len(set(self.added)), 'a token had two owners')
        case.assertEqual(int(self.store.call('GET', 'n')), len(self.added))
        case.note('%d additions, %d refused' % (len(self.added), len(self.refused)))
