#!/usr/bin/python3
"""Changes of members when something else goes wrong: a partition, two operators, an id that is there twice, and SIGKILL at
every step that a change takes."""

import os
import shutil
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', 'faults')]
from faultlab.proxy import Loop, PeerProxy
from faultlab.fault_run import ProxiedCluster
from harness import PATIENCE_S, RespError, ask_again, free_ports, main, wait_until
from members_lab import ChangingCluster, MembersCase

# What whoever leads says of each step, in their order.
ADDED = ('is added to the cluster', 'is a voter')
REMOVED = ('is being removed from the cluster',)


class Cut(ProxiedCluster, ChangingCluster):
    """Three nodes behind proxies, and places for more."""


class Partitioned(MembersCase):
    def setUp(self):
        super().setUp()
        self.loop = Loop()
        self.addCleanup(self.loop.close)
        self.cluster = Cut(self.lab, 4)
        self.peers = PeerProxy(self.loop, self.cluster.peer_ports()).start()
        self.fourth = self.cluster.nodes.pop()
        known = self.cluster.members()
        self.fourth.membership_args = lambda: ['--join', known]
        for node in self.cluster.nodes:
            node.membership_args = lambda: ['--cluster', known]
        self.cluster.start()

    def cut_off(self, node):
        others = [n.id for n in self.cluster.nodes + [self.fourth] if n is not node]
        self.peers.set(blocked=[(node.id, o) for o in others] + [(o, node.id) for o in others])

    def test_added_while_a_follower_is_cut_off(self):
        lost = self.cluster.followers()[0]
        load = self.load([n for n in self.cluster.nodes if n is not lost])
        self.cut_off(lost)
        self.fourth.launch()
        self.ask('CLUSTER', 'ADD', 4, self.fourth.peer)
        whole = [n for n in self.cluster.nodes if n is not lost] + [self.fourth]
        wait_until(lambda: all(self.states(n).get(4) == 'voter' for n in whole), 'the new one to vote')
        load.wait_more_grants()
        self.peers.set(blocked=())
        self.cluster.nodes.append(self.fourth)
        self.wait_states(self.voters())
        self.finish(load)

    def test_asked_of_a_leader_that_is_cut_off(self):
        """It can promise nothing; whoever leads in its place is asked again, and the change is done once."""
        old = self.cluster.leader()
        load = self.load([n for n in self.cluster.nodes if n is not old])
        self.cut_off(old)
        self.fourth.launch()
        try:
            said = old.call('CLUSTER', 'ADD', 4, self.fourth.peer, timeout=60.0)
        except RespError as e:
            said = e.word
        except OSError:
            said = 'nothing'
        self.assertIn(said, ('NOLEADER', 'UNCERTAIN', 'BUSY', 'nothing'))
        rest = [n for n in self.cluster.nodes if n is not old]
        self.cluster.leader(among=rest)
        self.cluster.nodes = rest # who is asked
        self.ask('CLUSTER', 'ADD', 4, self.fourth.peer)
        self.peers.set(blocked=())
        self.cluster.nodes = sorted(rest + [old, self.fourth], key=lambda n: n.id)
        self.wait_states(self.voters())
        self.finish(load)

    def test_removed_while_it_is_cut_off(self):
        """It hears of that when the network is whole again, and stops."""
        lost = self.cluster.leader()
        rest = [n for n in self.cluster.nodes if n is not lost]
        load = self.load(rest)
        self.cut_off(lost)
        self.cluster.nodes = rest
        wait_until(lambda: self.cluster.leader(among=rest), 'another leader')
        lost.process.asked_to_end = True
        self.ask('CLUSTER', 'REMOVE', lost.id)
        self.wait_states(self.voters())
        load.wait_more_grants()
        self.assertTrue(lost.running())
        self.peers.set(blocked=())
        self.assertGreater(lost.process.wait(PATIENCE_S), 0)
        self.assertIn('was removed from the cluster', lost.process.output())
        self.finish(load)

    def test_a_leader_moved_behind_its_proxy(self):
        """It cannot know that it is where its log says. Who was away believes it all the same: first with a log that is older, then
        without one, and with the words of its first start."""
        moved, late = self.cluster.followers()
        late.kill()
        moved_peer_port, peer = self.cluster.second_port(moved)
        self.ask('CLUSTER', 'MOVE', moved.id, peer, 'FORCE')
        moved.terminate()
        moved.peer, moved.peer_bind = peer, '127.0.0.1:%d' % moved_peer_port
        moved.start()
        self.cluster.steady(among=self.cluster.running())
        self.cluster.make_leader(moved)
        late.start()
        self.assertGreater(ask_again(late, 'TOKEN', 'x'), 0)
        late.kill()
        shutil.rmtree(late.data)
        self.ask('CLUSTER', 'REPLACE', late.id)
        late.start()
        self.assertGreater(ask_again(late, 'TOKEN', 'x'), 0)


class TwoAtOnce(MembersCase):
    def at_once(self, *asked):
        """What each of several operators is told: OK, or the text of an error."""
        told = [None] * len(asked)

        def operate(i, words):
            try:
                told[i] = self.ask(*words)
            except RespError as e:
                told[i] = str(e)
        threads = [threading.Thread(target=operate, args=a) for a in enumerate(asked)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        return told

    def test_two_operators(self):
        self.begin(3)
        self.cluster.steady() # whoever is told UNCERTAIN and asks again cannot tell his change from the other's
        load = self.load(self.first)
        nodes = [self.joiner(4), self.joiner(5)]
        for node in nodes:
            node.launch()
        self.assertEqual(self.at_once(*(('CLUSTER', 'ADD', n.id, n.peer) for n in nodes)), ['OK', 'OK'])
        self.cluster.nodes += nodes
        self.wait_states(self.voters())
        load.wait_more_grants()
        for node in nodes:
            node.process.asked_to_end = True
        self.assertEqual(self.at_once(*(('CLUSTER', 'REMOVE', n.id) for n in nodes)), ['OK', 'OK'])
        self.cluster.nodes = list(self.first)
        self.wait_states(self.voters())
        # one id and two addresses: one of the two operators is told that there is such a node
        told = self.at_once(('CLUSTER', 'ADD', 6, '127.0.0.1:%d' % free_ports(1)[0]), ('CLUSTER', 'ADD', 6, '127.0.0.1:%d' % free_ports(1)[0]))
        self.assertEqual(sorted(t[:23] for t in told), ['ERR there is a node 6, ', 'OK'])
        # the same node is removed by both: what is asked for is the case
        for text in self.at_once(('CLUSTER', 'REMOVE', 6), ('CLUSTER', 'REMOVE', 6)):
            self.assertTrue(text == 'OK' or 'is not a member' in text, text)
        self.wait_states(self.voters())
        self.finish(load)

    def test_the_same_id_twice(self):
        """Of two nodes with one id the one that was there first is a member. The other is refused, says why, and waits for an operator;
        nothing is granted twice."""
        self.begin(3)
        load = self.load(self.first)
        node = self.add(4)
        self.wait_states(self.voters())
        twin = self.joiner(4)
        twin.name, twin.data = 'twin', self.lab.path('twin')
        twin.launch().wait_output('refused this node: node 4 has lost its data')
        self.assertTrue(node.running())
        self.wait_states(self.voters())
        load.wait_more_grants()
        self.assertEqual(twin.terminate(), 0)
        # A member's own directory, copied while it is down, and started at another address: the member is not replaced.
        self.assertEqual(node.terminate(), 0)
        shutil.rmtree(twin.data)
        shutil.copytree(node.data, twin.data)
        node.start()
        self.wait_states(self.voters())
        self.finish(load)


class KilledAtEveryStep(MembersCase):
    EXTRA = ('--snapshot-bytes', 65536)

    def says(self, text):
        """The running node that says so; what was said before counts no more."""
        for node in self.cluster.running():
            said = node.process.output()
            if said.count(text) > self.before.get((node.process.pid, text), 0):
                return node
        return None

    def remember(self, texts):
        self.before = {(n.process.pid, text): n.process.output().count(text) for n in self.cluster.running() for text in texts}

    def kill_when(self, text, node, whom):
        """SIGKILL of whoever leads, or of the node that comes, as soon as the leader says that it takes the step."""
        leads = wait_until(lambda: self.says(text), 'step %r' % text, every=0.001)
        victim = node if whom == 'node' else leads
        victim.kill()
        victim.launch()

    def test_add_and_remove(self):
        self.begin(3, self.EXTRA)
        load = self.load(self.first)
        for turn, (step, whom) in enumerate((s, w) for s in ADDED for w in ('leader', 'node')):
            node = self.joiner(4, self.EXTRA)
            node.data += '.%d' % turn
            self.cluster.nodes.append(node)
            self.remember(ADDED)
            node.launch()
            self.ask('CLUSTER', 'ADD', 4, node.peer)
            self.kill_when(step, node, whom)
            self.wait_states(self.voters())
            step = REMOVED[turn % len(REMOVED)]
            self.remember(REMOVED)
            node.process.asked_to_end = True
            self.ask('CLUSTER', 'REMOVE', 4) # it may lead
            self.kill_when(step, node, 'leader')
            node.process.asked_to_end = True
            self.cluster.nodes.remove(node)
            self.wait_states(self.voters())
            node.kill()
        self.finish(load)

    def test_replace(self):
        self.begin(3, self.EXTRA)
        load = self.load(self.first)
        steps = [(s, w) for s in REMOVED + ADDED for w in (('leader',) if s in REMOVED else ('leader', 'node'))]
        for step, whom in steps:
            victim = self.random.choice(self.cluster.nodes)
            victim.kill()
            shutil.rmtree(victim.data)
            self.cluster.leader(among=[n for n in self.cluster.nodes if n is not victim])
            self.remember(REMOVED + ADDED)
            self.ask('CLUSTER', 'REPLACE', victim.id)
            if step in ADDED:
                victim.launch()
            self.kill_when(step, victim, whom)
            if step in REMOVED:
                victim.launch()
            self.wait_states(self.voters())
            load.wait_more_grants(5)
        self.finish(load)

    def test_the_only_voter_of_a_cluster_with_learners(self):
        """It leads again at once; what it had sent and not written must not be taken for what comes then."""
        self.begin(1, self.EXTRA)
        only = self.cluster.nodes[0]
        self.add(2, 'LEARNER', extra=self.EXTRA)
        self.add(3, 'LEARNER', extra=self.EXTRA)
        self.wait_states({1: 'voter', 2: 'learner', 3: 'learner'})
        load = self.load([only], clients=12)
        for _ in range(12):
            load.wait_more_grants(20)
            only.kill()
            only.launch()
            only.wait_ready()
        load.wait_more_grants(20)
        self.remove(self.cluster.nodes[2])
        self.finish(load)

    def test_leadership_of_one_that_is_removed(self):
        """It is killed as it hands leadership over, and removed by the next one."""
        self.begin(4, self.EXTRA)
        load = self.load(self.first)
        leader = self.cluster.leader()
        text = 'leadership is handed to node'
        self.remember((text,))
        leader.process.asked_to_end = True
        self.ask('CLUSTER', 'REMOVE', leader.id)
        wait_until(lambda: text in leader.process.output() or not leader.running(), 'the hand-over', every=0.001)
        leader.kill()
        self.cluster.nodes.remove(leader)
        self.wait_states(self.voters())
        process = leader.launch()
        process.asked_to_end = True
        self.assertGreater(process.wait(PATIENCE_S), 0)
        self.finish(load)


if __name__ == '__main__':
    main()
