#!/usr/bin/python3
"""From one version of log and snapshots to the next, one node after the other, under load."""

import json
import os
import re
import shutil
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', 'faults')]
from faultlab.proxy import HELLO_SIZE, PeerProxy
from harness import PATIENCE_S, Case, Cluster, Load, ask_again, binary, main, patient_env, wait_until
from peer_damage import CHECKED_AT, CRC_AT, PeerCase, crc32c

OWNER = 'owner-a-0123456789'


class Upgrade(Case):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3, ('--snapshot-bytes', 65536))
        self.cluster.start()

    def status(self):
        done = subprocess.run([binary('fencelock'), 'cluster', 'status', '--json', '--nodes',
                               ','.join(self.cluster.addresses())], capture_output=True, text=True, timeout=PATIENCE_S, env=patient_env())
        self.assertTrue(done.stdout, done.stderr) # of a cluster that is not well it is told as well
        return json.loads(done.stdout)

    def wait_version(self, version, known):
        def seen():
            s = self.status()
            return s['version'] == version and {m['id']: m['knows_version'] for m in s['members']} == known
        wait_until(seen, 'version %d, known %r' % (version, known), every=0.2)

    def change(self, node, program):
        """As an operator does: stop it, replace the program, start it, wait until it has everything."""
        self.assertEqual(node.terminate(), 0)
        node.program = program
        node.start()
        self.cluster.wait_serving(node)
        wait_until(lambda: int(node.info()['applied_index']) >=
                   int(self.cluster.leader().info()['commit_index']) - 1000, 'the node is not behind')

    def test_one_after_the_other_with_a_step_back(self):
        first, second, third = self.cluster.nodes
        kept = ask_again(first, 'ACQUIRE', 'kept', 'TTL', 3600000, 'OWNER', OWNER)
        load = Load(self.cluster.addresses(), clients=6).start()
        self.addCleanup(load.aborting.set)
        self.wait_version(1, {1: 1, 2: 1, 3: 1})
        self.change(first, 'fencelockd-next')
        self.wait_version(1, {1: 2, 2: 1, 3: 1})
        self.change(second, 'fencelockd-next')
        self.wait_version(1, {1: 2, 2: 2, 3: 1})
        load.wait_more_grants()
        self.change(second, 'fencelockd') # back, which is possible as long as the version is not raised
        self.wait_version(1, {1: 2, 2: 1, 3: 1})
        load.wait_more_grants()
        self.change(second, 'fencelockd-next')
        self.change(third, 'fencelockd-next')
        self.wait_version(2, {1: 2, 2: 2, 3: 2})
        load.wait_more_grants()
        load.stop()
        load.check()
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)
        self.assertEqual(ask_again(third, 'CHECK', 'kept', kept), 1)
        # From here on there is no way back: the old program does not read what is written now.
        self.assertEqual(first.terminate(), 0)
        first.program = 'fencelockd'
        process = first.launch()
        process.asked_to_end = True
        wait_until(lambda: not process.running() or 'knows version 1' in second.process.output() +
                   third.process.output(), 'the old program to be refused')
        if process.running():
            process.kill()
        first.program = 'fencelockd-next'
        first.start()
        self.cluster.wait_serving(first)
        self.assertEqual(ask_again(first, 'CHECK', 'kept', kept), 1)

    def test_killed_at_every_step(self):
        """SIGKILL instead of an orderly stop, of each node and in each step, and of the leader in the moment in which it raises the version:
        nothing is lost, and the cluster arrives."""
        nodes = self.cluster.nodes
        kept = ask_again(nodes[0], 'ACQUIRE', 'kept', 'TTL', 3600000, 'OWNER', OWNER)
        load = Load(self.cluster.addresses(), clients=6).start()
        self.addCleanup(load.aborting.set)
        for node in sorted(nodes, key=lambda n: n is self.cluster.leader()): # the leader last
            node.kill()
            node.program = 'fencelockd-next'
            if node is not nodes[-1]:
                node.launch() # and again, while it starts
                node.kill()
            node.launch()
            if all(n.program == 'fencelockd-next' for n in nodes):
                break
            self.cluster.wait_serving(node)
            load.wait_more_grants(10)
            node.kill() # it has spoken, and its version may be in the log
            node.start()
            self.cluster.wait_serving(node)
        text = 'the cluster goes to it'
        raises = wait_until(lambda: next((n for n in nodes if n.running() and text in n.process.output()), None),
                            'the step to the next version', every=0.001)
        raises.kill() # whether it is in the log or not: whoever leads then goes on with it
        raises.launch()
        self.wait_version(2, {1: 2, 2: 2, 3: 2})
        load.wait_more_grants()
        load.stop()
        load.check()
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)
        self.assertEqual(ask_again(nodes[0], 'CHECK', 'kept', kept), 1)


class Released(Case):
    """Directories that a node of a release has left: VERSION-TOKEN.tar.gz, with a lock `kept` held under that token. A release keeps one
    (deploy/README.md); the one of this program is made here, and with FENCELOCK_KEEP=DIR it is kept there."""
    FORMATS = os.path.join(HERE, '..', 'formats')

    def node(self):
        """A node alone, always with the address that its directory has; nobody calls it there."""
        node = Cluster(self.lab, 1).nodes[0]
        node.peer, node.peer_bind = '127.0.0.1:7501', node.peer
        return node

    def make(self):
        node = self.node()
        node.start()
        token = ask_again(node, 'ACQUIRE', 'kept', 'TTL', 3600000, 'OWNER', OWNER)
        self.assertEqual(node.terminate(), 0)
        version = subprocess.run([binary('fencelockd'), '--version'], capture_output=True, text=True, check=True).stdout.split()[1]
        folder = os.environ.get('FENCELOCK_KEEP') or self.lab.dir
        made = shutil.make_archive(os.path.join(folder, '%s-%d' % (version, token)), 'gztar', node.data)
        shutil.rmtree(node.data)
        return made

    def test_their_directories_are_taken_over(self):
        kept = [os.path.join(self.FORMATS, name) for name in sorted(os.listdir(self.FORMATS))] if os.path.isdir(self.FORMATS) else []
        for path in [*kept, self.make()]:
            version, token = re.fullmatch(r'(.*)-(\d+)\.tar\.gz', os.path.basename(path)).groups()
            node = self.node()
            shutil.unpack_archive(path, node.data)
            node.start()
            self.assertEqual(ask_again(node, 'CHECK', 'kept', int(token)), 1, version)
            self.assertGreater(ask_again(node, 'TOKEN', 'x'), int(token))
            self.assertEqual(node.terminate(), 0)
            shutil.rmtree(node.data)


OTHER = 3 # the node that is of another protocol


def of_the_next_protocol(hello):
    """As a later release would send it (src/peer/handshake.h)."""
    body = struct.pack('<H', struct.unpack_from('<H', hello, CHECKED_AT)[0] + 1) + hello[CHECKED_AT + 2:]
    return hello[:CRC_AT] + struct.pack('<I', crc32c(body)) + body


class TwoProtocols(PeerProxy):
    """Node 3 takes all others to be of the next protocol, and they take it to be so."""
    on = False

    def greeting(self, link, hello):
        return of_the_next_protocol(hello) if self.on and OTHER in link else hello

    def changer(self, link, kind, forth):
        if forth or not self.on or OTHER not in link:
            return super().changer(link, kind, forth)
        kept = bytearray()

        def answer(data):
            kept.extend(data)
            return (of_the_next_protocol(bytes(kept)), False) if len(kept) == HELLO_SIZE else (b'', False)
        return answer


class OtherProtocol(PeerCase):
    PROXY = TwoProtocols

    def test_both_sides_are_told_so_in_one_sentence(self):
        self.peers.on = True
        self.peers.cut()
        for node in self.cluster.nodes:
            text = r'(.*) it has protocol (\d+), and this node (\d+): run one version of fencelock on all nodes'
            line = wait_until(lambda: re.search(text, node.process.output()), 'node %d to be told' % node.id)
            self.assertEqual(int(line[2]), int(line[3]) + 1, line[0])
            self.note(line[0])
        self.new_token() # the two of one version serve
        self.peers.on = False
        self.peers.cut()
        self.works()


if __name__ == '__main__':
    main()
