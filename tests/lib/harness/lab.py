"""Lab: owns the processes, ports and directories of a test."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time

from .process import Process

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..', '..'))


def build_dir():
    return os.path.abspath(os.environ.get('FENCELOCK_BUILD') or os.environ.get('BUILD_DIR')
                           or os.path.join(ROOT, 'build'))


def build_option(name):
    """The value of an option of meson's in this build."""
    options = subprocess.run(['meson', 'introspect', '--buildoptions', build_dir()], check=True, stdout=subprocess.PIPE).stdout
    return next(option['value'] for option in json.loads(options) if option['name'] == name)


def binary(name):
    """The path of one of our programs: in the build directory, or where FENCELOCK_PROGRAMS says (src/demo)."""
    path = os.path.join(os.environ.get('FENCELOCK_PROGRAMS') or os.path.join(build_dir(), 'src', 'cli'), name)
    if not os.path.exists(path):
        raise AssertionError('%s is not built; run tests/run, or set FENCELOCK_BUILD' % path)
    return path


_reserved_ports = {} # port -> the socket that reserves it


def free_ports(n, host='127.0.0.1'):
    """n ports that nothing listens on. They lie below the range from which the system takes the ports of
    outgoing connections, so that a node that is down does not find its port taken when it comes back,
    and each is reserved until we exit by a socket with its number as its name, so that tests that run
    side by side never choose the same."""
    with open('/proc/sys/net/ipv4/ip_local_port_range') as f:
        ceiling = min(int(f.read().split()[0]), 32768)
    chooser = random.SystemRandom()
    ports = []
    for _ in range(10000):
        if len(ports) == n:
            return ports
        port = chooser.randrange(min(10000, ceiling // 2), ceiling)
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind('\0fencelock-test-port-%d' % port)
            with socket.socket() as probe:
                probe.bind((host, port))
        except OSError:
            name.close()
            continue
        _reserved_ports[port] = name
        ports.append(port)
    raise AssertionError('no free ports')


def port_is_free(port):
    """Whether a server could listen on it now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(('127.0.0.1', port))
        except OSError:
            return False
    return True


class Lab:
    """A directory under the build directory (on the same disk, since what is tested must reach a real
    one) and the processes started in it. Kept when the test failed, deleted when it passed."""

    def __init__(self, name):
        base = os.path.join(os.environ.get('FENCELOCK_TEST_DATA') or os.path.join(build_dir(), 'test-data'))
        self.dir = os.path.join(base, '%s-%d-%d' % (name, os.getpid(), time.monotonic_ns() % 1000000))
        os.makedirs(self.dir)
        self.processes = []
        self.failed = False

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def start(self, argv, name, **options):
        """Starts a process whose log is NAME.log; a later one of the same name appends to it."""
        process = Process(argv, self.path(name + '.log'), name=name, **options)
        self.processes.append(process)
        return process

    def close(self, failed=False, keep=False):
        """Ends everything. Raises AssertionError when a process did not behave; then, or when `failed`,
        the directory stays and is named. keep: it stays, and the caller removes it."""
        wrong = []
        for process in self.processes:
            if process.running():
                process.asked_to_end = True
                process.resume()
                process.kill()
            verdict = process.verdict()
            if verdict:
                wrong.append(verdict)
        self.processes = []
        if keep:
            pass
        elif wrong or failed:
            print('logs and data: %s' % self.dir, file=sys.stderr, flush=True)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)
        if wrong:
            raise AssertionError('; '.join(wrong))

    def quiet_close(self, keep=True):
        """For when something else has failed, which is what must be reported; this only explains it."""
        try:
            self.close(failed=keep)
        except AssertionError as e:
            print(e, file=sys.stderr, flush=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.close()
        else:
            self.quiet_close()


def directory_size(path):
    """Bytes allocated on disk under a directory that may be changing."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                pass
    return total
