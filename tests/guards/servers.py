"""Real servers for the guards' tests: temporary directories, unix sockets or loopback, an unprivileged user."""

import getpass
import glob
import os
import pwd
import shutil
import subprocess
import tempfile

from guardkit.postgresql import Psql
from harness import PATIENCE_S, Case, Deadline, binary, free_ports, wait_until

# The suite of CI attacks each storage once, and what fencelock guard attack covers is not made twice. GUARDS_FULL=1: all of
# it, with thousands of random writes.
FULL = bool(os.environ.get('GUARDS_FULL'))
ROUNDS = 150 if FULL else 20
# What is left of the time that a program has in CI, where not all of it runs.
BUDGET = Deadline(86400 if FULL else 3300)
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..'))
POSTGRES_BINS = sorted(glob.glob('/usr/lib/postgresql/*/bin'), key=lambda path: int(path.split('/')[4]))
# Debian's psql is a program in Perl that looks for the clusters of the machine and then starts the real one. The tests start
# it hundreds of times.
os.environ['PATH'] = ':'.join([*POSTGRES_BINS[-1:], os.environ['PATH']])


class GuardCase(Case):
    """A test of one storage's guard."""

    TIMEOUT_S = 3000

    def guard(self, *args, env=None):
        """`fencelock guard`: its exit code, and what it wrote to stdout and stderr."""
        env = dict(os.environ if env is None else env, FENCELOCK_TIMEOUT='200s')
        done = subprocess.run([binary('fencelock'), 'guard', *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=env, timeout=max(1.0, min(2400, BUDGET.left())))
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def until_lost(self, suite, *only):
        """Whether writers at random lose an update is chance, and less likely where they stand still by turns: until they do. Returns
        all rows of the last time, as {attack: (outcome, detail)}."""
        def lost():
            found = {row[1]: row[2:4] for row in suite.run(only).rows}
            outcome, detail = found['many writers at random']
            return found if outcome == 'BROKEN' and 'lost' in detail else None
        return wait_until(lost, 'a lost update')

    def note_attacks(self, report):
        """How many were withstood, and each that was not."""
        for _, attack, outcome, detail, _ in report.rows:
            if outcome != 'holds':
                self.note('%s %s: %s' % (outcome, attack, detail))
        self.note('%s: %d attacks withstood' % (report.storage, report.count('holds')))


def unprivileged(*users):
    """Words in front of a command, so that it does not run as root, which these servers refuse."""
    if os.geteuid() != 0:
        return [], getpass.getuser()
    for user in users + ('nobody',):
        try:
            pwd.getpwnam(user)
            return ['setpriv', '--reuid', user, '--regid', str(pwd.getpwnam(user).pw_gid), '--clear-groups'], user
        except KeyError:
            continue
    raise AssertionError('no unprivileged user')


def make_directory(path, user):
    os.makedirs(path, exist_ok=True)
    shutil.chown(path, user)
    while path != '/' and not os.stat(path).st_mode & 1: # it has to be reached by that user
        os.chmod(path, os.stat(path).st_mode | 0o711)
        path = os.path.dirname(path)


class PatientPsql(Psql):
    def sql(self, statement, seconds=PATIENCE_S):
        return super().sql(statement, seconds)


class Postgres:
    """One server in a directory of the lab: the newest that is installed, or the one whose programs are in bin_dir."""

    def __init__(self, lab, name='postgres', bin_dir=None):
        self.bin = bin_dir or (POSTGRES_BINS[-1] if POSTGRES_BINS else None)
        self.lab, self.name = lab, name
        self.words, self.user = unprivileged('postgres')
        self.data = lab.path(name)
        self.port = free_ports(1)[0]
        # A socket's path has at most 107 bytes, which a build directory may exceed.
        self.sockets = os.path.join(tempfile.gettempdir(), 'fencelock-%d-%d' % (os.getpid(), self.port))
        self.process = None

    @staticmethod
    def is_there():
        return bool(glob.glob('/usr/lib/postgresql/*/bin/postgres'))

    def run(self, *argv):
        done = subprocess.run(self.words + [os.path.join(self.bin, argv[0]), *argv[1:]], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, cwd='/', timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout.decode()

    def init(self):
        make_directory(self.data, self.user)
        make_directory(self.sockets, self.user)
        self.run('initdb', '-D', self.data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-locale', '-N')
        return self

    def argv(self):
        return self.words + [os.path.join(self.bin, 'postgres'), '-D', self.data, '-p', str(self.port), '-k', self.sockets,
                             '-c', 'listen_addresses=', '-c', 'max_prepared_transactions=10', '-c', 'max_connections=300',
                             '-c', 'shared_buffers=64MB']

    def start(self, *more):
        self.process = self.lab.start(self.argv() + list(more), self.name)
        wait_until(self.answers, 'an answer of PostgreSQL')
        return self

    def answers(self):
        if not self.process.running():
            raise RuntimeError(self.process.last_output())
        return subprocess.run([shutil.which('psql'), '-XqAtc', 'SELECT 1', '-d', self.url('postgres')], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0

    def url(self, database):
        return 'postgresql:///%s?host=%s&port=%d&user=postgres&connect_timeout=240' % (database, self.sockets, self.port)

    def postmaster(self):
        with open(os.path.join(self.data, 'postmaster.pid')) as f:
            return int(f.readline())

    def backends(self):
        """Those of clients; the server's own processes have names like "checkpointer" in this place."""
        found = subprocess.run(['ps', '-o', 'args=', '--ppid', str(self.postmaster())], stdout=subprocess.PIPE).stdout.decode().split('\n')
        return [line for line in found if '[local]' in line]

    def kill(self):
        """SIGKILL to the server and, as a crash of the machine would, to all that belongs to it."""
        children = subprocess.run(['ps', '-o', 'pid=', '--ppid', str(self.process.pid)], stdout=subprocess.PIPE).stdout.split()
        self.process.kill()
        for pid in children:
            try:
                os.kill(int(pid), 9)
            except ProcessLookupError:
                pass
        wait_until(lambda: not any(os.path.exists('/proc/%d' % int(p)) for p in children), 'the end of its processes')
        pid_file = os.path.join(self.data, 'postmaster.pid')
        if os.path.exists(pid_file):
            os.unlink(pid_file)

    def stop(self):
        self.kill()
        shutil.rmtree(self.sockets, ignore_errors=True)


def install_postgresql(url):
    """As `fencelock guard install` does where the extension's files are not: the script itself, in one transaction."""
    done = subprocess.run(['psql', '-Xq1', '-v', 'ON_ERROR_STOP=1', '-d', url, '-c', 'SET client_min_messages = warning',
                           '-c', 'CREATE SCHEMA IF NOT EXISTS fence', '-f', os.path.join(ROOT, 'src/guards/postgresql/guard.sql')],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout.decode()
