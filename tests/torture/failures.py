#!/usr/bin/python3
"""Lets each call fail that can fail, one after the other: the k-th allocation; write, sync, read, stat; directory listed; file opened, made or renamed, its
size changed; connection accepted; call of io_uring; thread, pipe or process made; for k from 1 until the program makes no more.
A write may also be done in part. Whatever fails, the program goes on, or ends in order with a reason (out of memory
may abort it: a stop is safe, a guess is not). It never crashes, and what it had acknowledged is there when it runs again.

    tests/torture/failures.py [-k WORD]                  some k of each kind, spread evenly
    tests/torture/failures.py --full                     all of them; minutes
    tests/torture/failures.py -k node_write --only 12    the twelfth write of a node alone, to repeat a failure"""

import copy
import errno
import os
import shutil
import signal
import socket
import sys
import unittest

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib')]
sys.dont_write_bytecode = True
from harness import PATIENCE_S, Cluster, Deadline, Lab, Node, Resp, RespError, Store, main, wait_until
from harness.lab import port_is_free
from shim import SHORT_WRITE, Shim, library

FULL = '--full' in sys.argv
if FULL:
    sys.argv.remove('--full')
ONLY = 0
if '--only' in sys.argv:
    ONLY = int(sys.argv.pop(sys.argv.index('--only') + 1))
    sys.argv.remove('--only')
SOME = 5 # of each kind, when not all
# What fails, and with what.
CASES = {
    'alloc': ('alloc', errno.ENOMEM), 'write': ('write', errno.EIO), 'part': ('write', SHORT_WRITE), 'sync': ('sync', errno.EIO),
    'read': ('read', errno.EIO), 'open': ('open', errno.EMFILE), 'name': ('name', errno.EIO), 'full': ('size', errno.ENOSPC),
    'stat': ('stat', errno.ENOMEM), 'list': ('list', errno.EIO), 'fork': ('fork', errno.EAGAIN),
    'accept': ('accept', errno.EMFILE), 'make': ('make', errno.EAGAIN), 'ring': ('ring', errno.EBUSY)}
# A node's log is written by a thread, as where io_uring is forbidden; here it is not.
ON_RING = {'ring': 'ring', 'ring_alloc': 'alloc', 'ring_write': 'write', 'ring_part': 'part', 'ring_sync': 'sync', 'ring_make': 'make'}
# The same in a second life, after a SIGKILL.
AGAIN = {'again_read': 'read', 'again_stat': 'stat', 'again_list': 'list', 'again_open': 'open', 'again_name': 'name', 'again_write': 'write', 'again_alloc': 'alloc'}
OF_STORE = ('alloc', 'write', 'sync', 'name', 'accept')
# So long is waited for a program after its call has failed, which may leave it without an answer. Until then it is the machine that is slow.
DEADLINE_S = 3.0
SNAPSHOT_BYTES, ENTRIES = 65536, 300 # so that a snapshot is taken
# libuv aborts when it cannot make the threads of its pool, or its first pipe.
KNOWN = (('uv_thread_create', 'uv_queue_work', 'pthread_create'), ('uv_loop_init', 'pipe2'))


class Client(Resp):
    def __init__(self, server):
        super().__init__(server.address, timeout=DEADLINE_S)
        self.server, self.deadline = server, Deadline(PATIENCE_S)

    def _more(self):
        while True:
            try:
                return super()._more()
            except socket.timeout:
                if self.server.has_failed() or self.deadline.passed():
                    raise


def wait_serving(node):
    deadline = Deadline(PATIENCE_S)
    while True:
        try:
            return node.cluster.wait_serving(node, DEADLINE_S)
        except AssertionError:
            if node.has_failed() or not node.running() or deadline.passed():
                raise


def use_node(node, told):
    """Some of everything. told: what was acknowledged, as it comes."""
    with Client(node) as c, Client(node) as listener:
        listener.call('PSUBSCRIBE', 'lock:*')
        c.call('SESSION', 'OPEN', 'the-session-of-this-test', 'TTL', 600000)
        for i in range(6):
            owner = 'owner-number-%09d' % i
            token = c.call('ACQUIRE', 'lock-%d' % i, 'TTL', 600000, 'OWNER', owner, 'VALUE', 'v' * 50)
            told['lock-%d' % i] = token
        told['of-session'] = c.call('ACQUIRE', 'of-session', 'SESSION', 'the-session-of-this-test')
        c.call('RENEW', 'lock-1', told['lock-1'], 'TTL', 700000)
        gone = told.pop('lock-0')
        c.call('RELEASE', 'lock-0', gone)
        c.call('SHOW', 'lock-1')
        c.call('LOCKS')
        c.call('INFO')
        for _ in range(ENTRIES):
            told['last'] = c.call('TOKEN', 'any')
    take_snapshot(node)


def take_snapshot(node):
    """One that fails is tried again, and the node goes on."""
    try:
        wait_until(lambda: not node.running() or node.info()['snapshots'] > 0, 'a snapshot')
    except AssertionError as e:
        node.complaint = str(e)
        raise
    if not node.running():
        raise ConnectionError('the node has ended')


def node_has(node, told):
    for name, token in told.items():
        if name != 'last' and node.call('CHECK', name, token) != 1:
            return '%s was acknowledged with token %d and is not held' % (name, token)
    highest = max(told.values(), default=0)
    token = node.call('TOKEN', 'after')
    return None if token > highest else 'token %d was drawn after %d' % (token, highest)


def use_store(store, told):
    with Client(store) as c:
        for i in range(8):
            c.call('SET', 'key-%d' % i, 'x' * 500, 'FENCE', 'lock-%d' % (i % 3), i + 1)
            told['lock-%d' % (i % 3)] = i + 1
        c.call('CLAIM', 'lock-9', 5)
        told['lock-9'] = 5
        c.call('GET', 'key-0', 'FENCE', 'lock-0', 9)
        told['lock-0'] = 9
        c.call('DEL', 'key-1', 'FENCE', 'lock-1', 8)
        c.call('INFO')


def store_has(store, told):
    for lock, token in told.items():
        if store.call('MARK', lock) < token:
            return 'the mark of %s is below %d, which was acknowledged' % (lock, token)
    return None


@unittest.skipUnless(library(), 'the shim is not built')
@unittest.skipIf(os.environ.get('FENCELOCK_SHORT'), 'memory is the sanitizers\' own; the build without them does this')
class Failures(unittest.TestCase):
    def setUp(self):
        self.lab = Lab('torture')
        self.wrong = []
        self.addCleanup(lambda: self.lab.quiet_close(keep=bool(self.wrong)))
        self.number = 0
        self.first_life, self.cluster = {}, None
        self.silent = 0 # ended by one of KNOWN

    def node(self):
        self.number += 1
        if self.cluster is None:
            self.cluster = Cluster(self.lab, 1)
        cluster = self.cluster # a data directory belongs to its addresses
        node = copy.copy(cluster.nodes[0])
        # A node that was killed while it forked has left a child with its ports, for some milliseconds.
        wait_until(lambda: port_is_free(node.port) and port_is_free(node.peer_port), 'the ports of the node before')
        node.extra = ['--snapshot-bytes', SNAPSHOT_BYTES]
        node.data = self.lab.path('node-%d' % self.number)
        node.shim = Shim(self.lab.path('shim-%d' % self.number), node.data, memory=True)
        node.wait = lambda: wait_serving(node)
        node.earlier = {}
        return node

    def node_again(self):
        """A node that has lived before."""
        node = self.node()
        if not self.first_life:
            self.run_one(node, lambda node, told: (use_node(node, told), node.kill(), self.first_life.update(told)), 'alloc', False, 0)
            os.rename(node.data, self.lab.path('first-life'))
            node.shim.reset()
        shutil.rmtree(node.data, ignore_errors=True)
        shutil.copytree(self.lab.path('first-life'), node.data)
        node.earlier = dict(self.first_life)
        return node

    def store(self):
        self.number += 1
        store = Store(self.lab, 'store-%d' % self.number)
        store.shim = Shim(self.lab.path('shim-%d' % self.number), store.data, memory=True)
        store.wait = lambda: None
        store.earlier = {}
        return store

    def run_one(self, server, use, case, ring, number):
        """One life with one failure. Returns (what was acknowledged, calls of that kind, whether one failed)."""
        told, server.complaint, (kind, error) = dict(server.earlier), None, CASES[case]
        server.has_failed = lambda: server.shim.failed(kind)
        server.shim.set('ring', int(ring))
        if number:
            server.shim.fail(kind, number, error)
        server.process = self.lab.start(server.argv(), server.name, env=server.shim.env())
        try:
            server.wait_ready()
            server.wait()
            use(server, told)
        except (AssertionError, OSError, RespError):
            if not server.has_failed():
                raise
        if server.running():
            server.process.asked_to_end = True
            server.process.signal(signal.SIGTERM)
            try:
                server.process.wait(DEADLINE_S)
            except AssertionError:
                server.kill()
        self.lab.processes.remove(server.process) # verdict() judges how it ended, since it may
        return told, server.shim.calls(kind), bool(server.shim.failed(kind))

    def verdict(self, server, kind):
        code, said = server.process.returncode(), server.process.output()
        if server.complaint:
            return '%s; the call: %s' % (server.complaint, server.shim.stack())
        if code in (0, -signal.SIGKILL): # the latter by us, since it did not get on
            return None
        if code == -signal.SIGABRT and kind == 'alloc' and 'out of memory' in said:
            return None # fli_fatal: of this program
        if code == -signal.SIGABRT and self.is_known(server):
            self.silent += 1
            return None
        if code > 0 and len(said.strip().splitlines()) > 0:
            return None
        return 'ended with %d and said %r; the call: %s' % (code, said[-300:], server.shim.stack())

    def is_known(self, server):
        """Calls whose failure ends a library without a message, by their stack."""
        stack = server.shim.stack()
        return any(all(word in stack for word in known) for known in KNOWN)

    def again(self, server, has, told, kind):
        """What is wrong when it runs undisturbed."""
        try:
            server.start()
        except AssertionError as e:
            server.process.asked_to_end = True
            return str(e)
        server.wait()
        problem = has(server, told)
        server.kill()
        return problem

    def fail_each(self, make, use, has, name, ring):
        plain = make()
        case = ON_RING.get(name) or AGAIN.get(name) or name
        kind = CASES[case][0]
        _, calls, _ = self.run_one(plain, use, case, ring, 0)
        self.assertGreater(calls, 0, 'there is nothing of that kind to fail')
        numbers = range(1, calls * 2 + 50) if FULL else sorted({max(1, calls * i // SOME) for i in range(1, SOME + 1)} | {1, 2})
        failed, ended = 0, 0
        for number in [ONLY] if ONLY else numbers:
            server = make()
            told, _, did = self.run_one(server, use, case, ring, number)
            if not did:
                if FULL:
                    break # it makes no more
                continue
            failed += 1
            problem = self.verdict(server, kind)
            ended += server.process.returncode() != 0
            if problem is None:
                server.shim.reset()
                problem = self.again(server, has, told, kind)
            if problem:
                program = 'node' if isinstance(server, Node) else 'store'
                self.wrong.append('%s number %d of the %s fails, and then: %s\n  again: tests/torture/failures.py -k %s_%s --only %d'
                                  '; its files: %s' % (kind, number, program, problem, program, name, number, server.data))
        self.notes = ['%d calls; %d made to fail, %d of them ended the program, %d without a word' %
                      (calls, failed, ended, self.silent)]
        self.assertTrue(failed, 'nothing was made to fail')
        if self.wrong:
            self.fail('\n'.join(self.wrong))


def add(program, make, use, has, name, ring=False):
    def test(self):
        self.fail_each(getattr(self, make), use, has, name, ring)
    setattr(Failures, 'test_%s_%s' % (program, name), test)


for each in CASES:
    if each not in ('ring', 'read'): # a node reads nothing in its first life
        add('node', 'node', use_node, node_has, each)
for each in ON_RING:
    add('node', 'node', use_node, node_has, each, ring=True)
for each in AGAIN:
    add('node', 'node_again', use_node, node_has, each)
for each in OF_STORE:
    add('store', 'store', use_store, store_has, each)

if __name__ == '__main__':
    main()
