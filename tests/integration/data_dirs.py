#!/usr/bin/python3
"""What a node refuses to start on: directories and addresses that would break a promise."""

import os
import resource
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Node, RespError, ask_again, binary, free_ports, main, wait_until

OWNER = 'owner-a-0123456789'


class DataDirs(Case):
    def refused(self, node, *more, says):
        """Starts it and expects it to end by itself, not with 0, saying each of some words."""
        process = node.launch(*more)
        process.asked_to_end = True
        code = process.wait(PATIENCE_S)
        self.assertGreater(code, 0, process.last_output())
        for word in says:
            self.assertIn(word, process.output())
        return process.output()

    def test_a_second_daemon_on_the_same_directory(self):
        cluster = Cluster(self.lab, 1).start()
        first = cluster.nodes[0]
        port, peer = free_ports(2)
        second = Node(self.lab, cluster, 1, port, peer)
        second.name = 'second'
        second.data = first.data
        text = self.refused(second, says=['data'])
        self.assertNotIn('ready:', text)
        self.assertGreater(first.call('TOKEN', 'x'), 0)

    def test_the_limit_on_the_size_of_files(self):
        """The kernel's signal would end the daemon without a word."""
        node = Cluster(self.lab, 1).nodes[0]
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, before[1]))
        try:
            self.refused(node, says=['cannot begin a log', 'File too large'])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def test_a_directory_of_another_node(self):
        cluster = Cluster(self.lab, 3).start()
        self.assertEqual(cluster.terminate(), [0, 0, 0])
        a, b = cluster.nodes[:2]
        b.data = a.data
        self.refused(b, says=['1', '2'])

    def test_a_disk_is_exchanged_before_all_founders_are_there(self):
        """The first has met the third with a directory that is gone when the second comes: it must not found a cluster with that one."""
        cluster = Cluster(self.lab, 3)
        first, second, third = cluster.nodes
        first.start()
        third.start()
        first.process.wait_output('node 3 is connected')
        third.kill()
        first.process.wait_output('node 3 is gone')
        shutil.rmtree(third.data)
        second.start()
        first.process.wait_output('node 2 is connected')
        second.process.wait_output('node 1 is connected')
        third.start()
        self.assertGreater(ask_again(third, 'TOKEN', 'x'), 0)

    def test_a_founder_is_started_with_join(self):
        """By mistake; it founds nothing, and ends nobody. The others go on waiting for one that founds."""
        cluster = Cluster(self.lab, 3)
        first, second, third = cluster.nodes
        first.start()
        third.membership_args = lambda: ['--join', cluster.members()]
        third.launch()
        second.start()
        third.process.wait_output('waiting to be taken in')
        first.process.wait_output('node 3 joins, and there is no cluster yet: start it with --cluster')
        third.kill()
        del third.membership_args
        self.refused(third, says=['--join', 'with an empty directory'])
        shutil.rmtree(third.data)
        third.start()
        self.assertGreater(ask_again(third, 'TOKEN', 'x'), 0)

    def test_two_that_join_name_each_other(self):
        """Neither is a member, so neither has lost its data: both wait until they are added."""
        cluster = Cluster(self.lab, 3).start()
        ports = free_ports(4)
        joiners = [Node(self.lab, cluster, 4 + i, *ports[2 * i:2 * i + 2]) for i in range(2)]
        words = ','.join('%d=%s' % (n.id, n.peer) for n in cluster.nodes + joiners)
        for node in joiners:
            node.membership_args = lambda: ['--join', words]
            node.launch()
        a, b = joiners
        a.process.wait_output('node 5 at %s refused this node: node 4 is not another member' % b.peer)
        b.process.wait_output('node 4 at %s refused this node: node 5 is not another member' % a.peer)
        for node in joiners:
            cluster.add(node)
        for node in joiners:
            node.wait_ready()
            self.assertGreater(ask_again(node, 'TOKEN', 'x'), 0)

    def test_a_directory_of_another_cluster(self):
        one, other = Cluster(self.lab, 1), Cluster(self.lab, 3)
        node = one.start().nodes[0]
        token = node.call('TOKEN', 'x')
        self.assertEqual(node.terminate(), 0)
        stranger = other.nodes[0]
        stranger.data = node.data
        self.refused(stranger, says=['cluster'])
        node.start() # nothing was harmed by the attempt
        self.assertGreater(node.call('TOKEN', 'x'), token)

    def test_a_directory_of_another_cluster_with_join(self):
        """Alone, it would lead where clients look for a member of this cluster; also when it is where it was, under its own number."""
        cluster = Cluster(self.lab, 3).start()
        alone = Cluster(self.lab, 1, kind='other').start().nodes[0]
        token = alone.call('TOKEN', 'x')
        self.assertEqual(alone.terminate(), 0)
        elsewhere = Node(self.lab, cluster, alone.id, *free_ports(2), kind='elsewhere')
        elsewhere.data = alone.data
        others = ','.join('%d=%s' % (n.id, n.peer) for n in cluster.nodes if n.id != alone.id)
        for node in (elsewhere, alone):
            node.membership_args = lambda: ['--join', others]
            self.refused(node, says=['belongs to the cluster 1=' + alone.peer, 'this node is configured for', others, 'with another directory'])
        del alone.membership_args
        alone.start() # nothing was harmed by the attempts
        self.assertGreater(alone.call('TOKEN', 'x'), token)

    def test_a_node_that_joined_is_started_with_another_join(self):
        """One member that is one now, or was when the node joined, says that it is the cluster."""
        cluster = Cluster(self.lab, 3).start()
        gone = cluster.followers()[0]
        kept = [n for n in cluster.nodes if n is not gone]
        first, second, third = ('%d=%s' % (n.id, n.peer) for n in [gone] + kept)
        node = Node(self.lab, cluster, 4, *free_ports(2))
        node.membership_args = lambda: ['--join', first]
        node.launch()
        cluster.add(node)
        node.wait_ready()
        token = ask_again(node, 'TOKEN', 'x')
        gone.process.asked_to_end = True
        wait_until(lambda: not gone.running() or cluster.leader(among=kept).call('CLUSTER', 'REMOVE', gone.id) == 'OK', 'the removal')
        self.assertGreater(gone.process.wait(PATIENCE_S), 0)
        elsewhere = '%d=127.0.0.1:1,' % gone.id
        for known in (first, elsewhere + second, elsewhere + third):
            self.assertEqual(node.terminate(), 0)
            node.membership_args = lambda: ['--join', known]
            node.start()
            before, token = token, ask_again(node, 'TOKEN', 'x')
            self.assertGreater(token, before)
        self.assertEqual(node.terminate(), 0)
        node.membership_args = lambda: ['--join', elsewhere + '%d=127.0.0.1:2' % kept[0].id]
        self.refused(node, says=['belongs to the cluster %s,%s,4=%s' % (second, third, node.peer)])

    def test_nodes_of_two_clusters_do_not_mix(self):
        """Same ids and same addresses, but a directory made in another cluster's life."""
        cluster = Cluster(self.lab, 3).start()
        cluster.leader()
        ask_again(cluster.nodes[0], 'TOKEN', 'x')
        self.assertEqual(cluster.terminate(), [0, 0, 0])
        old = [n.data + '.old' for n in cluster.nodes]
        for node, kept in zip(cluster.nodes, old):
            os.rename(node.data, kept)
        cluster.start()
        cluster.steady() # a token that is asked for twice would be one too many
        last = [cluster.nodes[0].call('TOKEN', 'x') for _ in range(100)][-1]
        stranger = cluster.nodes[2]
        self.assertEqual(stranger.terminate(), 0)
        stranger.cluster.wipe(stranger)
        os.rename(old[2], stranger.data)
        stranger.launch()
        stranger.process.wait_output('belongs to cluster')
        with self.assertRaises((RespError, OSError)): # it is alone, and must not serve
            stranger.call('TOKEN', 'x', timeout=30)
        self.assertEqual(cluster.nodes[0].call('TOKEN', 'x'), last + 1)

    def test_a_wiped_node_is_refused_by_the_others(self):
        cluster = Cluster(self.lab, 3).start()
        leader = cluster.leader()
        token = ask_again(leader, 'ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        victim = cluster.followers()[0]
        cluster.wait_same_state()
        victim.kill()
        cluster.wipe(victim)
        self.refused(victim, says=['lost its data'])
        self.assertEqual(ask_again(leader, 'CHECK', 'x', token), 1)

    def test_part_of_a_directory_is_missing(self):
        cluster = Cluster(self.lab, 1).start()
        node = cluster.nodes[0]
        node.call('TOKEN', 'x')
        self.assertEqual(node.terminate(), 0)
        shutil.copytree(node.data, node.data + '.copy')
        entries = [n for n in os.listdir(node.data) if n != 'lock'] + ['log/segment-0000000001']
        for entry in sorted(entries):
            os.rename(os.path.join(node.data, entry), self.lab.path('gone-' + os.path.basename(entry)))
            output = self.refused(node, says=[])
            self.assertNotIn('ready:', output, 'without %s' % entry)
            shutil.rmtree(node.data)
            shutil.copytree(node.data + '.copy', node.data)
        node.start()

    def test_a_part_of_another_directory(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        other = node.data + '.other'
        for kept in (other, node.data + '.copy'):
            if kept != other:
                node.start()
            for _ in range(8 if kept == other else 1): # a shorter log is refused for that, first
                node.call('TOKEN', 'x')
            self.assertEqual(node.terminate(), 0)
            os.rename(node.data, kept)
        shutil.copytree(node.data + '.copy', node.data)
        says = {'identity': 'newest part is missing', 'log': 'is of another cluster than'}
        self.assertEqual(set(os.listdir(node.data)) - {'lock'}, set(says))
        for entry in says:
            os.rename(os.path.join(node.data, entry), self.lab.path('mine-' + entry))
            (shutil.copytree if entry == 'log' else shutil.copy)(os.path.join(other, entry), os.path.join(node.data, entry))
            self.refused(node, says=[says[entry]])
            shutil.rmtree(node.data)
            shutil.copytree(node.data + '.copy', node.data)
        node.start()

    def test_a_segment_or_a_snapshot_is_missing(self):
        """The log begins behind the newest snapshot, has no gap, and reaches as far as it once did."""
        node = Cluster(self.lab, 1, extra=('--snapshot-bytes', 65536)).start().nodes[0]
        folder = os.path.join(node.data, 'log')

        def kept(prefix):
            return sorted(n for n in os.listdir(folder) if n.startswith(prefix) and not n.endswith('.part'))
        self.write_until(node, lambda: node.info()['snapshots'] > 2 and 'segment-0000000001' not in kept('segment-'))
        self.assertEqual(node.terminate(), 0)
        node.extra = ['--snapshot-bytes', 1 << 30] # from now on the log only grows
        node.start()
        self.write_until(node, lambda: len(kept('segment-')) > 4)
        self.assertEqual(node.terminate(), 0)
        segments, snapshots = kept('segment-'), kept('snapshot-')
        self.assertGreater(len(segments), 3)
        self.assertTrue(snapshots)
        shutil.copytree(node.data, node.data + '.copy')
        tail = ['newest part is missing', 'put back', 'fencelock cluster replace 1', '--recover-from']
        for gone, says in ((segments[1:2], [segments[1]]), (snapshots, ['snapshot', 'is missing']), (segments[2:], tail),
                           (segments, ['has lost its log'])):
            for name in gone:
                os.unlink(os.path.join(folder, name))
            output = self.refused(node, says=says)
            self.assertNotIn('ready:', output, gone)
            shutil.rmtree(node.data)
            shutil.copytree(node.data + '.copy', node.data)
        node.start()

    @staticmethod
    def write_until(node, condition):
        def written():
            with node.client(timeout=PATIENCE_S) as c:
                for _ in range(50):
                    c.pipeline([('ACQUIRE', 'x', 'TTL', 86000000, 'OWNER', OWNER, 'VALUE', b'v' * 1024)] * 20)
                    c.call('RELEASE', 'x', c.call('ACQUIRE', 'x', 'TTL', 86000000, 'OWNER', OWNER))
            return condition()
        wait_until(written, 'a log of many segments')

    def test_a_directory_of_the_version_before(self):
        """Before version 5 the identity was text. 0.1.0 kept its log elsewhere and in another format. Nothing is changed in it."""
        node = Cluster(self.lab, 1).start().nodes[0]
        self.assertEqual(node.terminate(), 0)
        path = os.path.join(node.data, 'identity')
        with open(path, 'rb') as f:
            good = f.read()
        for other in (b'fencelock-identity 4\nid 1\n', good[:8] + b'\7' + good[9:4096 + 8] + b'\7' + good[4096 + 9:]):
            with open(path, 'wb') as f:
                f.write(other)
            self.refused(node, says=[path, '0.1.0', 'use an empty directory'])
            with open(path, 'rb') as f:
                self.assertEqual(f.read(), other)
        with open(path, 'wb') as f:
            f.write(good)
        node.start()

    def test_spoiled_identity(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        self.assertEqual(node.terminate(), 0)
        path = os.path.join(node.data, 'identity')
        with open(path, 'rb') as f:
            good = f.read()
        both = bytearray(good)
        for slot in (0, 4096):
            both[slot + 24] ^= 1 # the id of the node
        for bad in (b'', good[:3000], both, b'\0' * len(good)):
            with open(path, 'wb') as f:
                f.write(bad)
            self.refused(node, says=['identity'])
        with open(path, 'wb') as f:
            f.write(good)
        node.start()

    def test_beyond_loopback_needs_a_flag(self):
        node = Cluster(self.lab, 1).nodes[0]
        node.address = '0.0.0.0:%d' % node.port
        output = self.refused(node, says=['0.0.0.0', '--'])
        self.assertNotIn('ready:', output)

    def test_a_taken_port_is_a_clear_error(self):
        cluster = Cluster(self.lab, 1).start()
        first = cluster.nodes[0]
        other = Cluster(self.lab, 1).nodes[0]
        other.name, other.data = 'other', self.lab.path('other')
        other.address = first.address
        self.refused(other, says=[str(first.port)])
        other.address, other.peer = '127.0.0.1:%d' % other.port, first.peer
        other.cluster.members = lambda: '1=' + first.peer
        self.refused(other, says=[str(first.peer_port), 'choose another port with --peer'])
        other.set_ports(*free_ports(2)) # as it says; the directory has not begun with the first one
        other.cluster.members = lambda: '1=' + other.peer
        other.start()
        self.assertGreater(other.call('TOKEN', 'x'), 0)

    def test_wrong_options_are_explained(self):
        for argv, word in ((['--id', '0'], '--id'), (['--id', 'x'], '--id'), (['--cluster', '1=nonsense'], '--cluster'),
                           (['--nonsense'], 'nonsense'), (['--listen', '127.0.0.1:99999'], '--listen'),
                           (['--id', '3', '--cluster', '1=127.0.0.1:1'], '3'), (['--data'], '--data')):
            process = self.lab.start([binary('fencelockd')] + argv, 'wrong', cwd=self.lab.dir)
            process.asked_to_end = True
            self.assertEqual(process.wait(PATIENCE_S), 2, '%r: %s' % (argv, process.output()))
            self.assertIn(word, process.output())

    def test_a_lost_node_comes_back_when_the_operator_says_so(self):
        cluster = Cluster(self.lab, 3).start()
        leader = cluster.leader()
        victim = cluster.followers()[0]
        token = ask_again(leader, 'ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        victim.kill()
        cluster.wipe(victim)
        cluster.replace(victim)
        victim.start()
        wait_until(lambda: victim.info()['applied_index'] == leader.info()['applied_index'], 'catching up')
        self.assertEqual(ask_again(victim, 'CHECK', 'x', token), 1)


if __name__ == '__main__':
    main()
