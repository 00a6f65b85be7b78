#!/usr/bin/python3
"""Clients when the leader is cut off, by the kernel's own TCP: every node, and the client, in a network namespace. A
holder on the leader's side of the cut has given up before the next one has the lock; waiters on any side keep their
places, and each is answered once.

With --full, 100 partitions instead of a few (FENCELOCK_ROUNDS=N for another number)."""

import os
import random
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
sys.path.insert(0, os.path.join(HERE, '..', 'faults'))
from cli_library import Driver as BlockingDriver
from cli_run import HEARTBEAT, LOST
from faultlab.namespaces import NamespaceCluster, Namespaces
from harness import (ANSWER_S, PATIENCE_S, Case, Deadline, Lateness, Resp, RespError, as_dict, binary, env_without_options, main, seed,
                     wait_until)
from held_locks import DEADLINE, SHELLS, Driver, now_ms

CLIENT = 4 # its namespace; the nodes have 1 to 3
FULL = '--full' in sys.argv
if FULL:
    sys.argv.remove('--full')
ROUNDS = int(os.environ.get('FENCELOCK_ROUNDS') or (100 if FULL else 0))
OWNER = 'next-owner-0123456789'
TTL_S = 6 # of a command's lock


class Asker(threading.Thread):
    """Wants a lock and goes on asking, everywhere, with the same owner, as a client should. `answers` are the definite
    ones, with the time at which each had come."""

    def __init__(self, addresses, name, *how):
        super().__init__(daemon=True)
        self.addresses = list(addresses)
        self.request = ('ACQUIRE', name, *how, 'WAIT', 3000000)
        self.answers = []
        self.asked = 0
        self.deadline = Deadline(PATIENCE_S)
        self.start()

    def run(self):
        while not self.answers and not self.deadline.passed():
            address = self.addresses[self.asked % len(self.addresses)]
            self.asked += 1
            try:
                with Resp(address, timeout=PATIENCE_S) as c: # who asks again stands at the end of the queue
                    answer = c.call(*self.request)
                self.answers.append((answer, now_ms()))
            except RespError as e:
                if e.word not in ('UNCERTAIN', 'NOLEADER', 'BUSY'):
                    self.answers.append((e.word, now_ms()))
            except OSError:
                time.sleep(0.05)

    def answer(self, seconds=PATIENCE_S):
        self.join(seconds)
        if len(self.answers) != 1:
            raise AssertionError('%r has %r' % (self.request, self.answers))
        return self.answers[0]


class NamespaceCase(Case):
    TIMEOUT_S = 3600
    why_not = None

    def setUp(self):
        super().setUp()
        if NamespaceCase.why_not is None:
            NamespaceCase.why_not = (Namespaces.why_not(),)
        if NamespaceCase.why_not[0]:
            self.skipTest(NamespaceCase.why_not[0])
        self.namespaces = Namespaces(4).start()
        self.addCleanup(self.namespaces.close)
        self.cluster = NamespaceCluster(self.lab, self.namespaces, 3).start()
        self.addCleanup(self.stop) # before the namespaces are removed
        self.cluster.leader()
        self.nodes = ','.join(self.cluster.addresses())
        self.inside = ('ip', 'netns', 'exec', self.namespaces.namespace(CLIENT))

    def stop(self):
        self.heal()
        for node in self.cluster.nodes:
            if node.running():
                node.resume()
                node.kill()

    def cut(self, *side):
        """Nothing passes between these and the others."""
        others = [i for i in range(1, 5) if i not in side]
        self.namespaces.set(blocked={pair for a in side for b in others for pair in ((a, b), (b, a))})

    def heal(self):
        self.namespaces.set(blocked=set())

    def others(self, node):
        return [n for n in self.cluster.nodes if n is not node]

    def show(self, node, name):
        fields = node.call('SHOW', name)
        return as_dict(fields) if fields else {}


class Holders(NamespaceCase):
    """The holder and the leader are together on the side without a majority."""

    AT_ONCE = 2

    def wait_queued(self, node, name, asker):
        """On a machine that is slow enough the lock has been lost already, and the next one has it."""
        wait_until(lambda: asker.answers or self.show(node, name).get('waiters') == 1, 'the next one in the queue')

    def last_beat(self, path):
        with open(path, 'rb') as f:
            return struct.unpack('d', f.read(8))[0] * 1000

    def start_run(self, name):
        child = subprocess.Popen([*self.inside, binary('fencelock'), 'run', name, '--ttl', '%ds' % TTL_S, '--timeout', '%ds' % ANSWER_S, '--nodes', self.nodes,
                                  '--', sys.executable, '-c', HEARTBEAT, self.lab.path(name)], env=env_without_options(),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.kill_at_cleanup(child)
        for who in ('.command', '.child'):
            path = self.lab.path(name) + who
            wait_until(lambda: os.path.exists(path) and os.path.getsize(path) == 8, 'the start of ' + name + who)
        return child

    def one_run(self, number, chooser):
        leader = self.cluster.leader()
        majority = self.others(leader)
        names = ['run-%d-%d' % (number, i) for i in range(self.AT_ONCE)]
        children = [self.start_run(name) for name in names]
        askers = []
        for name in names:
            addresses = [n.address for n in majority]
            chooser.shuffle(addresses)
            askers.append(Asker(addresses, name, 'OWNER', OWNER, 'TTL', 60000))
            self.wait_queued(majority[0], name, askers[-1])
        time.sleep(chooser.random() * 2.0) # at any phase of the renewals
        with Lateness() as late:
            self.cut(leader.id, CLIENT)
            found = [(asker.answer(), *self.wait_child(child)) for child, asker in zip(children, askers)]
        for name, ((token, granted), code, _, err) in zip(names, found):
            self.assertIsInstance(token, int)
            self.assertEqual(code, LOST, err)
            offset = now_ms() - time.monotonic() * 1000 # between the two clocks
            for who in ('.command', '.child'):
                left = granted - offset - self.last_beat(self.lab.path(name) + who)
                # Who is to kill it can be late by as much as others are, and has the last twentieth of the lease for it.
                self.assertGreater(left + max(0, 2 * late.most_ms - TTL_S * 1000 / 20), 0, '%s%s was alive when the lock had been granted '
                                   'to the next, and processes were woken %.0f ms late' % (name, who, late.most_ms))
                self.closest = min(self.closest, left)
            self.count += 1
        self.heal()
        for node in self.cluster.nodes:
            self.cluster.wait_serving(node)

    def test_a_command_that_ignores_term_is_dead_before_the_lock_is_anothers(self):
        chooser = random.Random(seed())
        self.closest, self.count = 1e9, 0
        for number in range(ROUNDS or 2):
            self.one_run(number, chooser)
        self.note('%d commands in %d partitions; the closest was dead %.0f ms before the next grant'
                  % (self.count, ROUNDS or 2, self.closest))

    def one_hold(self, shell, number, chooser):
        leader = self.cluster.leader()
        majority = self.others(leader)
        d = Driver(shell, self.nodes, wrapper=self.inside)
        d.bears_losses = True # on a slow machine a lease is over before the cut
        names = ['%s-%d-%d' % (shell, number, i) for i in range(self.AT_ONCE)]
        askers = []
        for name in names:
            d.hold(name, ttl=5000)
            askers.append(Asker([n.address for n in majority], name, 'OWNER', OWNER, 'TTL', 60000))
            self.wait_queued(majority[0], name, askers[-1])
        time.sleep(chooser.random() * 1.7)
        told = {}
        with Lateness() as late:
            self.cut(leader.id, CLIENT)
            while len(told) < len(names):
                word, name, state, reason, at = d.next()
                if state == 'lost':
                    self.assertEqual((word, int(reason)), ('change', DEADLINE))
                    told[name] = int(at)
            found = [asker.answer() for asker in askers]
        for name, (token, granted) in zip(names, found):
            self.assertIsInstance(token, int)
            # A hundredth of the lease is left when it is believed in no more.
            self.assertGreater(granted + max(0, 2 * late.most_ms - 5000 / 100), told[name], '%s was told lost when another had it, and '
                               'processes were woken %.0f ms late' % (name, late.most_ms))
            self.closest = min(self.closest, granted - told[name])
            self.assertEqual(d('look', name)[2:6], ['lost', str(DEADLINE), '0', 'ENOTHELD'])
            d.say('free', name)
            self.count += 1
        self.heal()
        for node in self.cluster.nodes:
            self.cluster.wait_serving(node)
        self.assertEqual(d.end(), (0, ''))

    def test_lost_is_told_before_another_has_it(self):
        chooser = random.Random(seed())
        self.closest, self.count = 1e9, 0
        for number in range(ROUNDS or 1):
            for shell in SHELLS:
                self.one_hold(shell, number, chooser)
        self.note('%d locks; the closest was told %.0f ms before the next grant' % (self.count, self.closest))


class Waiters(NamespaceCase):
    """Waiters through the library, and one under a session that dies while it waits."""

    COUNT = 5
    SESSION = 'session-0123456789'

    def start_waiters(self, leader):
        """Drivers in the order of the queue; a raw waiter with a dying session stands after the second."""
        reader = self.others(leader)[0]
        drivers, dying = [], None
        for i in range(self.COUNT):
            d = BlockingDriver(self.nodes)
            self.addCleanup(lambda d=d: self.assertEqual(d.close(), 0))
            d.send('acquire', 'x', 600000, 3000000, 0)
            drivers.append(d)
            wait_until(lambda: self.queued(reader) == i + 1 + (dying is not None), 'waiter %d' % i)
            if i == 1:
                wait_until(lambda: reader.call('SESSION', 'OPEN', self.SESSION, 'TTL', 8000) == 'OK', 'the session')
                dying = Asker([n.address for n in self.others(leader)], 'x', 'SESSION', self.SESSION)
                wait_until(lambda: self.queued(reader) == i + 2, 'the waiter that will die')
        return drivers, dying

    def queued(self, node):
        """How many wait. Keeps the session alive until the queue is complete."""
        node.call('SESSION', 'RENEW', self.SESSION)
        return self.show(node, 'x').get('waiters', 0)

    def answer_of(self, driver):
        name, token, text = driver.read()
        self.assertEqual(name, 'OK', text)
        return token

    def go_through(self, fault, mend):
        leader = self.cluster.steady().leader()
        holder = leader.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
        drivers, dying = self.start_waiters(leader)
        self.cluster.unsteady()
        fault(leader)
        new = self.cluster.leader(among=self.others(leader))
        self.cluster.steady(among=self.others(leader))
        wait_until(lambda: new.call('SESSION', 'SHOW', self.SESSION) is None, 'the end of the session')
        self.assertEqual(new.call('RELEASE', 'x', holder), 1)
        began = time.monotonic()
        tokens = [holder]
        for i, driver in enumerate(drivers):
            tokens.append(self.answer_of(driver))
            self.assertEqual(new.call('CHECK', 'x', tokens[-1]), 1)
            self.assertEqual(self.show(new, 'x').get('waiters'), len(drivers) - i - 1) # nobody has asked twice
            self.assertEqual(new.call('RELEASE', 'x', tokens[-1]), 1)
        self.assertEqual(tokens, sorted(set(tokens)))
        self.assertEqual(dying.answer()[0], 'NOSESSION') # never a grant
        self.assertEqual(new.call('ACQUIRE', 'x', 'TTL', 1000, 'OWNER', OWNER), tokens[-1] + 1) # nothing else was granted
        mend(leader)
        self.note('%s: %d waiters were served in order in %.1f s' % (fault.__name__, len(drivers), time.monotonic() - began))

    def test_the_leader_is_paused(self):
        def pause(leader):
            leader.pause()
        self.go_through(pause, lambda leader: leader.resume())

    def test_the_leader_is_killed(self):
        def kill(leader):
            leader.kill()
        self.go_through(kill, lambda leader: leader.start())

    def test_the_leader_is_cut_off_from_the_others_and_not_from_its_clients(self):
        def cut_off(leader):
            self.cut(leader.id)
        self.go_through(cut_off, lambda leader: self.heal())


if __name__ == '__main__':
    main()
