#!/usr/bin/python3
"""Backups of running clusters; new clusters made from them, and from what a lost cluster has left."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Load, Node, RespError, ask_again, binary, env_without_options, free_ports, main, seed, try_again, wait_until
from harness.resp import info_fields

OWNER = 'owner-a-0123456789'
STEP = 1000000000
HEADER = 40
TRAILER = 28 # says which node made it, and when


class Backups(Case):
    def cli(self, *args, nodes=None):
        env = env_without_options(FENCELOCK_TIMEOUT='200s', **({'FENCELOCK_NODES': ','.join(nodes)} if nodes else {}))
        p = subprocess.run([binary('fencelock')] + [str(a) for a in args], env=env, capture_output=True, text=True,
                           timeout=PATIENCE_S)
        return p.returncode, p.stdout, p.stderr

    def backup(self, nodes, name='backup'):
        path = self.lab.path(name)
        code, out, err = self.cli('backup', path, '--json', nodes=nodes)
        self.assertEqual((code, err), (0, ''), out)
        return path, json.loads(out)

    def test_waits_for_a_leader(self):
        cluster = Cluster(self.lab, 3).start()
        leader = cluster.leader()
        others = [n for n in cluster.nodes if n is not leader]
        leader.kill()
        others[0].kill()
        wait_until(lambda: others[1].info()['leader_id'] == 0, 'nobody to lead')
        # the last one is down: that says less than what the others say
        argv = [binary('fencelock'), 'backup', self.lab.path('b'), '--nodes', '%s,%s' % (others[1].address, leader.address)]
        for timeout in ('200ms', '5s', '60s'): # on a busy machine nobody may answer at all in a short time
            code, _, err = self.cli(*argv[1:], '--timeout', timeout)
            self.assertEqual(code, 3, err)
            if 'NOLEADER' in err:
                break
        self.assertIn('NOLEADER', err)
        def asked_again_and_again():
            """Without --timeout as well, of which 5 seconds are the default: on a slow machine too few for that."""
            own = 0
            with others[1].client() as c, subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as p:
                def asked():
                    nonlocal own
                    own += 1
                    return info_fields(c.call('INFO'))['total_commands_processed'] - own
                before = asked()
                wait_until(lambda: asked() > before + 8 or p.poll() is not None, 'that it asks or gives up')
                p.kill()
                return asked() > before + 8
        try_again(asked_again_and_again, 'to be asked again and again')
        with subprocess.Popen(argv + ['--timeout', '200s'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as p:
            others[0].start()
            self.assertEqual(p.wait(PATIENCE_S), 0, p.stdout.read())

    def begin(self, node, *args):
        """Makes a node's directory with --restore or --recover-from: exit code, what it said."""
        argv = [binary('fencelockd'), '--id', node.id, '--data', node.data, '--cluster', node.cluster.members()]
        p = subprocess.run([str(a) for a in argv + list(args)], capture_output=True, text=True, timeout=PATIENCE_S)
        return p.returncode, p.stdout, p.stderr

    def restore(self, cluster, path, *more):
        for node in cluster.nodes:
            code, out, err = self.begin(node, '--restore', path, '--json', *more)
            self.assertEqual((code, err), (0, ''), out)
            said = json.loads(out)
        return said

    def test_a_node_is_added_to_a_restored_cluster(self):
        """The snapshot that the new cluster begins with has no members, and the new node gets that one."""
        old = Cluster(self.lab, 1).start()
        path, said = self.backup(old.addresses())
        old.terminate()
        for nodes in (1, 3):
            new = Cluster(self.lab, nodes, kind='of%d-' % nodes)
            self.restore(new, path)
            new.start()
            ports = free_ports(2)
            joiner = Node(self.lab, new, nodes + 1, *ports, kind='joins%d-' % nodes)
            joiner.membership_args = lambda new=new: ['--join', new.members()]
            joiner.launch()
            new.add(joiner)
            joiner.wait_ready()
            wait_until(lambda: new.leader().info()['cluster_voters'] == nodes + 1, 'its vote')
            self.assertGreater(ask_again(joiner, 'TOKEN', 'x'), said['last_token'])
            joiner.terminate()
            new.terminate()

    def who_leads(self, cluster):
        leader = cluster.leader()
        return leader.id, leader.info()['term']

    # -- taking ---------------------------------------------------------------------------------

    def test_under_load_through_a_change_of_leader(self):
        cluster = Cluster(self.lab, 3).start()
        load = Load(cluster.addresses(), clients=4, ttl_ms=10000)
        load.start()
        try:
            wait_until(lambda: load.grants_answered() > 50, 'some grants')
            previous = 0
            for turn in range(3):
                before = self.token(cluster)
                leader = cluster.leader()
                if turn == 1:
                    leader.kill()
                parts = count()

                def taken():
                    """A backup of whoever leads has all. On a busy machine the tool may find nobody who leads, and take that of a node
                    that stood still: then the next one is asked for."""
                    nonlocal previous
                    at_first = self.who_leads(cluster)
                    _, said = self.backup([n.address for n in cluster.nodes if n.running()], 'b%d-%d' % (turn, next(parts)))
                    self.assertLessEqual(said['last_token'], self.token(cluster))
                    index, newer = said['index'], said['index'] > previous
                    if newer:
                        previous = index
                    good = newer and (turn == 1 or said['last_token'] + 1000 > before)
                    led = said['node'] == at_first[0] and self.who_leads(cluster) == at_first
                    self.assertTrue(good or not led, 'the leader gave an old one: %r' % said)
                    return good
                try_again(taken, 'a backup that has what was there')
                if turn == 1:
                    leader.start()
        finally:
            load.stop()
        load.check()
        cluster.wait_same_state()
        bodies = set()
        for node in cluster.nodes: # the same point of the log is the same bytes, whoever is asked
            path, said = self.backup([node.address], 'same%d' % node.id)
            with open(path, 'rb') as f:
                bodies.add((said['index'], f.read()[:-TRAILER]))
        self.assertEqual(len(bodies), len({index for index, _ in bodies}))

    def test_begun_while_nobody_leads(self):
        """Each is the state at some point of the log: whoever else has a backup of that point has the same bytes."""
        cluster = Cluster(self.lab, 3).start()
        points, shared = {}, 0
        for turn in range(3):
            load = Load(cluster.addresses(), clients=4, ttl_ms=600000)
            load.start()
            try:
                wait_until(lambda n=load: n.grants_answered() > 20, 'some grants')
                leader = cluster.leader()
                leader.kill()
            finally:
                load.stop()
            others = cluster.running()

            def take(node, part, turn=turn):
                path, said = self.backup([node.address], 'e%d-%d-%s' % (turn, node.id, part))
                with open(path, 'rb') as f:
                    points.setdefault(said['index'], {})[node.id, turn, part] = f.read()[:-TRAILER]
                return said['index']

            def take_both(parts=count()): # an entry may come in between, as of an election on a busy machine
                part = 'rest%d' % next(parts)
                return len({take(node, part) for node in others}) == 1

            with ThreadPoolExecutor() as pool:
                list(pool.map(take, others, ('early', 'early')))
            wait_until(take_both, 'backups of one index at two nodes')
            leader.start()
            cluster.wait_same_state()
            take(leader, 'late')
        for index, taken in points.items():
            self.assertEqual(len(set(taken.values())), 1, 'different states at index %d: %r' % (index, sorted(taken)))
            shared += len({node for node, _, _ in taken}) > 1
        self.assertGreaterEqual(shared, 3)

    def token(self, cluster):
        def issued():
            for node in cluster.running():
                try:
                    return node.call('TOKEN', 'x')
                except (OSError, RespError):
                    continue
            return None
        return wait_until(issued, 'somebody who issues a token')

    def test_keep_and_verify(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        folder = self.lab.path('kept')
        os.mkdir(folder)
        for _ in range(4):
            node.call('TOKEN', 'x')
            code, _, err = self.cli('backup', '--keep', 2, folder, nodes=[node.address])
            self.assertEqual((code, err), (0, ''))
        names = sorted(os.listdir(folder))
        self.assertEqual(len(names), 2, names)
        last = [json.loads(self.cli('backup', '--verify', '--json', os.path.join(folder, n))[1])['last_token']
                for n in names]
        self.assertEqual(last, [3, 4])

    def test_damaged_and_foreign_files(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        for i in range(20):
            node.call('ACQUIRE', 'lock-%d' % i, 'TTL', 60000, 'OWNER', OWNER)
        path, _ = self.backup([node.address])
        with open(path, 'rb') as f:
            good = f.read()
        r = random.Random(seed())
        bad = [good[:n] for n in [0, 1, HEADER - 1, HEADER, len(good) - 1] + [r.randrange(len(good)) for _ in range(5)]]
        for _ in range(15):
            at = r.randrange(len(good))
            bad.append(good[:at] + bytes([good[at] ^ (1 << r.randrange(8))]) + good[at + 1:])
        bad += [good + b'x', b'something else\n' * 20]
        fresh = Cluster(self.lab, 1)
        for content in bad:
            with open(self.lab.path('bad'), 'wb') as f:
                f.write(content)
            code, _, err = self.cli('backup', '--verify', self.lab.path('bad'))
            self.assertEqual(code, 1)
            self.assertIn('at byte', err)
            fresh.nodes[0].data = self.lab.path('fresh')
            code, _, err = self.begin(fresh.nodes[0], '--restore', self.lab.path('bad'))
            self.assertEqual(code, 2)
            self.assertIn('at byte', err)
            self.assertFalse(os.path.exists(self.lab.path('fresh')))

    def test_who_may_and_one_at_a_time(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        node.call('ACL', 'SETUSER', 'reader', 'on', '>geheim', '~*', '+@see')
        with node.client() as c:
            c.call('AUTH', 'reader', 'geheim')
            with self.assertRaises(RespError) as caught:
                c.call('CLUSTER', 'BACKUP')
            self.assertEqual(caught.exception.word, 'NOPERM')
        number = node.call('CLUSTER', 'BACKUP')
        with self.assertRaises(RespError) as caught:
            node.call('CLUSTER', 'BACKUP')
        self.assertEqual(caught.exception.word, 'BUSY')
        first = wait_until(lambda: node.call('CLUSTER', 'BACKUP', number, 0), 'the first bytes') # one that nobody reads for 30 s is given up
        with self.assertRaises(RespError):
            node.call('CLUSTER', 'BACKUP', number, 0)
        at, piece = len(first), None
        while piece != b'': # None: it is not ready
            piece = node.call('CLUSTER', 'BACKUP', number, at)
            at += len(piece or b'')
        with self.assertRaises(RespError) as caught:
            node.call('CLUSTER', 'BACKUP', number, at)
        self.assertEqual(caught.exception.word, 'NOTFOUND')
        self.assertGreater(node.call('CLUSTER', 'BACKUP'), 0)

    # -- a new cluster --------------------------------------------------------------------------

    def test_restore(self):
        old = Cluster(self.lab, 3, extra=['--locks-max', '777']).start()
        old.steady()
        a = old.nodes[0]
        a.call('ACL', 'SETUSER', 'reader', 'on', '>geheim', '~*', '+@see')
        held = a.call('ACQUIRE', 'held', 'TTL', 600000, 'OWNER', OWNER)
        a.call('SESSION', 'OPEN', 'session-0123456789', 'TTL', 600000)
        old.unsteady()
        old.wait_same_state() # the tool asks whoever leads, and another one when that one does not say so in time
        path, said = self.backup(old.addresses())
        self.assertEqual((said['locks_held'], said['sessions']), (1, 1))
        later = [ask_again(a, 'TOKEN', 'x') for _ in range(50)][-1]

        new = Cluster(self.lab, 3)
        for node in new.nodes:
            node.data = self.lab.path('new%d' % node.id)
        told = self.restore(new, path, '--above', later)
        self.assertEqual(told['last_token'], later + STEP)
        self.assertEqual(told['ended_holds'], 1)
        self.assertEqual(self.begin(new.nodes[0], '--restore', path)[0], 2, 'a directory that is not empty')
        new.start()
        new.steady()
        b = new.nodes[1]
        self.assertGreater(b.call('TOKEN', 'x'), later + STEP)
        self.assertEqual(b.call('CHECK', 'held', held), 0)
        self.assertEqual(b.call('RENEW', 'held', held), 0)
        self.assertEqual(b.call('RELEASE', 'held', held), 0)
        self.assertEqual(b.call('SESSION', 'RENEW', 'session-0123456789'), 0)
        self.assertIn(b'reader' if isinstance(b.call('ACL', 'USERS')[0], bytes) else 'reader', b.call('ACL', 'USERS'))
        self.assertGreater(b.call('ACQUIRE', 'held', 'TTL', 60000, 'OWNER', OWNER + 'b'), later + STEP)
        with open(os.path.join(a.data, 'identity'), 'rb') as f, open(os.path.join(new.nodes[0].data, 'identity'), 'rb') as g:
            ids = [file.read(48)[40:] for file in (f, g)] # of the cluster (record.h)
        self.assertNotEqual(ids[0], ids[1])
        self.assertEqual(len(set(new.wait_same_state())), 1)

        # a node of the new cluster that loses its disk comes back empty, as in any other
        lost = new.followers()[0]
        lost.kill()
        new.wipe(lost)
        lost.launch()
        lost.wait_ready()
        lost.kill()
        new.replace(lost)
        lost.start()
        new.wait_serving(lost)
        self.assertEqual(len(set(new.wait_same_state())), 1)
        new.unsteady()
        self.assertEqual(new.terminate(), [0, 0, 0])
        new.start()
        new.steady()
        self.assertGreater(b.call('TOKEN', 'x'), later + STEP)

        # an old node, at the address of a new one, is not let in
        self.assertEqual(old.terminate(), [0, 0, 0])
        victim = new.followers()[0]
        self.assertEqual(victim.terminate(), 0)
        last = new.leader(among=new.running()).call('TOKEN', 'x')
        shutil.rmtree(victim.data)
        shutil.copytree(old.nodes[victim.id - 1].data, victim.data)
        victim.launch()
        victim.process.asked_to_end = True
        wait_until(lambda: not victim.running() or 'cluster' in victim.process.output(), 'that it is refused')
        self.assertEqual(new.leader(among=[n for n in new.nodes if n is not victim]).call('TOKEN', 'x'), last + 1)

    def test_members_that_began_differently_do_not_meet(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        path, _ = self.backup([node.address])
        for turn, ways in enumerate((([], ['--above', 5]), ([], None))): # None begins with nothing
            new = Cluster(self.lab, 2, extra=['--hold-ms', '100'])
            for member, more in zip(new.nodes, ways):
                member.name = 'turn%d-%d' % (turn, member.id)
                member.data = self.lab.path(member.name)
                if more is not None:
                    self.assertEqual(self.begin(member, '--restore', path, *more)[0], 0)
            for member in new.nodes:
                member.launch()
            for member in new.nodes:
                member.wait_ready()
                member.process.wait_output('from different backups')
            for member in new.nodes:
                with self.assertRaises(RespError):
                    member.call('TOKEN', 'x')
                self.assertNotIn('is added to the cluster', member.process.output())

    def test_recover_what_a_lost_majority_has_left(self):
        old = Cluster(self.lab, 3).start()
        leader = old.leader()
        old.steady()
        held = leader.call('ACQUIRE', 'held', 'TTL', 3600000, 'OWNER', OWNER)
        last = [leader.call('TOKEN', 'x') for _ in range(300)][-1]
        old.unsteady()
        for node in old.nodes:
            node.kill()
        new = Cluster(self.lab, 3)
        source = self.lab.path('source')
        for node in new.nodes:
            node.data = self.lab.path('new%d' % node.id)
            shutil.copytree(leader.data, source)
            self.assertEqual(self.begin(node, '--recover-from', source)[0], 2, 'without --tokens-above')
            code, out, err = self.begin(node, '--recover-from', source, '--tokens-above', last + 7)
            self.assertEqual((code, err), (0, ''))
            self.assertIn('lost ', out)
            shutil.rmtree(source)
        new.start()
        token = ask_again(new.nodes[2], 'ACQUIRE', 'held', 'TTL', 600000, 'OWNER', OWNER + 'b')
        self.assertGreater(token, last + 7 + STEP)
        self.assertEqual(ask_again(new.nodes[0], 'CHECK', 'held', held), 0)
        self.assertEqual(len(set(new.wait_same_state())), 1)

    def killed(self, argv, seconds):
        """Runs it and kills it at some moment."""
        p = subprocess.Popen([str(a) for a in argv], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(seconds)
        p.kill()
        p.wait()

    def test_a_backup_killed_at_any_moment(self):
        """What has the name is whole, the node makes the next one, and nobody's lock is harmed."""
        node = Cluster(self.lab, 1).start().nodes[0]
        held = node.call('ACQUIRE', 'held', 'TTL', 600000, 'OWNER', OWNER)
        r = random.Random(seed())
        path = self.lab.path('backup')
        argv = [binary('fencelock'), 'backup', path, '--nodes', node.address]
        for _ in range(20):
            self.killed(argv, r.uniform(0, 0.06))
            if os.path.exists(path):
                self.assertEqual(self.cli('backup', '--verify', path)[0], 0)
                os.unlink(path)
        # one that was left behind is given up after a while; until then the node says BUSY
        wait_until(lambda: self.cli('backup', path, nodes=[node.address])[0] == 0, 'a backup', every=0.5)
        self.assertEqual(node.call('CHECK', 'held', held), 1)

    def test_a_restore_killed_at_any_moment(self):
        """A directory that was made by half is refused by every start, and never serves."""
        node = Cluster(self.lab, 1).start().nodes[0]
        for i in range(200):
            last = node.call('ACQUIRE', 'lock-%d' % i, 'TTL', 600000, 'OWNER', OWNER)
        path, _ = self.backup([node.address])
        r = random.Random(seed())
        for turn in range(25):
            fresh = Cluster(self.lab, 1).nodes[0]
            fresh.name = 'turn%d' % turn
            fresh.data = self.lab.path(fresh.name)
            argv = [binary('fencelockd'), '--id', fresh.id, '--data', fresh.data, '--cluster', fresh.cluster.members()]
            self.killed(argv + ['--restore', path], r.uniform(0, 0.08))
            fresh.launch()
            fresh.process.asked_to_end = True
            wait_until(lambda: 'ready: ' in fresh.process.output() or not fresh.running(), 'a start or a refusal')
            if fresh.running():
                fresh.cluster.wait_serving(fresh)
                token = fresh.call('TOKEN', 'x')
                # either the restore was whole, or it had not begun and this is a new cluster
                self.assertTrue(token > last + STEP or token == 1, token)
                fresh.kill()
            else:
                self.assertIn('is missing', fresh.process.output())

    def test_a_directory_in_use(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        token = node.call('TOKEN', 'x')
        path, _ = self.backup([node.address])
        code, _, err = self.begin(node, '--restore', path)
        self.assertEqual(code, 2)
        self.assertIn('in use by another process', err)
        self.assertEqual(node.call('TOKEN', 'x'), token + 1)

    def test_numbers_that_cannot_be(self):
        node = Cluster(self.lab, 1).start().nodes[0]
        path, _ = self.backup([node.address])
        fresh = Cluster(self.lab, 1).nodes[0]
        fresh.data = self.lab.path('fresh')
        for more, says in ((['--step', 999999999], '1000000000'), (['--above', 2**53 - 1], 'name smaller numbers'),
                           (['--above', 0], 'whole number'), (['--tokens-above', 9], '--recover-from'),
                           (['--recover-from', 'x'], 'exclude each other')):
            code, _, err = self.begin(fresh, '--restore', path, *more)
            self.assertEqual(code, 2, err)
            self.assertIn(says, err)
            self.assertFalse(os.path.exists(fresh.data))
        code, _, err = self.begin(fresh, '--recover-from', self.lab.path('nothing'), '--tokens-above', 1)
        self.assertEqual(code, 2, err)
        code, _, err = self.begin(fresh, '--recover-from', node.data, '--tokens-above', 1)
        self.assertEqual(code, 2)
        self.assertIn('in use', err)
        self.assertEqual(node.terminate(), 0)
        code, out, err = self.begin(fresh, '--recover-from', node.data, '--tokens-above', 1)
        self.assertEqual(code, 0, err)
        self.assertIn('start it.', out) # a cluster of one has no other members
        self.assertNotIn('other member', out)


if __name__ == '__main__':
    main()
