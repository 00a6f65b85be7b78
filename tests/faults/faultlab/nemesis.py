"""The faults. Each kind is a class with start(run) -> what it did, and stop(run); fault_run.py runs one thread for each kind, so
that several kinds overlap. The seed decides what they choose, but not when a fault meets an operation.

    kill          SIGKILL of a node (often the leader), of two, of all; started again later
    pause         SIGSTOP of a node, or of several, longer than an election takes
    clients       SIGSTOP of a client: between its grant and its write, or anywhere; longer than its lease
    store-kill    SIGKILL of the storage; started again later
    store-pause   SIGSTOP of the storage
    partition     links between nodes: one alone, the leader alone, one-way, a bridge, a ring, all
    delay         slow links between nodes
    reset         all connections between nodes are reset, with what was on its way
    corrupt       flips bits of what nodes send each other (behind proxies only: elsewhere TCP itself notices)
    hold          writes on their way to the storage are held until the next holder has read
    transfer      the leader is asked to hand over
    power         SIGKILL of a node, of all, of the storage, or of everything at once; what was not synced is lost, or
                  some of it
    disk-full     a node, all nodes, or the storage can neither make a file nor extend one: no space
    disk-short    writes of a node or of the storage are done in part; the rest takes another call
    disk-slow     syncs of nodes or of the storage take up to 0.3 s longer
    sync-error    a sync fails; the process has to stop, and what was not synced is lost
    calls         calls of one kind fail, at nodes or at the storage, now and then and with one of several errors: open, stat,
                  read, readdir, write (or a part of it is done), sync, rename and unlink, a change of size, fork. They do
                  while a server runs, or while it starts. It goes on, or ends with a sentence; then it is started again
    clock         the wall clock of a server jumps by up to a year, or to and fro many times a second
    clock-pace    the monotonic clock of a node runs up to a third too slow or a tenth too fast
    redis-kill    SIGKILL of Redis servers, which keep nothing (with --mode redlock, as are the next two)
    redis-pause   SIGSTOP of a Redis server
    redis-clock   the wall clock of a Redis server jumps, and keys expire early or late
    flip          flips a bit in a file of a node, mostly while it is down, or of the storage: it refuses to
                      start and names the file, or the bit meant nothing. A node that refuses has lost its disk (see disk-loss), a
                  storage gets its backup. Snapshots come early
    snapshot-kill SIGKILL of every process that writes a snapshot, while the fault lasts; the node must only try again later
    disk-loss     SIGKILL of a node whose data directory is then gone; the operator says so (CLUSTER REPLACE), and it
                  starts again with nothing. One at a time: of three, one disk may be lost
    members       nodes are added (as learners, too), removed, replaced and moved, and leadership is handed over; removed
                  nodes come back. In the end all nodes show the members that were asked for
    backup        backups from any node that answers: each has to be whole; the last becomes a new cluster in the end
    upgrade       nodes go to the next version one after the other, and back while not all are there
"""

import errno
import os
import signal
import time

from harness import PATIENCE_S, RespError, wait_until
from shim import SHORT_WRITE

from .bits import files_of, flip

_kinds = {}


def kind(name):
    def register(cls):
        cls.name = name
        _kinds[name] = cls
        return cls
    return register


def children_of(process):
    """Of a node; what is in between (`ip netns exec`) becomes the node itself."""
    found = []
    if process is None: # it was not started yet
        return found
    try:
        for thread in os.listdir('/proc/%d/task' % process.pid):
            with open('/proc/%d/task/%s/children' % (process.pid, thread)) as f:
                found += [int(pid) for pid in f.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def names():
    return sorted(_kinds)


def need_shim(chosen):
    """Those that need the library to preload."""
    return [name for name in chosen if _kinds[name].SHIM]


def need_places(chosen):
    """Whether members come and go."""
    return any(_kinds[name].MEMBERS for name in chosen)


def make(name, rng, rare):
    """rare: by how much longer the gaps are than they would be if this kind were alone."""
    nemesis = _kinds[name](rng)
    nemesis.rare = rare
    return nemesis


class Nemesis:
    MEMBERS = False          # whether it changes who is a member
    SHIM = False             # whether servers need the library of tests/torture preloaded
    SECONDS = (0.4, 2.0)     # how long it lasts
    BETWEEN = (0.3, 1.5)     # how long nothing happens after it

    def __init__(self, rng):
        self.random, self.rare = rng, 1.0

    def length(self):
        return self.random.uniform(*self.SECONDS)

    def wait(self, run, seconds):
        """Waits while the fault lasts."""
        run.over.wait(seconds)

    def gap(self):
        return self.random.uniform(*self.BETWEEN) * self.rare

    def choose_nodes(self, run):
        """Mostly the leader or one node, sometimes more."""
        nodes, what = run.cluster.nodes, self.random.random()
        if run.options.unsafe_ack:
            return list(nodes) # nobody is left who knows what was acknowledged
        if what < 0.45:
            return [run.leader_node() or self.random.choice(nodes)]
        if what < 0.8:
            return [self.random.choice(nodes)]
        return self.random.sample(nodes, 2) if what < 0.93 else list(nodes)


@kind('kill')
class Kill(Nemesis):
    SECONDS = (0.1, 1.5)
    BETWEEN = (0.8, 2.5)

    def start(self, run):
        self.victims = [n for n in self.choose_nodes(run) if run.take(n)]
        leader = run.leader_id()
        for node in self.victims:
            node.process.signal(signal.SIGKILL)
        for node in self.victims:
            node.process.wait()
        run.count('kills of a node', len(self.victims))
        run.count('kills of the leader', sum(n.id == leader for n in self.victims))
        return [n.name for n in self.victims]

    def stop(self, run):
        for node in self.victims:
            run.bring_back(node)


@kind('pause')
class Pause(Nemesis):
    SECONDS = (0.3, 3.0)

    def start(self, run):
        leader = run.leader_id()
        self.victims = []
        for node in self.choose_nodes(run):
            process = node.process
            if process.running():
                process.signal(signal.SIGSTOP)
                self.victims.append((node, process))
        run.count('pauses of a node', len(self.victims))
        run.count('pauses of the leader', sum(n.id == leader for n, _ in self.victims))
        return [n.name for n, _ in self.victims]

    def stop(self, run):
        for _, process in self.victims:
            process.resume()


@kind('clients')
class PauseClients(Nemesis):
    BETWEEN = (0.05, 0.4)

    def length(self):
        return self.random.uniform(0.5, 2.5) * self.ttl_s

    def start(self, run):
        self.ttl_s = run.options.ttl_ms / 1000.0
        self.victims = self.random.sample(run.clients, self.random.choice((1, 1, 2)))
        before_write = self.random.random() < 0.8
        for client in self.victims:
            client.signal(signal.SIGUSR1 if before_write else signal.SIGSTOP)
        run.count('pauses of a client', len(self.victims))
        return [c.name + (', before its next write' if before_write else '') for c in self.victims]

    def stop(self, run):
        for client in self.victims:
            client.resume()


@kind('store-kill')
class KillStore(Nemesis):
    SECONDS = (0.05, 0.6)
    BETWEEN = (0.8, 2.5)

    def start(self, run):
        self.taken = run.take(run.store)
        if not self.taken:
            return []
        run.store.kill()
        run.count('kills of the storage')
        return ['store']

    def stop(self, run):
        if self.taken:
            run.bring_back(run.store)


@kind('store-pause')
class PauseStore(Nemesis):
    SECONDS = (0.1, 1.5)

    def start(self, run):
        self.process = run.store.process
        if self.process.running():
            self.process.signal(signal.SIGSTOP)
        run.count('pauses of the storage')
        return ['store']

    def stop(self, run):
        self.process.resume()


@kind('partition')
class Partition(Nemesis):
    SECONDS = (0.5, 4.0)

    def start(self, run):
        ids = [n.id for n in run.cluster.nodes]
        links = [(a, b) for a in ids for b in ids if a != b]
        shape = self.random.choice(('one', 'leader', 'leader', 'one-way', 'leader hears nobody', 'nobody hears leader',
                                    'bridge', 'ring', 'all'))
        alone = self.random.choice(ids)
        if 'leader' in shape:
            alone = run.leader_id() or alone
        if shape in ('one', 'leader'):
            cut = [l for l in links if alone in l]
        elif shape == 'leader hears nobody':
            cut = [l for l in links if l[1] == alone]
        elif shape == 'nobody hears leader':
            cut = [l for l in links if l[0] == alone]
        elif shape == 'one-way':
            cut = [self.random.choice(links)]
        elif shape == 'bridge': # everybody is connected to one node only
            cut = [l for l in links if alone not in l]
        elif shape == 'ring':   # everybody hears one neighbour only
            cut = [(a, b) for a, b in links if b != ids[(ids.index(a) + 1) % len(ids)]]
        else:
            cut = links
        run.peers.set(blocked=cut)
        run.count('partitions')
        run.count('partitions, %s' % shape)
        return ['%s: %s' % (shape, ' '.join('%d>%d' % l for l in sorted(cut)))] + ['node%d' % n for n in sorted({l[0] for l in cut})]

    def stop(self, run):
        run.peers.set(blocked=())


@kind('delay')
class Delay(Nemesis):
    SECONDS = (0.5, 3.0)

    def start(self, run):
        ids = [n.id for n in run.cluster.nodes]
        most = self.random.choice((0.005, 0.05, 0.3))
        run.peers.set(delay={(a, b): self.random.uniform(0, most) for a in ids for b in ids if a != b})
        run.count('delays')
        return ['all links up to %g ms' % (most * 1000)]

    def stop(self, run):
        run.peers.set(delay={})


@kind('reset')
class Reset(Nemesis):
    SECONDS = (0.02, 0.1)
    BETWEEN = (0.2, 1.5)

    def start(self, run):
        if not run.peers.cut():
            return []
        run.count('resets of all connections')
        return [n.name for n in run.cluster.nodes]

    def stop(self, run):
        pass


@kind('corrupt')
class Corrupt(Nemesis):
    SECONDS = (0.3, 2.0)

    def start(self, run):
        if not run.peers.corrupt(self.random.choice((0.02, 0.2)), self.random.randrange(1 << 32)):
            return []
        run.count('times of damaged traffic between nodes')
        return [n.name for n in run.cluster.nodes]

    def stop(self, run):
        run.count('pieces of traffic damaged', run.peers.corrupt(0.0) or 0)


@kind('hold')
class Hold(Nemesis):
    SECONDS = (1.0, 3.0)
    BETWEEN = (0.1, 0.8)

    def start(self, run):
        run.writes.set(self.random.choice((0.05, 0.3)), self.random.choice((0.0, 0.0, 0.5)))
        run.count('holds')
        return ['store']

    def stop(self, run):
        run.writes.set(0.0)


@kind('transfer')
class Transfer(Nemesis):
    SECONDS = (0.05, 0.1)
    BETWEEN = (0.5, 2.0)

    def start(self, run):
        node = run.leader_node()
        try:
            if node is None:
                return []
            node.call('CLUSTER', 'TRANSFER', timeout=2.0)
        except (OSError, RespError): # it no longer leads, or is down, or nobody took over
            return []
        run.count('transfers')
        return [node.name]

    def stop(self, run):
        pass


@kind('disk-loss')
class DiskLoss(Nemesis):
    SECONDS = (0.1, 1.0)
    BETWEEN = (1.5, 4.0)
    WHOLE_S = 8.0

    @staticmethod
    def whole(run):
        """Whether the leader sees all nodes connected, and three voters or more. A node that came back with an empty disk is no voter for
        a while; another lost disk then would be the second of three. With two voters, no disk may be lost."""
        leader = run.leader_node()
        try:
            nodes = leader.members_table(1.0) if leader else []
        except (OSError, RespError):
            return False
        return any(n['self'] and n['role'] == 'leader' for n in nodes) and \
            sum(n['state'] == 'voter' for n in nodes) >= 3 and \
            all(n['state'] in ('voter', 'learner') and n['connected'] for n in nodes)

    def take_node(self, run):
        """A node that may lose its disk now, and is ours; or None. Of all faults only one at a time gets one, until
        give_back()."""
        if not run.one_disk.acquire(blocking=False):
            return None
        looks, end = 0, time.monotonic() + self.WHOLE_S
        while looks < 3 and time.monotonic() < end: # one look may show a promotion that is not committed yet
            looks = looks + 1 if self.whole(run) else 0
            if run.over.wait(0.15):
                break
        victim = self.random.choice(run.cluster.nodes)
        if looks < 3 or run.over.is_set() or not run.take(victim): # another fault has killed it, and will start it again
            run.one_disk.release()
            return None
        return victim

    def start(self, run):
        self.victim = self.take_node(run)
        if self.victim is None:
            return []
        self.victim.kill()
        os.rename(self.victim.data, '%s.lost-%d' % (self.victim.data, time.monotonic_ns()))
        run.count('lost disks')
        return [self.victim.name]

    def stop(self, run):
        if self.victim is not None:
            self.replace(run)
            run.one_disk.release()

    def replace(self, run):
        """Until a majority has agreed, the node must stay down: it has forgotten its votes and what it confirmed."""
        others = [n for n in run.cluster.nodes if n is not self.victim]

        def replaced():
            for node in others:
                try:
                    return node.call('CLUSTER', 'REPLACE', self.victim.id, timeout=3.0) == 'OK'
                except (OSError, RespError):
                    continue
            return False
        wait_until(replaced, '%s to be replaced' % self.victim.name, every=0.1)
        if run.shimmed():
            self.victim.shim.forget_journal()
        run.bring_back(self.victim)


@kind('flip')
class Flip(DiskLoss):
    SHIM = True # snapshots come early
    STORE_SHARE, LIVE_SHARE, LATER_S, FULL_S = 0.3, 0.3, 0.5, PATIENCE_S

    def start(self, run):
        store = run.store if run.store and self.random.random() < self.STORE_SHARE else None
        if store is not None:
            self.victim = store if run.take(store) else None
        else:
            self.victim = self.take_node(run)
        if self.victim is None:
            return []
        live = store is None and self.random.random() < self.LIVE_SHARE
        if not live:
            self.victim.kill()
        self.what = self.flip(run, live)
        return ['%s: %s' % (self.victim.name, self.what)]

    def flip(self, run, live):
        """Of a node that runs only a snapshot is damaged: it never changes, but may be deleted at any moment. Segments are written to,
        and reused."""
        names = [n for n in files_of(self.victim.data) if not live or n.startswith('log/snapshot-')]
        self.file = None
        if not names:
            return 'nothing to damage'
        name = self.random.choice(names)
        path = os.path.join(self.victim.data, name)
        try:
            with open(path, 'rb') as f:
                self.backup = f.read() if self.victim is run.store else None
            what = flip(path, self.random)
        except FileNotFoundError:
            return 'nothing to damage'
        self.file = name
        run.count('flips of a bit' + (' under a running node' if live else ''))
        return '%s, %s' % (name, what)

    def stop(self, run):
        if self.victim is None:
            return
        if self.victim.running():
            self.victim.kill()
        process = run.try_start(self.victim, self.LATER_S)
        end = time.monotonic() + self.FULL_S
        while not process.running() and 'No space left' in process.output() and time.monotonic() < end:
            process = run.try_start(self.victim, self.LATER_S) # its disk is full as well, which says nothing about the flip
        if process.running():
            run.count('flips that meant nothing')
            run.came_back(self.victim)
        else:
            self.judge(run, process)
            run.count('flips that were refused')
            self.repair(run)
        if self.victim is not run.store:
            run.one_disk.release()

    def judge(self, run, process):
        """The process has to end with an exit code, and to name the file; the storage, which has one file, its directory."""
        name = self.victim.data if self.victim is run.store else os.path.basename(self.file or '')
        if process.wait() <= 0 or not name or name not in process.output():
            run.report('damage', '%s did not start after a flip (%s), and did not name the file: %s'
                           % (self.victim.name, self.what, process.last_output(3)))

    def repair(self, run):
        if self.victim is not run.store:
            os.rename(self.victim.data, '%s.lost-%d' % (self.victim.data, time.monotonic_ns()))
            self.replace(run)
            return
        if self.file is not None:
            with open(os.path.join(self.victim.data, self.file), 'wb') as f:
                f.write(self.backup)
        run.bring_back(self.victim)


@kind('snapshot-kill')
class SnapshotKill(Nemesis):
    SHIM = True # snapshots come early
    SECONDS = (0.5, 2.0)

    def start(self, run):
        self.killed = 0
        return [n.name for n in run.cluster.nodes]

    def wait(self, run, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not run.over.wait(0.002):
            for node in run.cluster.nodes:
                for child in children_of(node.process):
                    try:
                        os.kill(child, signal.SIGKILL)
                        self.killed += 1
                    except ProcessLookupError:
                        pass

    def stop(self, run):
        run.count('kills of a process that wrote a snapshot', self.killed)


@kind('power')
class Power(Nemesis):
    SHIM = True
    SECONDS = (0.05, 1.0)
    BETWEEN = (0.8, 2.5)

    def start(self, run):
        what = 0.0 if run.options.no_sync else self.random.random()
        chosen = run.servers() if what < 0.4 else list(run.cluster.nodes) if what < 0.55 else \
            [run.store] if what < 0.7 and run.store else self.choose_nodes(run)
        self.victims = [s for s in chosen if run.take(s)]
        for server in self.victims:
            server.process.signal(signal.SIGKILL)
        for server in self.victims:
            server.process.wait()
        lost = 0
        for server in self.victims:
            lost += server.shim.lose_unsynced(self.random if self.random.random() < 0.5 else None)
        run.count('power cuts')
        run.count('unsynced writes lost', lost)
        return [s.name for s in self.victims]

    def stop(self, run):
        for server in self.victims:
            run.bring_back(server)


class Disturb(Nemesis):
    """Sets something in the shim of some servers, and resets it."""
    SHIM = True
    STORE_SHARE = 0.3

    def start(self, run):
        self.victims = [run.store] if run.store and self.random.random() < self.STORE_SHARE else self.choose_nodes(run)
        run.count(self.name)
        return ['%s: %s' % (s.name, self.disturb(s.shim)) for s in self.victims]

    def stop(self, run):
        for server in self.victims:
            self.restore(server.shim)
            run.revive(server)


@kind('disk-full')
class DiskFull(Disturb):
    def disturb(self, shim):
        shim.set('full', 1)
        return 'no space'

    def restore(self, shim):
        shim.set('full', 0)


@kind('disk-short')
class DiskShort(Disturb):
    def disturb(self, shim):
        shim.set('short', 1)
        return 'in parts'

    def restore(self, shim):
        shim.set('short', 0)


@kind('disk-slow')
class DiskSlow(Disturb):
    def disturb(self, shim):
        us = self.random.choice((5000, 50000, 300000))
        shim.set('slow_us', us)
        return '%g ms' % (us / 1000)

    def restore(self, shim):
        shim.set('slow_us', 0)


@kind('sync-error')
class SyncError(Nemesis):
    SHIM = True
    SECONDS = (0.3, 1.0)
    BETWEEN = (0.8, 2.5)

    def start(self, run):
        """A page that could not be synced counts as clean afterwards and may be dropped, so nobody may go on with it."""
        chosen = run.store if run.store and self.random.random() < 0.3 else self.random.choice(run.cluster.nodes)
        self.victim = chosen if run.take(chosen) else None
        if self.victim is None:
            return []
        self.victim.shim.set('sync_errno', errno.EIO)
        run.count('sync errors')
        return [self.victim.name]

    def stop(self, run):
        if self.victim is None:
            return
        if self.victim.running():
            self.victim.kill()
        self.victim.shim.set('sync_errno', 0)
        self.victim.shim.lose_unsynced(self.random)
        run.bring_back(self.victim)


@kind('calls')
class FailingCalls(Nemesis):
    SHIM = True
    SECONDS = (0.3, 1.5)
    BETWEEN = (0.1, 0.6)
    STORE_SHARE, AGAIN_S = 0.25, 0.02
    # Of each kind: what its calls fail with; how many of them may come before the next one that fails; how often servers are
    # started with it, since some are hardly made later.
    ERRORS = {'open': ((errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.EACCES), 8, 0.5),
              'stat': ((errno.ENOMEM, errno.EIO, errno.EBADMSG, errno.EACCES), 16, 0.8),
              'list': ((errno.EIO, errno.EBADMSG, errno.ENOMEM), 24, 0.8),
              'read': ((errno.EIO, errno.EBADMSG, errno.ENOMEM), 16, 0.8),
              'write': ((errno.EIO, errno.ENOSPC, errno.EDQUOT, SHORT_WRITE), 60, 0.3),
              'sync': ((errno.EIO, errno.ENOSPC, errno.EDQUOT), 8, 0.5),
              'name': ((errno.EIO, errno.ENOSPC, errno.ENOMEM, errno.EACCES), 6, 0.5),
              'size': ((errno.ENOSPC, errno.EIO, errno.EDQUOT), 3, 0.5),
              'fork': ((errno.EAGAIN, errno.ENOMEM), 1, 0.0)}

    def start(self, run):
        of_store = bool(run.store) and self.random.random() < self.STORE_SHARE
        chosen = [run.store] if of_store else self.choose_nodes(run)
        self.call = self.random.choice(sorted(self.ERRORS))
        errors, self.within, starting = self.ERRORS[self.call]
        self.error, starting = self.random.choice(errors), self.random.random() < starting
        self.victims = [s for s in chosen if run.take(s)]
        for server in self.victims:
            if starting:
                server.kill()
            self.arm(server)
            if starting:
                self.launch(server)
        return ['%s: %s fails with %s%s' % (s.name, self.call, errno.errorcode.get(self.error, 'a part of it done'),
                                            ', from its start on' if starting else '') for s in self.victims]

    def arm(self, server):
        server.failed = server.shim.failed(self.call)
        server.shim.fail(self.call, self.random.randint(1, self.within), self.error)

    @staticmethod
    def launch(server):
        server.launch()
        server.process.asked_to_end = True # how it ends is judged here

    def look(self, run, server):
        """Notes a call that has failed. Whether the server has ended, which is judged then."""
        failed = server.shim.failed(self.call) - server.failed
        if failed:
            run.count('calls that failed, %s' % self.call, failed)
            server.failed += failed
        if server.running() or getattr(server, 'switched_off', False): # by the fault `members`, which has replaced its machine
            return False
        code, said = server.process.returncode(), server.process.last_output(3)
        run.count('ends of a server whose call failed')
        if code <= 0 or not said.strip():
            run.report('ends', '%s ended with %d when %s failed, and said: %s' % (server.name, code, self.call, said))
        if self.call == 'sync': # what could not be synced may be gone
            server.shim.lose_unsynced(self.random)
        return True

    def wait(self, run, seconds):
        """A server that has ended is started again, and meets the next call that fails."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not run.over.wait(self.AGAIN_S):
            for server in self.victims:
                failed = server.failed
                ended = self.look(run, server)
                if server.failed != failed:
                    self.arm(server)
                if ended:
                    self.launch(server)

    def stop(self, run):
        for server in self.victims:
            server.shim.fail_no_more(self.call)
        for server in self.victims:
            self.settle(run, server)
            if self.look(run, server):
                run.bring_back(server)
            else:
                run.came_back(server)

    @staticmethod
    def settle(run, server):
        """A server may be about to end, for a call that failed just now; one that has answered afterwards, twice, is not."""
        for _ in range(2):
            wait_until(lambda: not server.running() or run.answers(server), '%s answers or ends' % server.name, every=0.1)


@kind('clock')
class Clock(Disturb):
    def disturb(self, shim):
        self.strobing = self.random.random() < 0.3
        far = self.random.choice((1, 3600, 86400, 31536000)) * self.random.choice((-1, 1))
        shim.set('wall_ns', far * 10**9)
        return '%+d s%s' % (far, ', to and fro' if self.strobing else '')

    def wait(self, run, seconds):
        end = time.monotonic() + seconds
        while self.strobing and time.monotonic() < end and not run.over.wait(0.01):
            for server in self.victims:
                server.shim.set('wall_ns', -server.shim.get('wall_ns'))
        run.over.wait(max(0.0, end - time.monotonic()))

    def restore(self, shim):
        shim.set('wall_ns', 0)


@kind('clock-pace')
class ClockPace(Disturb):
    SECONDS = (1.0, 5.0)
    STORE_SHARE = 0.0
    FASTEST = 1.1 # by so much a lease may be shorter

    def disturb(self, shim):
        ppm = self.random.choice((-300000, -100000, -20000, 20000, 100000))
        shim.set_rate(ppm, time.clock_gettime_ns(time.CLOCK_MONOTONIC))
        return '%+g %%' % (ppm / 10000)

    def restore(self, shim):
        shim.set_rate(0, time.clock_gettime_ns(time.CLOCK_MONOTONIC))


@kind('redis-kill')
class RedisKill(Nemesis):
    SECONDS = (0.05, 0.5)

    def start(self, run):
        self.victims = [r for r in self.random.sample(run.redis, self.random.choice((1, 1, 2, 3))) if run.take(r)]
        for redis in self.victims:
            redis.process.kill()
        run.count('restarts of Redis', len(self.victims))
        return [r.name for r in self.victims]

    def stop(self, run):
        for redis in self.victims:
            run.bring_back(redis)


@kind('redis-pause')
class RedisPause(Nemesis):
    def start(self, run):
        self.victim = self.random.choice(run.redis).process
        if self.victim.running():
            self.victim.signal(signal.SIGSTOP)
        run.count('pauses of Redis')
        return [self.victim.name]

    def stop(self, run):
        self.victim.resume()


@kind('redis-clock')
class RedisClock(Disturb):
    AHEAD_MS = 10000 # a key that was left then lives that much longer: with two of three, nobody gets a lock until then

    def start(self, run):
        self.victims = self.random.sample(run.redis, self.random.choice((1, 2, 3)))
        ms = self.random.choice((-60000, -1000, 500, 5000, self.AHEAD_MS))
        for redis in self.victims:
            redis.shim.set('wall_ns', ms * 1000000)
        run.count('jumps of the clock of Redis', len(self.victims))
        return ['%s: %+d ms' % (r.name, ms) for r in self.victims]

    def stop(self, run):
        for redis in self.victims:
            redis.shim.set('wall_ns', 0)
