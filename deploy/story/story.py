"""Plays the story of "How to do distributed locking" (Kleppmann, 2016) with real processes: prints it
while it happens, and draws what was recorded."""

import argparse
import json
import os
import shlex
import signal
import socket
import sys
import time

import figure
from harness import Cluster, Lab, RespError, Store, binary, wait_until
from harness.process import release_from_guard

LOCK, KEY = 'report-lock', 'report'
TTL_MS = 2000
PATIENCE_S = 30.0
HERE = os.path.dirname(os.path.abspath(__file__))


class Trouble(Exception):
    """Something a person can act on."""


class Timeline:
    """Prints events as they come, and keeps them for the picture."""

    COLOURS = {'lock service': '35', 'client 1': '34', 'client 2': '32', 'storage': '33'}
    WIDTH = 58

    def __init__(self):
        self.events = []
        self.zero = time.monotonic()
        self.colour = sys.stdout.isatty() and not os.environ.get('NO_COLOR') and os.environ.get('TERM') != 'dumb'

    def paint(self, code, text):
        return '\033[%sm%s\033[0m' % (code, text) if self.colour else text

    def heading(self, text):
        print('\n' + self.paint('1', text) + '\n', flush=True)

    def add(self, actor, kind, text, result='', bad=False, t=None, **facts):
        """One event: printed, with `result` in a column of its own, and kept under its kind."""
        t = time.monotonic() if t is None else t
        self.events.append(dict(facts, t=t - self.zero, actor=actor, kind=kind))
        who = self.paint(self.COLOURS[actor], '%-13s' % actor)
        dots = ' ' + '.' * max(2, self.WIDTH - len(text)) + ' ' if result else ''
        line = '  %s  %s %s%s%s' % (self.paint('2', '%6.2f s' % (t - self.zero)), who, text, self.paint('2', dots),
                                    self.paint('1;31' if bad else '1', result))
        print(line, flush=True)

    def remark(self, text, bad=False):
        print(' ' * 25 + self.paint('31' if bad else '2', text), flush=True)


class Client:
    """A client process, and the lines that it has printed so far."""

    def __init__(self, lab, timeline, name, nodes, store, work):
        self.timeline, self.name = timeline, name
        self.seen = 0
        self.process = lab.start([sys.executable, os.path.join(HERE, 'client.py'), '--name', name, '--nodes',
                                  ','.join(n.address for n in nodes), '--store', store.address, '--lock', LOCK, '--key', KEY,
                                  '--ttl', TTL_MS, '--work', work], name.replace(' ', '-'))
        self.nodes = nodes

    def until(self, *whats):
        """Waits for one of these events and returns it; prints all events until then."""
        give_up = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up:
            ended = not self.process.running()
            lines = self.process.output().splitlines(keepends=True)[self.seen:]
            for line in lines:
                if not line.endswith('\n'):
                    break
                self.seen += 1
                if not line.startswith('{'):
                    continue
                event = json.loads(line)
                self.show(event)
                if event['what'] in whats:
                    return event
            if ended:
                raise Trouble('%s ended early; it said:\n%s' % (self.name, self.process.output()))
            time.sleep(0.005)
        raise Trouble('%s did not get on within %g s' % (self.name, PATIENCE_S))

    def show(self, event):
        what, t, line = event['what'], event['t'], self.timeline
        token = event.get('token')
        if what == 'asks':
            line.add(self.name, what, 'asks for the lock, for a lease of %g s' % (TTL_MS / 1000), t=t)
        elif what == 'granted':
            number = next((n.id for n in self.nodes if n.address == event['node']), 0)
            line.add(self.name, what, 'is granted the lock, through node %d' % number, 'token %d' % token, t=t, token=token)
        elif what == 'asks to read':
            line.events.append({'t': t - line.zero, 'actor': self.name, 'kind': what, 'token': token})
        elif what == 'has read':
            line.add(self.name, what, 'claims and reads the report: "%s"' % event['value'], t=t, token=token,
                     value=event['value'])
        elif what == 'writes':
            line.add(self.name, what, 'writes "%s", with token %d' % (event['value'], token), t=t, token=token,
                     value=event['value'])
        elif what == 'has written':
            line.add('storage', 'accepted', 'the write with token %d' % token, 'accepted', t=t, token=token, by=self.name,
                     value=event['value'])
        elif what == 'refused':
            line.add('storage', 'refused', 'the write with token %d' % token, 'REFUSED', bad=True, t=t, token=token,
                     by=self.name)
            line.remark('-' + event['error'], bad=True)
        elif what == 'released':
            line.add(self.name, what, 'gives the lock back', t=t, token=token)
        elif what == 'not granted':
            raise Trouble('%s was not granted the lock' % self.name)


def check_ports(ports):
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(('127.0.0.1', port))
            except OSError as e:
                raise Trouble('port %d cannot be used (%s).\nAnother program has it: '
                              'ss -ltnp "sport = :%d" shows which. Stop it, or choose other ports with --base-port.'
                              % (port, os.strerror(e.errno).lower(), port)) from None


def start_servers(lab, base_port):
    ports = [base_port + i for i in range(3)]
    peers = [base_port + 100 + i for i in range(3)]
    check_ports(ports + peers + [base_port + 10])
    cluster = Cluster(lab, 3)
    for node, port, peer in zip(cluster.nodes, ports, peers):
        node.set_ports(port, peer)
    store = Store(lab, port=base_port + 10)
    cluster.start()
    store.start()
    return cluster, store


def play(lab, timeline, cluster, store):
    """The story. Returns the three tokens in the order in which they were granted."""
    leader = cluster.leader()
    timeline.add('lock service', 'up', 'three nodes are up, and have chosen node %d to lead' % leader.id, leader=leader.id)
    timeline.add('storage', 'store up', 'is up; it remembers the highest token it has seen')

    timeline.heading('A client is paused in the middle of its work')
    one = Client(lab, timeline, 'client 1', cluster.nodes, store, work=1.0)
    first = one.until('granted')['token']
    one.until('has read')
    one.process.pause()
    timeline.add('client 1', 'paused', 'is stopped with SIGSTOP, as a long garbage collection would')

    two = Client(lab, timeline, 'client 2', cluster.nodes[1:] + cluster.nodes[:1], store, work=0.3)
    two.until('asks')
    timeline.remark('(the lock is held, so client 2 waits in its queue until the lease of client 1 ends)')
    second = two.until('granted')['token']
    two.until('released')
    two.process.wait()

    timeline.heading('It wakes up, and knows nothing of the pause')
    timeline.add('client 1', 'resumed', 'goes on (SIGCONT), and still believes that it holds the lock')
    one.process.resume()
    one.until('refused', 'has written')
    one.process.wait()
    value = store.call('GET', KEY).decode()
    if 'client 1' in value:
        raise Trouble('the late write was accepted. This must never happen; please report it with %s' % lab.dir)
    timeline.remark('(without the token, client 1 would have wiped out what client 2 wrote)')

    timeline.heading('The leader is killed')
    leader = cluster.leader()
    leader.kill()
    timeline.add('lock service', 'killed', 'node %d, the leader, is killed with SIGKILL' % leader.id, leader=leader.id)
    killed = time.monotonic()
    left = [n for n in cluster.nodes if n is not leader]
    again = Client(lab, timeline, 'client 2', left, store, work=0.2)
    granted = again.until('granted')
    third = granted['token']
    timeline.remark('(%.0f ms after the kill; the token is larger still)' % ((granted['t'] - killed) * 1000))
    again.until('released')
    again.process.wait()
    return first, second, third, store.call('GET', KEY).decode()


def verdict(timeline, first, second, third, value):
    rising = first < second < third
    timeline.heading('What happened')
    print('  The tokens %d < %d < %d only ever grow, over expiry and over the death of a leader.' % (first, second, third))
    print('  The report says "%s": no update was lost.\n' % value)
    if not rising or value != 'client 2 + client 2':
        raise Trouble('this is not what was promised; please report it')


def say_how_to_go_on(lab, cluster, store):
    nodes = cluster.nodes
    for node in nodes:
        if not node.running():
            node.start()
            print('%s, which was killed, is back.' % node.name)
    cli, every = binary('fencelock'), ','.join(n.address for n in cluster.nodes)
    print('The cluster goes on running (%s).\n' % ', '.join('%s %s' % (n.name, n.address) for n in nodes + [store]))
    print('Talk to it:')
    print('  redis-cli -p %d ACQUIRE my-lock TTL 10000' % nodes[0].port)
    print('  redis-cli -p %d LOCKS' % nodes[0].port)
    print('  redis-cli -p %d MARK %s' % (store.port, LOCK))
    print('  export FENCELOCK_NODES=%s' % every)
    print('  %s acquire my-lock --ttl 10000' % shlex.quote(cli))
    print('  %s status' % shlex.quote(cli))
    print('Stop it, and remove its data and logs:')
    print('  kill %s; rm -r %s\n' % (' '.join(str(s.process.pid) for s in nodes + [store]), shlex.quote(lab.dir)))
    for server in nodes + [store]:
        release_from_guard(server.process)
        lab.processes.remove(server.process)


def parse():
    parser = argparse.ArgumentParser(prog='deploy/quickstart')
    parser.add_argument('--keep', action='store_true')
    parser.add_argument('--svg', default='fencelock-story.svg')
    parser.add_argument('--base-port', type=int, default=7401)
    options = parser.parse_args()
    if not 1024 <= options.base_port <= 65535 - 102:
        parser.error('--base-port must be between 1024 and %d' % (65535 - 102))
    folder = os.path.dirname(os.path.abspath(options.svg))
    if not os.access(folder, os.W_OK):
        parser.error('--svg: cannot write in %s' % folder)
    return options


def run(options):
    timeline = Timeline()
    lab = Lab('quickstart')
    keep = False
    try:
        timeline.heading('Three lock service nodes and a storage start')
        timeline.zero = time.monotonic()
        cluster, store = start_servers(lab, options.base_port)
        first, second, third, value = play(lab, timeline, cluster, store)
        verdict(timeline, first, second, third, value)
        with open(options.svg, 'w', encoding='utf-8') as f:
            f.write(figure.draw(timeline.events, TTL_MS / 1000))
        print('  The picture of it: %s\n' % options.svg)
        if options.keep:
            say_how_to_go_on(lab, cluster, store)
            keep = True
    except BaseException as e:
        lab.quiet_close(keep=not isinstance(e, (KeyboardInterrupt, SystemExit)) and bool(lab.processes))
        raise
    if not keep:
        lab.close()


def main():
    options = parse()

    def end(number, frame):
        raise SystemExit(128 + number)
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGHUP, end)
    try:
        run(options)
    except KeyboardInterrupt:
        print('\ninterrupted; everything that was started has been stopped', file=sys.stderr)
        return 130
    except (Trouble, AssertionError, RespError, OSError) as e:
        print('\nquickstart: error: %s' % e, file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
