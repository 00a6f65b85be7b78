#!/usr/bin/python3
"""Every message of a real run, with each kind of damage: cut at every byte, each bit of its header turned around, lengths at their
extremes, sent twice, sent in another order, sent in another node's name. Once to a node's port, and once on the way between
live nodes, by a proxy that knows where a frame begins. At worst the connection ends: the nodes live, nobody loses what was
acknowledged, all states are the same.

    FENCELOCK_BUILD=build tests/integration/peer_bytes.py              on the way: some of each; also a part of `meson test`
    FENCELOCK_BUILD=build tests/integration/peer_bytes.py --full       all of them: minutes
"""

import os
import socket
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', 'faults')]
sys.dont_write_bytecode = True
from faultlab.proxy import HELLO_SIZE, PeerProxy
from harness import PATIENCE_S, Load, RespError, main, wait_until
from peer_damage import PeerCase, crc32c, dial, up_to_date

FULL = '--full' in sys.argv
if FULL:
    sys.argv.remove('--full')
RAFT, RELAY, SNAPSHOT = 1, 2, 3
RESULT = 2                 # src/commands/relay_codec.h
KINDS = {RAFT: 'raft', RELAY: 'relay', SNAPSHOT: 'snapshot'}
HEAD = 16                  # src/peer/frame.h
KEPT = 4                   # frames of each kind that are kept of a run
LARGEST = 4000 if FULL else 100 # bytes of a message at which it is cut, from its beginning and from its end
LENGTHS = (0, 1, (1 << 23) - 1, 1 << 26, (1 << 31) - 1, (1 << 32) - 1)
# That come at a change of leader, or for a wait that ends: votes, hand-over, returned commands, pushes, readiness.
RARE = {(RAFT, 3, True), (RAFT, 4, True), (RAFT, 6, True), (RELAY, 3, False), (RELAY, 4, False)}
SOME = 4                   # of each message, on the way, unless --full


def with_length(frame, length):
    """The same frame with another length, and a header that is right about everything else."""
    head = struct.pack('<I', length) + frame[4:12]
    return head + struct.pack('<I', crc32c(head)) + frame[HEAD:]


def flipped(frame, bit):
    spoiled = bytearray(frame)
    spoiled[bit // 8] ^= 1 << bit % 8
    return bytes(spoiled)


def cuts(frame):
    return [at for at in range(len(frame)) if at < LARGEST or at >= len(frame) - LARGEST]


class Frames:
    """One side of one stream, cut into frames."""

    def __init__(self, proxy, link, kind, forth):
        self.proxy, self.link, self.kind, self.forth = proxy, link, kind, forth
        self.rest, self.raw = b'', 0 if forth else HELLO_SIZE

    def __call__(self, data):
        out, self.rest = [], self.rest + data
        head, self.rest = self.rest[:self.raw], self.rest[self.raw:]
        self.raw -= len(head)
        out.append(head)
        while len(self.rest) >= HEAD:
            size = HEAD + struct.unpack_from('<I', self.rest)[0]
            if len(self.rest) < size:
                break
            frame, self.rest = self.rest[:size], self.rest[size:]
            change, ends = self.proxy.meet(self, frame)
            out.append(change)
            if ends:
                return b''.join(out), True
        return b''.join(out), False


class FrameProxy(PeerProxy):
    """Keeps messages of each kind, and spoils some while it is asked to."""

    def __init__(self, loop, ports):
        super().__init__(loop, ports)
        self.seen = {}     # (kind of stream, type, forth) -> {link: [frames]}
        self.plan = {}     # the same -> damages that are to be done, the last first
        self.before = {}   # side of a stream -> the frame that is held back, to come behind the next
        self.done, self.every = 0, 0

    def changer(self, link, kind, forth):
        return Frames(self, link, kind, forth)

    def meet(self, side, frame):
        what = (side.kind, frame[4], side.forth)
        kept = self.seen.setdefault(what, {}).setdefault(side.link, [])
        if len(kept) < KEPT:
            kept.append(frame)
        held = self.before.pop(side, b'')
        plan = self.plan.get(what)
        self.every += 1
        if held or not plan or self.every % 3: # so that something gets through in between
            return frame + held, False
        damage, value = plan.pop()
        self.done += 1
        return self.spoil(damage, value, side, what, frame)

    def spoil(self, damage, value, side, what, frame):
        if damage == 'cut':
            return frame[:min(value, len(frame) - 1)], True
        if damage == 'bit':
            return flipped(frame, value), False
        if damage == 'length':
            return with_length(frame, value), False
        if damage == 'twice':
            return frame + frame, False
        if damage == 'later':
            self.before[side] = frame
            return b'', False
        others = [f for link, frames in self.seen[what].items() if link != side.link for f in frames]
        return (others[value % len(others)] if others else b'') + frame, False # 'other': what another node sent


class Mixer(FrameProxy):
    """Keeps the leader's answers to one node, and then puts one before each answer to another."""

    def __init__(self, loop, ports):
        super().__init__(loop, ports)
        self.kept, self.mixes, self.mixed = {}, False, 0

    def meet(self, side, frame):
        if side.kind != RELAY or frame[4] != RESULT or side.forth:
            return frame, False
        if not self.mixes:
            self.kept.setdefault(side.link, []).append(frame)
            return frame, False
        others = [f for link, frames in self.kept.items() if link != side.link for f in frames]
        fitting = [f for f in others if f[HEAD:HEAD + 8] == frame[HEAD:HEAD + 8]] # the same sequence
        self.mixed += 1
        return (fitting or others)[0] + frame, False


class AnswersOfOthers(PeerCase):
    PROXY, STEADY = Mixer, True

    def test_are_not_taken(self):
        """What the leader said on one stream means nothing on another."""
        peers = self.peers
        one, other = self.cluster.followers()
        told = []
        for node in (other, one): # were streams counted from one number, the answers to these would fit each other
            with node.client() as c:
                told += [c.call('TOKEN', 'x') for _ in range(100)]
        peers.mixes = True
        tokens = []
        for _ in range(20):
            try:
                tokens.append(other.call('TOKEN', 'x'))
            except RespError as e:
                self.assertEqual(e.word, 'UNCERTAIN')
        peers.mixes = False
        self.assertGreater(peers.mixed, 0)
        wait_until(lambda: self.token(other), 'the node serves again')
        tokens.append(other.call('TOKEN', 'x'))
        self.assertEqual(tokens, sorted(set(tokens)))
        self.assertGreater(tokens[0], max(told))

    @staticmethod
    def token(node):
        try:
            return node.call('TOKEN', 'x')
        except (OSError, RespError):
            return None


class PeerBytes(PeerCase):
    PROXY, EXTRA = FrameProxy, ['--snapshot-bytes', 65536]

    def fall_behind(self, node):
        """So far that it needs a snapshot."""
        node.kill()
        left = list(range(700)) # one at a time: entries count, and some hundred of them stay behind a snapshot

        def written():
            try:
                with self.cluster.leader(among=self.cluster.running()).client() as c:
                    while left:
                        c.call('ACQUIRE', 'behind-%d' % left[-1], 'TTL', 600000, 'OWNER', 'owner-of-this-%06d' % left[-1],
                               'VALUE', 'v' * 200)
                        left.pop()
            except RespError as e: # two of three are up, and a busy machine may depose their leader
                self.assertIn(e.word, ('UNCERTAIN', 'NOLEADER'))
            return not left
        wait_until(written, 'the others write')
        node.start()
        self.cluster.wait_serving(node)

    def run_of_all(self):
        """Every kind of message that nodes send each other in a real run: commands, waits, a snapshot, a change of leader."""
        load = Load(self.cluster.addresses(), clients=6).start()
        self.addCleanup(load.aborting.set)
        self.fall_behind(self.cluster.followers()[0])
        self.cluster.make_leader(self.random.choice(self.cluster.followers()))
        load.wait_more_grants(50)
        load.stop()
        load.check()
        wanted = [(RAFT, t) for t in (1, 2, 3, 4, 6)] + [(RELAY, t) for t in (1, 2)] + [(SNAPSHOT, t) for t in (1, 2, 3, 4)]

        def missing():
            seen = {(kind, t) for kind, t, _ in self.peers.seen}
            return [w for w in wanted if w not in seen]
        # Of a snapshot that came in one piece, not every message is seen; and who should get the lead may have had it by an election.
        for _ in range(10):
            if not missing():
                break
            self.fall_behind(self.cluster.followers()[0])
            self.cluster.make_leader(self.random.choice(self.cluster.followers()))
        self.assertEqual(missing(), [], 'a run without such messages')

    # -- to a node's port -------------------------------------------------------------------------
    def dial(self, sender, target, kind):
        hello = up_to_date(self.peers.hellos[sender, target, kind], self.peers.hellos.values())
        hello = self.hellos.setdefault((sender, target, kind), hello)
        return dial(self.cluster.node(target), hello)

    def send(self, sender, target, kind, data):
        """To the end of the stream, whoever makes it."""
        s = self.dial(sender, target, kind)
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            s.settimeout(PATIENCE_S)
            while s.recv(65536):
                pass
        except OSError as e: # it has ended while we spoke
            self.assertNotIsInstance(e, TimeoutError, 'the stream neither ends nor is read')
        finally:
            s.close()
        self.sent += 1
        if self.sent % 100 == 0:
            for node in self.cluster.nodes:
                self.assertTrue(node.running(), node.process.last_output())

    def test_to_a_port(self):
        self.hellos, self.sent = {}, 0
        self.run_of_all()
        last = self.new_token()
        for (kind, _, forth), links in sorted(self.peers.seen.items()):
            # Who did not dial sends nothing without being asked; its messages come from the wrong side here.
            links = {link: frames for link, frames in links.items() if (*link, kind) in self.peers.hellos}
            if not links:
                self.assertFalse(forth)
                continue
            (sender, target), frames = self.random.choice(sorted(links.items()))
            frame = min(frames, key=len)
            for at in cuts(frame):
                self.send(sender, target, kind, frame[:at])
            for bit in range(8 * HEAD):
                self.send(sender, target, kind, flipped(frame, bit))
            for length in LENGTHS:
                self.send(sender, target, kind, with_length(frame, length))
            self.send(sender, target, kind, frame * 50)
            self.send(sender, target, kind, b''.join(self.random.sample(frames, len(frames)) * 3))
            for other in {(s, t) for s, t, k in self.peers.hellos if k == kind} - {(sender, target)}:
                self.send(*other, kind, frame * 2)
        everything = [f for what, links in self.peers.seen.items() for frames in links.values() for f in frames]
        for sender, target, kind in sorted(self.peers.hellos):
            self.send(sender, target, kind, b''.join(self.random.sample(everything, min(len(everything), 40))))
        self.works()
        self.assertGreater(self.new_token(), last)
        self.note('%d streams, %d kinds of messages' % (self.sent, len(self.peers.seen)))

    # -- between live nodes -----------------------------------------------------------------------
    def damages(self, frame):
        all_of_them = [('bit', i) for i in range(8 * HEAD)] + [('length', n) for n in LENGTHS]
        all_of_them += [('cut', at) for at in cuts(frame)]
        always = [('twice', 0), ('later', 0), ('other', self.random.randrange(1000))]
        self.random.shuffle(all_of_them)
        return (all_of_them if FULL else all_of_them[:SOME]) + always

    def ask_all(self):
        """So that commands are relayed: clients of the load end up where the leader is."""
        for node in self.cluster.nodes:
            try:
                node.call('TOKEN', 'x', timeout=20)
            except (RespError, OSError): # its leader has just gone
                pass

    def test_on_the_way(self):
        self.run_of_all()
        load = Load(self.cluster.addresses(), clients=6).start()
        self.addCleanup(load.aborting.set)
        plan = {}
        for what, links in self.peers.seen.items():
            plan[what] = self.damages(min((f for frames in links.values() for f in frames), key=len))
        wanted = sum(len(p) for p in plan.values())
        rare = {w for w in plan if w[0] == SNAPSHOT or w in RARE}
        self.peers.plan = plan

        def damaged():
            self.ask_all()
            return not any(plan[w] for w in plan if w not in rare)
        wait_until(damaged, 'all damages', seconds=3600.0 if FULL else PATIENCE_S)
        done = self.peers.done
        # Of messages that are rare, as many as come while leaders hand over and a node needs a snapshot.
        for _ in range(20 if FULL else 2):
            self.peers.plan = {}
            self.serves() # with one node that needs a snapshot, and gets none, the others are no majority without a second
            self.peers.plan = plan
            self.cluster.request_leadership(self.random.choice(self.cluster.followers()))
            leader = self.cluster.leader()
            self.fall_behind(self.random.choice([n for n in self.cluster.nodes if n is not leader]))
        self.peers.plan = {}
        load.wait_more_grants(50)
        load.stop()
        load.check()
        self.works()
        self.note('%d damages of %d done, %d of them to messages that are rare; %d grants'
                  % (self.peers.done, wanted, self.peers.done - done, load.grants_answered()))


if __name__ == '__main__':
    main()
