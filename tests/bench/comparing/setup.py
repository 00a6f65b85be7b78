"""What the comparison needs: packages of the distribution, and programs built from this tree."""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.dirname(os.path.dirname(HERE))

PACKAGES = {
    'etcd': ['etcd-server'],
    'zookeeper': ['zookeeper', 'default-jre-headless', 'libzookeeper-mt-dev', 'libzookeeper-st2'],
    'redis': ['redis-server'],
}
GO_PLACES = ['/usr/local/go/bin']


class Unavailable(Exception):
    """A peer that cannot be had here, and why."""


def say(text):
    print('compare: %s' % text, file=sys.stderr, flush=True)


def _installed(package):
    done = subprocess.run(['dpkg-query', '-W', '-f=${db:Status-Status}', package], capture_output=True, text=True)
    return done.stdout == 'installed'


def _install(packages):
    """Installs and does not let the packages start services of their own, which would be measured with us."""
    missing = [p for p in packages if not _installed(p)]
    if not missing:
        return
    if os.geteuid() != 0:
        raise Unavailable('install %s first' % ' '.join(missing))
    say('installing %s' % ' '.join(missing))
    policy = '/usr/sbin/policy-rc.d'
    ours = not os.path.exists(policy)
    if ours:
        with open(policy, 'w') as f:
            f.write('#!/bin/sh\nexit 101\n')
        os.chmod(policy, 0o755)
    try:
        env = dict(os.environ, DEBIAN_FRONTEND='noninteractive')
        command = ['apt-get', 'install', '-y', '-q', '--no-install-recommends'] + missing
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode != 0: # perhaps the lists are old
            subprocess.run(['apt-get', 'update', '-q'], env=env, capture_output=True)
            done = subprocess.run(command, env=env, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable('%s cannot be installed: %s' % (' '.join(missing), done.stderr.strip()[-300:]))
    finally:
        if ours:
            os.unlink(policy)


def _run(argv, **options):
    done = subprocess.run(argv, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise Unavailable('%s failed: %s' % (' '.join(argv[:3]), (done.stderr or done.stdout).strip()[-600:]))


def _go():
    found = shutil.which('go') or shutil.which('go', path=os.pathsep.join(GO_PLACES))
    if not found:
        _install(['golang-go'])
        found = shutil.which('go')
    if not found:
        raise Unavailable('there is no Go')
    return found


class Programs:
    """Paths of everything that is run, built when needed."""

    def __init__(self, build_dir):
        self.build = os.path.abspath(build_dir)
        self.clients = os.path.join(self.build, 'compare-clients')

    def build_ours(self):
        if not os.path.exists(os.path.join(self.build, 'build.ninja')):
            _run(['meson', 'setup', self.build, ROOT, '-Dbuildtype=release', '-Db_lto=true', '-Dweb_sources=/nonexistent']) # as deploy/release
        say('building fencelock in %s' % os.path.relpath(self.build))
        _run(['ninja', '-C', self.build, 'src/cli/fencelockd', 'src/cli/fencelock', 'src/cli/fencelock-store', 'tests/bench/bench', 'tests/bench/load',
              'tests/bench/epoll_load', 'tests/bench/disk'])
        os.makedirs(self.clients, exist_ok=True)

    def ours(self, name):
        return os.path.join(self.build, 'src', 'cli', name)

    @property
    def load(self):
        return os.path.join(self.build, 'tests', 'bench', 'load')

    @property
    def epoll_load(self):
        return os.path.join(self.build, 'tests', 'bench', 'epoll_load')

    @property
    def disk(self):
        return os.path.join(self.build, 'tests', 'bench', 'disk')

    def redis(self):
        _install(PACKAGES['redis'])
        return shutil.which('redis-server')

    def zookeeper(self):
        _install(PACKAGES['zookeeper'])
        program = os.path.join(self.clients, 'zookeeper')
        _run(['cc', '-O2', '-D_GNU_SOURCE', '-o', program,
              os.path.join(HERE, 'peers', 'zookeeper', 'zookeeper.c'), '-l:libzookeeper_st.so.2'])
        return program

    def etcd(self):
        """The load program and the probe."""
        _install(PACKAGES['etcd'])
        go, made = _go(), []
        for name, package in (('etcd-load', '.'), ('etcd-probe', './probe')):
            made.append(os.path.join(self.clients, name))
            _run([go, 'build', '-o', made[-1], package], cwd=os.path.join(HERE, 'peers', 'etcd'))
        return made
