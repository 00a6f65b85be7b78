#!/usr/bin/python3
"""Three nodes, each in a network namespace of its own, that serve clients with TLS only and know each other by
certificates; and a stranger in a fourth namespace of the same network, with all certificates that the CA of the cluster gives
to others. It gets nowhere: at each port, in each state of the protocol. What is on the wire meanwhile is captured, and shows
nothing."""

import json
import os
import re
import selectors
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
sys.path.insert(0, os.path.join(HERE, '..', 'faults'))
from faultlab.namespaces import Namespaces, NamespaceNode
from harness import ANSWER_S, PATIENCE_S, Case, Cluster, Deadline, binary, main, wait_until
from harness.resp import RespError, encode
from peer_damage import crc32c
from tls_lab import Certs, TlsResp

HELLO_SIZE, START_OFFSET, REFUSED_AS_STRANGER = 808, 776, 2 # src/peer/handshake.h
SILENCE_S = 6 # after so long a stranger takes silence for the end
SHAKE_S = 9 # a second less than NET_SHAKE_MS of src/net/conn.h
STRANGER = 4 # its namespace; the nodes have 1 to 3
LOCK = 'a-lock-whose-name-nobody-should-read'
OWNER = 'an-owner-whom-nobody-should-know'
VALUE = 'a-value-that-is-nobodys-business'
MARK = b'what the capture has to show, or it shows nothing'
ETH_P_ALL, SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS = 3, 33, 263, 6 # which Python has no names for


# What somebody asks for who wants all there is. One password only: after some more he would have to wait.
EVERYTHING = ('PING', 'INFO', 'SHOW ' + LOCK, 'LOCKS', 'LOCKS BY WAIT', 'CHECK %s 1' % LOCK, 'RENEW %s 1' % LOCK, 'RELEASE %s 1' % LOCK,
              'BREAK ' + LOCK, 'TOKEN ' + LOCK, 'SESSION OPEN a-stranger-0123456789 TTL 60000', 'SESSION LIST', 'SESSION SHOW ' + OWNER,
              'SESSION CLOSE ' + OWNER, 'SUBSCRIBE lock:' + LOCK, 'PSUBSCRIBE lock:*', 'ACL LIST', 'ACL WHOAMI', 'ACL GETUSER alice',
              'ACL SETUSER mallory on nopass ~* +@all', 'ACL DELUSER alice', 'ACL LOAD', 'ACL SAVE', 'CLIENT LIST',
              'CLUSTER MEMBERS', 'CLUSTER INFO', 'CLUSTER CONFIG', 'CLUSTER TRANSFER 1', 'CLUSTER REMOVE 2', 'LEADER',
              'COMMAND', 'AUTH alice x', 'SET stolen a NX PX 60000', 'GET ' + LOCK, 'EVAL x 1 ' + LOCK,
              'MONITOR', 'HELLO 3')


# ---- the stranger, who is a process of its own in the fourth namespace ----------------------------------------------

with open(os.path.join(HERE, '..', '..', 'src', 'peer', 'handshake.h')) as header:
    PROTOCOL = int(re.search(r'#define HANDSHAKE_PROTOCOL (\d+)u', header.read()).group(1))


def hello(sender, target, cluster_id=0, members_crc=0):
    """What a node says first, as src/peer/handshake.h has it. A stranger knows neither of the last two, but a
    member's file may have been read."""
    body = struct.pack('<HHHBBIQQQQQHHI', PROTOCOL, 1, 8, 1, 0, members_crc, cluster_id, sender, 77, target, 0, 0, 0, 0)
    body += bytes(START_OFFSET - 12 - len(body)) + struct.pack('<QQ', 1, 78) + bytes(16)
    return b'fencelok' + struct.pack('<I', crc32c(body)) + body


def heard(sock, lines):
    """All that comes until the other side ends it, or has been silent for a while, after so many lines."""
    got = b''
    try:
        while len(got) < 65536:
            sock.settimeout(ANSWER_S if got.count(b'\r\n') < lines else SILENCE_S)
            data = sock.recv(4096)
            if not data:
                break
            got += data
    except (ssl.SSLError, OSError):
        pass
    return got


def dial(address, words, context=None, lines=0):
    """(whether TLS was through, the application's bytes that came back)."""
    shaken = False
    try:
        with socket.create_connection(address, timeout=ANSWER_S) as raw:
            sock = raw
            if context:
                sock = context.wrap_socket(raw, server_hostname=address[0])
                shaken = True
            if words:
                sock.sendall(words)
            return shaken, heard(sock, lines)
    except (ssl.SSLError, OSError):
        return shaken, b''


def be_stranger(plan):
    """Tries everything at every port, and prints what came back."""
    jobs, answers, lock = [], [], threading.Lock()
    acquire = encode('ACQUIRE', 'stolen', 'TTL', 60000, 'OWNER', 'a-stranger-0123456789')
    everything = b''.join(encode(*c.split()) for c in EVERYTHING)
    for node, (host, client_port, peer_port) in enumerate(plan['nodes'], 1):
        other = node % 3 + 1
        words = {'nothing': b'', 'a command': acquire, 'everything': everything, 'garbage': bytes(range(256)) * 4,
                 'a hello of its own': hello(9, node), 'a hello of a member': hello(other, node),
                 'a hello and a frame': hello(other, node) + bytes(64),
                 'an old hello': hello(other, node)[:12] + b'\1\0' + hello(other, node)[14:]}
        for port, kind in ((client_port, 'clients'), (peer_port, 'nodes')):
            for name in [None, ''] + plan['certificates'][kind]:
                for what, said in words.items():
                    jobs.append((node, kind, name, what, (host, port), said))

    def work():
        while True:
            with lock:
                if not jobs:
                    return
                node, kind, name, what, address, said = jobs.pop()
            context = None
            if name is not None:
                context = ssl.create_default_context(cafile=plan['ca'])
                if name:
                    context.load_cert_chain(name + '.crt', name + '.key')
            lines = plan.get('lines', {}).get(what, 0) if name and kind == 'clients' else 0
            patience = Deadline(PATIENCE_S)
            while True:
                began = time.monotonic()
                shaken, got = dial(address, said, context, lines)
                if shaken or context is None or kind != 'clients' or time.monotonic() - began < SHAKE_S or patience.passed():
                    break # else it was too slow for a node, which ends a handshake that takes so long; or never is quick enough: not shaken
            with lock:
                answers.append({'node': node, 'port': kind, 'what': what, 'shaken': shaken, 'got': got.hex(),
                                'certificate': name if name is None else os.path.basename(name)})
    threads = [threading.Thread(target=work) for _ in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(json.dumps(answers))


# ---- the cluster ----------------------------------------------------------------------------------------------------

class Node(NamespaceNode):
    def argv(self):
        words = [str(w) for w in super().argv()]
        words[words.index('--listen') + 1] = 'off'
        return words

    def client(self, timeout=ANSWER_S, **_):
        return TlsResp(self.address, self.context, timeout=timeout)


class Capture:
    """Every frame that passes one of these interfaces. A frame that the kernel had no room for fails the test: what was
    not looked at proves nothing."""

    def __init__(self, interfaces):
        self.selector = selectors.DefaultSelector()
        self.socks = [self._listen(name) for name in interfaces]
        self.seen, self.over = bytearray(), threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _listen(self, name):
        sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) # hears nothing before it is bound
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 26)
        sock.bind((name, ETH_P_ALL))
        self.selector.register(sock, selectors.EVENT_READ)
        return sock

    def _run(self):
        while not self.over.is_set():
            for key, _ in self.selector.select(0.2):
                self.seen += key.fileobj.recv(1 << 17)

    def close(self):
        self.over.set()
        self.thread.join(PATIENCE_S)
        dropped = 0
        for sock in self.socks:
            dropped += struct.unpack('II', sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
            sock.close()
        self.selector.close()
        return bytes(self.seen), dropped


class SameNetwork(Case):
    why_not = None
    def setUp(self):
        super().setUp()
        if SameNetwork.why_not is None:
            SameNetwork.why_not = (Namespaces.why_not(),)
        if SameNetwork.why_not[0]:
            self.skipTest(SameNetwork.why_not[0])
        self.namespaces = Namespaces(STRANGER).start()
        self.addCleanup(self.namespaces.close)
        self.certs = Certs(self.lab)
        for name in ('alice', 'server-only'):
            self.certs.make('client', name)
        self.cluster = Cluster(self.lab, 3)
        self.cluster.nodes = [self.node(n) for n in self.cluster.nodes]
        self.addCleanup(self.stop) # before the namespaces are removed

    def node(self, plain):
        node = Node(self.lab, self.cluster, plain.id, plain.port, plain.peer_port)
        host = self.namespaces.address(node.id)
        self.certs.make('node', str(node.id), host)
        node.namespace = self.namespaces.namespace(node.id)
        node.address, node.peer = '%s:%d' % (host, node.port), '%s:%d' % (host, node.peer_port)
        node.context = self.certs.context('alice')
        node.extra = ['--tls-port', node.address, '--tls-cluster', 'yes'] + self.certs.daemon('node-%d' % node.id)
        return node

    def stop(self):
        for node in self.cluster.nodes:
            if node.running():
                node.kill()

    def as_stranger(self, *argv, given=None):
        return subprocess.run(['ip', 'netns', 'exec', self.namespaces.namespace(STRANGER), *argv], input=given,
                              capture_output=True, text=True, timeout=600, check=True).stdout

    def hide(self):
        """Everything that should stay unseen passes the network: to a follower, to the leader, to the others."""
        leader = self.cluster.leader()
        node = next(n for n in self.cluster.nodes if n is not leader)
        token = node.call('ACQUIRE', LOCK, 'TTL', 3600000, 'OWNER', OWNER, 'VALUE', VALUE)
        self.assertEqual(node.call('CHECK', LOCK, token), 1)
        done = subprocess.run([binary('fencelock'), 'show', LOCK, '--nodes', ','.join(self.cluster.addresses()), '--timeout',
                               '%ds' % ANSWER_S, *self.certs.tool('alice')], capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        return token

    def ask_all(self):
        return json.loads(self.as_stranger(sys.executable, os.path.abspath(__file__), '--stranger', given=json.dumps(self.plan)))

    def told_that_it_is_no_member(self, got, a):
        """The CA calls it a node, so it hears why it is refused, as one that somebody forgot to add would: who it is itself,
        and nothing of the node that refuses."""
        self.assertIn(a['what'], ('a hello of its own', 'a hello and a frame'), a)
        self.assertEqual(len(got), HELLO_SIZE, a)
        self.assertEqual(got[19], REFUSED_AS_STRANGER, a)
        self.assertEqual(got[20:48] + got[56:66] + got[68:336] + got[512:], bytes(28 + 10 + 268 + HELLO_SIZE - 512), a)
        self.assertIn(b'node 9 is no member', got)

    def test_a_stranger_on_the_same_network(self):
        self.cluster.start().steady()
        token = self.hide()
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)
        term = self.cluster.leader().info()['term']
        other = Certs(self.lab, 'other') # a CA of the stranger's own
        other.make('client', 'alice')
        other.make('node', '1', self.namespaces.address(1))
        self.certs.make('node', '9', self.namespaces.address(STRANGER))
        path = lambda certs, name: os.path.join(certs.dir, name)
        self.plan = {
            'ca': self.certs.crt('ca'),
            'nodes': [(self.namespaces.address(n.id), n.port, n.peer_port) for n in self.cluster.nodes],
            'certificates': {
                # Clients of the CA are let in as clients, so the stranger has none such there.
                'clients': [path(other, 'alice')],
                'nodes': [path(self.certs, 'alice'), path(self.certs, 'node-9'), path(other, 'alice'),
                          path(other, 'node-1')]}}
        answers = self.ask_all()
        self.assertEqual(len(answers), 3 * 8 * (3 + 6))
        shaken = {(a['port'], a['certificate']) for a in answers if a['shaken']}
        self.assertIn(('nodes', 'node-9'), shaken) # or the states after that were not tried
        for a in answers:
            got = bytes.fromhex(a['got'])
            if a['certificate'] == 'node-9' and a['port'] == 'nodes' and got:
                self.told_that_it_is_no_member(got, a)
            elif a['certificate'] is not None:
                self.assertEqual(got, b'', a) # inside of TLS not a byte
            elif got[:1] == b'-':
                self.assertTrue(got.startswith(b'-DENIED this port takes TLS only'), a)
            else:
                self.assertIn(len(got), (0, 7), a) # at most an alert
        for node in self.cluster.nodes:
            self.assertEqual(node.call('SHOW', 'stolen'), None)
            self.assertEqual(node.call('CHECK', LOCK, token), 1)
            self.assertEqual(node.info()['term'], term)
        refusals = sum(node.info()['peer_handshakes_failed'] for node in self.cluster.nodes)
        self.assertGreater(refusals, 0)

    def all_know_alice(self):
        try:
            return all(node.info() for node in self.cluster.nodes)
        except RespError as e:
            self.assertRegex(str(e), '^NOAUTH this node has not heard of this user yet')
            return False

    def test_a_client_of_the_ca_who_is_no_user(self):
        """Where certificates stand for users, one of the same CA with another name is nobody, at the clients' port too."""
        path = self.lab.path('users.acl')
        with open(path, 'w', encoding='utf-8') as f: # from the start: a certificate that names no user could make none
            f.write('user boss on >nobody-logs-in-so ~* +@all\nuser alice on ~* +@all\nuser default off\n')
        for node in self.cluster.nodes:
            node.extra += ['--tls-auth-clients-user', 'CN', '--aclfile', path]
        self.cluster.start()
        wait_until(self.all_know_alice, 'the users on all nodes') # the leader knows them a little earlier
        self.cluster.steady()
        self.cluster.wait_caught_up()
        token = self.hide()
        users = self.cluster.nodes[0].call('ACL', 'LIST')
        self.certs.make('client', 'mallory')
        self.certs.make('node', '9', self.namespaces.address(STRANGER))
        own = [os.path.join(self.certs.dir, name) for name in ('mallory', 'node-9')]
        self.plan = {'ca': self.certs.crt('ca'), 'certificates': {'clients': own, 'nodes': own[:1]}, 'lines': {'everything': len(EVERYTHING)},
                     'nodes': [(self.namespaces.address(n.id), n.port, n.peer_port) for n in self.cluster.nodes]}
        refused = 0
        for a in self.ask_all():
            if a['port'] != 'clients' or not a['certificate']:
                continue
            self.assertTrue(a['shaken'], a)
            lines = bytes.fromhex(a['got']).split(b'\r\n')
            for line in lines[:-1]:
                self.assertRegex(line, b'^-(NOAUTH|WRONGPASS|ERR) ', a) # ERR: of words that are none
                refused += line.startswith(b'-NOAUTH ')
            self.assertEqual(lines[-1], b'', a)
            self.assertTrue(a['what'] != 'everything' or len(lines) > len(EVERYTHING), a)
        self.assertGreater(refused, 3 * 2 * (len(EVERYTHING) - 5))
        self.cluster.wait_caught_up()
        for node in self.cluster.nodes:
            self.assertEqual(node.call('SHOW', 'stolen'), None)
            self.assertEqual(node.call('CHECK', LOCK, token), 1)
            self.assertEqual(node.call('ACL', 'LIST'), users)

    def test_nothing_is_read_on_the_wire(self):
        capture = Capture(self.namespaces.host_interface(n.id) for n in self.cluster.nodes)
        try:
            self.cluster.start().steady()
            self.hide()
            self.assertEqual(len(set(self.cluster.wait_same_state())), 1)
            leader = self.cluster.leader()
            leader.kill() # and all connect anew
            self.cluster.leader()
            host, port = self.cluster.running()[0].address.rsplit(':', 1)
            self.as_stranger(sys.executable, '-c', 'import socket; socket.create_connection((%r, %s)).sendall(%r)'
                             % (host, port, MARK))
            wait_until(lambda: MARK in capture.seen, 'what is known to have passed')
        finally:
            seen, dropped = capture.close()
        self.assertEqual(dropped, 0)
        self.assertGreater(len(seen), 50000)
        for secret in (LOCK, OWNER, VALUE, 'ACQUIRE', 'fencelok'):
            self.assertFalse(secret.encode() in seen, secret)


if __name__ == '__main__':
    if sys.argv[1:] == ['--stranger']:
        be_stranger(json.load(sys.stdin))
    else:
        main()
