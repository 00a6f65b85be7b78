"""Clusters whose members come and go, for tests: nodes that join, and what an operator asks for."""

import os
import random
import subprocess

from harness import PATIENCE_S, Case, Cluster, Deadline, Load, Node, RespError, binary, free_ports, seed, wait_until

ASK_AGAIN = ('NOLEADER', 'BUSY', 'UNCERTAIN')
ELECTION_MS, HOLD_MS = 20000, 60000


def ask_again(asked, *args):
    """The answer of a node, or on a connection, to what may be done twice. What says that nothing was done, or perhaps, is asked
    again: on a busy machine an election may come at any time."""
    def answered():
        try:
            return [asked.call(*args, timeout=60.0)]
        except RespError as e:
            if e.word in ASK_AGAIN:
                raise
            return [e]
        except OSError as e: # on this connection the answer may still come, so it cannot be asked again
            return [e]
    answer, = wait_until(answered, 'an answer to %s' % ' '.join(map(str, args)))
    if isinstance(answer, Exception):
        raise answer
    return answer


def try_again(attempt, what):
    """Calls it until it returns something true: for a case that needs luck. Unlike in wait_until(), what it asserts must hold each time."""
    patience = Deadline(PATIENCE_S)
    while True:
        found = attempt()
        if found:
            return found
        if patience.passed():
            raise AssertionError('%s did not come about' % what)


def set_times(cluster, election_ms, hold_ms, wanted):
    for name, value in (('election-ms', election_ms), ('hold-ms', hold_ms)):
        ask_again(cluster.nodes[0], 'CLUSTER', 'CONFIG', 'SET', name, value)

    def in_force(node):
        info = node.info()
        return (info['election_ms'], info['hold_ms']) == wanted
    wait_until(lambda: all(in_force(node) for node in cluster.running()), 'the times %r on all nodes' % (wanted,))


def keep_leader(cluster):
    """From here on no leader is replaced because it stood still, and requests wait for one. For tests in which an election that a busy
    machine causes would be the fault of what is tested: a request that it makes UNCERTAIN, an entry or an event more. A leader whose
    process ends is replaced at once all the same."""
    set_times(cluster, ELECTION_MS, HOLD_MS, (ELECTION_MS, HOLD_MS))


def let_elections_be(cluster):
    """The end of keep_leader(), of nodes without such options of their own. Due before all nodes of a cluster start again, or others
    from a backup: what is in a snapshot is in force when they begin, and their first election would take as long."""
    set_times(cluster, 'default', 'default', (400, 3000))


def patient_env(**more):
    """The environment of a tool of which an answer is wanted, however late: 5 seconds are its own time-out."""
    return dict(os.environ, FENCELOCK_TIMEOUT='200s', **more)


class Joiner(Node):
    """A node that joins an existing cluster. Later starts have the same options."""

    def __init__(self, *args):
        super().__init__(*args)
        self.known = ','.join('%d=%s' % (n.id, n.peer) for n in self.cluster.nodes if n.id != self.id)

    def membership_args(self):
        return ['--join', self.known]


class Founder(Node):
    """A node that the cluster began with. Later starts have the same --cluster, whatever members came and went."""

    def __init__(self, node):
        self.__dict__.update(node.__dict__)
        self.initial_members = self.cluster.members()

    def membership_args(self):
        return ['--cluster', self.initial_members]


class ChangingCluster(Cluster):
    """A cluster whose `nodes` are the members, and the nodes that are about to be members."""

    def node(self, number):
        return next(n for n in self.nodes if n.id == number)


class MembersCase(Case):
    def setUp(self):
        super().setUp()
        self.random = random.Random(seed())

    def begin(self, n, extra=()):
        self.cluster = ChangingCluster(self.lab, n, extra)
        self.cluster.nodes = [Founder(node) for node in self.cluster.nodes]
        self.cluster.start()
        self.first = list(self.cluster.nodes)
        return self.cluster

    def joiner(self, number, extra=()):
        ports = free_ports(2)
        node = Joiner(self.lab, self.cluster, number, ports[0], ports[1])
        node.extra = list(extra)
        return node

    def load(self, nodes=None, **options):
        options.setdefault('clients', 6)
        load = Load([n.address for n in nodes or self.cluster.nodes], **options).start()
        self.addCleanup(load.aborting.set)
        return load

    def finish(self, load):
        load.wait_more_grants()
        grants = load.stop()
        load.check()
        self.assertEqual(len(set(self.cluster.wait_same_state())), 1)
        return grants

    def ask(self, *args, seconds=PATIENCE_S):
        """Sends it to whoever leads. What says that nothing was done, or perhaps, is asked again."""
        again = []

        def answered():
            for node in self.cluster.running():
                try:
                    return node.call(*args, timeout=30.0)
                except RespError as e:
                    again.append(e.word)
                    if e.word == 'ERR' and 'UNCERTAIN' in again: # it was done, it seems
                        return 'OK'
                    if e.word not in ASK_AGAIN:
                        return e
                except OSError:
                    again.append('UNCERTAIN')
            return None
        answer = wait_until(answered, 'an answer to %s' % ' '.join(map(str, args)), every=0.05, seconds=seconds)
        if isinstance(answer, RespError):
            raise answer
        return answer

    def states(self, node):
        return {row['id']: row['state'] for row in node.members_table()}

    def wait_states(self, wanted, seconds=PATIENCE_S):
        """Until each running node sees exactly these members."""
        def seen():
            nodes = self.cluster.running()
            return bool(nodes) and all(self.states(n) == wanted for n in nodes)
        try:
            wait_until(seen, 'members %r' % wanted, every=0.05, seconds=seconds)
        except AssertionError as e:
            raise AssertionError('%s; seen: %r' % (e, [(n.id, self.states(n)) for n in self.cluster.running()]))

    def add(self, number, *more, extra=()):
        node = self.joiner(number, extra)
        self.cluster.nodes.append(node)
        node.launch()
        self.ask('CLUSTER', 'ADD', number, node.peer, *more)
        return node

    def voters(self):
        return {n.id: 'voter' for n in self.cluster.nodes}

    def remove(self, node, *more):
        """Removes a member, which ends by itself, and says why."""
        self.ask('CLUSTER', 'REMOVE', node.id, *more)
        process = node.process
        process.asked_to_end = True
        code = process.wait(240)
        self.assertGreater(code, 0, process.last_output())
        self.assertIn('was removed from the cluster', process.output())
        self.cluster.nodes.remove(node)

    def tool(self, *words, code=0):
        done = subprocess.run([binary('fencelock'), *map(str, words)], capture_output=True, text=True, timeout=240,
                              env=patient_env())
        self.assertEqual(done.returncode, code, '%s: %s%s' % (' '.join(map(str, words)), done.stdout, done.stderr))
        return done.stdout + done.stderr
