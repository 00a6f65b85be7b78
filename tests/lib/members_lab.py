"""Clusters whose members come and go, for tests: nodes that join, and what an operator asks for."""

import random
import subprocess

from harness import ASK_AGAIN, PATIENCE_S, Case, Cluster, Load, Node, RespError, binary, free_ports, patient_env, seed, wait_until


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
        code = process.wait(PATIENCE_S)
        self.assertGreater(code, 0, process.last_output())
        self.assertIn('was removed from the cluster', process.output())
        self.cluster.nodes.remove(node)

    def tool(self, *words, code=0):
        done = subprocess.run([binary('fencelock'), *map(str, words)], capture_output=True, text=True, timeout=PATIENCE_S,
                              env=patient_env())
        self.assertEqual(done.returncode, code, '%s: %s%s' % (' '.join(map(str, words)), done.stdout, done.stderr))
        return done.stdout + done.stderr
