"""Nodes of the lock service and the sample storage, as processes of a Lab."""

import os
import time

from .lab import binary, free_ports
from .resp import Resp, RespError, as_dict, info_fields
from .wait import ANSWER_S, PATIENCE_S, wait_until


class _Server:
    """What a node and a store share: an address, a process that comes and goes, a client."""

    def __init__(self, lab, name, address, data):
        self.lab = lab
        self.name = name
        self.address = address
        self.data = data
        self.log_name = None # the name of its log, when that is not its own
        self.process = None
        self.start_seconds = None

    def argv(self):
        raise NotImplementedError

    def launch(self, *more):
        """Starts it and does not wait."""
        self.process = self.lab.start(self.argv() + list(more), self.log_name or self.name)
        return self.process

    def start(self, *more, seconds=PATIENCE_S):
        """Starts it and waits for its ready line."""
        self.launch(*more)
        return self.wait_ready(seconds)

    def wait_ready(self, seconds=PATIENCE_S):
        self.start_seconds = self.process.wait_output('ready: ', seconds)
        return self

    def client(self, timeout=ANSWER_S, **options):
        return Resp(self.address, timeout=timeout, **options)

    def call(self, *args, timeout=ANSWER_S):
        """One command on a connection of its own."""
        with self.client(timeout) as c:
            return c.call(*args)

    def show(self, name):
        """What SHOW answers in RESP3, which has maps."""
        with self.client() as c:
            c.call('HELLO', 3)
            return c.call('SHOW', name)

    def info(self, timeout=ANSWER_S):
        return info_fields(self.call('INFO', timeout=timeout))

    def running(self):
        return self.process is not None and self.process.running()

    def kill(self):
        return self.process.kill()

    def terminate(self, seconds=PATIENCE_S):
        return self.process.terminate(seconds)

    def pause(self):
        self.process.pause()

    def resume(self):
        self.process.resume()


class Node(_Server):
    def __init__(self, lab, cluster, number, port, peer_port, kind='node'):
        name = '%s%d' % (kind, number)
        super().__init__(lab, name, '127.0.0.1:%d' % port, lab.path(name))
        self.cluster = cluster
        self.id = number
        self.program = 'fencelockd'
        self.extra = []
        self.set_ports(port, peer_port)

    def set_ports(self, port, peer_port):
        self.port, self.address = port, '127.0.0.1:%d' % port
        self.peer_port, self.peer = peer_port, '127.0.0.1:%d' % peer_port
        self.peer_bind = None # the address it binds, when the others find it at another one

    def members_table(self, timeout=ANSWER_S):
        """CLUSTER MEMBERS: a dict for each member."""
        return [as_dict(row) for row in self.call('CLUSTER', 'MEMBERS', timeout=timeout)]

    def membership_args(self):
        return ['--cluster', self.cluster.members()]

    def argv(self):
        return [binary(self.program), '--id', self.id, '--data', self.data, '--listen', self.address,
                '--peer', self.peer_bind or self.peer] + self.membership_args() + self.extra


class Store(_Server):
    program = 'fencelock-store'

    def __init__(self, lab, name='store', port=None):
        port = port or free_ports(1)[0]
        super().__init__(lab, name, '127.0.0.1:%d' % port, lab.path(name))
        self.port = port
        self.extra = []

    def argv(self):
        return [binary(self.program), '--listen', self.address, '--data', self.data] + self.extra


# For tests in which a new term would be the fault of what is tested: no node of a busy machine is silent for so long.
LONG_ELECTION_TIMEOUT = ['--election-ms', '2000', '--heartbeat-ms', '40']


ASK_AGAIN = ('NOLEADER', 'BUSY', 'UNCERTAIN')


def ask_again(asked, *args):
    """The answer of a node, or on a connection, to what may be done twice. What says that nothing was done, or perhaps, is asked
    again: on a busy machine an election may come at any time."""
    def answered():
        try:
            return [asked.call(*args, timeout=ANSWER_S)]
        except RespError as e:
            if e.word in ASK_AGAIN:
                raise
            return [e]
        except OSError as e:
            if isinstance(asked, Node): # of which each call has a connection of its own
                raise
            return [e] # on this connection the answer may still come, so it cannot be asked again
    answer, = wait_until(answered, 'an answer to %s' % ' '.join(map(str, args)))
    if isinstance(answer, Exception):
        raise answer
    return answer


class Excuse:
    """Why the outcome of a command that begins now may be unknown: it took so long that a client asks another node, or another leader
    was elected meanwhile."""
    LATE_S = 0.1 # ASK_LEAST_MS of src/client/call_state.c

    def __init__(self, cluster):
        self.cluster = cluster
        self.term, self.began = self._term(), time.monotonic()

    def _term(self):
        return self.cluster.leader().info()['term']

    def holds(self):
        return time.monotonic() - self.began >= self.LATE_S or self._term() != self.term


# What steady() sets, by CLUSTER CONFIG: as options they would delay the first election by as much.
STEADY = {'election-ms': 30000, 'hold-ms': 60000}


class Cluster:
    """n nodes, not yet started. `extra` are options for every node; `kind` begins their names, which tells two clusters in one lab apart."""

    def __init__(self, lab, n=3, extra=(), kind='node'):
        self.lab = lab
        ports = free_ports(2 * n)
        self.nodes = [Node(lab, self, i + 1, ports[i], ports[n + i], kind) for i in range(n)]
        for node in self.nodes:
            node.extra = list(extra)

    def members(self):
        return ','.join('%d=%s' % (node.id, node.peer) for node in self.nodes)

    def addresses(self):
        return [node.address for node in self.nodes]

    def start(self):
        """Starts all nodes and waits until each answers a question about the common state. The first time
        this needs every node: a cluster is formed by all of its members."""
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_ready()
        for node in self.nodes:
            self.wait_serving(node)
        return self

    def steady(self, among=None):
        """From now on no leader is deposed because a slow machine kept it silent, and no request is refused because an election
        takes long. A leader that dies is missed as soon as ever, since its connections end; one that is paused or cut off is not.
        among: the nodes that can be asked."""
        return self._set_times(STEADY, among)

    def unsteady(self):
        """The end of steady(): a leader is missed that is silent."""
        return self._set_times({name: 'default' for name in STEADY}, None)

    def _set_times(self, times, among):
        nodes = among or self.running()

        def is_set(node):
            settings = as_dict(node.call('CLUSTER', 'CONFIG', 'GET'))
            return all(str(settings[name]) == str(value) for name, value in times.items())
        for name, value in times.items():
            ask_again(nodes[0], 'CLUSTER', 'CONFIG', 'SET', name, value)
        wait_until(lambda: all(is_set(node) for node in nodes), 'the settings on all nodes')
        self.leader(among=among)
        return self

    def wait_serving(self, node, seconds=PATIENCE_S):
        def serves():
            try:
                return node.call('CHECK', 'nothing', 1) == 0
            except RespError as e:
                if e.word != 'NOLEADER':  # an election may take longer than a node holds a request
                    raise
                return False
        wait_until(serves, 'service by %s' % node.name, seconds=seconds)

    def running(self):
        """The nodes whose processes run and are not paused."""
        return [node for node in self.nodes if node.running() and node.process.state() != 'T']

    def leader(self, seconds=PATIENCE_S, among=None):
        """The node that says it leads, when a majority agrees."""
        def agreed():
            votes = {}
            for node in among or self.running():
                try:
                    info = node.info(timeout=3.0) # one that hangs is passed over
                except (OSError, RespError):
                    continue
                leader = int(info.get('leader_id') or 0)
                votes.setdefault(leader, set()).add(node.id)
            for leader, voters in votes.items():
                if leader and leader in voters and len(voters) > len(self.nodes) // 2:
                    return self.node(leader)
            return None
        return wait_until(agreed, 'a leader that a majority knows', seconds=seconds)

    def followers(self):
        leader = self.leader()
        return [node for node in self.nodes if node is not leader]

    def request_leadership(self, node):
        """Asks the leader to hand leadership to this node, unless it leads already: returns whether it does."""
        leader = self.leader()
        try:
            if leader is not node:
                leader.call('CLUSTER', 'TRANSFER', node.id)
        except RespError: # an election goes on, or the node's log is behind
            pass
        return leader is node

    def make_leader(self, node, seconds=PATIENCE_S):
        wait_until(lambda: self.request_leadership(node), '%s leads' % node.name, seconds=seconds)

    def node(self, number):
        return self.nodes[number - 1]

    def wait_caught_up(self, seconds=PATIENCE_S):
        """Waits until all running nodes have applied what the leader has now. Others may write meanwhile."""
        index = int(self.leader().info()['applied_index'])
        wait_until(lambda: all(int(node.info()['applied_index']) >= index for node in self.running()),
                   'entry %d on all nodes' % index, seconds=seconds)

    def wait_same_state(self, seconds=PATIENCE_S):
        """Waits until all running nodes have applied the same index, and returns their state hashes."""
        def same():
            infos = [node.info() for node in self.running()]
            if len({i['applied_index'] for i in infos}) == 1:
                return [i['state_hash'] for i in infos]
            return None
        return wait_until(same, 'the same applied index on all nodes', seconds=seconds)

    def terminate(self):
        """SIGTERM to all, one after the other; their exit codes."""
        return [node.terminate() for node in self.nodes if node.running()]

    def add(self, node, *more, seconds=PATIENCE_S):
        """Has the leader add a node. Asked again, since the answer was lost, it says that there is one."""
        def added():
            try:
                return self.leader().call('CLUSTER', 'ADD', node.id, node.peer, *more) == 'OK'
            except RespError as e:
                return 'there is a node' in e.line
        wait_until(added, '%s to be added' % node.name, seconds=seconds)

    def replace(self, node, seconds=PATIENCE_S):
        """Has the others replace a node that lost its disk; until it is started again, asking again does no harm."""
        others = [n for n in self.nodes if n is not node]
        wait_until(lambda: self.leader(among=others).call('CLUSTER', 'REPLACE', node.id) == 'OK', '%s to be replaced' % node.name,
                   seconds=seconds)

    def wipe(self, node):
        """Renames a node's data directory away, as when its disk was replaced."""
        os.rename(node.data, node.data + '.lost')
