#!/usr/bin/python3
"""Members that come, go, move and are replaced, on real processes and under load."""

import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import ASK_AGAIN, PATIENCE_S, Deadline, RespError, ask_again, binary, free_ports, main, patient_env, wait_until
from members_lab import MembersCase

OWNER = 'owner-a-0123456789'


class Members(MembersCase):
    def call_word(self, word, *args):
        """Asks the leader, and expects an error that begins so; returns it."""
        def refused():
            try:
                return 'answered %r' % self.cluster.leader().call(*args)
            except RespError as e:
                return None if e.word in ASK_AGAIN else str(e)
        text = wait_until(refused, 'an answer')
        self.assertTrue(text.startswith(word), text)
        return text

    def test_one_to_three_to_five_and_back(self):
        self.begin(1)
        token = self.cluster.nodes[0].call('ACQUIRE', 'kept', 'TTL', 3600000, 'OWNER', OWNER)
        load = self.load()
        for number in (2, 3, 4, 5):
            node = self.add(number)
            self.wait_states(self.voters())
            self.cluster.wait_serving(node)
            load.wait_more_grants()
        for number in (5, 1, 4, 3):
            node = next(n for n in self.cluster.nodes if n.id == number)
            self.remove(node)
            self.wait_states(self.voters())
            load.addresses[:] = [self.cluster.nodes[0].address]
        self.assertEqual([n.id for n in self.cluster.nodes], [2])
        self.finish(load)
        self.assertEqual(ask_again(self.cluster.nodes[0], 'CHECK', 'kept', token), 1)
        self.cluster.nodes[0].terminate() # what it has on disk is enough
        self.cluster.nodes[0].start()
        self.assertEqual(ask_again(self.cluster.nodes[0], 'CHECK', 'kept', token), 1)

    def test_the_leader_is_removed_and_comes_back(self):
        self.begin(3)
        load = self.load()
        for _ in range(2):
            leader = self.cluster.leader()
            self.remove(leader)
            self.wait_states(self.voters())
            load.wait_more_grants()
            again = leader.launch() # it is refused, whatever it has
            again.asked_to_end = True
            wait_until(lambda: not again.running(), 'the end of the removed node')
            self.assertIn('removed', again.output())
            shutil.rmtree(leader.data)
            fresh = self.joiner(leader.id)
            fresh.data = leader.data
            self.cluster.nodes.append(fresh)
            fresh.launch()
            self.ask('CLUSTER', 'ADD', fresh.id, fresh.peer)
            self.wait_states(self.voters())
        self.finish(load)

    def test_what_is_refused(self):
        self.begin(3)
        self.cluster.steady() # a follower that is asked must not lead meanwhile
        leader = self.cluster.leader()
        followers = self.cluster.followers()
        self.assertIn('there is a node', self.call_word('ERR', 'CLUSTER', 'ADD', 2, '127.0.0.1:1'))
        self.assertIn('address', self.call_word('ERR', 'CLUSTER', 'ADD', 7, followers[0].peer))
        self.assertIn('HOST:PORT', self.call_word('ERR', 'CLUSTER', 'ADD', 7, 'nowhere'))
        for nowhere in ('0.0.0.0:7507', '[::]:7507'): # a node that calls this calls itself
            for words in (('ADD', 7), ('MOVE', followers[0].id), ('REPLACE', followers[0].id)):
                self.assertIn('other nodes to call', self.call_word('ERR', 'CLUSTER', *words, nowhere))
        self.assertIn('not a member', self.call_word('ERR', 'CLUSTER', 'REMOVE', 7))
        self.call_word('ERR', 'CLUSTER', 'ADD', 7, '127.0.0.1:1', 'TWICE')
        with self.assertRaises(RespError) as e:
            followers[0].call('CLUSTER', 'ADD', 7, '127.0.0.1:1')
        self.assertEqual(e.exception.word, 'NOLEADER')
        followers[0].kill()
        wait_until(lambda: leader.info()['cluster_nodes_connected'] == 2, 'the leader to miss it')
        self.assertIn('FORCE', self.call_word('ERR', 'CLUSTER', 'REMOVE', followers[1].id))
        self.ask('CLUSTER', 'REMOVE', followers[0].id) # the one that is down may go
        self.cluster.nodes.remove(followers[0])
        self.wait_states(self.voters())
        for number in range(4, 11): # those that do not come
            self.assertEqual(self.ask('CLUSTER', 'ADD', number, '127.0.0.1:%d' % number), 'OK')
        self.assertIn('at most 9', self.call_word('LIMIT', 'CLUSTER', 'ADD', 11, '127.0.0.1:11'))
        self.assertIn('there is a node', self.call_word('ERR', 'CLUSTER', 'ADD', 4, '127.0.0.1:99'))
        for number in range(4, 11):
            self.assertEqual(self.ask('CLUSTER', 'REMOVE', number), 'OK')
        self.wait_states(self.voters())

    def test_a_node_that_nobody_added(self):
        self.begin(1)
        node = self.joiner(2)
        self.cluster.nodes.append(node)
        node.launch()
        node.process.wait_output('fencelock cluster add 2')
        self.cluster.nodes.remove(node)
        token = self.cluster.nodes[0].call('TOKEN', 'x')
        self.cluster.nodes.append(node)
        self.ask('CLUSTER', 'ADD', 2, node.peer)
        self.wait_states(self.voters())
        self.assertGreater(ask_again(node, 'TOKEN', 'x'), token)

    def test_a_learner_stays_one(self):
        self.begin(3)
        node = self.add(4, 'LEARNER')
        wanted = {1: 'voter', 2: 'voter', 3: 'voter', 4: 'learner'}
        self.wait_states(wanted)
        self.cluster.wait_serving(node)
        self.assertEqual(node.terminate(), 0)
        ask_again(self.cluster.leader(among=self.first), 'TOKEN', 'x')
        node.start()
        self.wait_states(wanted)
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)
        self.remove(node)
        self.wait_states(self.voters())

    def paused_learner(self, leader):
        """A node that is stopped between the step that makes it a learner and the one that gives it a vote. A machine that is busy
        may let the second one pass; then another node is tried."""
        patience = Deadline(PATIENCE_S)
        for number in itertools.count(10):
            self.assertFalse(patience.passed(), 'each node had its vote before it could be stopped')
            node = self.joiner(number)
            node.launch()
            self.ask('CLUSTER', 'ADD', number, node.peer)
            leader.process.wait_output('node %d at %s is added to the cluster' % (number, node.peer)) # the next step is at the leader's next tick
            node.process.pause()
            if 'node %d is a voter' % number not in leader.process.output():
                return node
            node.kill()
            self.ask('CLUSTER', 'REMOVE', number)
            self.wait_states(self.voters())

    def test_one_that_dies_while_it_joins_holds_nobody_up(self):
        """It is a learner, and its vote waits until it is back. Those with higher ids go on."""
        self.begin(3)
        self.cluster.steady() # whose log tells of each step
        dead = self.paused_learner(self.cluster.leader())
        dead.kill()
        node = self.joiner(dead.id + 1)
        self.cluster.nodes.append(node)
        node.launch()
        self.ask('CLUSTER', 'ADD', node.id, node.peer)
        self.wait_states({**self.voters(), dead.id: 'joining'})
        self.cluster.nodes.append(dead)
        dead.launch()
        self.wait_states(self.voters())

    def test_a_removal_that_waited_until_another_was_lost(self):
        """While a learner is brought in no other change is made. A member that is lost in that time leaves too few voters for the
        removal that was granted before: it waits until there are enough."""
        self.begin(3)
        self.cluster.steady()
        leader = self.cluster.leader()
        leaves, lost = self.cluster.followers()
        learner = self.paused_learner(leader)
        self.ask('CLUSTER', 'REMOVE', leaves.id)
        leaves.process.asked_to_end = True
        self.cluster.unsteady() # nobody waits for a learner that says nothing for some seconds
        lost.kill()
        wait_until(lambda: any('node %d stays for now' % leaves.id in n.process.output() for n in self.first), 'the removal to wait')
        self.assertGreater(ask_again(leader, 'TOKEN', 'x'), 0)
        learner.process.resume()
        self.cluster.nodes = [leader, lost, learner]
        self.wait_states(self.voters()) # the new voter made it possible
        self.assertGreater(ask_again(leader, 'TOKEN', 'x'), 0)
        wait_until(lambda: not leaves.running(), 'the end of the removed node')

    def test_one_that_comes_after_many_that_never_came(self):
        """Each is taken back while a call to it is under way. None of them keeps a place that the next one needs."""
        self.begin(1)
        only = self.cluster.nodes[0]
        with socket.create_server(('127.0.0.1', 0), backlog=100) as silent:
            silent.settimeout(PATIENCE_S)
            held = []
            for number in range(10, 34):
                self.ask('CLUSTER', 'ADD', number, '127.0.0.1:%d' % silent.getsockname()[1])
                held.append(silent.accept()[0]) # it is called, and does not answer
                self.ask('CLUSTER', 'REMOVE', number)
            self.add(40)
            self.wait_states(self.voters())
            for s in held:
                s.close()
        self.assertEqual(only.members_table()[0]['state'], 'voter')

    def test_by_the_tool(self):
        """Any node is named; the leader is found from there."""
        self.begin(3)
        self.cluster.steady()
        follower = self.cluster.followers()[0]
        node = self.joiner(4)
        at = ('--nodes', follower.address)
        waiting = self.tool('cluster', 'add', 4, node.peer, '--wait', '1ms', *at, code=3)
        self.assertIn('not done yet', waiting)
        self.tool('cluster', 'status', *at, code=1)
        # the same again goes on waiting; another address, or another kind of member, is another change
        again = self.tool('cluster', 'add', 4, node.peer, '--wait', '1ms', *at, code=3)
        self.assertIn('--wait TIME', again)
        self.assertNotIn('--timeout', again)
        other = self.tool('cluster', 'add', 4, '127.0.0.1:99', *at, code=1)
        self.assertIn('there is a node 4', other)
        self.assertIn('fencelock cluster status', other)
        self.assertIn('id', self.tool('cluster', 'remove', 'four', *at, code=2))
        self.cluster.nodes.append(node)
        node.launch()
        self.wait_states(self.voters())
        def all_is_well(): # the first connection to the new one may come later
            states = json.loads(self.tool('cluster', 'status', '--json', *at))['members']
            return [(m['id'], m['state'], m['connected']) for m in states] == [(i, 'voter', True) for i in range(1, 5)]
        wait_until(all_is_well, 'four members that are connected')
        self.tool('cluster', 'transfer', follower.id, *at)
        wait_until(lambda: self.cluster.leader() is follower, 'the transfer')
        node.process.asked_to_end = True
        self.assertIn('done', self.tool('cluster', 'remove', 4, *at))
        self.assertIn('not a member', self.tool('cluster', 'remove', 4, *at, code=1))
        self.cluster.nodes.remove(node)
        wait_until(lambda: not node.running(), 'the end of the removed node')
        self.assertIn('node 77 is not a member', self.tool('cluster', 'remove', 77, *at, code=1))

    def test_a_node_that_joins_at_a_wrong_address(self):
        """It is no member that could be moved. What the refusal advises works."""
        self.begin(3)
        node = self.joiner(4)
        at = ('--nodes', self.cluster.leader().address)
        wrong = '127.0.0.1:%d' % free_ports(1)[0]
        self.assertIn('ordered', self.tool('cluster', 'add', 4, wrong, '--wait', '0s', *at))
        self.assertIn('has not joined yet: remove it, and add it', self.tool('cluster', 'move', 4, node.peer, '--wait', '0s', *at, code=1))
        self.tool('cluster', 'remove', 4, *at)
        self.cluster.nodes.append(node)
        node.launch()
        self.assertIn('done', self.tool('cluster', 'add', 4, node.peer, *at))

    def test_a_connected_node_is_not_replaced(self):
        """At the end of the time the tool says why, also when it knows a follower alone, which only names the leader."""
        self.begin(3)
        self.cluster.steady()
        wait_until(lambda: self.cluster.leader().info()['cluster_nodes_connected'] == 3, 'the leader to hear them')
        victim, other = self.cluster.followers()
        for nodes in (other.address, ','.join(self.cluster.addresses())):
            refused = self.tool('cluster', 'replace', victim.id, '--timeout', '5s', '--nodes', nodes, code=1)
            self.assertTrue(refused.startswith('fencelock: BUSY node %d is connected' % victim.id), refused)
            self.assertIn('Stop it', refused)

    def test_an_incarnation_that_never_was(self):
        self.begin(3)
        self.cluster.steady()
        at = ('--nodes', self.cluster.leader().address, '--of', '0123456789abcdef')
        self.assertIn('never was this node', self.tool('cluster', 'replace', self.cluster.followers()[0].id, '--wait', '0s', *at, code=1))

    def test_the_only_node_that_was_named_is_removed(self):
        """The tool asks the others for the end of the change."""
        self.begin(3)
        leader = self.cluster.leader()
        leader.process.asked_to_end = True
        self.assertIn('done', self.tool('cluster', 'remove', leader.id, '--nodes', leader.address))
        self.cluster.nodes.remove(leader)
        wait_until(lambda: not leader.running(), 'the end of the removed node')

    def test_the_only_voter_is_not_removed(self):
        self.begin(1)
        node = self.cluster.nodes[0]
        refused = self.tool('cluster', 'remove', node.id, '--nodes', node.address, code=1)
        self.assertIn('--force-lose-majority', refused)

    def test_a_node_that_lost_its_disk(self):
        self.begin(3)
        load = self.load()
        for victim in (self.cluster.followers()[0], self.cluster.leader()):
            load.wait_more_grants()
            victim.kill()
            self.cluster.wipe(victim)
            shutil.rmtree(victim.data + '.lost')
            self.ask('CLUSTER', 'REPLACE', victim.id)
            victim.launch() # as it was started ever before
            self.wait_states(self.voters())
        self.finish(load)

    def test_a_replacement_that_is_asked_for_again(self):
        """An operator who was told UNCERTAIN asks again, when the successor votes already: it stays."""
        self.begin(3)
        self.cluster.steady()
        victim = self.cluster.followers()[0]
        def incarnation():
            return next(row['incarnation'] for row in self.cluster.leader().members_table() if row['id'] == victim.id)
        old = incarnation()
        victim.kill()
        shutil.rmtree(victim.data)
        ordered = self.tool('cluster', 'replace', victim.id, '--of', old, '--wait', '0s', '--json', '--nodes', self.cluster.leader().address,
                            '--timeout', '60s')
        self.assertEqual(json.loads(ordered), {'change': 'replace', 'node': str(victim.id), 'done': False})
        victim.launch()
        self.wait_states(self.voters())
        successor = incarnation()
        self.assertNotEqual(successor, old)
        wait_until(lambda: self.cluster.leader().info()['cluster_nodes_connected'] == 3, 'the leader to hear it')
        busy = self.call_word('ERR', 'CLUSTER', 'REPLACE', victim.id, 'OF', old)
        self.assertIn('was replaced already', busy)
        with self.assertRaises(RespError) as e:
            self.cluster.leader().call('CLUSTER', 'REPLACE', victim.id)
        self.assertEqual(e.exception.word, 'BUSY')
        self.assertIn('node %d is connected' % victim.id, str(e.exception))
        self.assertEqual(victim.terminate(), 0) # it is only down, and has what it had
        self.call_word('ERR', 'CLUSTER', 'REPLACE', victim.id, 'OF', old)
        at = ('--nodes', self.cluster.leader().address, '--wait', '0s')
        self.assertIn('was replaced already', self.tool('cluster', 'replace', victim.id, '--of', old, *at, code=1))
        victim.start()
        self.wait_states(self.voters())
        self.assertEqual(incarnation(), successor)

    def test_replaced_while_it_runs(self):
        """By another machine, under its id; the old one stops, and may not come back."""
        self.begin(3)
        load = self.load()
        old = self.cluster.followers()[0]
        fresh = self.joiner(old.id)
        fresh.data += '.fresh'
        self.cluster.nodes[self.cluster.nodes.index(old)] = fresh
        fresh.launch()
        self.ask('CLUSTER', 'REPLACE', old.id, fresh.peer)
        old.process.asked_to_end = True
        wait_until(lambda: not old.running(), 'the end of the replaced node')
        self.wait_states(self.voters())
        process = old.launch()
        process.asked_to_end = True
        wait_until(lambda: not process.running(), 'the end of what was replaced')
        self.assertIn('node %d was replaced' % old.id, process.output())
        self.assertNotIn('cluster replace', process.last_output()) # it would throw out the node that took its place
        self.discovered([old, self.cluster.leader()])
        self.finish(load)

    def discovered(self, named):
        """A tool that was told of some nodes, also of one that was replaced, goes on with the members of today."""
        def seen():
            done = subprocess.run([binary('fencelock'), 'status', '--discover', '--json', '--nodes', ','.join(n.address for n in named)],
                                  capture_output=True, text=True, env=patient_env())
            return done.returncode == 0 and sorted(n['address'] for n in json.loads(done.stdout)['nodes'])
        members = sorted(n.address for n in self.cluster.nodes)
        self.assertNotIn(named[0].address, members)
        wait_until(lambda: seen() == members, 'the members of today')

    def test_moved(self):
        """To another port, leader and follower, by hand: first the word, then the node."""
        self.begin(3)
        load = self.load()
        for node in (self.cluster.followers()[0], self.cluster.leader()):
            peer = free_ports(1)[0]
            self.ask('CLUSTER', 'MOVE', node.id, '127.0.0.1:%d' % peer)
            self.assertEqual(node.terminate(), 0)
            node.set_ports(node.port, peer)
            node.start()
            self.cluster.wait_serving(node)
            load.wait_more_grants()
        self.finish(load)
        for node in self.cluster.nodes: # from what they have on disk
            node.kill()
        for node in self.cluster.nodes:
            node.launch()
        for node in self.cluster.nodes:
            node.wait_ready()
            self.cluster.wait_serving(node)

    def test_moved_where_the_others_cannot_decide_alone(self):
        """Until it is started at its new address nobody reaches a node that was moved. Of two voters, or when another one is down, that
        would end all grants, so it has to be said."""
        self.begin(3)
        third = self.cluster.followers()[0]
        load = self.load([n for n in self.cluster.nodes if n is not third])
        third.kill()
        node = self.cluster.leader(among=[n for n in self.cluster.nodes if n is not third])
        peer = free_ports(1)[0]
        move = ('CLUSTER', 'MOVE', node.id, '127.0.0.1:%d' % peer)
        with self.assertRaises(RespError) as caught:
            self.ask(*move)
        self.assertIn('without node %d no majority' % node.id, str(caught.exception))
        self.assertIn('majority', self.tool('cluster', 'move', *move[2:], '--nodes', node.address, code=1))
        load.wait_more_grants()
        third.launch()
        self.wait_states(self.voters())
        self.remove(third)
        with self.assertRaises(RespError):
            self.ask(*move)
        load.wait_more_grants()
        # said and done: nothing is granted from here on, until the node is started there
        asked = threading.Thread(target=self.ask, args=(*move, 'FORCE'))
        asked.start()
        other = next(n for n in self.cluster.nodes if n is not node)
        wait_until(lambda: any('is being moved' in n.process.output() for n in (node, other)), 'the move') # whoever leads says so
        node.kill()
        node.set_ports(node.port, peer)
        node.start()
        asked.join(PATIENCE_S)
        self.assertFalse(asked.is_alive())
        for n in (node, other):
            self.cluster.wait_serving(n)
        row = next(r for r in node.call('CLUSTER', 'MEMBERS') if r[1] == node.id)
        self.assertIn(b'127.0.0.1:%d' % peer, row)
        self.finish(load)

    def test_killed_at_every_step(self):
        """Whoever leads is killed while members come and go; every change ends as it was asked for."""
        self.begin(3, ('--snapshot-bytes', 65536))
        load = self.load(self.first)
        for number in (4, 5):
            node = self.add(number, extra=('--snapshot-bytes', 65536))
            for _ in range(3):
                victim = self.cluster.leader()
                victim.kill()
                if victim is not node and self.random.random() < 0.5:
                    node.kill()
                    node.launch()
                victim.launch()
            self.wait_states(self.voters())
        load.wait_more_grants()
        for node in list(self.cluster.nodes[3:]):
            self.ask('CLUSTER', 'REMOVE', node.id)
            node.process.asked_to_end = True
            self.cluster.nodes.remove(node)
            victim = self.cluster.leader()
            victim.kill()
            victim.launch()
            self.wait_states(self.voters())
        self.finish(load)


if __name__ == '__main__':
    main()
