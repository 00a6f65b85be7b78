"""Each node in a network namespace of its own, so that it is the kernel's TCP that meets the partition: dropped SYNs,
retransmissions with growing pauses, connections that neither end knows to be dead.

One bridge in our own namespace, one pair of virtual interfaces a node. A direction between two nodes is cut by telling
the sender a wrong, permanent hardware address for the other: its packets leave and reach nobody. That needs neither
netfilter nor traffic control in the kernel, and works one way. Delay and loss do need traffic control (netem).

Needs root with CAP_NET_ADMIN and CAP_SYS_ADMIN; Namespaces.why_not() says why it cannot be had."""

import os
import subprocess
import threading

from harness import Cluster, Node

NAME = 'flf%d'           # by our process id: bridge, namespaces and interfaces begin with it
WRONG_MAC = '02:00:00:00:ff:ff'


def _ip(*words):
    done = subprocess.run(['ip'] + [str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise OSError('ip %s: %s' % (' '.join(map(str, words)), done.stdout.decode(errors='replace').strip()))
    return done.stdout.decode()


def _remove(name):
    """Takes away everything that begins with this name."""
    for line in _ip('netns', 'list').splitlines():
        if line.split()[0].startswith(name + '-'):
            _ip('netns', 'delete', line.split()[0])
    for link in os.listdir('/sys/class/net'):
        if link == name + 'br' or link.startswith(name + 'v'):
            subprocess.run(['ip', 'link', 'delete', link], stderr=subprocess.DEVNULL)


def remove_leftovers():
    """Removes what a run left behind that was killed."""
    for line in _ip('netns', 'list').splitlines():
        head = line.split()[0].partition('-')[0]
        if head.startswith('flf') and head[3:].isdigit() and not os.path.exists('/proc/' + head[3:]):
            _remove(head)


class NamespaceNode(Node):
    def argv(self):
        return ['ip', 'netns', 'exec', self.namespace] + super().argv()


class Namespaces:
    """Namespaces for n nodes, numbered from 1."""

    def __init__(self, n):
        self.name, self.n = NAME % os.getpid(), n
        self.net = '10.%d.%d' % (200 + os.getpid() // 256 % 50, os.getpid() % 256)
        self.lock = threading.Lock()
        self.blocked = set()
        self.slow = False

    @staticmethod
    def why_not():
        """None, or why namespaces cannot be used here."""
        if os.geteuid() != 0:
            return 'namespaces need root'
        namespaces = Namespaces(1)
        try:
            remove_leftovers()
            namespaces.start()
            return None
        except OSError as e:
            return str(e)
        finally:
            try:
                namespaces.close()
            except OSError:
                pass

    def namespace(self, node):
        return '%s-%d' % (self.name, node)

    def host_interface(self, node):
        """The end of a node's veth pair that is in our namespace."""
        return '%sv%d' % (self.name, node)

    def address(self, node):
        return '%s.%d' % (self.net, node)

    def _inside(self, node, *words):
        return _ip('-n', self.namespace(node), *words)

    def network_state(self, node):
        """Connections and neighbours of a node, for somebody who wants to know why it is cut off."""
        inside = ['ip', 'netns', 'exec', self.namespace(node)]
        return '\n'.join(subprocess.run(inside + words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
                         for words in (['ss', '-tanip'], ['ip', 'neigh'], ['ip', 'addr'], ['ip', 'route']))

    def start(self):
        bridge = self.name + 'br'
        _ip('link', 'add', bridge, 'type', 'bridge')
        _ip('addr', 'add', self.net + '.254/24', 'dev', bridge)
        _ip('link', 'set', bridge, 'up')
        self.macs = {}
        for node in range(1, self.n + 1):
            host_end = self.host_interface(node)
            _ip('netns', 'add', self.namespace(node))
            _ip('link', 'add', host_end, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', self.namespace(node))
            _ip('link', 'set', host_end, 'master', bridge)
            _ip('link', 'set', host_end, 'up')
            self._inside(node, 'addr', 'add', self.address(node) + '/24', 'dev', 'eth0')
            self._inside(node, 'link', 'set', 'lo', 'up')
            self._inside(node, 'link', 'set', 'eth0', 'up')
            self.macs[node] = self._inside(node, '-o', 'link', 'show', 'eth0').partition('link/ether ')[2].split()[0]
        self._neighbours()
        return self

    def _neighbours(self, only=None):
        for a in self.macs:
            for b in self.macs:
                if a != b and (only is None or (a, b) in only):
                    mac = WRONG_MAC if (a, b) in self.blocked else self.macs[b]
                    self._inside(a, 'neigh', 'replace', self.address(b), 'lladdr', mac, 'dev', 'eth0', 'nud', 'permanent')

    def can_delay(self):
        """Whether this kernel has netem. Tries it."""
        try:
            self._tc(1, 'replace', 0.001)
            self._tc(1, 'delete', None)
            return True
        except OSError:
            return False

    def _tc(self, node, what, seconds):
        words = ['tc', '-n', self.namespace(node), 'qdisc', what, 'dev', 'eth0', 'root']
        if seconds is not None:
            words += ['netem', 'delay', '%dus' % (seconds * 1e6), '%dus' % (seconds * 3e5), 'loss', '1%', 'duplicate', '1%']
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise OSError('tc: ' + done.stdout.decode(errors='replace').strip())

    # -- the same as PeerProxy ------------------------------------------------------------------------
    def set(self, blocked=None, delay=None):
        with self.lock:
            if blocked is not None:
                changed = self.blocked ^ set(blocked)
                self.blocked = set(blocked)
                self._neighbours(changed)
            if delay:
                for node in self.macs:
                    self._tc(node, 'replace', max(d for (a, _), d in delay.items() if a == node))
                self.slow = True
            elif delay is not None and self.slow:
                for node in self.macs:
                    self._tc(node, 'delete', None)
                self.slow = False

    def cut(self):
        """Resets every connection of the nodes. False where this kernel cannot destroy a socket from outside."""
        done = [subprocess.run(['ip', 'netns', 'exec', self.namespace(node), 'ss', '-K', '-t', 'state', 'established'],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for node in self.macs]
        return all(d.returncode == 0 and len(d.stdout.splitlines()) > 1 for d in done)

    def corrupt(self, share, seed=None):
        """The checksum of TCP would notice what a bridge could damage."""
        return False

    def close(self):
        _remove(self.name)


class NamespaceCluster(Cluster):
    """A cluster whose nodes live in those namespaces, or in the first n of them."""

    def __init__(self, lab, namespaces, n=None):
        super().__init__(lab, n or namespaces.n)
        nodes = []
        secret = lab.path('cluster-secret')
        with open(secret, 'w', encoding='ascii') as f:
            f.write(os.urandom(32).hex() + '\n')
        for node in self.nodes:
            namespaced = NamespaceNode(lab, self, node.id, node.port, node.peer_port)
            namespaced.namespace = namespaces.namespace(node.id)
            namespaced.address = '%s:%d' % (namespaces.address(node.id), node.port)
            namespaced.peer = '%s:%d' % (namespaces.address(node.id), node.peer_port)
            namespaced.extra = ['--protected-mode', 'no', '--cluster-secret-file', secret]
            nodes.append(namespaced)
        self.nodes = nodes
