#!/usr/bin/python3
"""A data directory that is an older copy of itself is put back: the node is refused and ends, and the others go on. A node whose
directory is the newest one is never refused, wherever it was killed."""

import glob
import json
import os
import random
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import (PATIENCE_S, Case, Cluster, Load, Node, RespError, ask_again, binary, free_ports, main, patient_env, seed,
                     wait_until)

OWNER = 'owner-a-0123456789'
SAYS = ('is an older copy', 'fencelock cluster replace')
RECORDED = (2**64 - 2).to_bytes(8, 'little') # STARTS_RECORDED of starts.h
SNAPSHOTS = ('--snapshot-bytes', 65536)


class Member(Node):
    """Started in the same way for life, whoever else comes and goes."""

    membership = None

    def membership_args(self):
        return list(self.membership)


class OlderCopies(Case):
    def setUp(self):
        super().setUp()
        self.random = random.Random(seed())

    def begin(self, n=3, learners=0, extra=SNAPSHOTS):
        self.cluster = Cluster(self.lab, n, extra)
        for node in self.cluster.nodes:
            node.__class__ = Member
            node.membership = ('--cluster', self.cluster.members())
        self.cluster.start()
        for _ in range(learners):
            ports = free_ports(2)
            node = Member(self.lab, self.cluster, len(self.cluster.nodes) + 1, ports[0], ports[1])
            node.membership = ('--join', '1=' + self.cluster.nodes[0].peer)
            node.extra = list(extra)
            self.cluster.add(node, 'LEARNER')
            node.start()
            self.cluster.nodes.append(node)
        if learners:
            wait_until(lambda: self.members(self.cluster.leader())[n + 1]['state'] == 'learner', 'a learner')
        return self.cluster

    def members(self, node):
        return {row['id']: row for row in node.members_table()}

    def some(self, cluster, n=200):
        """Some tokens; the last."""
        return [ask_again(leader, 'TOKEN', 'x') for leader in [cluster.leader()] * n][-1]

    def one_that(self, role):
        leader = self.cluster.leader()
        if role == 'leader':
            return leader
        if role == 'learner':
            return self.cluster.nodes[-1]
        return next(n for n in self.cluster.nodes[:3] if n is not leader)

    def wait_known(self, node):
        """Until all others that run know which start of the node this is. A member writes down what it knows before it says so."""
        starts = node.info()['starts']
        wait_until(lambda: all(self.members(n)[node.id]['starts'] == starts for n in self.others_of(node)), 'that its start is known')

    def wait_kept(self, node):
        """Until all others that run know that it has on its disk what is there now; it says so once a second."""
        index = self.cluster.leader().info()['applied_index']
        wait_until(lambda: all(self.members(n)[node.id]['kept_index'] >= index for n in self.others_of(node)), 'that the others know')

    def wait_confirmed(self, node):
        """Until the leader has heard that the node has on its disk all that the leader has applied. A node applies what is committed without
        it, so it may have done so before that."""
        def confirmed():
            leader = self.cluster.leader()
            return self.members(leader)[node.id]['match_index'] >= leader.info()['applied_index']
        wait_until(confirmed, 'that the leader was confirmed its entries')

    def others_of(self, node):
        return [n for n in self.cluster.nodes if n is not node and n.running()]

    def keep(self, node, where='kept'):
        path = self.lab.path(where)
        if os.path.exists(path):
            shutil.rmtree(path)
        if node.running(): # a copy of a directory that changes is not one of any moment
            node.pause()
            wait_until(lambda: not glob.glob(os.path.join(node.data, 'log', 'snapshot-*.part')), what='the end of the child of a snapshot')
        shutil.copytree(node.data, path)
        if node.running():
            node.resume()
        return path

    def started_since(self, cluster):
        """A follower, and a copy of its directory from before its last start."""
        self.some(cluster)
        node = self.one_that('follower')
        self.wait_recorded(node)
        self.assertEqual(node.terminate(), 0)
        kept = self.keep(node)
        node.start()
        cluster.wait_same_state()
        self.wait_known(node)
        return node, kept

    def put_back(self, node, path, part=''):
        shutil.rmtree(os.path.join(node.data, part))
        shutil.copytree(os.path.join(path, part), os.path.join(node.data, part))

    def expect_refused(self, node, says=SAYS):
        node.launch()
        node.process.asked_to_end = True
        self.assertGreater(node.process.wait(PATIENCE_S), 0)
        for words in says:
            self.assertIn(words, node.process.output())

    def replace(self, node):
        """What the node has said is what lets it in again."""
        shutil.rmtree(node.data)
        nodes = ','.join(n.address for n in self.others_of(node))
        argv = [binary('fencelock'), 'cluster', 'replace', node.id, '--wait', '0s', '--nodes', nodes]
        p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=PATIENCE_S, env=patient_env())
        self.assertEqual(p.returncode, 0, p.stderr)
        node.start()
        wanted = 'learner' if node is self.cluster.nodes[-1] and len(self.cluster.nodes) > 3 else 'voter'
        wait_until(lambda: self.members(self.cluster.leader()).get(node.id, {}).get('state') == wanted, 'a ' + wanted)
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)

    def wait_recorded(self, node):
        """Until the node has on its disk that another one has recorded its start (record.h); else its next start resumes this one."""
        def recorded():
            with open(os.path.join(node.data, 'identity'), 'rb') as f:
                slots = f.read()
            return all(slots[at + 70:at + 78] == RECORDED for at in (0, 4096))
        wait_until(recorded, 'a record of this start')

    # -- what is refused ------------------------------------------------------------------------

    def before_the_last_start(self, role):
        cluster = self.begin(learners=role == 'learner')
        self.some(cluster)
        node = self.one_that(role)
        self.wait_recorded(node)
        starts = node.info()['starts']
        self.assertEqual(node.terminate(), 0)
        kept = self.keep(node)
        node.start()
        cluster.wait_same_state()
        self.assertEqual(node.info()['starts'], starts + 1)
        self.wait_known(node)
        # as small a step as can be: the same state, one start later
        node.kill()
        self.put_back(node, kept)
        self.expect_refused(node)
        others = self.others_of(node)
        wait_until(lambda: any(SAYS[0] in n.process.output() for n in others), 'a line of who has refused it')
        held = ask_again(cluster.leader(among=others), 'ACQUIRE', 'held', 'TTL', 3600000, 'OWNER', OWNER)
        self.replace(node)
        self.assertEqual(ask_again(node, 'CHECK', 'held', held), 1)

    def test_a_follower_from_before_its_last_start(self):
        self.before_the_last_start('follower')

    def test_a_leader_from_before_its_last_start(self):
        self.before_the_last_start('leader')

    def test_a_learner_from_before_its_last_start(self):
        self.before_the_last_start('learner')

    def of_the_last_start(self, role):
        """A copy of a node that ran, such as a virtual machine's snapshot."""
        cluster = self.begin(learners=role == 'learner')
        self.some(cluster)
        node = self.one_that(role)
        kept = self.keep(node)
        wait_until(lambda: self.one_that(role), 'a leader')
        last = self.some(cluster)
        others = self.others_of(node)
        self.wait_kept(node)
        node.kill()
        self.put_back(node, kept)
        self.expect_refused(node)
        self.assertGreater(ask_again(cluster.leader(among=others), 'TOKEN', 'x'), last)
        self.replace(node)

    def test_a_follower_of_its_last_start(self):
        self.of_the_last_start('follower')

    def test_a_leader_of_its_last_start(self):
        self.of_the_last_start('leader')

    def test_a_learner_of_its_last_start(self):
        self.of_the_last_start('learner')

    def test_of_this_moment_while_the_leader_leads(self):
        """What a leader was confirmed it knows at once, to the last entry."""
        cluster = self.begin(extra=())
        cluster.steady()
        self.some(cluster, 20)
        node = self.one_that('follower')
        kept = self.keep(node)
        token = cluster.leader().call('TOKEN', 'x')
        self.wait_confirmed(node)
        node.kill()
        self.put_back(node, kept)
        self.expect_refused(node)
        self.assertEqual(cluster.leader(among=self.others_of(node)).call('TOKEN', 'x'), token + 1)

    def test_while_another_node_is_down(self):
        """One of the other two is enough, and nobody is elected meanwhile."""
        cluster = self.begin()
        self.some(cluster)
        node = self.one_that('follower')
        self.wait_recorded(node)
        kept = self.keep(node)
        self.assertEqual(node.terminate(), 0)
        node.start()
        last = self.some(cluster)
        cluster.wait_same_state()
        self.wait_known(node)
        node.kill()
        gone = self.random.choice(self.others_of(node))
        gone.kill()
        left = self.others_of(node)[0]
        self.put_back(node, kept)
        self.expect_refused(node)
        wait_until(lambda: left.info()['node_role'] != 'leader', 'that nobody leads') # it may have led before
        # it stays refused, whatever the one that is left forgets; and one that knows it from its own disk refuses it as well
        left.kill()
        left.start()
        self.expect_refused(node)
        self.put_back(node, kept)
        self.expect_refused(node)
        gone.start()
        self.assertGreater(ask_again(cluster.leader(among=[left, gone]), 'TOKEN', 'x'), last)

    def test_started_again_and_again_before_anybody_is_met(self):
        """Nobody hears of its starts, so they give it no number that could be a new one."""
        cluster = self.begin()
        node, kept = self.started_since(cluster)
        others = [n for n in cluster.nodes if n is not node]
        for n in cluster.nodes:
            n.kill()
        self.put_back(node, kept)
        for _ in range(4):
            node.start()
            self.assertGreater(node.info()['starts'], 0)
            node.kill()
        for n in others:
            n.start()
        self.expect_refused(node)

    def test_known_by_hearsay(self):
        """A member that was down while the node was started again hears of it from the third."""
        cluster = self.begin()
        self.some(cluster)
        witness = cluster.leader()
        node, away = self.others_of(witness)
        away.kill()
        self.wait_recorded(node)
        self.assertEqual(node.terminate(), 0)
        kept = self.keep(node)
        node.start()
        last = self.some(cluster)
        starts = node.info()['starts']
        self.wait_known(node)
        node.kill()
        away.start()
        wait_until(lambda: self.members(away)[node.id]['starts'] == starts, 'hearsay')
        witness.kill()
        self.put_back(node, kept)
        self.expect_refused(node)
        witness.start()
        self.assertGreater(ask_again(cluster.leader(among=[away, witness]), 'TOKEN', 'x'), last)

    def test_the_log_alone_is_put_back(self):
        cluster = self.begin()
        self.some(cluster)
        node = self.one_that('follower')
        kept = self.keep(node)
        self.some(cluster)
        cluster.wait_same_state()
        self.wait_kept(node)
        node.kill()
        self.put_back(node, kept, 'log')
        self.expect_refused(node)

    def test_two_copies_of_one_directory(self):
        """Started one after the other: the second is refused, the first goes on."""
        cluster = self.begin()
        node, kept = self.started_since(cluster)
        ports = free_ports(2)
        twin = Member(self.lab, cluster, node.id, ports[0], ports[1], kind='twin')
        twin.membership, twin.data = node.membership, self.lab.path('twin-data')
        shutil.copytree(kept, twin.data)
        self.expect_refused(twin)
        self.assertTrue(node.running())
        self.some(cluster, 20)
        cluster.wait_same_state()

    def test_a_single_voter_asks_its_learner(self):
        # A start asks for an election time, and the learner may stand still for longer than the usual one.
        cluster = self.begin(n=1, learners=1, extra=SNAPSHOTS + ('--election-ms', '20000'))
        token = self.some(cluster)
        node, learner = cluster.nodes
        self.wait_recorded(node)
        self.assertEqual(node.terminate(), 0)
        kept = self.keep(node)
        node.start()
        cluster.wait_serving(node)
        last = [node.call('TOKEN', 'x') for _ in range(50)][-1]
        self.assertEqual(last, token + 50)
        cluster.wait_same_state()
        self.wait_known(node)
        node.kill()
        self.put_back(node, kept)
        node.launch()
        node.process.asked_to_end = True
        tokens = []
        while node.running(): # not for a moment does it issue one again
            try:
                tokens.append(node.call('TOKEN', 'x', timeout=0.2))
            except (OSError, RespError):
                pass
        self.assertEqual(tokens, [])
        self.assertIn(SAYS[0], node.process.output())

    # -- what nobody can know -------------------------------------------------------------------

    def test_a_whole_cluster_of_older_copies(self):
        """They all know as little: the cluster starts, and its tokens begin again. docs/operations/older-copy.md says so."""
        cluster = self.begin()
        token = self.some(cluster)
        self.assertEqual(cluster.terminate(), [0, 0, 0])
        kept = [self.keep(n, 'kept%d' % n.id) for n in cluster.nodes]
        cluster.start()
        self.some(cluster)
        self.assertEqual(cluster.terminate(), [0, 0, 0])
        for node, path in zip(cluster.nodes, kept):
            self.put_back(node, path)
        cluster.start()
        cluster.steady()
        self.assertEqual(cluster.leader().call('TOKEN', 'x'), token + 1)

    # -- a witness ------------------------------------------------------------------------------

    def alone(self, *more):
        self.cluster = Cluster(self.lab, 1, SNAPSHOTS + more)
        return self.cluster.nodes[0]

    def test_a_witness(self):
        witness = self.lab.path('witness')
        node = self.alone('--witness', witness)
        self.cluster.start()
        self.some(self.cluster)
        self.assertEqual(node.terminate(), 0)
        kept, kept_witness = self.keep(node), witness + '.kept'
        shutil.copy(witness, kept_witness)
        for _ in range(3): # killed or not, it starts again
            node.start()
            self.cluster.wait_serving(node)
            last = self.some(self.cluster, 20)
            node.kill()
        newest = self.keep(node, 'newest')
        self.put_back(node, kept)
        self.expect_refused(node, ('is an older copy', witness, '--recover-from'))
        # the way out that it names
        new = self.lab.path('anew')
        argv = [binary('fencelockd'), '--id', 1, '--data', new, '--cluster', self.cluster.members(), '--recover-from', node.data,
                '--tokens-above', last]
        p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=PATIENCE_S, env=patient_env())
        self.assertEqual(p.returncode, 0, p.stderr)
        # an older witness, no witness, another's witness
        self.put_back(node, newest)
        newer_witness = witness + '.newest'
        os.rename(witness, newer_witness)
        self.expect_refused(node, ('there is no witness', '--witness-reset'))
        shutil.copy(kept_witness, witness)
        self.expect_refused(node, ('is older than the data directory', '--witness-reset'))
        with open(witness, 'wb') as f:
            f.write(b'something else')
        self.expect_refused(node, ('is no witness, or damaged',))
        shutil.copy(newer_witness, witness)
        node.start()
        self.assertEqual(node.terminate(), 0)
        other = Cluster(self.lab, 1, ('--witness', witness), kind='other').nodes[0]
        self.expect_refused(other, ('belongs to another data directory',))
        os.unlink(witness)
        node.launch('--witness-reset')
        node.wait_ready()
        self.cluster.wait_serving(node)
        self.assertEqual(node.call('TOKEN', 'x'), last + 1)
        self.assertEqual(node.terminate(), 0)
        node.start()

    def test_a_witness_knows_a_copy_of_the_last_start(self):
        witness = self.lab.path('witness')
        node = self.alone('--witness', witness)
        self.cluster.start()
        self.some(self.cluster)
        kept = self.keep(node)
        self.some(self.cluster)
        index = node.info()['applied_index']
        wait_until(lambda: node.info()['witness_index'] >= index, 'the witness')
        node.kill()
        self.put_back(node, kept)
        self.expect_refused(node, ('is an older copy', witness))

    def test_a_witness_that_could_not_be_written_is_written_later(self):
        """Also when nothing else happens: the file may not stay behind."""
        folder = self.lab.path('away')
        os.mkdir(folder)
        witness = os.path.join(folder, 'witness')
        node = self.alone('--witness', witness)
        self.cluster.start()
        self.some(self.cluster)
        wait_until(lambda: node.info()['witness_index'] >= node.info()['applied_index'], 'the witness')
        os.rename(folder, folder + '.gone')
        node.call('TOKEN', 'x') # after it nothing more is committed
        index = node.info()['applied_index']
        node.process.wait_output(witness + ' cannot be written')
        self.assertLess(node.info()['witness_index'], index)
        os.rename(folder + '.gone', folder)
        wait_until(lambda: node.info()['witness_index'] >= index, 'the witness')

    # -- what is never refused ------------------------------------------------------------------

    def test_killed_while_starting(self):
        """At any moment of a start, again and again, the leader too: whoever runs again is let in."""
        cluster = self.begin()
        load = Load(cluster.addresses(), clients=4, ttl_ms=30000).start()
        self.addCleanup(load.aborting.set)
        for _ in range(30):
            node = self.random.choice(cluster.nodes)
            node.kill()
            for _ in range(self.random.randrange(4)):
                node.launch()
                until = self.random.choice(('', 'starting', 'connected', 'ready: ', 'leads'))
                try:
                    node.process.wait_output(until, 0.05)
                except AssertionError:
                    pass
                node.kill()
            node.start()
        wait_until(lambda: all(m['connected'] for m in self.members(cluster.leader()).values()), 'that all are here')
        load.stop()
        load.check()
        self.assertEqual(len(set(cluster.wait_same_state())), 1)
        for node in cluster.nodes:
            self.assertNotIn('older copy', node.process.output())

    def test_a_witness_and_kills(self):
        node = self.alone('--witness', self.lab.path('witness'))
        self.cluster.start()
        token = self.some(self.cluster, 20)
        for _ in range(25):
            node.kill()
            node.launch()
            if self.random.random() < 0.3:
                node.wait_ready()
                self.cluster.wait_serving(node)
                token = node.call('TOKEN', 'x')
        node.kill()
        node.start()
        self.cluster.wait_serving(node)
        self.assertGreater(node.call('TOKEN', 'x'), token)

    def test_all_at_once(self):
        cluster = self.begin()
        token = self.some(cluster)
        for _ in range(3):
            for node in cluster.nodes:
                node.kill()
            cluster.start()
            token, before = self.some(cluster, 50), token
            self.assertGreater(token, before)

    def test_status_tells_starts(self):
        cluster = self.begin()
        node = self.one_that('follower')
        for number in (1, 2, 3):
            if number > 1:
                self.wait_recorded(node)
                node.kill()
                node.start()
            wait_until(lambda n=number: self.members(cluster.leader())[node.id]['starts'] == n, 'that start')
        argv = [binary('fencelock'), 'cluster', 'status', '--json', '--nodes', cluster.nodes[0].address]
        def told():
            p = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, env=patient_env())
            self.assertTrue(p.stdout, p.stderr)
            return {m['id']: m['starts'] for m in json.loads(p.stdout)['members']}[node.id] == 3
        wait_until(told, 'that start, told by the first node')


if __name__ == '__main__':
    main()
