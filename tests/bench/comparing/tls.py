"""What TLS costs: two clusters in one run, one without it anywhere and one with it everywhere, between nodes as well."""

import os
import socket
import time

from harness import Cluster, free_ports
from harness.lab import build_dir
from tls_lab import Certs

from .services import cpu_seconds, memory, run_json
from .setup import say
from .targets import median

IDLE = 1000        # connections of which the memory is measured
IDLE_MAX_KIB = 24
RATIO_MIN = 0.75   # pairs/s with TLS against without, at 256 clients


class Plain:
    title = 'without TLS'
    how = []

    def __init__(self, lab):
        self.cluster = self.make(lab).start()
        self.leader = self.cluster.leader()

    def make(self, lab):
        return Cluster(lab, 3)

    def addresses(self):
        return [node.address for node in self.cluster.nodes]

    def connect(self):
        return socket.create_connection(('127.0.0.1', self.leader.port))

    def cpu(self):
        return sum(cpu_seconds(node.process.pid) for node in self.cluster.nodes)

    def pairs(self, clients, in_flight, seconds):
        grants, cpu = self.leader.info()['grants'], self.cpu()
        said = run_json([os.path.join(build_dir(), 'tests', 'bench', 'bench'), '--json', '--nodes', ','.join(self.addresses()), '--clients', clients,
                         '--in-flight', in_flight, '--duration', '%ds' % seconds, *self.how])
        used, done = self.cpu() - cpu, self.leader.info()['grants'] - grants
        return {'per_s': said['pairs_per_s'], 'p50_us': said['acquire_ns']['p50'] / 1e3,
                'p99_us': said['acquire_ns']['p99'] / 1e3, 'cpu_s_per_1000': used / max(done, 1) * 1000}

    def idle_kib(self):
        """Memory of the leader for each connection that has said one word."""
        before = memory(self.leader.process.pid)
        held = []
        for _ in range(IDLE):
            c = self.connect()
            c.sendall(b'PING\r\n')
            c.recv(100)
            held.append(c)
        time.sleep(1)  # buffers of quiet connections are given back
        after = memory(self.leader.process.pid)
        for c in held:
            c.close()
        return (after - before) / IDLE / 1024


class Tls(Plain):
    title = 'with TLS'

    def make(self, lab):
        self.certs = Certs(lab, 'bench-certs')
        self.certs.make('client', 'bench')
        cluster = Cluster(lab, 3)
        for node, port in zip(cluster.nodes, free_ports(3)):
            self.certs.make('node', str(node.id), '127.0.0.1')
            node.data += '-tls'
            node.tls = '127.0.0.1:%d' % port
            node.extra = ['--tls-port', node.tls, '--tls-cluster', 'yes'] + self.certs.daemon('node-%d' % node.id)
        self.how = self.certs.tool('bench')
        self.context = self.certs.context('bench')
        return cluster

    def addresses(self):
        return [node.tls for node in self.cluster.nodes]

    def connect(self):
        raw = socket.create_connection(('127.0.0.1', int(self.leader.tls.rpartition(':')[2])))
        return self.context.wrap_socket(raw, server_hostname='127.0.0.1')


def run(lab, clients, rounds, seconds):
    """Everything, as a dict; prints the table."""
    both = [Plain(lab), Tls(lab)]
    rows = {(side.title, c): [] for side in both for c in clients}
    for turn in range(rounds):
        for c in clients:
            for side in both if turn % 2 == 0 else reversed(both):
                rows[side.title, c].append(side.pairs(*c, seconds))
                say('round %d, %d/%d, %s: %.0f pairs/s' % (turn + 1, *c, side.title, rows[side.title, c][-1]['per_s']))
    idle = {side.title: side.idle_kib() for side in both}
    result = {'rounds': rounds, 'seconds': seconds, 'idle_kib': idle, 'pairs': {}, 'load': os.getloadavg()[0]}
    print('%-12s %12s %12s %7s %10s %10s %12s %12s' % ('clients', 'pairs/s', 'with TLS', 'ratio', 'p50 us', 'with TLS', 'CPU s/1000',
                                                       'with TLS'))
    for c in clients:
        plain, tls = (rows[side.title, c] for side in both)
        ratio = median(tls, 'per_s') / max(median(plain, 'per_s'), 1)
        result['pairs']['%d/%d' % c] = {'plain': plain, 'tls': tls, 'ratio': ratio}
        print('%-12s %12.0f %12.0f %7.2f %10.0f %10.0f %12.4f %12.4f' % (
            '%d x %d' % c, median(plain, 'per_s'), median(tls, 'per_s'), ratio, median(plain, 'p50_us'), median(tls, 'p50_us'),
            median(plain, 'cpu_s_per_1000'), median(tls, 'cpu_s_per_1000')))
    print('idle connection: %.1f KiB, with TLS %.1f (wanted: at most %d)' % (*idle.values(), IDLE_MAX_KIB))
    print('wanted at 256 clients: a ratio of at least %.2f' % RATIO_MIN)
    return result
