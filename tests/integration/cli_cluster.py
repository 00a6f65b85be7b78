#!/usr/bin/python3
"""`fencelock` and libfencelock against real nodes and a real store: every command, a node that dies, one that
hangs, none that leads, and the example of docs/examples run by many at once."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from cli_library import patient_example
from harness import PATIENCE_S, ClusterCase, Excuse, Store, binary, env_without_options, main, try_again, wait_until
from harness.lab import build_option

OWNER_A = 'owner-a-0123456789'
OWNER_B = 'owner-b-0123456789'
DONE, NO, USAGE, UNKNOWN = 0, 1, 2, 3
# What is said of a node that had no time to answer, or could not be asked in time. One that is down refuses.
LATE = re.compile(r'no answer within|could be reached within \d+ ms(?![^"\n]*refused)')
# What is said when a leader was silent for so long that another one was looked for, or found; or by a follower that has not heard yet
# that the cluster is formed.
UNLED = re.compile('is being formed|hears no leader|none of these nodes leads|no leader within|believes that it leads')


class CliCase(ClusterCase):
    def setUp(self):
        super().setUp()
        self.cluster.leader()
        self.env = env_without_options(FENCELOCK_NODES=','.join(self.cluster.addresses()), FENCELOCK_TIMEOUT='120s')

    def run_cli(self, *args, timeout=PATIENCE_S):
        done = subprocess.run([binary('fencelock'), *map(str, args)], env=self.env, timeout=timeout,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertNoReport(done.stderr)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def start_cli(self, *args):
        child = subprocess.Popen([binary('fencelock'), *map(str, args)], env=self.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        return self.kill_at_cleanup(child)

    def json_of(self, *args):
        code, out, err = self.run_cli(*args, '--json')
        return code, json.loads(out)

    def done(self, *args):
        """The output of a command that must succeed."""
        code, out, err = self.run_cli(*args)
        self.assertEqual((code, self.without_waiting(err)), (DONE, ''), args)
        return out

    def without_waiting(self, err):
        """What is said after two seconds without an answer is no error."""
        return ''.join(line for line in err.splitlines(True) if not line.startswith('fencelock: waiting: '))

    def in_time(self, *args, led=True):
        """For commands that give each node two seconds at most: what they return when that was enough, and no leader was missed. led:
        whether there is one."""
        def ran():
            got = self.run_cli(*args)
            said = got[1] + got[2]
            return None if LATE.search(said) or (led and UNLED.search(said)) else got
        return try_again(ran, 'answers in time')

    def json_in_time(self, *args, **options):
        code, out, err = self.in_time(*args, '--json', **options)
        return code, json.loads(out)

    def done_in_time(self, *args):
        code, out, err = self.in_time(*args)
        self.assertEqual((code, err), (DONE, ''), args)
        return out

    def connected(self, n):
        """Waits until the leader, whoever it is, has heard of so many nodes, itself included."""
        wait_until(lambda: self.cluster.leader().info()['cluster_nodes_connected'] == n, '%d connected nodes' % n)

    def acquire(self, *args):
        return int(self.done('acquire', *args))

    def acquire_briefly(self, name):
        """A lease that is over soon: on a busy machine, before its answer comes, and then it is asked for once more."""
        def acquired():
            began = time.monotonic()
            code, out, err = self.run_cli('acquire', name, '--ttl', '300ms')
            self.assertTrue(code == DONE or time.monotonic() - began > 0.2, err)
            return int(out) if code == DONE else None
        return try_again(acquired, 'a lease of 300 ms')

    def release(self, name, token):
        """When a node is late, or does not lead any more, another one is asked, and then says that it is not held any more: the outcome is
        unknown, and rightly so."""
        excuse = Excuse(self.cluster)
        code, out, err = self.run_cli('release', name, token)
        if code == UNKNOWN:
            self.assertTrue(excuse.holds(), err)
        else:
            self.assertEqual((code, out, self.without_waiting(err)), (DONE, name + ': released\n', ''))
        self.released_at_last(name, token)

    def released_at_last(self, name, token):
        def gone():
            code, _, err = self.run_cli('release', name, token)
            self.assertIn(code, (DONE, NO, UNKNOWN), err)
            return code == NO
        try_again(gone, 'the release of ' + name)

    def waiters(self, name):
        code, value = self.json_of('show', name)
        return value['waiters'] if code == DONE else 0


class Commands(CliCase):
    def test_the_life_of_a_lock(self):
        token = self.acquire('report', '--ttl', '600s', '--owner', OWNER_A, '--value', 'nightly')
        self.assertEqual(self.acquire('report', '--ttl', '600s', '--owner', OWNER_A), token) # again, not twice
        code, out, err = self.run_cli('acquire', 'report', '--ttl', '5000', '--owner', OWNER_B)
        self.assertEqual((code, out), (NO, ''))
        self.assertIn('not acquired', err)
        self.assertEqual(self.done('check', 'report', token), 'report: held\n')
        self.assertEqual(self.run_cli('check', 'report', token + 1)[0], NO)
        self.assertEqual(self.done('renew', 'report', token, '--ttl', '900s'), 'report: renewed\n')
        self.assertEqual(self.run_cli('renew', 'report', token + 1)[0], NO)
        code, show = self.json_of('show', 'report')
        self.assertEqual((code, show['state'], show['token'], show['owner'], show['value'], show['session']),
                         (DONE, 'held', token, OWNER_A, 'nightly', False))
        self.assertTrue(600000 < show['ttl_left_ms'] <= 900000, show)
        self.assertEqual(self.run_cli('release', 'report', token + 1)[0], NO)
        self.release('report', token)
        self.assertEqual(self.run_cli('show', 'report'), (NO, 'report: free\n', ''))
        self.assertGreater(self.acquire('report', '--ttl', '600s'), token)

    def test_after_expiry_the_next_token_is_larger(self):
        first = self.acquire_briefly('x')
        self.assertGreater(self.acquire('x', '--ttl', '600s', '--wait', '200s'), first)

    def test_token_and_break(self):
        def broken():
            held = self.acquire('x', '--ttl', '600s', '--owner', OWNER_A)
            excuse = Excuse(self.cluster)
            issued = int(self.done('token', 'x'))
            self.assertGreater(issued, held)
            code, out, err = self.run_cli('break', 'x')
            slow = excuse.holds()
            if code == UNKNOWN and slow:
                return None
            self.assertEqual((code, self.without_waiting(err)), (DONE, ''))
            return held, issued, slow, out
        held, issued, slow, out = try_again(broken, 'a break whose outcome is known')
        said = re.fullmatch('x: broken; its old holders can write until the storage is claimed with token ([0-9]+) or a later one\n', out)
        burnt = int(said.group(1))
        self.assertGreater(burnt, issued)
        if not slow: # so neither command was repeated
            self.assertEqual(burnt, issued + 1)
        self.assertEqual(self.run_cli('break', 'x')[0], NO)
        self.assertEqual(self.run_cli('check', 'x', held)[0], NO)
        self.assertGreater(int(self.done('token', 'x')), burnt)

    def test_queue_is_shown_and_served_in_order(self):
        token = self.acquire('x', '--ttl', '600s')
        children = []
        for i, owner in enumerate((OWNER_A, OWNER_B)):
            children.append(self.start_cli('acquire', 'x', '--ttl', '600s', '--wait', '600s', '--owner', owner))
            wait_until(lambda: self.waiters('x') == i + 1, what='waiter %d' % i)
        code, show = self.json_of('show', 'x')
        self.assertEqual([w['owner'] for w in show['queue']], [OWNER_A, OWNER_B])
        self.assertIn('1. ' + OWNER_A, self.done('show', 'x'))
        self.release('x', token)
        first = int(children[0].communicate(timeout=PATIENCE_S)[0])
        self.assertGreater(first, token)
        self.assertIsNone(children[1].poll())
        self.release('x', first)
        self.assertGreater(int(children[1].communicate(timeout=PATIENCE_S)[0]), first)

    def test_a_wait_that_is_interrupted_leaves_the_queue(self):
        self.acquire('x', '--ttl', '600s')
        child = self.start_cli('acquire', 'x', '--ttl', '600s', '--wait', '600s')
        wait_until(lambda: self.waiters('x') == 1, what='the waiter')
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(PATIENCE_S), -signal.SIGINT)
        wait_until(lambda: self.waiters('x') == 0, what='the empty queue')

    def test_a_wait_that_is_not_granted(self):
        self.acquire('x', '--ttl', '600s')
        code, out, err = self.run_cli('acquire', 'x', '--wait', '300ms')
        self.assertEqual((code, out), (NO, ''))
        self.assertIn('as long as we waited', err)

    def test_locks(self):
        for i in range(25):
            self.acquire('many-%02d' % i, '--ttl', '600s', '--owner', OWNER_A)
        self.acquire('other', '--ttl', '600s')
        code, value = self.json_of('locks', '--match', 'many-*')
        self.assertEqual((code, value['more']), (DONE, False))
        self.assertEqual(sorted(l['name'] for l in value['locks']), ['many-%02d' % i for i in range(25)])
        self.assertEqual(self.json_of('locks', '--limit', '7')[1]['more'], True)
        lines = self.done('locks').splitlines()
        self.assertEqual(len(lines), 27)
        self.assertEqual(lines[0].split()[:3], ['NAME', 'STATE', 'TOKEN'])

    def test_more_locks_than_a_page(self):
        def acquired():
            with self.cluster.nodes[0].client(PATIENCE_S) as c:
                answers = c.pipeline([('ACQUIRE', 'p%04d' % i, 'TTL', 600000, 'OWNER', OWNER_A) for i in range(1500)])
                return all(isinstance(a, int) for a in answers)
        wait_until(acquired, 'all locks')
        code, value = self.json_of('locks', '--limit', '100000')
        self.assertEqual(sorted(l['name'] for l in value['locks']), ['p%04d' % i for i in range(1500)])
        self.assertEqual(len(self.json_of('locks', '--limit', '1200')[1]['locks']), 1200)

    def test_names_of_any_bytes(self):
        name = b'\xff\xfe \n\x1b[31m'
        token = int(subprocess.run([binary('fencelock'), b'acquire', name, b'--ttl', b'600s'], env=self.env, check=True,
                                   stdout=subprocess.PIPE, timeout=PATIENCE_S).stdout)
        listed = self.json_of('locks')[1]['locks'][0]
        self.assertEqual(listed['token'], token)
        self.assertIn('name_base64', listed)
        self.assertIn('\\xff\\xfe \\x0a\\x1b[31m', self.done('locks'))

    def test_status(self):
        self.acquire('x', '--ttl', '600s')
        self.connected(3)
        code, value = self.json_in_time('status')
        self.assertEqual((code, value['problems']), (DONE, []))
        leader = next(n for n in self.cluster.nodes if n.address == value['leader'])
        self.assertEqual([n['address'] for n in value['nodes'] if n['role'] == 'leader'], [leader.address])
        self.assertEqual([n['address'] for n in value['nodes']], self.cluster.addresses())
        self.assertEqual([n['id'] for n in value['nodes']], [n.id for n in self.cluster.nodes])
        self.assertEqual({n['version'] for n in value['nodes']}, {'0.1.0'})
        self.assertGreaterEqual(value['nodes'][leader.id - 1]['last_token'], 1)
        text = self.done_in_time('status').splitlines()
        self.assertEqual(len(text), 4)
        self.assertEqual(len({line.rstrip().rfind(' 0.1.0') for line in text[1:]}), 1) # aligned


class Faults(CliCase):
    def test_each_node_alone_serves(self):
        for node in self.cluster.nodes:
            self.env['FENCELOCK_NODES'] = node.address
            token = self.acquire('x', '--ttl', '600s')
            self.release('x', token)

    def test_the_leader_is_killed(self):
        token = self.acquire('x', '--ttl', '600s', '--owner', OWNER_A)
        leader = self.cluster.leader()
        leader.kill()
        self.assertGreater(self.acquire('y', '--ttl', '600s'), token)
        self.assertEqual(self.run_cli('check', 'x', token)[0], DONE)
        others = ','.join(n.address for n in self.cluster.nodes if n is not leader)
        self.connected(2)
        code, value = self.json_in_time('status')
        self.assertEqual((code, value['healthy']), (NO, False))
        self.assertEqual([n['reachable'] for n in value['nodes']].count(False), 1)
        self.assertTrue(any(leader.address in problem for problem in value['problems']), value)
        # A member that is not named is missed all the same.
        self.connected(2)
        code, _, err = self.in_time('status', '--nodes', others)
        self.assertEqual(code, NO)
        self.assertIn("2 of the cluster's 3 nodes are connected to the leader", err)

    def test_the_leader_hangs(self):
        token = self.acquire('x', '--ttl', '600s')
        leader = self.cluster.leader()
        leader.pause()
        try:
            for _ in range(3):
                self.assertGreater(int(self.done('token', 'y')), token)
            code, value = self.json_of('status', '--timeout', '1s')
            hung = [n for n in value['nodes'] if n['address'] == leader.address][0]
            self.assertEqual((hung['reachable'], hung['error']), (False, 'ETIMEOUT'))
        finally:
            leader.resume()

    def test_a_wait_at_a_leader_that_hangs_is_served_by_the_next(self):
        token = self.acquire('x', '--ttl', '600s')
        leader = self.cluster.leader()
        self.env['FENCELOCK_NODES'] = ','.join([leader.address] + [n.address for n in self.cluster.followers()])
        children = [self.start_cli('acquire', 'x', '--ttl', '600s', '--wait', '600s') for _ in range(4)]
        wait_until(lambda: self.waiters('x') == 4, what='four waiters')
        leader.pause()
        tokens = []
        try:
            last = token
            while children: # in any order: each comes back at a time of its own
                self.released_at_last('x', last)
                child = wait_until(lambda: [c for c in children if c.poll() is not None], 'a grant')[0]
                children.remove(child)
                last = int(child.communicate()[0])
                tokens.append(last)
        finally:
            leader.resume()
        self.assertEqual(len(set(tokens)), 4)
        self.assertTrue(all(t > token for t in tokens))

    def test_members_are_learned_from_one(self):
        """One address is enough, also for a script that was written before a node was replaced."""
        self.connected(3)
        for node in self.cluster.nodes:
            code, value = self.json_in_time('status', '--discover', '--nodes', node.address)
            self.assertEqual((code, sorted(n['address'] for n in value['nodes'])), (DONE, sorted(n.address for n in self.cluster.nodes)))
        with socket.socket() as nobody: # bound, and it does not listen
            nobody.bind(('127.0.0.1', 0))
            dead = '127.0.0.1:%d' % nobody.getsockname()[1]
            code, _, err = self.in_time('status', '--nodes', ','.join([dead, *(n.address for n in self.cluster.nodes)]))
            self.assertEqual(code, NO)
            self.assertIn('--discover', err)
            code, _, err = self.run_cli('status', '--discover', '--nodes', dead, '--timeout', '1s')
            self.assertEqual(code, UNKNOWN)
            for words in (('run', 'x'), ('redlock', 'run', '--redis', dead, 'x')):
                code, _, err = self.run_cli(*words, '--discover', '--nodes', dead, '--timeout', '1s', '--', 'true')
                self.assertEqual(code, 125, err)

    def test_a_password_that_can_be_read_once(self):
        """From a pipe. More clients than one need it: a change is in the log when another one is made to see it done."""
        leader = self.cluster.leader()
        other = next(n for n in self.cluster.nodes if n is not leader)
        leader.call('ACL', 'SETUSER', 'operator', 'on', '>a-password', '~*', '+@all')
        for words in (('cluster', 'add', str(other.id), other.peer), ('status', '--discover')):
            out, into = os.pipe()
            os.write(into, b'a-password\n')
            os.close(into)
            done = subprocess.run([binary('fencelock'), *words, '--nodes', leader.address, '--user', 'operator', '--password-file',
                                   '/dev/fd/%d' % out], env=self.env, timeout=PATIENCE_S, capture_output=True, pass_fds=[out])
            os.close(out)
            self.assertIn(done.returncode, (DONE, NO), done.stderr) # a status may find something

    def test_no_majority(self):
        leader = self.cluster.leader()
        for node in self.cluster.nodes:
            if node is not leader:
                node.kill()
        code, out, err = self.run_cli('acquire', 'x', '--timeout', '3s')
        self.assertEqual((code, out), (UNKNOWN, ''))
        self.assertEqual(self.run_cli('check', 'x', '1', '--timeout', '3s')[0], UNKNOWN)
        try_again(lambda: self.run_cli('status', '--timeout', '1s')[0] == UNKNOWN, what='a leader without followers to stop')
        leader.kill()
        code, _, err = self.run_cli('acquire', 'x', '--timeout', '1s')
        self.assertEqual(code, UNKNOWN)
        self.assertIn('Connection refused', err)


class Health(CliCase):
    def test_health(self):
        self.connected(3)
        code, value = self.json_in_time('health')
        self.assertEqual((code, value['healthy'], [n['serves'] for n in value['nodes']]), (DONE, True, [True] * 3))
        self.assertEqual(len(self.done_in_time('health').splitlines()), 3)
        leader = self.cluster.leader()
        followers = self.cluster.followers()
        last = followers[0]
        leader.kill()
        followers[1].kill()
        def health(*more):
            return ('health', '--nodes', last.address, '--timeout', '1s', *more)
        try_again(lambda: self.run_cli(*health())[0] == NO, what='a node without a majority that does not serve')
        self.assertEqual(self.in_time(*health('--live'), led=False)[0], DONE)
        code, out, _ = self.in_time(*health('--wait', '300ms'), led=False)
        self.assertEqual(code, NO)
        self.assertIn('not serving', out)
        code, value = self.json_in_time('health', '--timeout', '1s', led=False)
        self.assertEqual((code, value['healthy'], [n['live'] for n in value['nodes']].count(False)), (UNKNOWN, False, 2))
        waiting = self.start_cli('health', '--wait', '600s')
        leader.start()
        followers[1].start()
        self.assertEqual(self.wait_child(waiting)[0], DONE)
        last.pause()
        try:
            self.assertEqual(self.run_cli(*health('--live'))[0], UNKNOWN)
        finally:
            last.resume()


class WithStore(CliCase):
    NODES = 1

    def setUp(self):
        super().setUp()
        self.store = Store(self.lab).start()
        self.env['FENCELOCK_STORE'] = self.store.address

    def test_the_story_of_the_paused_client(self):
        old = self.acquire_briefly('account')
        new = self.acquire('account', '--ttl', '600s', '--wait', '200s')
        fence = lambda token: ('--lock', 'account', '--token', token)
        self.assertEqual(self.done('store', 'claim', *fence(new)), 'account: claimed under token %d\n' % new)
        self.assertEqual(self.done('store', 'set', 'balance', '100', *fence(new)), 'balance: written under token %d\n' % new)
        for _ in range(2):
            code, out, err = self.run_cli('store', 'set', 'balance', '0', *fence(old))
            self.assertEqual((code, out), (NO, ''))
            self.assertIn(str(old), err)
            self.assertIn(str(new), err)
            code, value = self.json_of('store', 'set', 'balance', '0', *fence(old))
            self.assertEqual((value['error'], value['token'], value['mark']), ('ESTALE', old, new))
            self.store.kill()
            self.store.start()
        self.assertEqual(self.done('store', 'get', 'balance'), '100')
        self.assertEqual(self.done('store', 'get', 'balance', *fence(new)), '100')
        self.assertEqual(self.done('store', 'mark', '--lock', 'account'), '%d\n' % new)

    def test_refusals(self):
        token = self.acquire('l', '--ttl', '600s')
        fence = ('--lock', 'l', '--token', token)
        self.done('store', 'set', 'k', 'v', *fence)
        self.assertEqual(self.json_of('store', 'set', 'k', 'v')[1]['error'], 'ENOTOKEN')
        self.assertEqual(self.json_of('store', 'set', 'k', 'v', '--lock', 'm', '--token', token)[1]['error'], 'EWRONGLOCK')
        self.assertEqual(self.run_cli('store', 'get', 'none')[0], 4) # its own code
        self.assertEqual(self.json_of('store', 'get', 'none')[1]['found'], False)
        self.assertEqual(self.done('store', 'del', 'k', *fence), 'k: deleted under token %d\n' % token)
        self.assertEqual(self.run_cli('store', 'del', 'k', *fence)[0], NO)

    def test_a_broken_holder_is_shut_out_and_its_successor_is_not(self):
        old = self.acquire('l', '--ttl', '600s')
        waiter = self.start_cli('acquire', 'l', '--ttl', '600s', '--wait', '600s')
        wait_until(lambda: self.waiters('l') == 1, what='the waiter in the queue')
        write = lambda token: self.run_cli('store', 'set', 'k', 'v', '--lock', 'l', '--token', token)
        self.assertEqual(write(old)[0], DONE)
        _, value = self.json_of('break', 'l', '--claim', self.store.address)
        new = int(waiter.communicate(timeout=PATIENCE_S)[0])
        self.assertTrue(old < value['token'] < new, (old, value, new))
        self.assertEqual(value['mark'], value['token'])
        self.assertEqual(write(old)[0], NO)
        self.assertEqual(write(new)[0], DONE)

    def test_a_store_that_is_down(self):
        self.store.kill()
        code, _, err = self.run_cli('store', 'get', 'k', '--timeout', '500ms')
        self.assertEqual(code, UNKNOWN)
        self.assertIn('Start fencelock-store', err)

    def test_the_example_loses_no_update(self):
        """Built against the archive in the build directory; cli_library.py builds it as installed."""
        build = os.environ['FENCELOCK_BUILD']
        root = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..'))
        program = self.lab.path('counter')
        sanitize = build_option('b_sanitize')
        subprocess.run(['cc', patient_example(self.lab, 'counter.c'), '-I' + os.path.join(root, 'include'),
                        os.path.join(build, 'src', 'client', 'libfencelock.a'), '-lhiredis', '-lssl',
                        '-lcrypto', '-o', program]
                       + ([] if sanitize == 'none' else ['-fsanitize=' + sanitize]), check=True)
        codes = []
        def writer():
            for _ in range(10):
                codes.append(subprocess.run([program, self.env['FENCELOCK_NODES'], self.store.address], timeout=PATIENCE_S,
                                            stdout=subprocess.DEVNULL).returncode)
        threads = [threading.Thread(target=writer) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(codes, [0] * 40)
        self.assertEqual(self.done('store', 'get', 'n'), '40')


if __name__ == '__main__':
    main()
