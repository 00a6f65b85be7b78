#!/usr/bin/python3
"""What `fencelock run`, `acquire` and `redlock acquire` inherit, and how they are interrupted: signals that were ignored or blocked before,
process 1 of a container, a command of another user, and ^C while a lock is on its way to them."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, binary, env_without_options, main, wait_until
from redlock_lab import DAY_MS, Proxy, Redis

NOT_STOPPED = 122
OWNER = 'owner-a-0123456789'
CONTAINER = ['unshare', '--pid', '--fork', '--mount-proc', '--kill-child']
AS_ROOT = 'int setresuid(unsigned, unsigned, unsigned); int execvp(const char *, char *const *);\n' \
          'int main(int n, char **v) { (void)n; return setresuid(0, 0, 0) != 0 || execvp(v[1], v + 1); }\n'


def ignoring(*signals):
    """Of those that a terminal sends these are ignored, and no others, whatever this process has inherited."""
    def ignore():
        for s in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(s, signal.SIG_IGN if s in signals else signal.SIG_DFL)
    return ignore


def is_on_its_way(port):
    """Whether the kernel has a request for the process that listens on this port, which has not read it. The end of a connection
    counts as one byte there."""
    with open('/proc/net/tcp') as f:
        for line in list(f)[1:]:
            words = line.split()
            if int(words[1].split(':')[1], 16) == port and words[3] == '01' and int(words[4].split(':')[1], 16) > 40:
                return True
    return False


class InheritedCase(Case):
    def setUp(self):
        super().setUp()
        self.cluster = Cluster(self.lab, 1).start()
        self.node = self.cluster.nodes[0]
        self.env = env_without_options(FENCELOCK_NODES=self.node.address, FENCELOCK_TIMEOUT='120s')

    def start(self, *words, **options):
        options.setdefault('stdin', subprocess.DEVNULL)
        child = subprocess.Popen([*options.pop('before', ()), binary('fencelock'), *words], env=options.pop('env', self.env),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
        return self.kill_at_cleanup(child)

    def waiters(self, name):
        shown = self.node.call('SHOW', name)
        return dict(zip(shown[::2], shown[1::2]))[b'waiters']

    def wait_waiter(self, name):
        wait_until(lambda: self.waiters(name) >= 1, 'a waiter for %s' % name)

    def take(self, name):
        return self.node.call('ACQUIRE', name, 'TTL', DAY_MS, 'OWNER', OWNER)


class Signals(InheritedCase):
    def test_signals_that_were_ignored_stay_ignored(self):
        """nohup, and a background job of a shell: while it waits, and while its command runs."""
        token = self.take('a')
        waits = self.start('run', 'a', '--ttl', '10m', '--', 'echo', 'done',
                           preexec_fn=ignoring(signal.SIGHUP, signal.SIGINT, signal.SIGQUIT))
        self.wait_waiter('a')
        for s in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            waits.send_signal(s)
        self.node.call('RELEASE', 'a', token)
        self.assertEqual(self.wait_child(waits)[:2], (0, 'done\n'))
        runs = self.start('run', 'b', '--ttl', '10m', '--', 'python3', '-c',
                          'import signal; signal.signal(signal.SIGHUP, lambda *_: print("heard")); print(1, flush=True); input()',
                          preexec_fn=ignoring(signal.SIGHUP), stdin=subprocess.PIPE)
        runs.stdout.readline()
        runs.send_signal(signal.SIGHUP)
        code, out, _ = self.wait_with_input(runs, b'\n')
        self.assertEqual((code, out), (0, ''))

    def wait_with_input(self, child, text):
        out, err = child.communicate(text, timeout=PATIENCE_S)
        return child.returncode, out.decode(), err.decode()

    def test_a_signal_that_was_blocked_still_ends_it_by_that_signal(self):
        self.take('a')
        child = self.start('run', 'a', '--ttl', '10m', '--', 'true',
                           preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]))
        self.wait_waiter('a')
        child.terminate()
        self.assertEqual(self.wait_child(child)[0], -signal.SIGTERM)

    def test_a_log_that_is_full_does_not_end_the_command(self):
        """RLIMIT_FSIZE: a message would end this process by SIGXFSZ, and the kernel the command with it."""
        with open(self.lab.path('log'), 'wb') as log:
            log.write(b'x')
        log = os.open(self.lab.path('log'), os.O_WRONLY | os.O_APPEND)
        child = subprocess.Popen(['sh', '-c', 'ulimit -f 0; exec "$0" "$@"', binary('fencelock'), 'run', 'a', '--ttl', '10m', '--on-lost', 'warn',
                                  '--', 'sh', '-c', 'echo begun; read x; echo done'], env=self.env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=log)
        os.close(log)
        self.kill_at_cleanup(child)
        self.assertEqual(child.stdout.readline(), b'begun\n')
        self.node.call('BREAK', 'a')
        out, _ = child.communicate(b'x\n', timeout=PATIENCE_S)
        self.assertEqual((child.returncode, out), (0, b'done\n'))

    def read_until(self, fd, text):
        seen = b''
        while text not in seen:
            self.assertTrue(select.select([fd], [], [], PATIENCE_S)[0], seen)
            seen += os.read(fd, 100)

    def test_a_signal_while_a_password_is_asked_for(self):
        """It has its effect when the terminal shows again what is typed; one that is ignored has none."""
        for ended_by in (signal.SIGQUIT, signal.SIGHUP, None):
            ours, theirs = pty.openpty()
            self.addCleanup(os.close, ours)
            child = subprocess.Popen([binary('fencelock'), 'user', 'add', 'ann', '+@see', '--nodes', self.node.address],
                                     stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, env=self.env, preexec_fn=ignoring(signal.SIGINT))
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            self.read_until(ours, b'password of the new user: ')
            child.send_signal(ended_by or signal.SIGINT)
            if ended_by is None:
                os.write(ours, b'typed\n')
                self.read_until(ours, b'the same again: ')
                os.write(ours, b'typed\n')
            self.assertEqual(child.wait(PATIENCE_S), -ended_by if ended_by else 0)
            self.assertTrue(termios.tcgetattr(theirs)[3] & termios.ECHO)
            os.close(theirs)


class Interrupted(InheritedCase):
    def interrupt_on_the_way(self, *words, **options):
        """The node stands still with the request in its socket. What it does when it goes on must not stay."""
        self.node.pause()
        child = self.start(*words, **options)
        port = int(self.node.address.rsplit(':', 1)[1])
        wait_until(lambda: is_on_its_way(port), 'a request on its way')
        child.send_signal(signal.SIGINT)
        code, _, err = self.wait_child(child)
        self.assertEqual(code, -signal.SIGINT)
        self.assertRegex(err, r'may be held by nobody for .*\. Process \d+ gives it back in the background')
        self.node.resume()
        wait_until(lambda: self.node.info()['last_token'] > 0, 'the request is carried out')
        wait_until(lambda: self.node.call('SHOW', 'a') is None, 'nobody holds the lock')

    def test_run(self):
        self.interrupt_on_the_way('run', 'a', '--ttl', '24h', '--', 'true')

    def test_acquire(self):
        self.interrupt_on_the_way('acquire', 'a', '--ttl', '24h')

    def test_what_goes_on_in_the_background_can_be_ended(self):
        self.node.pause()
        child = self.start('acquire', 'a', '--ttl', '24h')
        port = int(self.node.address.rsplit(':', 1)[1])
        wait_until(lambda: is_on_its_way(port), 'a request on its way')
        child.send_signal(signal.SIGINT)
        behind = int(re.search(r'Process (\d+)', self.wait_child(child)[2]).group(1))
        os.kill(behind, signal.SIGTERM)

        def is_gone():
            try:
                with open('/proc/%d/stat' % behind) as f:
                    return f.read().rpartition(')')[2].split()[0] == 'Z'
            except FileNotFoundError:
                return True
        wait_until(is_gone, 'the process in the background has ended')

    def test_other_signals_do_not_interrupt_a_token(self):
        servers = [Redis(self.lab, 'redis-%d' % i) for i in range(3)]
        self.node.pause()
        child = self.start('redlock', 'run', 60 * 'a', '--redis', ','.join(s.address for s in servers), '--restarts-are-safe',
                           '--max-ttl', '24h', '--ttl', '24h', '--budget', '1h', '--', 'true')
        port = int(self.node.address.rsplit(':', 1)[1])
        wait_until(lambda: is_on_its_way(port), 'a request on its way')
        child.send_signal(signal.SIGCHLD)
        child.send_signal(signal.SIGTTOU)
        self.node.resume()
        code, _, err = self.wait_child(child)
        self.assertEqual((code, err), (0, ''))

    def test_acquire_under_a_named_owner_is_left_for_that_owner(self):
        """It may have held the lock before, and asks again."""
        token = self.take('a')
        self.node.pause()
        child = self.start('acquire', 'a', '--ttl', '24h', '--owner', OWNER)
        port = int(self.node.address.rsplit(':', 1)[1])
        wait_until(lambda: is_on_its_way(port), 'a request on its way')
        child.send_signal(signal.SIGINT)
        self.assertEqual(self.wait_child(child)[0], -signal.SIGINT)
        self.node.resume()
        self.assertEqual(self.node.call('CHECK', 'a', token), 1)

    def test_a_wait_ends_with_its_process(self):
        token = self.take('a')
        child = self.start('acquire', 'a', '--wait', '24h')
        self.wait_waiter('a')
        child.send_signal(signal.SIGINT)
        self.assertEqual(self.wait_child(child)[0], -signal.SIGINT)
        wait_until(lambda: self.waiters('a') == 0, 'nobody waits')
        self.assertEqual(self.node.call('RELEASE', 'a', token), 1)
        self.assertIsNone(self.node.call('SHOW', 'a'))

    def test_redlock_acquire(self):
        self.interrupt_a_redlock('acquire', 'a')

    def test_redlock_run(self):
        self.interrupt_a_redlock('run', 'a', end=('--', 'true'))

    def interrupt_a_redlock(self, *words, end=()):
        """Each server has set the key, and its answer is on the way."""
        servers = [Redis(self.lab, 'redis-%d' % i) for i in range(3)]
        proxies = [Proxy(s) for s in servers]
        for p in proxies:
            self.addCleanup(p.close)
            p.rule = lambda data, p=p: p.hold_answers() if b'NX' in data else None
        child = self.start('redlock', *words, '--redis', ','.join(p.address for p in proxies), '--restarts-are-safe',
                           '--max-ttl', '24h', '--ttl', '24h', '--budget', '1h', *end)
        wait_until(lambda: all(s.get('a') for s in servers), 'all servers have set it')
        child.send_signal(signal.SIGINT)
        self.assertEqual(self.wait_child(child)[0], -signal.SIGINT)
        wait_until(lambda: not any(s.get('a') for s in servers), 'no server has it any more')


class Root(InheritedCase):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest('only root can make a program of another user, and a container')
        super().setUp()

    def as_root(self):
        """A program with the set-user-ID bit, as sudo is."""
        path = self.lab.path('as-root')
        subprocess.run(['cc', '-xc', '-', '-o', path], input=AS_ROOT.encode(), check=True)
        os.chmod(path, 0o4755)
        return path

    def resolving(self, *words):
        """A `fencelock` whose name server never answers, and its process."""
        conf = self.lab.path('resolv.conf')
        with open(conf, 'w') as f:
            f.write('nameserver 127.0.0.1\noptions timeout:30 attempts:5\n')
        silent = 'import os, socket, subprocess, sys\n' \
                 'subprocess.run("mount --bind %s /etc/resolv.conf && ip link set lo up", shell=True, check=True)\n' \
                 's = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n' \
                 's.bind(("127.0.0.1", 53))\n' \
                 's.set_inheritable(True)\n' \
                 'os.execv(sys.argv[1], sys.argv[1:])\n' % conf
        child = self.start(*words, before=['unshare', '--mount', '--net', 'python3', '-c', silent])

        def asked():
            with open('/proc/%d/net/udp' % child.pid) as f:
                return any(l.split()[1].endswith(':0035') and int(l.split()[4].split(':')[1], 16) > 0 for l in list(f)[1:])
        wait_until(asked, 'the name server is asked')
        return child

    def test_it_can_be_interrupted_while_a_name_is_resolved(self):
        for words in (('acquire', 'a'), ('run', 'a', '--', 'true')):
            child = self.resolving(words[0], words[1], '--nodes', 'nobody.invalid:4701', *words[2:])
            child.send_signal(signal.SIGINT)
            self.assertEqual(self.wait_child(child)[0], -signal.SIGINT)

    def not_stopped(self, *command, **options):
        fifo = self.lab.path('fifo')
        os.mkfifo(fifo)
        child = self.start('run', 'a', '--ttl', '6s', '--', *command, fifo,
                           **(options or {'user': 65534, 'group': 65534, 'extra_groups': []}))
        held = os.open(fifo, os.O_WRONLY) # the command is there
        self.node.call('BREAK', 'a')
        text = b''
        while b'cannot be stopped' not in text:
            more = child.stderr.readline()
            self.assertTrue(more, text)
            text += more
        os.close(held) # only now it ends
        self.assertEqual(self.wait_child(child)[0], NOT_STOPPED)

    def test_a_command_of_another_user_cannot_be_stopped(self):
        self.not_stopped(self.as_root(), 'cat')

    def test_nor_can_what_a_command_has_started_as_another_user(self):
        self.not_stopped('sh', '-c', '"$0" cat "$1" & wait', self.as_root())

    def test_nor_can_processes_that_it_may_not_see(self):
        hide = 'mount -t proc -o hidepid=2 proc /proc && exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"'
        self.not_stopped('sh', '-c', '"$0" cat "$1" & wait', self.as_root(),
                         before=['unshare', '--mount', '--pid', '--fork', '--kill-child', 'sh', '-c', hide, 'sh'])

    def inside(self, child):
        return int(subprocess.run(['pgrep', '-P', str(child.pid)], capture_output=True, text=True).stdout.split()[0])

    def test_process_1_leaves_nothing_in_the_background(self):
        self.node.pause()
        child = self.start('acquire', 'a', '--ttl', '24h', before=CONTAINER)
        port = int(self.node.address.rsplit(':', 1)[1])
        wait_until(lambda: is_on_its_way(port), 'a request on its way')
        os.kill(self.inside(child), signal.SIGINT)
        code, _, err = self.wait_child(child)
        self.assertEqual(code, 128 + signal.SIGINT)
        self.assertIn('See fencelock show', err)

    def test_process_1_reaps_and_ends(self):
        orphans = 'import os, time\n' \
                  'for _ in range(20):\n' \
                  '    if os.fork() == 0:\n' \
                  '        os.fork()\n' \
                  '        os._exit(0)\n' \
                  '    os.wait()\n' \
                  'def zombies():\n' \
                  '    found = 0\n' \
                  '    for p in filter(str.isdigit, os.listdir("/proc")):\n' \
                  '        try: found += open("/proc/%s/stat" % p).read().rsplit(")", 1)[1].split()[0] == "Z"\n' \
                  '        except OSError: pass\n' \
                  '    return found\n' \
                  'while zombies(): time.sleep(0.01)\n'
        child = self.start('run', 'a', '--ttl', '10m', '--', 'python3', '-c', orphans, before=CONTAINER)
        self.assertEqual(self.wait_child(child)[0], 0)
        self.take('b')
        child = self.start('run', 'b', '--ttl', '10m', '--', 'true', before=CONTAINER)
        self.wait_waiter('b')
        os.kill(self.inside(child), signal.SIGTERM)
        self.assertEqual(self.wait_child(child)[0], 128 + signal.SIGTERM)


if __name__ == '__main__':
    main()
