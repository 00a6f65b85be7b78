"""One child process, its log, and the guard that outlives us."""

import os
import signal
import subprocess
import sys
import threading
import time

from .wait import PATIENCE_S, Deadline

# What no log may contain, whatever else a test is about.
CRASH_MARKS = (b'ERROR: AddressSanitizer', b'ERROR: LeakSanitizer', b'runtime error:', b'WARNING: ThreadSanitizer',
               b'UndefinedBehaviorSanitizer', b'assertion failed', b'Assertion ')

_GUARD = '''
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def start_time(pid):
    try:
        with open('/proc/%d/stat' % pid) as f:
            return f.read().rpartition(')')[2].split()[19]
    except OSError:
        return None
alive = {}
for line in sys.stdin:
    sign, pid = line[0], int(line[1:])
    if sign == '+':
        alive[pid] = start_time(pid)
    else:
        alive.pop(pid, None)
for pid, when in alive.items():
    if when is not None and start_time(pid) == when:
        os.kill(pid, signal.SIGKILL)
'''


class _Guard:
    """A process of its own session that reads pids from a pipe; when the pipe closes, because we ended
    in whatever way, it kills those that are left. The time of its start tells a process from a later one
    with the same pid."""

    def __init__(self):
        self.lock = threading.Lock()
        self.child = None

    def tell(self, sign, pid):
        with self.lock:
            if self.child is None:
                self.child = subprocess.Popen([sys.executable, '-c', _GUARD], stdin=subprocess.PIPE,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                              start_new_session=True)
            self.child.stdin.write(b'%s%d\n' % (sign, pid))
            self.child.stdin.flush()


_guard = _Guard()


def guard(process):
    """Has a process that somebody else has started killed with us."""
    _guard.tell(b'+', process.pid)


def release_from_guard(process):
    """Lets a process outlive us."""
    _guard.tell(b'-', process.pid)


# Processes get these not: a server takes an unknown FENCELOCK_ variable for a slip, and ends, when its name is close to an option's.
TEST_ONLY_VARIABLES = ('FENCELOCK_SWEEP', 'FENCELOCK_FLIPS')


def limit_asan_quarantine():
    """For programs whose tests measure memory: AddressSanitizer keeps up to 256 MiB that were freed, and they count as resident.
    The servers that start after this call keep 16 MiB. Without sanitizers it changes nothing."""
    options = os.environ.get('ASAN_OPTIONS')
    if options is not None:
        os.environ['ASAN_OPTIONS'] = options + ':quarantine_size_mb=16'


def patient_env(**more):
    """The environment of a tool of which an answer is wanted, however late: 5 seconds are its own time-out."""
    return dict(os.environ, FENCELOCK_TIMEOUT='200s', **more)


def env_without_options(**more):
    """This environment without the variables that set options of our programs (FENCELOCK_NODES and others), with `more`."""
    return {**{name: value for name, value in os.environ.items() if not name.startswith('FENCELOCK_')}, **more}


class Process:
    """Starts argv with stdout and stderr appended to log_path. Everything it printed since this start is
    output(). Use terminate() or kill() to end it; an end nobody asked for is found by Lab.close()."""

    def __init__(self, argv, log_path, cwd=None, env=None, name=None):
        self.argv = [str(a) for a in argv]
        self.name = name or os.path.basename(self.argv[0])
        self.log_path = log_path
        self.asked_to_end = False
        self.log_start = os.path.getsize(log_path) if os.path.exists(log_path) else 0
        full_env = {k: v for k, v in os.environ.items() if k not in TEST_ONLY_VARIABLES}
        full_env.update(env or {})
        self.started = time.monotonic()
        with open(log_path, 'ab') as log:
            self.child = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                          cwd=cwd, env=full_env, start_new_session=True)
        self.pid = self.child.pid
        guard(self)

    # -- looking --------------------------------------------------------------------------------
    def output(self):
        with open(self.log_path, 'rb') as f:
            f.seek(self.log_start)
            return f.read().decode(errors='replace')

    def last_output(self, lines=20):
        """The end of output(), for error messages."""
        return '\n'.join(self.output().splitlines()[-lines:])

    def returncode(self):
        code = self.child.poll()
        if code is not None:
            release_from_guard(self)
        return code

    def running(self):
        return self.returncode() is None

    def rss(self):
        """Resident bytes now."""
        with open('/proc/%d/statm' % self.pid) as f:
            return int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')

    def fds(self):
        return len(os.listdir('/proc/%d/fd' % self.pid))

    def sockets(self):
        """How many descriptors are sockets: the log opens and closes files in the background."""
        n = 0
        for fd in os.listdir('/proc/%d/fd' % self.pid):
            try:
                n += os.readlink('/proc/%d/fd/%s' % (self.pid, fd)).startswith('socket:')
            except OSError: # closed meanwhile
                pass
        return n

    def state(self):
        with open('/proc/%d/stat' % self.pid) as f:
            return f.read().rpartition(')')[2].split()[0]

    # -- waiting --------------------------------------------------------------------------------
    def wait_output(self, text, seconds=PATIENCE_S):
        """Waits until it has printed `text`. Returns the seconds from its start to then."""
        deadline = Deadline(seconds)
        while True:
            ended = self.returncode()
            if text in self.output():
                return time.monotonic() - self.started
            if ended is not None:
                raise AssertionError('%s ended with %d before it printed %r; its output:\n%s'
                                     % (self.name, ended, text, self.last_output()))
            if deadline.passed():
                raise AssertionError('%s did not print %r within %g s; its output:\n%s'
                                     % (self.name, text, seconds, self.last_output()))
            time.sleep(0.005)

    def wait(self, seconds=PATIENCE_S):
        """The exit code (negative: the signal). Fails when it does not end in time."""
        try:
            self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError('%s (pid %d) did not end within %g s; its output:\n%s'
                                 % (self.name, self.pid, seconds, self.last_output())) from None
        return self.returncode()

    # -- acting ---------------------------------------------------------------------------------
    def signal(self, number):
        if self.running():
            self.child.send_signal(number)

    def kill(self):
        """SIGKILL, and waits until it is gone."""
        self.asked_to_end = True
        self.signal(signal.SIGKILL)
        return self.wait()

    def terminate(self, seconds=PATIENCE_S):
        """SIGTERM; returns the exit code."""
        self.asked_to_end = True
        self.signal(signal.SIGTERM)
        return self.wait(seconds)

    def pause(self):
        """SIGSTOP, and waits until it is stopped."""
        self.signal(signal.SIGSTOP)
        deadline = Deadline(PATIENCE_S)
        while self.state() != 'T':
            if deadline.passed():
                raise AssertionError('%s does not stop' % self.name)
            time.sleep(0.001)

    def resume(self):
        self.signal(signal.SIGCONT)

    def verdict(self):
        """None, or what is wrong with how it ended or with what it printed."""
        code = self.returncode()
        text = self.output().encode(errors='replace')
        for mark in CRASH_MARKS:
            if mark in text:
                return '%s (pid %d) reported %r; see %s' % (self.name, self.pid, mark.decode(), self.log_path)
        if code is not None and code != 0 and not self.asked_to_end:
            return '%s (pid %d) ended by itself with %d; see %s' % (self.name, self.pid, code, self.log_path)
        if code is not None and code < 0 and code not in (-signal.SIGKILL, -signal.SIGTERM):
            return '%s (pid %d) died of signal %d; see %s' % (self.name, self.pid, -code, self.log_path)
        return None
