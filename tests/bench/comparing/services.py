"""The services that are compared, as processes of a Lab, and the programs that load them.

Every server has its data below the Lab's directory, on one disk, and listens on loopback. Where a service has settings
for durability, it is set to sync what it acknowledges; everything else is its default. Clients of those that have a leader
connect to the leader, which is the fastest for each of them; the probes of outages know all nodes.
"""

import json
import os
import re
import socket
import subprocess
import urllib.request

from harness import Cluster, Resp, Store, free_ports, wait_until

TICKS = os.sysconf('SC_CLK_TCK')


def cpu_seconds(pid):
    """User and system time of all threads of a process, as the kernel has counted them."""
    with open('/proc/%d/stat' % pid) as f:
        fields = f.read().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def kernel_cpu_seconds():
    """CPU time of all threads of the kernel, which write and complete on behalf of everybody."""
    total = 0.0
    for name in os.listdir('/proc'):
        if name.isdigit():
            try:
                with open('/proc/%s/stat' % name) as f:
                    fields = f.read().rpartition(')')[2].split()
            except OSError:
                continue
            if fields[1] == '2':
                total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def memory(pid, field='VmRSS'):
    with open('/proc/%d/status' % pid) as f:
        return int(re.search(r'^%s:\s+(\d+) kB' % field, f.read(), re.M).group(1)) * 1024


def run_json(argv, seconds=300):
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise RuntimeError('%s ended with %d: %s' % (' '.join(map(str, argv)), done.returncode, done.stderr.strip()))
    return json.loads(done.stdout.splitlines()[-1])


class Service:
    """One service. `name` is its key in results, `title` what people read."""

    name = title = None
    warm_s = 1
    elects = False # whether a leader can be lost

    def __init__(self, lab, programs):
        self.lab, self.programs = lab, programs
        self.servers = [] # harness.Process

    def pids(self):
        return [p.pid for p in self.servers if p.running()]

    def cpu(self):
        return sum(cpu_seconds(pid) for pid in self.pids())

    def start(self):
        raise NotImplementedError

    def pairs(self, clients, seconds, in_flight=1):
        """Acquires and releases: {all, per_s, p50_us, p99_us}, `all` being every pair that the servers did."""
        raise NotImplementedError

    def stop(self):
        for process in self.servers:
            if process.running():
                process.resume()
                process.kill()


def from_load(said, kind='acquire'):
    if said['errors']:
        raise RuntimeError('%d errors, the first: %s' % (said['errors'], said.get('first_error')))
    times = said[kind]
    return {'all': said['all_pairs'], 'per_s': said['pairs'] / (said['measured_ns'] / 1e9),
            'p50_us': times['p50'] / 1e3, 'p99_us': times['p99'] / 1e3}


def from_peer(said):
    """What tests/bench/peers print."""
    return {'all': said['locks'], 'per_s': said['samples'] / said['seconds'],
            'p50_us': said['p50_us'], 'p99_us': said['p99_us']}


class Fencelock(Service):
    name, title, elects = 'fencelock', 'fencelock, 3 nodes', True
    NODES = 3

    def start(self):
        self.cluster = Cluster(self.lab, self.NODES, kind=self.name).start()
        self.cluster.leader()
        self._note()
        return self

    def _note(self):
        self.servers = [node.process for node in self.cluster.nodes]

    def load(self, kind, *options, seconds=300):
        return run_json([self.programs.load, kind, self.cluster.leader().address, *options], seconds)

    def pairs(self, clients, seconds, in_flight=1):
        return from_load(self.load('lock', '--clients', clients, '--in-flight', in_flight, '--seconds', seconds))

    def renewals(self, clients, seconds):
        return from_load(self.load('renew', '--clients', clients, '--seconds', seconds), 'release')

    def epoll_pairs(self, clients, seconds, in_flight=1):
        """The same, by another generator."""
        said = run_json([self.programs.epoll_load, 'lock', self.cluster.leader().address, clients, in_flight, seconds])
        return dict(from_load(said), client_cpu_s=said['client_cpu_s'])

    def handoff(self, clients, seconds):
        said = self.load('queue', '--clients', clients, '--seconds', seconds)
        result = from_load(said, 'handoff')
        result['per_s'] = said['handoff']['n'] / (said['measured_ns'] / 1e9)
        return result

    def probe_argv(self):
        return [self.programs.load, 'probe', ','.join(self.cluster.addresses())]

    def leader_process(self):
        self.leader = self.cluster.leader()
        return self.leader.process

    def heal(self):
        """After the leader was killed or stopped."""
        if self.leader.running():
            self.leader.resume()
        else:
            self.leader.start()
            self._note()
        self.cluster.leader()
        for node in self.cluster.nodes:
            self.cluster.wait_serving(node)
        self.cluster.wait_same_state()


class Frontdoor(Fencelock):
    """The same, asked as lock libraries ask Redis: SET NX PX, and a script that compares and deletes."""

    name, title, elects = 'frontdoor', 'fencelock as Redis, 3 nodes', False

    def pairs(self, clients, seconds, in_flight=1):
        return from_load(self.load('frontdoor', '--clients', clients, '--in-flight', in_flight, '--seconds', seconds))


class Redis(Service):
    """One Redis, or five for Redlock."""

    name, title = 'redis', 'Redis, one copy, appendfsync always'
    SERVERS, KIND = 1, 'redis'

    def start(self):
        self.program = self.programs.redis()
        self.addresses = []
        for port in free_ports(self.SERVERS):
            data = self.lab.path('%s-%d' % (self.name, port))
            os.makedirs(data)
            self.servers.append(self.lab.start(
                [self.program, '--port', port, '--bind', '127.0.0.1', '--dir', data, '--save', '', '--appendonly', 'yes',
                 '--appendfsync', 'always'], os.path.basename(data)))
            address = '127.0.0.1:%d' % port
            self.addresses.append(address)
            wait_until(lambda: Resp(address, timeout=2).call('PING') == 'PONG', 'Redis at %s' % address)
        return self

    def load(self, kind, *options):
        return run_json([self.programs.load, kind, ','.join(self.addresses), *options])

    def pairs(self, clients, seconds, in_flight=1):
        return from_load(self.load(self.KIND, '--clients', clients, '--in-flight', in_flight, '--seconds', seconds))

    def epoll_pairs(self, clients, seconds, in_flight=1):
        said = run_json([self.programs.epoll_load, 'redis', self.addresses[0], clients, in_flight, seconds])
        return dict(from_load(said), client_cpu_s=said['client_cpu_s'])

    def sets(self, clients, seconds):
        return from_load(self.load('redis-set', '--clients', clients, '--seconds', seconds), 'release')


class Redlock(Redis):
    name, title = 'redlock', 'Redlock on 5 Redis, appendfsync always'
    SERVERS, KIND = 5, 'redlock'


class Storage(Service):
    name, title = 'store', 'fencelock-store'

    def start(self):
        self.store = Store(self.lab, 'fenced-store').start()
        self.servers = [self.store.process]
        return self

    def sets(self, clients, seconds):
        return from_load(run_json([self.programs.load, 'set', self.store.address, '--clients', clients,
                                   '--seconds', seconds]), 'release')


class Zookeeper(Service):
    name, title, elects = 'zookeeper', 'ZooKeeper, 3 nodes', True
    warm_s = 20 # Java's compiler needs as long, on two CPUs
    CLASSES = '/usr/share/java/zookeeper.jar'
    MAIN = 'org.apache.zookeeper.server.quorum.QuorumPeerMain'

    def start(self):
        self.program = self.programs.zookeeper()
        ports = free_ports(9)
        self.ports = ports[:3]
        members = ''.join('server.%d=127.0.0.1:%d:%d\n' % (i + 1, ports[3 + i], ports[6 + i]) for i in range(3))
        self.argv = []
        for i in range(3):
            data = self.lab.path('zookeeper-%d' % (i + 1))
            os.makedirs(data)
            with open(os.path.join(data, 'myid'), 'w') as f:
                f.write('%d\n' % (i + 1))
            config = os.path.join(data, 'zoo.cfg')
            with open(config, 'w') as f:
                f.write('tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nclientPortListenBacklog=1024\n'
                        'admin.enableServer=false\n'
                        'dataDir=%s\nclientPort=%d\n%s' % (data, self.ports[i], members))
            self.argv.append(['java', '-cp', self.CLASSES, self.MAIN, config])
            self.servers.append(self._launch(i))
        wait_until(self._leader, 'a leader of ZooKeeper')
        return self

    def _launch(self, i):
        return self.lab.start(self.argv[i], 'zookeeper-%d' % (i + 1))

    def _mode(self, i):
        with socket.create_connection(('127.0.0.1', self.ports[i]), timeout=2) as s:
            s.sendall(b'srvr')
            text = b''
            while True:
                more = s.recv(4096)
                if not more:
                    break
                text += more
        found = re.search(rb'Mode: (\w+)', text)
        return found.group(1).decode() if found else None

    def _leader(self):
        """The leader's place, once all three serve."""
        modes = [self._mode(i) for i in range(3)]
        return modes.index('leader') + 1 if sorted(map(str, modes)) == ['follower', 'follower', 'leader'] else None

    def addresses(self):
        return ','.join('127.0.0.1:%d' % port for port in self.ports)

    def at_leader(self):
        """Its address: the way through a follower would cost more."""
        return '127.0.0.1:%d' % self.ports[wait_until(self._leader, 'a leader of ZooKeeper') - 1]

    def pairs(self, clients, seconds, in_flight=1):
        return from_peer(run_json([self.program, 'plain', self.at_leader(), clients, seconds]))

    def handoff(self, clients, seconds):
        return from_peer(run_json([self.program, 'handoff', self.at_leader(), clients, seconds]))

    def probe_argv(self):
        return [self.program, 'probe', self.addresses(), 1, 1]

    def leader_process(self):
        self.leader = wait_until(self._leader, 'a leader of ZooKeeper') - 1
        return self.servers[self.leader]

    def heal(self):
        if self.servers[self.leader].running():
            self.servers[self.leader].resume()
        else:
            self.servers[self.leader] = self._launch(self.leader)
        wait_until(self._leader, 'three serving nodes of ZooKeeper')


class Etcd(Service):
    name, title, elects = 'etcd', 'etcd, 3 nodes', True

    def start(self):
        self.program, self.probe = self.programs.etcd()
        ports = free_ports(6)
        self.clients = ['http://127.0.0.1:%d' % p for p in ports[:3]]
        self.peers = ['http://127.0.0.1:%d' % p for p in ports[3:]]
        self.members = ','.join('n%d=%s' % (i, peer) for i, peer in enumerate(self.peers))
        self.servers = [self._launch(i) for i in range(3)]
        wait_until(self._leader, 'a leader of etcd')
        return self

    def _launch(self, i):
        name = 'n%d' % i
        return self.lab.start(
            ['etcd', '--name', name, '--data-dir', self.lab.path('etcd-' + name), '--listen-client-urls', self.clients[i],
             '--advertise-client-urls', self.clients[i], '--listen-peer-urls', self.peers[i],
             '--initial-advertise-peer-urls', self.peers[i], '--initial-cluster', self.members,
             '--logger', 'zap', '--log-level', 'error'], 'etcd-' + name)

    def _status(self, i):
        request = urllib.request.Request(self.clients[i] + '/v3/maintenance/status', b'{}')
        with urllib.request.urlopen(request, timeout=2) as reply:
            return json.load(reply)

    def _leader(self):
        """The leader's place, once all three agree on it."""
        states = [self._status(i) for i in range(3)]
        leaders = {s.get('leader', '0') for s in states}
        members = [s['header']['member_id'] for s in states]
        if len(leaders) == 1 and list(leaders)[0] in members:
            return members.index(list(leaders)[0]) + 1
        return None

    def addresses(self):
        return ','.join(c.replace('http://', '') for c in self.clients)

    def at_leader(self):
        """Its address: the way through a follower would cost more."""
        return self.clients[wait_until(self._leader, 'a leader of etcd') - 1].replace('http://', '')

    def _run(self, mode, clients, seconds):
        return from_peer(run_json([self.program, '-endpoints', self.at_leader(), '-mode', mode, '-clients', clients,
                                   '-seconds', seconds]))

    def pairs(self, clients, seconds, in_flight=1):
        return self._run('plain', clients, seconds)

    def handoff(self, clients, seconds):
        return self._run('handoff', clients, seconds)

    def probe_argv(self):
        return [self.probe, self.addresses()]

    def leader_process(self):
        self.leader = wait_until(self._leader, 'a leader of etcd') - 1
        return self.servers[self.leader]

    def heal(self):
        if self.servers[self.leader].running():
            self.servers[self.leader].resume()
        else:
            self.servers[self.leader] = self._launch(self.leader)
        wait_until(self._leader, 'three nodes of etcd that agree')


ALL = [Fencelock, Frontdoor, Redis, Redlock, Zookeeper, Etcd]
