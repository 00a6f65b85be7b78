"""One run: starts servers, clients and faults, ends the faults, reads the final values, judges."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

from harness import PATIENCE_S, Cluster, Deadline, Resp, RespError, Store, free_ports, wait_until
from harness.lab import binary, build_dir
from harness.resp import info_fields
from redlock_lab import Redis
from shim import Shim, library
from tls_lab import Certs

from . import checkers, history, judges, linear, members, nemesis, nemesis_members, subscriptions, users, workloads
from .proxy import Loop, PeerProxy, StoreProxy
from .namespaces import NamespaceCluster, Namespaces

CLIENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'client.py')
USES_STORE = {'bank': True, 'counter': True, 'append': True, 'register': True, 'lock': False, 'semaphore': False, 'session': False,
              'watch': False}
# The kind of operation that each client must complete, with yes or no, after the faults.
GOAL = {'bank': 'add', 'counter': 'add', 'append': 'append', 'register': 'get', 'lock': 'acquire', 'semaphore': 'acquire',
        'session': 'acquire', 'watch': 'acquire'}
REDIS_SERVERS = 3
# What a server says when it has a reason to end. It is started again then, as by a service manager.
ENDS = ('cannot write', 'cannot be written', 'the other members refuse this node')
UNLUCKY_REDLOCK_S = 20.0                         # it has no queue, so some clients may be unlucky for long, and are not waited for longer


def broken_disks(options):
    """Nodes that were broken on purpose may never recover, and are not waited for."""
    return options.unsafe_ack or options.no_sync


def recovery_s(options):
    """How long servers may take to recover: long, so that slow is not taken for never."""
    return 60.0 if broken_disks(options) else PATIENCE_S


def serves_again_s(options):
    return 6.0 if broken_disks(options) else PATIENCE_S


class ProxiedCluster(Cluster):
    """A cluster whose nodes know each other by the addresses of proxies."""

    def __init__(self, lab, n):
        super().__init__(lab, n)
        self.second = free_ports(2 * n) # where a node may move to: of its proxy, and its own
        for node, port in zip(self.nodes, free_ports(n)):
            node.peer, node.peer_bind = '127.0.0.1:%d' % port, node.peer

    def second_port(self, node):
        port, own = self.second[2 * node.id - 2:2 * node.id]
        return own, '127.0.0.1:%d' % port

    def peer_ports(self):
        ways = {node.id: [(node.peer_port, node.peer), self.second_port(node)] for node in self.nodes}
        return {node: [(int(peer.rpartition(':')[2]), own) for own, peer in pairs] for node, pairs in ways.items()}


class _StoreWithoutFencing(Store):
    program = 'fencelock-store-unfenced'


def preload(server, shim):
    """From now on the server is started with the shim. In front of our program, since `ip netns exec` may come first."""
    plain = server.argv

    def argv():
        words = [str(w) for w in plain()]
        at = next(i for i, w in enumerate(words) if w.startswith(build_dir()))
        return words[:at] + shim.env_command() + words[at:]
    server.argv, server.shim = argv, shim


class NotRecovered(Exception):
    """After all faults have ended, something does not come about that must."""


@contextlib.contextmanager
def must(what, process=None):
    try:
        yield
    except (AssertionError, OSError, RespError) as e:
        if process is not None:
            process.asked_to_end = True # told once is enough
        raise NotRecovered('that %s did not come about: %s' % (what, e)) from None


class _RedisServer(Redis):
    """Has the methods of our own servers, and runs with the shim where that is built."""

    def start(self):
        self.data, self.shim = self.lab.path(self.name), None
        if library():
            self.shim = Shim(self.lab.path(self.name + '.shim'), self.data)
        self.launch()
        self.wait_ready()

    def launch(self):
        os.makedirs(self.data, exist_ok=True)
        argv = ['redis-server', '--port', self.port, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', '--dir', self.data]
        self.process = self.lab.start((self.shim.env_command() if self.shim else []) + argv, self.name)

    def wait_ready(self, seconds=PATIENCE_S):
        wait_until(self.is_there, '%s answers' % self.name, seconds=seconds)

    def is_there(self):
        try:
            return self.call('PING') == 'PONG'
        except (OSError, RespError):
            return False

    def running(self):
        return self.process.running()


class Result:
    """What one run found. `events`, `ops`, `anomalies` (by judge), `counts`, `seconds`, `origin`, and `began_utc`, which is the
    same moment on the wall clock."""

    def anomalies_list(self):
        return [a for found in self.anomalies.values() for a in found]

    def ok(self):
        return not self.anomalies_list()


class FaultRun:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.counts = {}
        self.lock = threading.Lock()
        self.over = threading.Event()    # faults and sampling end
        self.clients, self.threads, self.thread_errors = [], [], []
        self.leader, self.term = None, 0
        self.down = set()                # servers that a fault has ended and will start again
        self.stuck = []                  # what did not recover after the faults
        self.namespaces = None
        self.redis = []
        self.one_disk = threading.Lock() # held by a fault that took a node's disk, until the node has everything again
        self.reported = {}             # by faults: {kind: anomalies}
        self.members, self.program = None, 'fencelockd'
        self.backups = []                # (began, done, last token, index)

    # -- used by the faults ---------------------------------------------------------------------------
    def count(self, what, n=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + n

    def leader_node(self):
        """None when it is a member no more."""
        return next((n for n in self.cluster.nodes if n.id == self.leader), None)

    def leader_id(self):
        node = self.leader_node()
        return node.id if node else None

    def take(self, server):
        """Whether the caller may end this server now; it starts it again with bring_back()."""
        with self.lock:
            if server.name in self.down or not server.running():
                return False
            self.down.add(server.name)
            server.process.asked_to_end = True
            return True

    def bring_back(self, server):
        server.launch()
        with self.lock:
            self.down.discard(server.name)

    def revive(self, server):
        """Starts a server again that could not start under a fault, or that ended, as it must, because it could not write its term, its
        vote or what it knows of the others. A server that ended for another reason is reported."""
        with self.lock:
            said = '' if server.running() else server.process.output()
            if server.name not in self.down and not server.running() and ('ready: ' not in said or any(why in said for why in ENDS)):
                server.process.asked_to_end = True
                server.launch()

    def try_start(self, server, seconds):
        """Starts a server that may refuse to start, and watches it for `seconds` after its ready line, and until it has answered. Returns
        its process."""
        server.launch()
        process = server.process
        process.asked_to_end = True
        wait_until(lambda: 'ready: ' in process.output() or not process.running(), 'a start of %s, or a refusal' % server.name)
        end, patience = time.monotonic() + seconds, Deadline(PATIENCE_S)
        while process.running() and (time.monotonic() < end or not self.answers(server)):
            if patience.passed():
                raise AssertionError('%s is ready, and does not answer within %g s' % (server.name, PATIENCE_S))
            time.sleep(0.02)
        return process

    @staticmethod
    def answers(server):
        try:
            server.call('PING', timeout=1.0)
        except RespError:
            pass
        except OSError:
            return False
        return True

    def came_back(self, server):
        """The server runs: an end from now on is reported, unless it is a member no more."""
        server.process.asked_to_end = getattr(server, 'gone', False)
        with self.lock:
            self.down.discard(server.name)

    def came_back_unless_down(self, server):
        """As came_back(), unless another fault has ended the server and will start it again."""
        with self.lock:
            if server.name not in self.down:
                server.process.asked_to_end = getattr(server, 'gone', False)

    def add_shim(self, node):
        """A new node is started with the shim, as all others are."""
        if library():
            self._shim(node)

    def other_address(self, node):
        """A free address for clients, on the node's machine."""
        return '%s:%d' % (node.address.rpartition(':')[0], free_ports(1)[0])

    def report(self, kind, text):
        """An anomaly that a fault has seen itself."""
        with self.lock:
            self.reported.setdefault(kind, []).append(checkers.Anomaly(kind, text, at=time.monotonic()))

    def shimmed(self):
        return library() is not None

    def servers(self):
        return self.cluster.nodes + ([self.store] if self.store else [])

    def all_servers(self):
        return self.servers() + self.redis

    def record(self, **event):
        event.setdefault('t', time.monotonic())
        with self.lock:
            self.recorder.write(event)

    # -- running ------------------------------------------------------------------------------------------
    def run(self, lab):
        """Returns a Result. Processes that still run are the lab's to end."""
        o = self.options
        self.lab = lab
        self.recorder = history.Recorder(lab.path('faults.jsonl'))
        self.loop = Loop()
        try:
            self._set_up()
            began, self.began_utc = time.monotonic(), time.time()
            self.record(type='mark', f='begin')
            self._start_clients()
            self._start_threads()
            self._wait_for_end(time.monotonic() + o.seconds)
            try:
                healed = self._heal()
                self._wait_for_goal(healed)
                self._stop_clients()
                finals = self._read_finals()
                with must('all nodes come to the same state'):
                    hashes = self.cluster.wait_same_state(serves_again_s(o))
                for node, state in zip(self.cluster.nodes, hashes):
                    self.record(type='sample', node=node.name, index='at the end', hash=state)
                self._afterwards()
                self._restore()
                self._ask_nodes('nodes.log', [('INFO',), ('CLUSTER', 'MEMBERS')])
            except NotRecovered as e:
                self.stuck.append(str(e))
                self._ask_nodes('stuck.log', [('INFO',), ('CLUSTER', 'MEMBERS'), ('CLUSTER', 'INFO'), ('LOCKS',), ('SESSION', 'LIST')])
                self._stop_clients()
                healed, finals = None, None
            self.record(type='mark', f='end', finals=finals)
        finally:
            self.over.set()
            for thread in self.threads:
                thread.join(PATIENCE_S)
            self.loop.close()
            self.recorder.close()
            if self.namespaces:
                if self.members:
                    self.members.switch_off_all()
                for node in self.cluster.nodes: # a namespace lives for as long as a process in it
                    if node.running():
                        node.process.resume()
                        node.kill()
                self.namespaces.close()
        if self.thread_errors:
            raise self.thread_errors[0]
        return self._judge(began, healed, finals)

    def _afterwards(self):
        """What must hold when nobody asks for anything any more: every lock, session and wait ends by itself; what a node
        reads back from its snapshot and log is the state of the others, who never restarted; tokens go on."""
        longest_wait = self.options.ttl_ms / 1000.0 + recovery_s(self.options)

        def empty():
            info = self.cluster.leader().info()
            return all(int(info[what]) == 0 for what in ('locks', 'sessions', 'waits'))
        with must('every lock, session and wait ends'):
            wait_until(empty, 'the end of locks, sessions and waits', every=0.05, seconds=longest_wait)
            follower = self.random.choice(self.cluster.followers())
        follower.kill()
        with must('%s starts again after everything' % follower.name, follower.process):
            follower.start()
            self.cluster.wait_serving(follower, serves_again_s(self.options))
        with must('a node that has read its log again comes to the same state'):
            hashes = self.cluster.wait_same_state(serves_again_s(self.options))
            token = follower.call('TOKEN', 'after everything')
        for node, state in zip(self.cluster.nodes, hashes):
            self.record(type='sample', node=node.name, index='after a restart', hash=state)
        self.last_token = token
        if 'upgrade' in self.options.nemesis:
            nemesis_members.judge_version(self)
        self.record(type='mark', f='last token', token=token)

    def _restore(self):
        """The last backup becomes a cluster: its tokens are above all that were ever issued, and nothing is held."""
        if not self.backups:
            return
        for began, done, last, index in self.backups:
            self.record(type='mark', f='backup', t=began, until=done, last=last, index=index)
        new = Cluster(self.lab, 3, kind='restored')
        for node in new.nodes:
            node.program = self.program
            argv = [binary(node.program), '--id', node.id, '--data', node.data, '--cluster', new.members(),
                    '--restore', self.lab.path('backup.last')]
            done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=PATIENCE_S)
            if done.returncode != 0:
                self.report('backups', 'a restore of the last backup ended with %d: %s' % (done.returncode, done.stderr))
                return
        with must('a cluster out of a backup serves'):
            new.start()
            counts = new.leader().info()
        nemesis_members.judge_backups(self, self.last_token, new.nodes[0].call('TOKEN', 'first'),
                                      {what: int(counts[what]) for what in ('locks', 'sessions', 'waits')})
        new.terminate()

    def _ask_nodes(self, name, questions):
        """What the nodes say about themselves goes to a file; when they are stuck, their connections as well."""
        with open(self.lab.path(name), 'w') as f:
            for node in self.cluster.nodes:
                for question in questions:
                    try:
                        answer = node.call(*question, timeout=3.0)
                    except (OSError, RespError) as e:
                        answer = e
                    print(node.name, ' '.join(question), answer.decode() if isinstance(answer, bytes) else answer, file=f)
                if self.namespaces and self.stuck:
                    print(self.namespaces.network_state(node.id), file=f)

    def _set_up(self):
        o = self.options
        spare = members.SPARE if nemesis.need_places(o.nemesis) else 0
        if o.network == 'namespaces':
            self.namespaces = Namespaces(o.nodes + spare)
            self.peers = self.namespaces.start()
            self.cluster = NamespaceCluster(self.lab, self.namespaces)
            if 'delay' in o.nemesis and not self.namespaces.can_delay():
                print('no slow links: this kernel has no netem', flush=True)
                o.nemesis = [k for k in o.nemesis if k != 'delay']
        else:
            self.cluster = ProxiedCluster(self.lab, o.nodes + spare)
            self.peers = PeerProxy(self.loop, self.cluster.peer_ports()).start()
        self.certs = self._secure() if o.tls else None
        if USES_STORE[o.workload]:
            self.store = (_StoreWithoutFencing if o.no_fencing else Store)(self.lab)
            port = free_ports(1)[0]
            self.writes = StoreProxy(self.loop, port, self.store.port, o.seed, self._write_event).start()
            self.store_address = '127.0.0.1:%d' % port
        else:
            self.store, self.store_address = None, ''
        if o.users:
            self._make_users()
        if o.mode == 'redlock':
            self.redis = [_RedisServer(self.lab, 'redis%d' % (i + 1)) for i in range(REDIS_SERVERS)]
        if spare:
            self._make_places()
        self._preload()
        if self.store:
            self.store.start()
        self.cluster.start()
        if o.no_sync: # what came before is safe, so that it is what was promised to clients that is lost
            for server in self.servers():
                server.shim.set('lie', 1)
        first = self.cluster.leader()
        self.leader, self.term = first.id, first.info()['term']
        engines = [node.info()['log_engine'].partition(':')[0] for node in self.cluster.nodes]
        self.counts.update(('logs written by %s' % e, engines.count(e)) for e in set(engines))

    def _secure(self):
        """A port with TLS for each node, which is the one that clients use. Proxies between nodes have to read who speaks,
        so only in namespaces the nodes speak TLS with each other too."""
        certs = Certs(self.lab)
        certs.make('client', 'clients')
        for node, port in zip(self.cluster.nodes, free_ports(len(self.cluster.nodes))):
            host = node.address.rpartition(':')[0]
            certs.make('node', str(node.id), host)
            node.tls = '%s:%d' % (host, port)
            node.extra = ['--protected-mode', 'no', '--tls-cluster', 'yes'] if self.namespaces else []
            node.extra += ['--tls-port', node.tls] + certs.daemon('node-%d' % node.id)
        return certs

    def _make_places(self):
        """Members come and go: places for more, and those that are there in the beginning."""
        o, nodes = self.options, self.cluster.nodes
        for node in nodes:
            node.extra += ['--snapshot-bytes', o.snapshots]
        self.addresses = [node.address for node in nodes]
        self.tls_addresses = [node.tls for node in nodes] if o.tls else []
        second = members.namespace_port if self.namespaces else self.cluster.second_port
        places = [members.Place(node, second(node)) for node in nodes]
        self.cluster.nodes = [place.prepare(node) for place, node in zip(places[:o.nodes], nodes)]
        self.cluster.node = self._node
        begun = self.cluster.members()
        for node in self.cluster.nodes:
            node.membership_args = lambda: ['--cluster', begun]
        self.members = members.Members(self, places)

    def _node(self, number):
        return next(n for n in self.cluster.nodes if n.id == number)

    def _make_users(self):
        paths = {name: self.lab.path(name) for name in ('users.acl', 'users-of-the-store.acl')}
        for path, text in zip(paths.values(), (users.NODE_ACL, users.STORE_ACL)):
            with open(path, 'w', encoding='utf-8') as f:
                f.write(text)
        for node in self.cluster.nodes:
            node.extra += ['--aclfile', paths['users.acl']] + (['--tls-auth-clients-user', 'CN'] if self.certs else [])
        if self.store:
            self.store.extra = ['--aclfile', paths['users-of-the-store.acl']]

    def _try_without_login(self):
        """A client without a login tries commands that only users may use, all the time."""
        while not self.over.is_set():
            for address, command in users.requests_without_login(self.cluster.nodes, self.store):
                try:
                    with Resp(address, timeout=1.0) as c:
                        answer = c.call(*command)
                except OSError:
                    continue
                except RespError as e:
                    if e.word in users.FORBIDDEN:
                        self.count('clients without a login refused by %s' % ('the storage' if command[0] != 'ACQUIRE' else 'nodes'))
                    elif e.word not in users.NO_ANSWER:
                        raise AssertionError('a client without a login that sends %s is answered %s' % (command[0], e.line)) from None
                    continue
                raise AssertionError('a client without a login is answered %r to %s' % (answer, command[0]))
            self.over.wait(0.1)

    def _preload(self):
        o = self.options
        if o.snapshots and not self.members:
            for node in self.cluster.nodes:
                node.extra += ['--snapshot-bytes', o.snapshots]
        if not library():
            missing = nemesis.need_shim(o.nemesis)
            if missing or o.unsafe_ack or o.no_sync:
                raise AssertionError('%s: the library to preload is not built' % (', '.join(missing) or 'broken on purpose'))
            return
        for server in self.servers():
            self._shim(server)

    def _shim(self, server):
        o = self.options
        journal = bool({'power', 'sync-error', 'calls'} & set(o.nemesis)) or o.no_sync
        more = [library('fencelock_unsafe_ack')] if o.unsafe_ack and server is not self.store else []
        shim = Shim(self.lab.path((server.log_name or server.name) + '.shim'), server.data, journal, more)
        ring = o.log_engine == 'io_uring' or o.log_engine == 'mixed' and self.random.random() < 0.5
        if ring and server is not self.store and not o.unsafe_ack and 'disk-slow' not in o.nemesis:
            shim.set('ring', 1) # nobody can slow that down
        preload(server, shim)

    def _write_event(self, what, **fields):
        self.record(type='mark', f=what, **fields)
        self.count('writes %s' % what)

    def _start_clients(self):
        o = self.options
        addresses = [node.tls for node in self.cluster.nodes] if o.tls else self.cluster.addresses()
        if self.members:
            addresses = self.tls_addresses or self.addresses
        for number in range(o.clients):
            argv = [sys.executable, CLIENT, '--workload', o.workload, '--number', number, '--clients', o.clients,
                    '--nodes', ','.join(addresses),
                    '--certs', self.certs.dir if o.tls else '', '--user', users.USER if o.users else '', '--store', self.store_address,
                    '--history', self.lab.path('client-%d.jsonl' % number), '--seed', o.seed,
                    '--locks', o.locks, '--ttl-ms', o.ttl_ms, '--think-ms', o.think_ms]
            if self.redis:
                argv += ['--redis', ','.join(r.address for r in self.redis)]
            if o.mode == 'frontdoor':
                argv.append('--front-door')
            if o.check_writes_only:
                argv.append('--check-writes-only')
            self.clients.append(self.lab.start(argv, 'client%d' % number))
        for client in self.clients: # before that a signal would end it
            client.wait_output('ready: ')

    def _start_threads(self):
        jobs = [('sampler', self._sample)] + ([('no-login', self._try_without_login)] if self.options.users else [])
        rare = max(1.0, len(self.options.nemesis) / 2.0)
        for name in self.options.nemesis:
            fault = nemesis.make(name, random.Random('%d %s' % (self.options.seed, name)), rare)
            jobs.append((name, lambda fault=fault: self._repeat_fault(fault)))
        for name, job in jobs:
            thread = threading.Thread(target=self._guarded, args=(job,), name=name, daemon=True)
            thread.start()
            self.threads.append(thread)

    def _guarded(self, job):
        try:
            job()
        except Exception as e: # raised again by run()
            self.thread_errors.append(e)
            self.over.set()

    def _repeat_fault(self, fault):
        self.over.wait(fault.gap())
        while not self.over.is_set():
            targets = fault.start(self)
            began = time.monotonic()
            fault.wait(self, fault.length())
            fault.stop(self)
            if targets: # else there was nothing that it could do just then
                self.record(type='nemesis', f=fault.name, t=began, until=time.monotonic(), targets=targets)
                self.count('faults')
            self.over.wait(fault.gap())

    def _sample(self):
        """Records the leader and the states of the nodes, a few times a second."""
        while not self.over.is_set():
            for node in self.cluster.nodes:
                try:
                    with Resp(node.address, timeout=0.3) as c:
                        info = info_fields(c.call('INFO'))
                except (OSError, RespError):
                    continue
                self.record(type='sample', node=node.name, index=info['state_hash_index'], hash=info['state_hash'],
                          term=info['term'], leader=info['leader_id'])
                if info['node_role'] == 'leader' and info['term'] > self.term:
                    if node.id != self.leader:
                        self.count('fail-overs')
                    self.term, self.leader = info['term'], node.id
            self.over.wait(0.2)

    def _wait_for_end(self, end):
        """The time is up, and there was a fault, if there are to be any; with --until-late also so many held writes must have come late."""
        last = end + PATIENCE_S
        while not self.over.is_set():
            left = end - time.monotonic()
            late = self.writes.let_through_late if self.store else 0
            enough = late >= self.options.until_late and (self.counts.get('faults') or not self.options.nemesis)
            if left <= 0 and (enough or time.monotonic() > last):
                break
            self.over.wait(max(0.05, min(left, 0.5)))
        for client in self.clients:
            if not client.running():
                raise AssertionError('%s ended by itself: %s' % (client.name, client.last_output()))

    def _heal(self):
        """Ends all faults; returns when the last of them had ended and the nodes answered."""
        o = self.options
        self.over.set()
        for thread in self.threads:
            thread.join(2 * PATIENCE_S)
        if self.thread_errors:
            raise self.thread_errors[0]
        self.peers.set(blocked=(), delay={})
        for client in self.clients:
            client.resume()
        for server in self.all_servers():
            if not server.running():
                server.launch()
            server.process.resume()
        for server in self.all_servers():
            with must('%s starts again' % server.name, server.process):
                server.wait_ready(recovery_s(o))
        if self.store:
            self.writes.set(0.0)
            self.writes.let_all_through()
        healed = time.monotonic()
        for node in self.cluster.nodes:
            with must('%s serves' % node.name):
                self.cluster.wait_serving(node, serves_again_s(o))
        if self.members:
            self.members.judge()
        self.record(type='mark', f='healed', t=healed)
        return healed

    def _paths(self):
        return [self.lab.path('faults.jsonl')] + [self.lab.path('client-%d.jsonl' % i) for i in range(self.options.clients)]

    def _wait_for_goal(self, healed):
        """Goes on until each client has done something useful; how soon is judged later, from the history."""
        goal = GOAL[self.options.workload]
        places = {i: 0 for i in range(self.options.clients)}
        invoked = set()
        end, unlucky = healed + recovery_s(self.options) + 5, healed + UNLUCKY_REDLOCK_S
        while places and time.monotonic() < end:
            if self.options.mode == 'redlock' and 2 * len(places) < self.options.clients and time.monotonic() > unlucky:
                break
            for i in list(places):
                with open(self.lab.path('client-%d.jsonl' % i)) as f:
                    f.seek(places[i])
                    for line in iter(f.readline, ''):
                        if not line.endswith('\n'):
                            break
                        places[i] += len(line)
                        event = history.json.loads(line)
                        if event['t'] <= healed:
                            continue
                        if event['type'] == 'invoke' and event.get('f') == goal:
                            invoked.add(event['op'])
                        heard = event['type'] == 'seen' # which is what a subscriber is for
                        if heard or event['type'] == 'ok' and event.get('f') == goal and event['op'] in invoked:
                            places.pop(i)
                            break
            # A client that was told to pause before its next write may do so only now.
            for client in self.clients:
                client.resume()
            time.sleep(0.1)

    def _stop_clients(self):
        for client in self.clients:
            client.asked_to_end = True
            client.signal(signal.SIGTERM)
        for client in self.clients:
            def ended(client=client):
                client.resume()
                return not client.running()
            wait_until(ended, 'the end of %s' % client.name, every=0.05)

    def _read_finals(self):
        if not self.store:
            return {}
        finals = {}
        for key in sorted({e['key'] for e in history.read(self._paths()) if e['type'] == 'invoke' and e.get('key')}):
            value = self.store.call('GET', key, timeout=PATIENCE_S)
            finals[key] = value.decode() if value is not None else None
        return finals

    # -- judging ------------------------------------------------------------------------------------------
    def _judge(self, began, healed, finals):
        r = Result()
        r.options, r.origin, r.healed, r.began_utc = self.options, began, healed, self.began_utc
        r.events = history.read(self._paths())
        r.ops = history.pair(r.events)
        r.counts = dict(self.counts)
        r.finals = finals
        r.anomalies = judge(r.events, r.ops, finals, healed, self.options)
        for fault, kind in (('flip', 'damage'), ('members', 'members'), ('backup', 'backups'), ('upgrade', 'version'),
                            ('calls', 'ends')):
            if fault in self.options.nemesis:
                r.anomalies[kind] = self.reported.get(kind, [])
        if self.stuck:
            r.anomalies['recovers'] = [checkers.Anomaly('recovers', text) for text in self.stuck]
        r.seconds = r.events[-1]['t'] - began
        r.overlap_s = checkers.overlap_s(r.ops)
        return r


def on_a_fast_clock(ops, ttl_s):
    """Leases are counted on the leader's clock, also the part of one that had passed when an operation was sent."""
    sooner = ttl_s * (1 - 1 / nemesis.ClockPace.FASTEST)
    for op in ops:
        if op.get('ttl') is not None:
            op.fields['ttl'] = max(0.0, op.get('ttl') - sooner)


def judge(events, ops, finals, healed, options):
    """All judges that apply. {what: anomalies}"""
    if 'clock-pace' in options.nemesis:
        on_a_fast_clock(ops, options.ttl_ms / 1000)
    workload = options.workload
    found = {
        'answered once': checkers.answered_once(events),
        'tokens': checkers.tokens(ops) + checkers.last_token(events, ops) + checkers.token_count(events, ops),
        'replicas': checkers.replicas(events),
        'refusals': judges.refusals(events, ops),
    }
    if healed is not None:
        actors = [c for c in range(options.clients) if not workloads.is_subscriber(workload, c)]
        found['liveness'] = checkers.liveness(ops, actors, healed, recovery_s(options), GOAL[workload])
        if options.mode == 'redlock' and 2 * len(found['liveness']) < len(actors):
            found['liveness'] = [] # some clients were unlucky
        if workload == 'watch':
            found['liveness'] += judges.listeners(events, set(range(options.clients)) - set(actors), healed)
    if workload == 'session':
        found['sessions'] = judges.sessions(ops)
    else:
        found['leases'] = checkers.leases(list(checkers.each_lock(ops)), alone=workload != 'semaphore')
    if workload == 'semaphore':
        found['holders'] = judges.holders(ops)
    else:
        found['linearizable'] = linear.registers(ops) if workload == 'register' else linear.locks(list(checkers.each_lock(ops)))
    if workload == 'watch':
        found['events'] = subscriptions.judge(events, ops)
    if USES_STORE[workload]:
        found['storage order'] = checkers.storage_order(ops)
        if finals is not None and workload in ('counter', 'bank'):
            found['lost updates'] = checkers.lost_updates(ops, finals)
        if finals is not None and workload == 'bank':
            found['sums'] = judges.sums(ops, finals)
        if finals is not None and workload == 'append':
            found['lost updates'] = judges.lists(ops, finals)
    return found
