#!/usr/bin/python3
"""A thousand waiters on one lock, on three nodes whose leader is killed on the way: first come, first served; one release
wakes one of them; each is granted once, and nobody else hears of it."""

import os
import re
import selectors
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import Case, Cluster, Deadline, Resp, RespError, main, wait_until

COUNT = 1000
WORD = re.compile(rb'event=(\w+).* owner=(\S+)')


class Waiter:
    """One connection. Asks with its own owner until it has a token, gives the lock back, and is done."""

    def __init__(self, crowd, number):
        self.crowd, self.owner = crowd, 'waiter-%04d-0123456789' % number
        self.at = number % 3
        self.tokens, self.answers, self.state = [], 0, 'waits'
        self.connection = None
        self.ask()

    def send(self, *request):
        """On a new connection, to the node in turn or to the next that can be reached."""
        self.close()
        while self.connection is None:
            try:
                self.connection = Resp(self.crowd.addresses[self.at], timeout=60)
            except OSError: # one of three is dead
                self.at = (self.at + 1) % 3
        self.connection.send(*request)
        self.crowd.selector.register(self.connection.sock, selectors.EVENT_READ, self)

    def close(self):
        if self.connection is not None:
            self.crowd.selector.unregister(self.connection.sock)
            self.connection.close()
            self.connection = None

    def ask(self):
        self.send('ACQUIRE', 'crowd', 'TTL', 600000, 'OWNER', self.owner, 'WAIT', 3600000)

    def readable(self):
        try:
            answer = self.connection.read()
        except ConnectionError:
            answer = None
        if not isinstance(answer, int): # nobody knows: ask again, elsewhere
            if isinstance(answer, RespError) and answer.word not in ('UNCERTAIN', 'NOLEADER'):
                raise AssertionError('%s: %s' % (self.owner, answer))
            self.at = (self.at + 1) % 3
            if self.state == 'waits':
                self.ask()
            else:
                self.state = 'gave back, perhaps'
                self.send('RELEASE', 'crowd', self.tokens[-1])
            return
        self.answers += 1
        if self.state == 'waits':
            self.tokens.append(answer)
            self.state = 'gives back'
            self.connection.send('RELEASE', 'crowd', answer)
            return
        if answer != 1 and self.state == 'gives back':
            raise AssertionError('%s lost the lock' % self.owner)
        self.state = 'done'
        self.crowd.done += 1
        self.close()


class Waiters(Case):
    def setUp(self):
        super().setUp()
        self.need_open_files(2 * COUNT)
        self.cluster = Cluster(self.lab, 3).start().steady()
        self.addresses = self.cluster.addresses()
        self.selector = selectors.DefaultSelector()
        self.addCleanup(self.selector.close)
        self.events, self.done = [], 0

    def listen(self, node):
        listener = node.client()
        self.addCleanup(listener.close)
        listener.call('SUBSCRIBE', 'lock:crowd')
        self.selector.register(listener.sock, selectors.EVENT_READ, None)
        self.listener = listener

    def turn(self, deadline):
        self.assertFalse(deadline.passed(), 'it does not go on')
        for key, _ in self.selector.select(0.2):
            if key.data is not None:
                key.data.readable()
                continue
            self.events.append(self.listener.read()[2]) # and what came with it
            while self.listener.at < len(self.listener.buffer):
                self.events.append(self.listener.read()[2])

    def owners(self, event):
        found = [WORD.search(e).groups() for e in self.events if b'owner=' in e]
        return [owner.decode() for word, owner in found if word == event]

    def test_a_thousand(self):
        leader = self.cluster.leader()
        self.listen(self.cluster.followers()[0])
        holder = leader.call('ACQUIRE', 'crowd', 'TTL', 600000, 'OWNER', 'holder-0123456789')
        waiters = [Waiter(self, i) for i in range(COUNT)]
        deadline = Deadline(800)
        while len(self.events) < COUNT: # the grant of the holder may have come too
            self.turn(deadline)
        while len(self.owners(b'queued')) < COUNT:
            self.turn(deadline)
        self.assertEqual(leader.info()['waits'], COUNT)
        self.assertEqual([w.answers for w in waiters], [0] * COUNT)
        queue = self.owners(b'queued')
        self.assertEqual(leader.call('RELEASE', 'crowd', holder), 1)
        killed = False
        while self.done < COUNT:
            self.turn(deadline)
            if not killed and self.done >= COUNT // 3:
                leader.kill()
                killed = True
        survivor = self.cluster.leader(among=[n for n in self.cluster.nodes if n is not leader])
        wait_until(lambda: survivor.call('SHOW', 'crowd') is None, 'the end of the queue')
        while len(self.owners(b'released')) < COUNT + 1:
            self.turn(deadline)
        # In the order of the queue, each once, one at a time, and nobody was woken for nothing.
        self.assertEqual(self.owners(b'granted')[1:], queue)
        tokens = {w.owner: w.tokens for w in waiters}
        self.assertTrue(all(len(set(t)) == 1 for t in tokens.values()))
        in_order = [tokens[owner][0] for owner in queue]
        self.assertEqual(in_order, list(range(holder + 1, holder + 1 + COUNT)))
        kinds = [WORD.search(e).group(1) for e in self.events if b'event=granted' in e or b'event=released' in e]
        self.assertEqual(kinds, [b'granted', b'released'] * (COUNT + 1))
        self.note('%d waiters over the death of a leader' % COUNT)


if __name__ == '__main__':
    main()
