"""Other Redlock libraries: installed by their own package managers, and run as processes that a test talks to.

Each is a small program in tests/integration/peers that reads lines and answers each with one:

    lock KEY TTL_MS    held | refused
    wait KEY TTL_MS    held                 the same, but waits; only python-redis-lock
    extend TTL_MS      held | lost          of the lock that it took last
    unlock             freed | lost | done  the latter where the library does not tell
    token              token N | none       of that lock, where fencelockd serves it; some cannot
    anything           error TEXT           what the library threw instead

What they need is installed once, below the build directory (that of the normal build also for the one with
sanitizers), or in REDLOCK_PEERS_DIR. Where a language or its registry is out of reach, Unavailable says why.

REDLOCK_PEERS_SOURCES is a directory with checkouts of libraries whose registry is out of reach, by these names: redlock-rb
(with redis-client and connection_pool), antirez-redlock-rb, redlock-php, php-lock, redis-distlock, redlock-cpp."""

import fcntl
import hashlib
import os
import queue
import shutil
import subprocess
import threading

from harness.lab import ROOT, build_dir
from harness.process import guard, release_from_guard
from harness.wait import PATIENCE_S, Deadline

SOURCES = os.path.join(ROOT, 'tests', 'integration', 'peers')
DEBIAN_PYTHON = '/usr/bin/python3'
# So that installers soon give up on a registry that is out of reach.
INSTALLER_ENV = {'npm_config_fetch_retries': '1', 'npm_config_fetch_timeout': '30000', 'npm_config_update_notifier': 'false',
            'npm_config_fund': 'false', 'npm_config_audit': 'false', 'npm_config_loglevel': 'error', 'PIP_RETRIES': '1',
            'PIP_DEFAULT_TIMEOUT': '30', 'PIP_DISABLE_PIP_VERSION_CHECK': '1', 'CARGO_NET_RETRY': '1',
            'CARGO_HTTP_TIMEOUT': '30', 'GOTOOLCHAIN': 'local', 'GOFLAGS': '-mod=mod', 'COMPOSER_ALLOW_SUPERUSER': '1',
            'COMPOSER_PROCESS_TIMEOUT': '60'}


class Unavailable(Exception):
    """A library that cannot be installed or run here, and why."""


class Ended(Exception):
    """A peer's process has ended. wait_until() does not try again after this error."""


def cache_dir():
    base = build_dir()
    if base.endswith('-sanitize'):
        base = base[:-len('-sanitize')]
    return os.environ.get('REDLOCK_PEERS_DIR') or os.path.join(base, 'peers')


def need(*commands):
    for command in commands:
        if shutil.which(command) is None:
            raise Unavailable('there is no %s here' % command)


def error_line(text):
    """The line of an installer's output that best explains its failure."""
    lines = [' '.join(line.split()) for line in text.splitlines() if line.strip()] or ['no word']
    for words in (('ould not', 'nable', 'ailed', 'refused', 'not found'), ('rror',)):
        for line in lines:
            if any(word in line for word in words):
                return line[:160]
    return lines[-1][:160]


# All waits for registries together.
_registry_deadline = Deadline(240)


def fetch(directory, *argv):
    """Runs a command that needs a registry. Its failure means that the registry is out of reach."""
    try:
        done = subprocess.run(argv, cwd=directory, env=dict(os.environ, **INSTALLER_ENV), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(10, _registry_deadline.left()))
    except subprocess.TimeoutExpired:
        raise Unavailable('%s took too long' % argv[0]) from None
    if done.returncode != 0:
        raise Unavailable('%s: %s' % (os.path.basename(argv[0]), error_line(done.stdout.decode(errors='replace'))))


def build(directory, *argv):
    """Runs a command that needs no registry: it must succeed."""
    done = subprocess.run(argv, cwd=directory, env=dict(os.environ, **INSTALLER_ENV), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1200)
    if done.returncode != 0:
        raise AssertionError('%s failed:\n%s' % (' '.join(argv), done.stdout.decode(errors='replace')[-3000:]))


def installed(name, install, *sources):
    """The directory in which install(directory) has installed what the sources (below SOURCES) ask for. Done once for
    each content of the sources, however many programs ask at the same time."""
    names, digest = [], hashlib.sha256()
    for source in sources:
        path = os.path.join(SOURCES, source)
        names += sorted(os.path.join(folder, file) for folder, _, found in os.walk(path) for file in found) or [path]
    for path in names:
        with open(path, 'rb') as f:
            digest.update(path[len(SOURCES):].encode() + b'\0' + f.read())
    directory = os.path.join(cache_dir(), '%s-%s' % (name, digest.hexdigest()[:12]))
    os.makedirs(cache_dir(), exist_ok=True)
    with open(directory + '.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(directory, '.installed')):
            shutil.rmtree(directory, ignore_errors=True)
            os.makedirs(directory)
            for source in sources:
                path = os.path.join(SOURCES, source)
                if os.path.isdir(path):
                    shutil.copytree(path, directory, dirs_exist_ok=True)
                else:
                    shutil.copy(path, directory)
            install(directory)
            open(os.path.join(directory, '.installed'), 'w').close()
    return directory


def node(version):
    need('node', 'npm')
    return installed('node%s' % version, lambda d: fetch(d, 'npm', 'ci', '--no-fund'), 'node%s' % version)


def venv(name, folder):
    """The python of a virtual environment with all Python libraries of that folder in it."""
    def install(directory):
        for candidate in (DEBIAN_PYTHON, 'python3'):
            made = subprocess.run([candidate, '-m', 'venv', os.path.join(directory, 'venv')], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, check=False)
            if made.returncode == 0:
                break
        else:
            raise Unavailable('no python3 here can make a virtual environment with pip (package python3-venv)')
        fetch(directory, os.path.join(directory, 'venv', 'bin', 'pip'), 'install', '--quiet', '--no-deps', '--requirement',
              'requirements.txt')
    return os.path.join(installed(name, install, folder), 'venv', 'bin', 'python')


def python(name='python'):
    return venv(name, os.path.join(SOURCES, name))


def go():
    need('go')

    def install(directory):
        fetch(directory, 'go', 'mod', 'download')
        build(directory, 'go', 'build', '-o', 'peer', '.')
    return os.path.join(installed('go', install, 'go'), 'peer')


def rust():
    need('cargo')

    def install(directory):
        fetch(directory, 'cargo', 'fetch', '--quiet', '--locked')
        build(directory, 'cargo', 'build', '--quiet', '--offline', '--locked', '--jobs', '2')
    return os.path.join(installed('rust', install, 'rust'), 'target', 'debug', 'fencelock-peer')


def java():
    need('java', 'javac', 'mvn')

    def install(directory):
        fetch(directory, 'mvn', '--batch-mode', '--quiet', 'dependency:copy-dependencies', '-DoutputDirectory=lib')
        build(directory, 'javac', '-cp', 'lib/*', 'Peer.java')
    return installed('java', install, 'java')


def spring():
    need('java', 'javac', 'mvn')

    def install(directory):
        fetch(directory, 'mvn', '--batch-mode', '--quiet', 'dependency:copy-dependencies', '-DoutputDirectory=lib')
        build(directory, 'javac', '-cp', 'lib/*', 'Spring.java')
    return installed('spring', install, 'spring')


def shedlock():
    need('java', 'javac', 'mvn')

    def install(directory):
        fetch(directory, 'mvn', '--batch-mode', '--quiet', 'dependency:copy-dependencies', '-DoutputDirectory=lib')
        build(directory, 'javac', '-cp', 'lib/*', 'Shed.java')
    return installed('shedlock', install, 'shedlock')


def celery(library, at):
    python_ = venv('python_celery', 'python_celery')
    return [python_, os.path.join(SOURCES, 'python_celery', 'celery_peer.py'), library, at]


def debian_php(library, at, *packages):
    """A framework's lock from Debian's packages."""
    need('php')
    for package in ('php-redis', *packages):
        if subprocess.run(['dpkg', '-s', package], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            raise Unavailable('the package %s is not installed' % package)
    return ['php', os.path.join(SOURCES, 'frameworks.php'), library, at]


def redisson(release):
    need('java', 'javac', 'mvn')

    def install(directory):
        fetch(directory, 'mvn', '--batch-mode', '--quiet', '-f', 'pom%s.xml' % release, 'dependency:copy-dependencies',
              '-DoutputDirectory=lib')
        build(directory, 'javac', '-nowarn', '-cp', 'lib/*', 'Locks.java')
    return installed('redisson%s' % release, install, 'redisson')


def checkout(name):
    """The directory of this checkout, or None."""
    path = os.path.join(os.environ.get('REDLOCK_PEERS_SOURCES', ''), name)
    return path if 'REDLOCK_PEERS_SOURCES' in os.environ and os.path.isdir(path) else None


def need_checkout(name):
    path = checkout(name)
    if path is None:
        raise Unavailable('%s is in no registry, and REDLOCK_PEERS_SOURCES names no checkout of it' % name)
    return path


def need_redis_gem():
    need('ruby', 'gem')
    found = subprocess.run(['ruby', '-e', 'require "redis"'], stderr=subprocess.DEVNULL, check=False)
    if found.returncode != 0:
        raise Unavailable('Ruby has no redis gem here (package ruby-redis)')


def ruby():
    """The command line of the peer, without the addresses."""
    peer = os.path.join(SOURCES, 'peer.rb')
    if checkout('redlock-rb'):
        need('ruby')
        paths = [os.path.join(need_checkout(name), 'lib') for name in ('redlock-rb', 'redis-client', 'connection_pool')]
        return ['ruby', *(word for path in paths for word in ('-I', path)), peer]
    need_redis_gem()
    directory = installed('ruby', lambda d: fetch(d, 'gem', 'install', '--no-document', '--ignore-dependencies',
                                                  '--install-dir', d, 'redlock:1.3.2'), 'peer.rb')
    return ['env', 'GEM_PATH=%s:' % directory, 'ruby', peer]


def antirez(at):
    need_redis_gem()
    return ['ruby', os.path.join(SOURCES, 'peer.rb'), at, 'antirez',
            os.path.join(need_checkout('antirez-redlock-rb'), 'redlock.rb')]


def need_php_redis():
    need('php')
    if b'redis' not in subprocess.run(['php', '-m'], stdout=subprocess.PIPE, check=False).stdout.split():
        raise Unavailable('PHP has no redis extension here (package php-redis)')


def php():
    need_php_redis()
    if checkout('redlock-php'):
        return checkout('redlock-php')
    need('composer')
    return installed('php', lambda d: fetch(d, 'composer', 'install', '--no-interaction', '--quiet',
                                            '--ignore-platform-reqs'), 'php')


def _php(library, directory):
    def argv(at):
        need_php_redis()
        return ['php', os.path.join(SOURCES, 'peer.php'), directory(), at, library]
    return argv


def perl(at):
    need('perl')
    if subprocess.run(['perl', '-MRedis', '-e', '1'], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise Unavailable('Perl has no Redis.pm here (package libredis-perl)')
    return ['perl', '-I', os.path.join(need_checkout('redis-distlock'), 'lib'), os.path.join(SOURCES, 'peer.pl'), at]


def cpp():
    need('g++', 'gcc')
    sources = need_checkout('redlock-cpp')

    def install(directory):
        hiredis = [os.path.join(sources, 'hiredis', name + '.c') for name in ('hiredis', 'net')]
        build(directory, 'gcc', '-O1', '-w', '-I', os.path.join(sources, 'hiredis'), '-c', *hiredis,
              os.path.join(sources, 'redlock-cpp', 'sds.c'))
        build(directory, 'g++', '-O1', '-w', '-I', sources, '-I', os.path.join(sources, 'redlock-cpp'), '-o', 'peer', 'peer.cpp',
              os.path.join(sources, 'redlock-cpp', 'redlock.cpp'), 'hiredis.o', 'net.o', 'sds.o')
    return os.path.join(installed('cpp', install, 'peer.cpp'), 'peer')


def _node(version):
    return lambda at: ['node', os.path.join(SOURCES, 'peer.js'), node(version), at]


def _python(library, name='python'):
    return lambda at: [python(name), os.path.join(SOURCES, 'peer.py'), library, at]


def _java(directory, program, at):
    return ['java', '-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-cp',
            directory + os.pathsep + os.path.join(directory, 'lib', '*'), program, at]


def _redisson(release):
    return lambda at: _java(redisson(release), 'Locks', at)


# Library -> its command line for these addresses.
COMMANDS = {
    'Redisson 4': _redisson('4'),
    'Redisson 3': _redisson('3'),
    'Redisson 3.16': _redisson('316'),
    'node-redlock 4': _node(4),
    'node-redlock 5': _node(5),
    'node-redlock 5, sentinel': lambda at: [*_node(5)(at), 'sentinel'],
    'redis-semaphore': lambda at: [*_node('_semaphore')(at), 'semaphore'],
    "redis-py's Lock (Debian)": lambda at: [DEBIAN_PYTHON, os.path.join(SOURCES, 'peer.py'), 'redis-py', at],
    "redis-py's Lock": _python('redis-py'),
    "redis-py's Lock 5": _python('redis-py', 'python_old'),
    'aioredlock': _python('aioredlock', 'python_old'),
    'redlock-py': _python('redlock-py'),
    'pottery': _python('pottery'),
    'python-redis-lock': _python('python-redis-lock'),
    'django-redis': _python('django-redis'),
    'redsync': lambda at: [go(), 'redsync', at],
    'redsync, sentinel': lambda at: [go(), 'redsync', at, 'sentinel'],
    'bsm/redislock': lambda at: [go(), 'redislock', at],
    'Redisson': lambda at: _java(java(), 'Peer', at),
    'Spring Integration': lambda at: _java(spring(), 'Spring', at),
    'rslock': lambda at: [rust(), at],
    'redis-py, cluster': _python('cluster'),
    'ioredis, cluster': lambda at: [*_node(5)(at), 'cluster'],
    'go-redis, cluster': lambda at: [go(), 'cluster', at],
    'Lettuce, cluster': lambda at: [*_java(spring(), 'Spring', at), 'cluster'],
    'ShedLock': lambda at: _java(shedlock(), 'Shed', at),
    'celery-once': lambda at: celery('celery-once', at),
    'celery-redbeat': lambda at: celery('celery-redbeat', at),
    'Laravel': lambda at: debian_php('Laravel', at, 'php-illuminate-cache', 'php-illuminate-redis'),
    'Symfony': lambda at: debian_php('Symfony', at, 'php-symfony-lock'),
    'redlock-rb': lambda at: [*ruby(), at],
    'antirez/redlock-rb': antirez,
    'redlock-php': _php('redlock-php', php),
    'php-lock': _php('php-lock', lambda: need_checkout('php-lock')),
    'Redis::DistLock': perl,
    'redlock-cpp': lambda at: [cpp(), at],
    'redlock-cpp, continued': lambda at: [cpp(), at, 'continued'],
}


class Peer:
    """A process with another library in it. peer('lock', 'name', 10000) returns its answer."""

    def __init__(self, library, servers, log_path, *more, env=None):
        argv = [*COMMANDS[library](','.join(s.address for s in servers)), *more]
        self.library, self.log_path = library, log_path
        with open(log_path, 'ab') as log:
            self.child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                          env=dict(os.environ, **(env or {})))
        guard(self.child)
        self.lines = queue.Queue()
        self.reader = threading.Thread(target=self._read_all, daemon=True)
        self.reader.start()

    def _read_all(self):
        for line in self.child.stdout:
            self.lines.put(line.rstrip('\n'))
        self.lines.put(None)

    def __call__(self, *words, timeout=PATIENCE_S):
        try:
            self.child.stdin.write(' '.join(str(w) for w in words) + '\n')
            self.child.stdin.flush()
            answer = self.lines.get(timeout=timeout)
        except BrokenPipeError:
            answer = None
        except queue.Empty:
            raise AssertionError('%s does not answer %r' % (self.library, words)) from None
        if answer is None:
            raise Ended('%s ended with %s: %s' % (self.library, self.child.wait(PATIENCE_S), self.log_tail()))
        return answer

    def log_tail(self):
        with open(self.log_path, errors='replace') as f:
            return ' '.join(f.read()[-600:].split())

    def close(self):
        try:
            self.child.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait(PATIENCE_S)
        release_from_guard(self.child)
        self.reader.join(PATIENCE_S)
        self.child.stdout.close()
