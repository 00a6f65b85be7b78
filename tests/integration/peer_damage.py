#!/usr/bin/python3
"""What nodes send each other is damaged on its way, or comes from somebody who forges it: the connection ends, the nodes live,
and the cluster has a leader again."""

import os
import random
import socket
import struct
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', 'faults')]
from faultlab.proxy import HELLO_SIZE, Loop
from faultlab.proxy import PeerProxy
from faultlab.fault_run import ProxiedCluster
from harness import ANSWER_S, PATIENCE_S, Case, Deadline, Load, main, seed, wait_until

RAFT_STREAM = 1
INCARNATION_AT = 40 # in a handshake, src/peer/handshake.h
APPEND, APPEND_RESULT, VOTE, VOTE_RESULT, TIMEOUT_NOW = 1, 2, 3, 4, 6 # src/consensus/message_codec.h
TERM_STEP_MAX = 1 << 32                                              # src/consensus/raft_edge.h
WELCOME_AT, WELCOME = 19, 1                                          # src/peer/handshake.h
CRC_AT, CHECKED_AT, SENDER_AT, START_AT, LOG_AT = 8, 12, 32, 776, 792
AHEAD = 1 << 40 # more than all steps of a term in these tests


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def frame(kind, body, length=None):
    """As src/peer/frame.h has it, with whatever length is wanted."""
    head = struct.pack('<IB3xI', len(body) if length is None else length, kind, crc32c(body))
    return head + struct.pack('<I', crc32c(head)) + body


def up_to_date(hello, hellos):
    """The same, from its sender's newest start, with more terms and entries; with those of then it would be an older copy.
    hellos: of all nodes."""
    sent_by = struct.unpack_from('<Q', hello, SENDER_AT)
    newest = max((h for h in hellos if struct.unpack_from('<Q', h, SENDER_AT) == sent_by),
                 key=lambda h: struct.unpack_from('<Q', h, START_AT))
    term, index = struct.unpack_from('<QQ', hello, LOG_AT)
    log = struct.pack('<QQ', term + AHEAD, index + AHEAD)
    body = hello[CHECKED_AT:START_AT] + newest[START_AT:LOG_AT] + log + hello[LOG_AT + len(log):]
    return hello[:CRC_AT] + struct.pack('<I', crc32c(body)) + body


def dial_once(target, hello):
    s = socket.create_connection(('127.0.0.1', target.peer_port), timeout=ANSWER_S)
    try:
        s.sendall(hello)
        answer = b''
        while len(answer) < HELLO_SIZE:
            more = s.recv(HELLO_SIZE - len(answer))
            assert more, 'the handshake was not answered'
            answer += more
        assert answer[WELCOME_AT] == WELCOME, answer[336:512].rstrip(b'\0')
    except BaseException:
        s.close()
        raise
    return s


def dial(target, hello):
    """A stream to a node, opened with this handshake, and welcome. A node waits for a handshake for two seconds, and a slow machine
    may need more than one attempt."""
    return wait_until(lambda: dial_once(target, hello), 'a welcome by %s' % target.name)


class PeerCase(Case):
    """Three nodes that reach each other through a proxy of this class."""
    PROXY, EXTRA, STEADY = PeerProxy, [], False

    def setUp(self):
        super().setUp()
        self.random = random.Random(seed())
        self.loop = Loop()
        self.addCleanup(self.loop.close)
        self.cluster = ProxiedCluster(self.lab, 3)
        for node in self.cluster.nodes:
            node.extra = list(self.EXTRA)
        self.peers = self.PROXY(self.loop, self.cluster.peer_ports()).start()
        self.cluster.start()
        if self.STEADY:
            self.cluster.steady()

    def serves(self):
        """Each node serves, and has all that the leader has: it is not behind, and needs no snapshot."""
        self.cluster.leader()
        for node in self.cluster.nodes:
            self.assertTrue(node.running(), node.process.last_output())
            self.cluster.wait_serving(node)
        self.cluster.wait_caught_up()

    def new_token(self):
        """One by the leader, whichever that is by then."""
        return wait_until(lambda: self.cluster.leader().call('TOKEN', 'x'), 'a token')

    def works(self):
        """Without load: see serves()."""
        self.serves()
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1, 'the states differ')


class PeerDamage(PeerCase):
    def said(self, text):
        return sum(node.process.output().count(text) for node in self.cluster.nodes)

    def test_bits_that_turn_around_on_the_way(self):
        """Heads, bodies and handshakes alike."""
        load = Load(self.cluster.addresses(), clients=9).start()
        self.addCleanup(load.aborting.set)
        damaged = 0
        for share in (0.02, 0.2, 0.6):
            self.peers.corrupt(share, self.random.randrange(1 << 32))
            wait_until(lambda: self.peers.damaged >= 25, 'damaged traffic')
            damaged += self.peers.corrupt(0.0)
            load.wait_more_grants(50)
        grants = load.stop()
        load.check()
        self.works()
        seen = self.said('a frame whose header is damaged') + self.said('a frame whose body is damaged')
        self.assertGreater(seen, 0)
        self.note('%d pieces damaged, %d grants, told %d times' % (damaged, len(grants), seen))

    def dial(self, sender, target):
        """A stream of Raft messages in the name of another node, which has dialed before."""
        hello = wait_until(lambda: self.peers.hellos.get((sender.id, target.id, RAFT_STREAM)), 'a stream to copy')
        s = dial(target, up_to_date(hello, self.peers.hellos.values()))
        self.addCleanup(s.close)
        return s

    def forge(self, data, ends=True):
        """Sends it in the name of one node to another. It ends the stream, or not."""
        sender, target = self.random.sample(self.cluster.nodes, 2)
        s = self.dial(sender, target)
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            if ends:
                s.settimeout(PATIENCE_S)
                self.assertEqual(s.recv(1), b'')
        except (ConnectionResetError, BrokenPipeError):
            pass
        finally:
            s.close()
        self.assertTrue(target.running(), target.process.last_output())

    def messages(self, term, sender):
        """One of each kind, with this term; with nothing else in it that could do harm."""
        yield APPEND, struct.pack('<4QI', term, 0, 0, 0, 0)
        yield APPEND_RESULT, struct.pack('<3Q', term, 0, 0)
        yield VOTE, struct.pack('<4Q2B', term, sender, 0, 0, 0, 0)
        yield VOTE, struct.pack('<4Q2B', term, sender, 0, 0, 0, 1)
        yield VOTE_RESULT, struct.pack('<Q2B', term, 0, 0)
        yield VOTE_RESULT, struct.pack('<Q2B', term, 0, 1)
        yield TIMEOUT_NOW, struct.pack('<3Q', term, 0, 0)

    def test_terms_that_leave_no_room_for_the_next(self):
        before = self.cluster.leader().info()['term']
        last = self.new_token()
        for term in (0, before + TERM_STEP_MAX + 1000, 1 << 63, (1 << 64) - 2, (1 << 64) - 1):
            for kind, body in self.messages(term, 1):
                self.forge(frame(kind, body))
        self.works()
        for node in self.cluster.nodes:
            self.assertLess(node.info()['term'], before + 1000)
        self.assertGreater(self.new_token(), last)

    def test_a_term_that_is_far_ahead(self):
        """It may be: so it counts, and the next leader leads in a later one. A vote that is asked for while there is a leader does
        not count, unless that leader has handed over."""
        for kind, more in ((APPEND, struct.pack('<3QI', 0, 0, 0, 0)), (APPEND_RESULT, struct.pack('<2Q', 0, 0)), (VOTE, None)):
            term = self.cluster.leader().info()['term'] + (1 << 20)
            wait_until(lambda: self.counts(kind, term, more), 'a leader of a later term than %d' % kind)
            self.works()

    def counts(self, kind, term, more):
        """Whether a leader leads in this term or a later one a while after the leader of now was told of it. Who was told may lead no
        more by then, and who was named may have dialed anew, which ends the stream: then it was not told."""
        target = self.cluster.leader()
        sender = self.random.choice([n for n in self.cluster.nodes if n is not target])
        with self.dial(sender, target) as s:
            candidate, = struct.unpack_from('<Q', self.peers.hellos[sender.id, target.id, RAFT_STREAM], INCARNATION_AT)
            s.sendall(frame(kind, struct.pack('<Q', term) + (more or struct.pack('<3Q2B', candidate, 0, 0, 1, 0))))
            deadline = Deadline(5)
            while not deadline.passed():
                if self.cluster.leader().info()['term'] >= term:
                    return True
                time.sleep(0.02)
        return False

    def test_frames_that_are_none(self):
        self.cluster.leader()
        for kind in (0, 5, 7, 77, 255): # no kind of message
            self.forge(frame(kind, b'x' * 24))
        for kind in (APPEND, APPEND_RESULT, VOTE, VOTE_RESULT, TIMEOUT_NOW):
            for size in (0, 1, 23, 37, 4000): # no length that a body has
                self.forge(frame(kind, bytes(size)))
            for _ in range(10):
                self.forge(frame(kind, self.random.randbytes(self.random.choice((9, 24, 33, 36, 200)))))
        for length in (1 << 23, 1 << 26, (1 << 31) - 1, (1 << 32) - 1): # more than may come
            self.forge(frame(APPEND, b'', length))
        entries = struct.pack('<4QI', 1 << 40, 0, 0, 0, (1 << 32) - 1) + struct.pack('<QB3xI', 1, 1, (1 << 32) - 1)
        self.forge(frame(APPEND, entries))
        self.forge(self.random.randbytes(5000))
        self.works()


if __name__ == '__main__':
    main()
