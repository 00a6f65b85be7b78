"""Members that change while a run goes on: the nodes that may be there, what the cluster was asked for, and the judge.

A run with such a fault has some places more than nodes. This module keeps what the cluster should be, as an operator would: a change that was
answered counts, one that was refused does not, and after an unknown outcome the same change is requested again. In the end every node
must show exactly these members, at these addresses."""

import copy
import time

from harness import PATIENCE_S, RespError, free_ports, wait_until

SPARE = 2              # places beside those of the nodes that a run begins with
AGAIN = ('NOLEADER', 'BUSY')
STUBBORN_S = PATIENCE_S # how long a change is asked for after all faults have ended
SETTLED = ('voter', 'learner')


class Place:
    """A place (ports, name, directory) at which nodes run, one after the other."""

    def __init__(self, node, second):
        """second: (own port, address that the others have for it), as it may have one day."""
        self.plain, self.incarnations = copy.copy(node), 0
        self.ports = [(node.peer_port, node.peer), second]

    def set_port(self, node, at):
        node.port_at = at
        node.peer_port, node.peer = self.ports[at]
        node.peer_bind = '%s:%d' % (node.peer.rpartition(':')[0], node.peer_port)

    def prepare(self, node):
        node.gone = node.switched_off = False # gone: no member any more, so it may end by itself; switched_off: it is never started again
        node.place = self

        def launch():
            if not node.switched_off:
                type(node).launch(node)
                node.process.asked_to_end = node.gone
            return node.process
        node.launch = launch
        self.set_port(node, 0)
        return node

    def node(self, run, known):
        """The next node with this id, with nothing on its disk."""
        self.incarnations += 1
        node = self.prepare(copy.copy(self.plain))
        node.data = '%s.%d' % (self.plain.data, self.incarnations)
        node.log_name = '%s.%d' % (node.name, self.incarnations)
        node.extra = list(self.plain.extra)
        node.membership_args = lambda: ['--join', known]
        node.program = run.program
        return node


class Members:
    """The changes of members that were asked for, and the means to ask for more."""

    def __init__(self, run, places):
        self.run, self.places = run, places
        self.wanted = {n.id: ('voter', n.peer) for n in run.cluster.nodes}
        self.former = []
        self.wrong = []

    # -- the nodes ------------------------------------------------------------------------------------
    def put(self, node):
        self.run.cluster.nodes = sorted([n for n in self.run.cluster.nodes if n.id != node.id] + [node], key=lambda n: n.id)

    def drop(self, node):
        """Takes the node off the lists: no fault and no judge looks at it any more."""
        self.run.cluster.nodes = [n for n in self.run.cluster.nodes if n is not node]
        self.former.append(node)

    def switch_off(self, node):
        """Its machine is switched off for good."""
        node.switched_off = True
        if node.process is not None and node.running():
            node.process.resume()
            node.kill()

    def switch_off_all(self):
        for node in self.former:
            self.switch_off(node)

    def member_list(self, but=None):
        return ','.join('%d=%s' % (i, peer) for i, (_, peer) in sorted(self.wanted.items()) if i != but)

    def free(self):
        return [p for p in self.places if p.plain.id not in self.wanted]

    # -- asking -----------------------------------------------------------------------------------------
    def ask(self, *words, done_when=()):
        """Asks until the outcome is known. True: the log has the change. An error's text: it was refused, and surely not done. done_when:
        errors that mean "done" when an earlier answer was lost."""
        maybe, end, said = False, None, 'nobody'
        while True:
            for node in self.run.cluster.nodes:
                try:
                    node.call(*words, timeout=3.0)
                    return True
                except RespError as e:
                    said = e.line
                    maybe = maybe or e.word == 'UNCERTAIN'
                    if e.word in AGAIN or e.word == 'UNCERTAIN':
                        continue
                    if not maybe:
                        return e.line
                    if any(d in e.line for d in done_when):
                        return True
                except ConnectionRefusedError:
                    pass
                except OSError as e:
                    maybe, said = True, str(e)
            if self.run.over.is_set():
                end = end or time.monotonic() + STUBBORN_S
                if time.monotonic() > end:
                    self.report('nobody took or refused %s after all faults had ended: %s' % (' '.join(map(str, words)), said))
                    return said
            time.sleep(0.05)

    def report(self, what):
        self.run.report('members', what)

    def as_asked(self, node, timeout=2.0):
        """None, or what the node shows that was not asked for."""
        seen = {row['id']: (row['state'], row['peer_address']) for row in node.members_table(timeout)}
        return None if seen == self.wanted else '%s shows %r, asked for was %r' % (node.name, seen, self.wanted)

    def wait_done(self, seconds):
        """True once a leader shows what was asked for."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.run.over.is_set():
            for node in self.run.cluster.nodes:
                self.run.revive(node) # one that some refuse, which have not heard of the change yet
                try:
                    if self.as_asked(node) is None and node.info()['node_role'] == 'leader':
                        return True
                except (OSError, RespError):
                    pass
            self.run.over.wait(0.05)
        return False

    def whole(self):
        """Whether the leader sees all members connected and settled, as DiskLoss.whole()."""
        for node in self.run.cluster.nodes:
            try:
                seen = node.members_table(1.0)
            except (OSError, RespError):
                continue
            if any(r['self'] and r['role'] == 'leader' for r in seen):
                return all(r['connected'] and r['state'] in SETTLED for r in seen)
        return False

    # -- judging ----------------------------------------------------------------------------------------
    def judge(self, seconds=PATIENCE_S):
        """After the faults: every member shows those that were asked for."""
        last = []

        def agreed():
            try:
                last[:] = filter(None, (self.as_asked(node, 3.0) for node in self.run.cluster.nodes))
            except (OSError, RespError) as e:
                last[:] = [str(e)]
            return not last
        try:
            wait_until(agreed, 'the members that were asked for', every=0.05, seconds=seconds)
        except AssertionError as e:
            self.report('%s: %s' % (e, '; '.join(last)))


def namespace_port(node):
    port = free_ports(1)[0]
    return port, '%s:%d' % (node.peer.rpartition(':')[0], port)
