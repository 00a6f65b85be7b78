"""Parts of the tests of Redlock: Redis servers, a proxy that interferes, a fake Redis, and a program that drives our library."""

import json
import os
import queue
import signal
import socket
import subprocess
import threading
import time

from harness import PATIENCE_S, Resp, RespError, free_ports, wait_until
from harness.lab import build_dir
from harness.resp import close_all, read_request, shut_down

# A server may take a twentieth of a lock's TTL for its answer. With this budget and this TTL a call that must succeed does so on any
# machine; where a server has to be too slow, a test takes a shorter TTL or budget. No time of the options is longer than a day.
PATIENT_MS = int(PATIENCE_S * 1000)
LONG_MS = 20 * PATIENT_MS
DAY_MS = 86400000

# enum cause of redlock_driver, fl_redlock_status, why a lock was lost there, fl_redlock_finding_kind
CAUSES = ['none', 'contended', 'unreachable', 'too slow', 'refused', 'lost', 'no token', 'cancelled']
STATUSES = ['unasked', 'waiting', 'yes', 'held', 'foreign', 'not ours', 'error', 'down', 'silent', 'young', 'replica',
            'twice']
ENDS = ['lost', 'expired', 'max hold', 'closed']
FINDINGS = ['even', 'few', 'twice', 'replica', 'evicts', 'forgets', 'young', 'unreachable', 'refused', 'unknown',
            'stranger', 'unable']


class Redis:
    """A redis-server of the distribution on loopback, without persistence unless asked for."""

    def __init__(self, lab, name, *args, port=None, env=None):
        self.lab, self.name, self.args, self.env = lab, name, args, env
        self.port = port or free_ports(1)[0]
        self.address = '127.0.0.1:%d' % self.port
        self.password = None
        self.start()

    def start(self):
        os.makedirs(self.lab.path(self.name), exist_ok=True)
        argv = ['redis-server', '--port', self.port, '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no',
                '--dir', self.lab.path(self.name), *self.args]
        self.process = self.lab.start(argv, self.name, env=self.env)
        wait_until(self.answers, '%s answers' % self.name)

    def answers(self):
        try:
            with Resp(self.address, timeout=2) as c:
                c.call('PING')
        except RespError:
            pass # it may want a password
        return True

    def call(self, *args):
        with Resp(self.address) as c:
            if self.password:
                c.call('AUTH', self.password)
            return c.call(*args)

    def get(self, key):
        value = self.call('GET', key)
        return None if value is None else value.decode()

    def restart(self):
        self.process.kill()
        self.start()


class Proxy:
    """Stands between a client and a server. delay: seconds that each answer is late. hold(): nothing more
    passes to the server until let_go(); hold_answers(): nothing more comes back from it. rule(request bytes) may return
    'drop': the request is passed on, its answer is not, and the connection is cut."""

    def __init__(self, server, delay=0.0):
        self.backend = ('127.0.0.1', server.port)
        self.delay = delay
        self.rule = None
        self.open_gate = threading.Event()
        self.open_gate.set()
        self.answers_gate = threading.Event()
        self.answers_gate.set()
        self.sockets = []
        self.connections = 0
        self.seen = b'' # from clients
        self.answered = b'' # given back to clients
        self.listener = socket.socket()
        self.listener.bind(('127.0.0.1', 0))
        self.listener.listen(64)
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def hold(self):
        self.open_gate.clear()

    def hold_answers(self):
        self.answers_gate.clear()

    def let_go(self):
        self.open_gate.set()
        self.answers_gate.set()

    def close(self):
        self.let_go()
        close_all([self.listener] + self.sockets)

    def cut(self):
        """Cuts the connections that are there; new ones work."""
        for s in self.sockets:
            shut_down(s)

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
                server = socket.create_connection(self.backend)
            except OSError:
                return
            self.connections += 1
            for s in (client, server):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets += [client, server]
            pair = {'dropped': False, 'cut': threading.Lock()}
            threading.Thread(target=self._up, args=(client, server, pair), daemon=True).start()
            threading.Thread(target=self._down, args=(client, server, pair), daemon=True).start()

    def _up(self, client, server, pair):
        """Reads on while the gate is closed, so that `seen` has all that was sent."""
        passed_on = queue.Queue()
        threading.Thread(target=self._pass_on, args=(passed_on, server, pair), daemon=True).start()
        data = b' '
        while data:
            try:
                data = client.recv(65536)
            except OSError:
                data = b''
            self.seen += data
            passed_on.put(data)

    def _pass_on(self, waiting, server, pair):
        try:
            while True:
                data = waiting.get()
                self.open_gate.wait()
                if not data:
                    break
                if self.rule is None or self.rule(data) != 'drop':
                    server.sendall(data)
                    continue
                with pair['cut']: # whoever finds it cut knows that the request is with the server
                    pair['dropped'] = True
                    server.sendall(data)
        except OSError:
            pass
        shut_down(server)

    def _down(self, client, server, pair):
        try:
            while True:
                data = server.recv(65536)
                with pair['cut']:
                    dropped = pair['dropped']
                if not data or dropped:
                    break
                if self.delay:
                    time.sleep(self.delay)
                self.answers_gate.wait()
                client.sendall(data)
                self.answered += data
        except OSError:
            pass
        shut_down(client)
        shut_down(server)


INFO = (b'run_id:%s\r\nuptime_in_seconds:%d\r\nrole:%s\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n')


class FakeRedis:
    """Pretends to be a Redis: logs in like one and answers everything else by on_request(words), which
    returns the bytes of the answer, None for no answer, or 'close'. `requests` has all of them. path: of a Unix
    socket to listen on instead of TCP."""

    def __init__(self, on_request=None, uptime=1000000, role=b'master', run_id=None, commands=b'*2\r\n*-1\r\n*-1\r\n',
                 path=None):
        self.on_request = on_request or (lambda words: b'+OK\r\n' if words[0] == b'SET' else b':1\r\n')
        self.run_id = run_id or os.urandom(20).hex().encode()
        self.info = INFO % (self.run_id, uptime, role)
        self.commands = commands
        self.requests = []
        self.sockets = []
        self.listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self.listener.bind(path or ('127.0.0.1', 0))
        self.listener.listen(64)
        self.address = path or '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        close_all([self.listener] + self.sockets)

    def words(self):
        return [r[0].upper().decode() for r in list(self.requests)]

    def _accept(self):
        while True:
            try:
                s, _ = self.listener.accept()
            except OSError:
                return
            self.sockets.append(s)
            threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    def _serve(self, s):
        try:
            reader = s.makefile('rb')
            while (words := read_request(reader)) is not None:
                answer = self._answer(words)
                if answer == 'close':
                    s.shutdown(socket.SHUT_RDWR)
                    return
                if answer is not None:
                    s.sendall(answer)
        except (OSError, ValueError):
            pass

    def _answer(self, words):
        name = words[0].upper()
        if name == b'INFO':
            return self.info if self.info.startswith(b'-') else b'$%d\r\n%s\r\n' % (len(self.info), self.info)
        if name == b'COMMAND':
            return self.commands
        if name == b'SCRIPT':
            return b'$40\r\n' + b'0' * 40 + b'\r\n'
        if name == b'EVAL' and words[1] == b'return 1': # may it run scripts?
            return b':1\r\n'
        if name == b'CONFIG':
            return b'*2\r\n$11\r\nappendfsync\r\n$6\r\nalways\r\n'
        self.requests.append(words)
        return self.on_request(words)


class Driver:
    """A process with our library in it. Blocking: d('acquire', 0, 'a', 10000, 0, 0) returns the answer.
    loop=True: d.send(...) and d.read()."""

    def __init__(self, servers, loop=False, wrapper=(), **options):
        path = os.path.join(build_dir(), 'tests', 'unit', 'redlock', 'redlock_driver')
        addresses = ','.join(s if isinstance(s, str) else s.address for s in servers)
        options.setdefault('safe', 1)
        options.setdefault('budget', 500) # the machine may be busy; a 20th of the TTL holds as well
        argv = [*wrapper, path, 'loop' if loop else 'blocking', addresses]
        argv += ['%s=%s' % item for item in options.items()]
        self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.child.pid
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read_all, daemon=True)
        self.reader.start()

    def _read_all(self):
        for line in self.child.stdout:
            self.lines.put(Answer(json.loads(line)))
        self.lines.put(None)

    def send(self, *words):
        self.child.stdin.write(' '.join(str(w) for w in words) + '\n')
        self.child.stdin.flush()

    def pause(self):
        """Returns when it stands still."""
        os.kill(self.pid, signal.SIGSTOP)

        def stands():
            with open('/proc/%d/stat' % self.pid) as f:
                return f.read().rpartition(')')[2].split()[0] == 'T'
        wait_until(stands, 'the driver is stopped', 0.001)

    def resume(self):
        os.kill(self.pid, signal.SIGCONT)

    def read(self, timeout=PATIENCE_S):
        try:
            answer = self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError('the driver says nothing') from None
        if answer is None:
            raise AssertionError('the driver ended with %s' % self.child.wait(PATIENCE_S))
        return answer

    def read_nothing(self, seconds):
        try:
            raise AssertionError('unexpected: %r' % (self.lines.get(timeout=seconds),))
        except queue.Empty:
            pass

    def __call__(self, *words):
        self.send(*words)
        return self.read()

    # Blocking calls by name; 0 stands for the defaults of the library.
    def acquire(self, name, ttl=LONG_MS, wait=0, min_validity=0, slot=0):
        return self('acquire', slot, name, ttl, wait, min_validity)

    def extend(self, name, ttl=0, slot=0):
        return self('extend', slot, name, ttl)

    def release(self, name, slot=0):
        return self('release', slot, name)

    def close(self):
        """The exit code; not 0 means a leak or a crash under a sanitizer."""
        if self.child.stdin.closed:
            return self.child.returncode
        try:
            self.child.stdin.close()
        except BrokenPipeError:
            pass
        code = self.child.wait(PATIENCE_S)
        self.reader.join(PATIENCE_S)
        self.child.stdout.close()
        return code


class Answer(dict):
    """An answer of the driver, with the numbers of the enums as words."""

    @property
    def result(self):
        return self['result']

    @property
    def ok(self):
        return self['result'] == 'OK'

    @property
    def cause(self):
        return CAUSES[self['cause']]

    @property
    def statuses(self):
        return [STATUSES[s[0]] for s in self['servers']]

    @property
    def errors(self):
        return [s[2] for s in self['servers']]
