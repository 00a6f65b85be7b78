#!/usr/bin/python3
"""`fencelock watch` on real nodes and on scripted ones: what it shows on a terminal, in a pipe and as JSON; that it goes
on at another node when its own dies, hangs or is cut off, and says that there is a gap."""

import calendar
import json
import os
import pty
import queue
import re
import signal
import subprocess
import sys
import termios
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, binary, env_without_options, main, try_again, wait_until
from scripted_server import CLOSE, HANG, ScriptedServer

OWNER, OTHER = 'owner-a-0123456789', 'owner-b-0123456789'
TIME = re.compile(r' time=(\S+)\.\d{3}Z$')


class Watcher:
    """`fencelock watch`, whose lines can be waited for."""

    def __init__(self, nodes, *args):
        self.child = subprocess.Popen([binary('fencelock'), 'watch', '--nodes', nodes, *map(str, args)],
                                      env=env_without_options(FENCELOCK_TIMEOUT='120s'), text=True,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines, self.errors = queue.Queue(), []
        self.threads = [threading.Thread(target=self._read, daemon=True),
                        threading.Thread(target=lambda: self.errors.extend(self.child.stderr), daemon=True)]
        for thread in self.threads:
            thread.start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.put(line.rstrip('\n'))

    def next(self, seconds=PATIENCE_S):
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            raise AssertionError('no line; it said %r' % self.errors) from None

    def until(self, *starts):
        """The lines up to the first that begins so."""
        lines = [self.next()]
        while not lines[-1].startswith(starts):
            lines.append(self.next())
        return lines

    def lines_without_a_gap(self, n):
        """So many; None after a gap, which a node that stands still for two seconds makes, and that is told: then some may be missing."""
        lines = []
        while len(lines) < n:
            lines.append(self.next())
            if 'gap' in lines[-1]:
                wait_until(lambda: any('no answer' in e for e in self.errors), 'word of a node that was silent')
                return None
        return lines

    def rest(self):
        """The lines that nobody has read, when it has ended."""
        return list(self.lines.queue)

    def end(self):
        """Its exit code; what it left unread comes with it."""
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGINT)
        code = self.child.wait(PATIENCE_S)
        for thread in self.threads:
            thread.join(PATIENCE_S)
        self.child.stdout.close()
        self.child.stderr.close()
        if any('Sanitizer' in e or 'runtime error' in e for e in self.errors):
            raise AssertionError(''.join(self.errors))
        return code


class WatchCase(Case):
    def watch(self, nodes, *args):
        watcher = Watcher(nodes if isinstance(nodes, str) else ','.join(nodes), *args)
        self.addCleanup(watcher.end)
        return watcher


class OneNode(WatchCase):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 1).start()
        self.node = self.cluster.nodes[0]
        self.cluster.leader()

    def subscribed(self, patterns=0, channels=0):
        wait_until(lambda: (self.node.info()['pubsub_patterns'], self.node.info()['pubsub_channels'])
                   == (patterns, channels), 'the subscriptions')

    def story(self, name):
        token = self.node.call('ACQUIRE', name, 'TTL', 600000, 'OWNER', OWNER)
        with self.node.client() as c:
            c.send('ACQUIRE', name, 'TTL', 600000, 'OWNER', OTHER, 'WAIT', 600000)
            wait_until(lambda: self.node.info()['waits'] == 1, 'the waiter')
            self.node.call('RELEASE', name, token)
            token = c.read()
        self.node.call('BREAK', name)
        return token

    def told(self, tell):
        """What tell() returns when there was no gap in the events."""
        def begun():
            self.node.call('BREAK', 'a b')
            return tell()
        return try_again(begun, 'a story without a gap')

    def test_in_a_pipe(self):
        def tell():
            w = self.watch(self.node.address, 'a b', 'job/*', '--limit', 6)
            self.subscribed(1, 1)
            self.node.call('ACQUIRE', 'elsewhere', 'OWNER', OWNER)
            token = self.story('job/1')
            self.node.call('ACQUIRE', 'a b', 'OWNER', 'name with blanks')
            lines = w.lines_without_a_gap(6)
            if lines is None:
                w.end()
                return None
            return w, token, lines
        w, token, lines = self.told(tell)
        self.assertTrue(lines[0].startswith('event=granted lock=job/1 token=%d owner=%s clock=' % (token - 1, OWNER)), lines)
        self.assertEqual([line.split()[0] for line in lines[:5]],
                         ['event=' + e for e in ('granted', 'queued', 'released', 'granted', 'broken')])
        self.assertIn(' lock=a%20b ', lines[5])
        for line in lines: # as the logs write it
            came = calendar.timegm(time.strptime(TIME.search(line).group(1), '%Y-%m-%dT%H:%M:%S'))
            self.assertLess(abs(time.time() - came), 3600)
        self.assertIn(' owner=name%20with%20blanks ', lines[5])
        self.assertEqual((w.child.wait(PATIENCE_S), w.errors), (0, [])) # --limit

    def test_json(self):
        def tell():
            w = self.watch(self.node.address, '--json')
            self.subscribed(1)
            token = self.story('job/1')
            lines = w.lines_without_a_gap(5)
            code = w.end()
            return lines and (token, lines, code)
        token, lines, code = self.told(tell)
        events = [json.loads(line) for line in lines]
        self.assertEqual([e['event'] for e in events], ['granted', 'queued', 'released', 'granted', 'broken'])
        self.assertRegex(events[3].pop('time'), r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
        clock = events[3].pop('clock_ms')
        self.assertGreater(clock, 0)
        self.assertEqual(events[3].pop('wait'), events[1]['wait'])
        self.assertEqual(events[3], {'event': 'granted', 'lock': 'job/1', 'token': token, 'owner': OTHER})
        self.assertEqual(code, -signal.SIGINT)

    def on_terminal(self):
        ours, theirs = pty.openpty()
        env = env_without_options(FENCELOCK_TIMEOUT='120s')
        env.pop('NO_COLOR', None)
        child = subprocess.Popen([binary('fencelock'), 'watch', '--nodes', self.node.address, '--limit', '5'], env=env,
                                 stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs)
        os.close(theirs)
        self.addCleanup(os.close, ours)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        self.subscribed(1)
        token = self.story('x')
        seen = b''
        while b'may have been missed' not in seen:
            try:
                data = os.read(ours, 65536)
            except OSError: # all have closed it
                self.assertEqual(child.wait(PATIENCE_S), 0)
                return token, seen.decode().splitlines()
            seen += data
        self.assertIn(b'no answer', seen)
        child.kill()
        child.wait()
        return None

    def test_a_key_ends_top(self):
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        self.addCleanup(os.close, theirs)
        for ends in (lambda child: os.write(ours, b'xq'), lambda child: child.send_signal(signal.SIGINT)):
            child = subprocess.Popen([binary('fencelock'), 'top', '--nodes', self.node.address], stdin=theirs, stdout=theirs, stderr=theirs,
                                     env=env_without_options(FENCELOCK_TIMEOUT='120s'))
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            seen = b''
            while b'leads' not in seen:
                seen += os.read(ours, 65536)
            ends(child)
            self.assertIn(child.wait(PATIENCE_S), (0, -signal.SIGINT))
            flags = termios.tcgetattr(theirs)[3]
            self.assertEqual(flags & (termios.ECHO | termios.ICANON), termios.ECHO | termios.ICANON)

    def test_on_a_terminal(self):
        token, lines = self.told(self.on_terminal)
        self.assertEqual(len(lines), 5)
        self.assertIn('\x1b[32mgranted', lines[0])
        self.assertIn('owner ' + OWNER, lines[0])
        self.assertIn('\x1b[31mbroken', lines[4])
        self.assertIn(str(token), lines[4])
        self.assertEqual(len({line.index('owner') for line in lines if 'granted' in line}), 1) # aligned

    def test_wrong_lines(self):
        for args in (('',), ('x' * 256,), ['x'] * 17, ('--ttl', '1s')):
            w = self.watch(self.node.address, *args)
            self.assertEqual(w.child.wait(PATIENCE_S), 2, args)

    def test_nobody_there(self):
        w = self.watch('127.0.0.1:1', '--timeout', '300ms')
        self.assertEqual(w.child.wait(PATIENCE_S), 3)
        w.end()
        self.assertIn('Start fencelockd', ''.join(w.errors))

    def test_refused(self):
        w = self.watch(self.node.address, *['p%d*' % i for i in range(16)], '--limit', '0')
        self.assertEqual(w.child.wait(PATIENCE_S), 0) # as many as a connection may have


class Gaps(WatchCase):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 3).start()
        self.cluster.leader()

    def listener(self, w):
        """The node that it listens to, after a grant that it has heard of."""
        def listens():
            return [n for n in self.cluster.running() if n.info()['pubsub_patterns'] == 1]
        wait_until(listens, 'a node')
        self.hears_a_grant(w)
        return wait_until(listens, 'a node')[0]

    def hears_a_grant(self, w):
        """The next one, when there was a gap: a busy node that is left makes one, too."""
        def heard():
            token = 'event=granted lock=x token=%d ' % self.grant()
            return w.until(token, 'event=gap node=')[-1].startswith(token)
        try_again(heard, 'a grant without a gap before it')

    def grant(self):
        def granted():
            node = self.cluster.leader()
            token = node.call('ACQUIRE', 'x', 'TTL', 600000, 'OWNER', OWNER)
            node.call('RELEASE', 'x', token)
            return token
        return wait_until(granted, 'a grant')

    def goes_on(self, w, node):
        while node.address in w.until('event=gap node=')[-1]: # of before
            pass
        wait_until(lambda: any(node.address in e and 'another node' in e for e in w.errors), 'word of why')
        self.hears_a_grant(w)

    def test_its_node_dies_then_the_next_hangs(self):
        w = self.watch(self.cluster.addresses())
        first = self.listener(w)
        first.kill()
        self.goes_on(w, first)
        first.start()
        self.cluster.wait_serving(first)
        second = self.listener(w)
        second.pause()
        self.goes_on(w, second)
        second.resume()

    def test_its_node_is_alone(self):
        """A node that knows no leader is left, though it answers."""
        w = self.watch(self.cluster.addresses())
        node = self.listener(w)
        for other in self.cluster.nodes:
            if other is not node:
                other.pause()
        wait_until(lambda: any(node.address in e and 'no leader' in e for e in w.errors), 'word of why')
        for other in self.cluster.nodes:
            other.resume()
        w.until('event=gap node=')
        self.hears_a_grant(w)


SUBSCRIBED = b'*3\r\n$10\r\npsubscribe\r\n$6\r\nlock:*\r\n:1\r\n'


def event(text):
    return b'*4\r\n$8\r\npmessage\r\n$6\r\nlock:*\r\n$6\r\nlock:x\r\n$%d\r\n%s\r\n' % (len(text), text)


class Scripted(WatchCase):
    def server(self, *script, **options):
        server = ScriptedServer(script, **options)
        self.addCleanup(server.close)
        return server

    def watched(self, scripts, *args, command=None, **options):
        """The servers, exit code, lines and errors of a watch that ends by itself. When a server was so late that it was left, or
        the watch so slow that it asked whether the server is there, it begins anew. `command`: starts another one than ours."""
        def ran():
            servers = [self.server(*script, **options) for script in scripts]
            w = (command or self.watch)([s.address for s in servers], *args)
            def strange():
                return any(s.late or s.leader_requests > s.connections for s in servers)
            wait_until(lambda: w.child.poll() is not None or strange(), 'its end')
            code = w.end()
            for s in servers:
                s.settle()
            return None if strange() else (servers, code, [TIME.sub('', line) for line in w.rest()], ''.join(w.errors))
        return try_again(ran, 'a server in time')

    def test_a_gap_in_the_events_and_one_of_the_connection(self):
        (s,), code, lines, errors = self.watched(
            [[(SUBSCRIBED, event(b'event=released token=1 owner=o clock=1'), event(b'event=resync clock=2'), CLOSE),
              (SUBSCRIBED, event(b'event=released token=2 owner=o clock=3'), b'-LIMIT events ended: too slow\r\n', CLOSE),
              (SUBSCRIBED, event(b'event=expired token=3 owner=o clock=4'), HANG)]], '--limit', 3)
        self.assertEqual((code, lines), (0, [
            'event=released lock=x token=1 owner=o clock=1', 'event=resync lock=x clock=2', 'event=gap node=' + s.address,
            'event=released lock=x token=2 owner=o clock=3', 'event=gap node=' + s.address,
            'event=expired lock=x token=3 owner=o clock=4']))
        self.assertIn('too slow', errors)

    def test_nonsense(self):
        for nonsense in (b'*1\r\n:1\r\n', b'+OK\r\n', b'*4\r\n$8\r\npmessage\r\n:1\r\n:1\r\n:1\r\n', event(b'nothing'),
                         b'what\r\n', b'*4\r\n$8\r\npmessage\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n'):
            (s,), code, lines, _ = self.watched(
                [[(SUBSCRIBED, nonsense), (SUBSCRIBED, event(b'event=released token=2 owner=o clock=3'))]], '--limit', 1)
            self.assertEqual((code, lines[0]), (0, 'event=gap node=' + s.address))
            self.assertIn('token=2', lines[1])

    def test_a_redis_takes_subscriptions_too(self):
        _, code, lines, _ = self.watched([[(SUBSCRIBED, HANG)]], '--json', leader=b"-ERR unknown command 'LEADER'\r\n")
        self.assertEqual(code, 3)
        got = json.loads(lines[0])
        self.assertEqual((got['error'], got['class']), ('EPROTO', 'fault'))
        self.assertIn('not a fencelockd', got['message'])

    def test_a_storage_does_not(self):
        _, code, _, errors = self.watched([[b"-ERR unknown command 'PSUBSCRIBE'\r\n"]], '--timeout', '300ms')
        self.assertEqual(code, 3)
        self.assertIn('--nodes', errors)

    def test_it_ends_when_nobody_can_read_it(self):
        step = (SUBSCRIBED, event(b'event=released token=2 owner=o clock=3'), HANG)
        for closed in (False, True):
            with open('/dev/full', 'w', encoding='utf-8') as full:
                (s,), code, _, _ = self.watched([[step]], command=lambda nodes: Unread(closed, full, nodes))
            self.assertEqual(code, 3)
            self.assertEqual(s.connections, 1) # and no event was sent to the node, as descriptor 1
            self.assertEqual(len(s.requests), 1)

    def test_a_node_that_does_not_take_it(self):
        limit = [b'-LIMIT too many subscriptions\r\n']
        _, code, lines, _ = self.watched([limit], '--timeout', '300ms', '--json')
        self.assertEqual((code, json.loads(lines[0])['error']), (1, 'ELIMIT'))
        _, _, lines, _ = self.watched([limit, [(SUBSCRIBED, event(b'event=released token=2 owner=o clock=3'))]], '--limit', 1)
        self.assertIn('token=2', lines[0])


class Unread:
    """A watch whose stdout is of no use."""

    def __init__(self, closed, full, nodes):
        self.child = subprocess.Popen(['sh', '-c', 'exec "$@"' + (' >&-' if closed else ''), 'sh', binary('fencelock'), 'watch',
                                       '--nodes', nodes[0]], stdout=full, stdin=subprocess.DEVNULL)
        self.errors = []

    def rest(self):
        return []

    def end(self):
        if self.child.poll() is None:
            self.child.kill()
        return self.child.wait(PATIENCE_S)


if __name__ == '__main__':
    main()
