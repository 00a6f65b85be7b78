"""One function for each library whose package has a suite: it fetches the suite, and gives a function that runs it at one side
(own_suites) and says which tests there are, and which pass."""

import glob
import json
import os
import re
import shutil
import socket
import subprocess
import xml.etree.ElementTree

from redlock_peers_lab import SOURCES, build, cache_dir, fetch, go, installed, need, rust, venv

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(HERE, 'python')


def run(argv, directory, side, **env):
    """What it says. Servers that a suite starts by itself are those of the side."""
    env = dict(os.environ, PATH=side.path + os.pathsep + os.environ['PATH'], **env)
    return subprocess.run(argv, cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          timeout=2400, check=False).stdout.decode(errors='replace')


def changed(path, *pairs):
    """Puts other constants into a file of a suite. One that is not there any more is an error."""
    with open(path, encoding='utf-8') as f:
        text = f.read()
    for old, new in pairs:
        if old not in text:
            raise AssertionError('%s has no %r' % (path, old))
        text = text.replace(old, new)
    with open(path, 'w', encoding='utf-8') as f:
        f.write(text)


def fresh(lab, source, name):
    """A copy of a suite, for one run."""
    directory = lab.path(name)
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(source, directory, symlinks=True)
    subprocess.run(['chmod', '-R', 'u+w', directory], check=True)
    return directory


# -- Go ----------------------------------------------------------------------------------------------------------------------

def go_module(name):
    go()  # the versions are those of the program that libraries.py runs
    said = subprocess.run(['go', 'mod', 'download', '-json', name], check=True, cwd=os.path.join(SOURCES, 'go'),
                          stdout=subprocess.PIPE).stdout
    return json.loads(said)['Dir']


def go_test(directory, side):
    said = run(['go', 'test', '-v', '-count=1', '-timeout', '800s', '-run', 'Test', '.'], directory, side)
    found = {name: word == 'PASS' for word, name in re.findall(r'(?m)^ *--- (PASS|FAIL): (\S+)', said)}
    if not found:
        raise AssertionError('no test of it ran:\n' + said[-3000:])
    return {name: well for name, well in found.items() if not any(other.startswith(name + '/') for other in found)}


def redislock(lab):
    source = go_module('github.com/bsm/redislock')

    def at(side):
        directory = fresh(lab, source, 'redislock')
        changed(os.path.join(directory, 'redislock_test.go'), ('127.0.0.1:6379', '127.0.0.1:%d' % side.servers(1)[0]),
                ('DB:      9,', 'DB: 0,'))
        fetch(directory, 'go', 'mod', 'download')
        return go_test(directory, side)
    return at


def ports_in_a_row(n):
    """The first of so many that nothing listens on; below those of outgoing connections."""
    for first in range(12000, 30000, n):
        sockets = []
        try:
            for port in range(first, first + n):
                sockets.append(socket.create_server(('127.0.0.1', port)))
            return first
        except OSError:
            continue
        finally:
            for s in sockets:
                s.close()
    raise AssertionError('no free ports')


def redsync(lab):
    """It starts 48 servers by itself, at ports one behind the other."""
    source = go_module('github.com/go-redsync/redsync/v4')

    def at(side):
        directory = fresh(lab, source, 'redsync')
        changed(os.path.join(directory, 'redsync_test.go'), ('51200', str(ports_in_a_row(48))))
        fetch(directory, 'go', 'mod', 'download')
        return go_test(directory, side)
    return at


# -- Python ------------------------------------------------------------------------------------------------------------------

def python():
    return venv('suites', PYTHON)


def package(lab, name):
    """What a package of PyPI has in it as source."""
    directory = lab.path('package-' + name)
    os.makedirs(directory)
    with open(os.path.join(PYTHON, 'requirements.txt'), encoding='utf-8') as f:
        wanted, = (line for line in f.read().split() if line.startswith(name + '=='))
    fetch(directory, python(), '-m', 'pip', 'download', '--quiet', '--no-deps', '--no-build-isolation', '--no-binary', ':all:', wanted)
    archive, = glob.glob(os.path.join(directory, '*.tar.gz'))
    subprocess.run(['tar', 'xzf', archive, '-C', directory], check=True)
    found, = (d for d in glob.glob(os.path.join(directory, '*')) if os.path.isdir(d))
    return found


def pytest(lab, directory, side, *words, **env):
    report = lab.path('report.xml')
    if os.path.exists(report):
        os.unlink(report)
    # Of a suite that is run again at one side, what has failed.
    cache = lab.path('cache-' + type(side).__name__)
    said = run([python(), '-m', 'pytest', '-o', 'cache_dir=' + cache, '--last-failed', '-o', 'addopts=', '-o', 'asyncio_mode=auto',
                '-o', 'asyncio_default_fixture_loop_scope=function', '--junitxml', report, *words], directory, side, **env)
    if not os.path.exists(report):
        raise AssertionError('no report of it:\n' + said[-3000:])
    verdicts = {}
    for case in xml.etree.ElementTree.parse(report).iter('testcase'):
        if case.find('skipped') is None:
            name = '%s.%s' % (case.get('classname').replace('tests.', '', 1), case.get('name'))
            # A failure while a test tidies up is a second entry of the same name.
            verdicts[name] = verdicts.get(name, True) and case.find('failure') is None and case.find('error') is None
    if not verdicts:
        raise AssertionError('no test of it ran:\n' + said[-3000:])
    return verdicts


def redis_py(lab):
    source = package(lab, 'redis')
    return lambda side: pytest(lab, source, side, '--redis-url', 'redis://127.0.0.1:%d/0' % side.servers(1)[0],
                               'tests/test_lock.py', 'tests/test_asyncio/test_lock.py')


def pottery(lab):
    """The five databases of its test of contention are servers of their own, at both."""
    source = package(lab, 'pottery')

    def at(side):
        port, *five = side.servers(6)
        directory = fresh(lab, source, 'pottery')
        changed(os.path.join(directory, 'tests', 'test_redlock.py'),
                ('dbs = range(1, 6)', 'dbs = %r' % (five,)), ('redis://localhost:6379/{db}', 'redis://localhost:{db}/0'),
                ('host=localhost,port=6379', 'host=localhost,port=%d' % port))
        return pytest(lab, directory, side, '-p', 'pottery_fixtures', 'tests/test_redlock.py', 'tests/test_aioredlock.py',
                      PYTHONPATH=PYTHON + os.pathsep + directory, SUITE_URL='redis://localhost:%d/0' % port)
    return at


def redlock_py(lab):
    source = package(lab, 'redlock-py')

    def at(side):
        directory = fresh(lab, source, 'redlock-py')
        changed(os.path.join(directory, 'tests', 'test_redlock.py'),
                ('"host": "localhost"', '"host": "localhost", "port": %d' % side.servers(1)[0]))
        return pytest(lab, directory, side, 'tests/test_redlock.py')
    return at


def python_redis_lock(lab):
    """It starts its servers by itself. What patches Python's threads is left out: it is no matter of the server."""
    source = package(lab, 'python-redis-lock')
    return lambda side: pytest(lab, source, side, '-k', 'not gevent and not eventlet', 'tests/test_redis_lock.py',
                               PYTHONPATH=os.path.join(source, 'tests'))


# -- JavaScript --------------------------------------------------------------------------------------------------------------

def node_redlock_4(lab):
    """Its databases 1, 2 and 3 are servers of their own, at both."""
    need('node', 'npm')
    source = installed('suite-node4', lambda d: fetch(d, 'npm', 'ci', '--no-fund'), os.path.join(HERE, 'node4'))

    def at(side):
        port, *three = side.servers(4)
        directory = fresh(lab, source, 'node4')
        path = os.path.join(directory, 'node_modules', 'redlock', 'test.js')
        changed(path, ('createClient()', 'createClient(%d)' % port), ('{string_numbers: true}', '{port: %d, string_numbers: true}' % port),
                ("(require('ioredis'))()", "(require('ioredis'))(%d)" % port),
                *(('{db: %d}' % (i + 1), '{port: %d}' % three[i]) for i in range(3)))
        said = run(['node', os.path.join(directory, 'node_modules', '.bin', 'mocha'), '--exit', '--reporter', 'json', path], directory, side)
        report = json.loads(said[said.index('{\n  "stats"'):said.rindex('}') + 1])
        failed = {test['fullTitle'] for test in report['failures']}
        return {test['fullTitle']: test['fullTitle'] not in failed for test in report['tests']}
    return at


# -- Rust --------------------------------------------------------------------------------------------------------------------

CONTAINERS = re.compile(r'(?s)    #\[cfg\(feature = "cluster"\)\]\n    use testcontainers::ImageExt;\n    use testcontainers::\{.*?\};\n')
CREATION = re.compile(r'(?s)        for _ in 1\.\.=3 \{\n            let container = .*?\n        \}\n\n        // Ensure')


def rslock(lab):
    """It starts three servers in containers for each test; here they are the same three, and emptied."""
    rust()  # its sources are where that has put them
    said = subprocess.run(['cargo', 'metadata', '--format-version', '1', '--offline', '--locked'], check=True,
                          cwd=os.path.join(SOURCES, 'rust'), stdout=subprocess.PIPE).stdout
    source, = (os.path.dirname(p['manifest_path']) for p in json.loads(said)['packages'] if p['name'] == 'rslock')
    target = os.path.join(cache_dir(), 'suite-rslock')

    def at(side):
        directory = fresh(lab, source, 'rslock')
        path = os.path.join(directory, 'src', 'lock.rs')
        with open(path, encoding='utf-8') as f:
            text = f.read()
        text, n = CONTAINERS.subn('', text)
        text, m = CREATION.subn('        for port in std::env::var("SUITE_PORTS").unwrap().split(\',\') {\n'
                                '            containers.push(());\n'
                                '            let address = format!("redis://localhost:{port}");\n'
                            '            let client = Client::open(address.as_str()).unwrap();\n'
                            '            let mut connection = client.get_multiplexed_async_connection().await.unwrap();\n'
                            '            redis::cmd("FLUSHALL").exec_async(&mut connection).await.unwrap();\n'
                            '            addresses.push(address);\n        }\n\n        // Ensure', text)
        if (n, m) != (1, 1):
            raise AssertionError('rslock starts its servers otherwise')
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        changed(path, ('type Containers = Vec<ContainerAsync<GenericImage>>;', 'type Containers = Vec<()>;'))
        manifest = os.path.join(directory, 'Cargo.toml')
        with open(manifest, encoding='utf-8') as f:
            text = f.read()
        with open(manifest, 'w', encoding='utf-8') as f:  # what starts containers is half of what would be compiled
            f.write(re.sub(r'(?s)\[dev-dependencies\.testcontainers\]\n.*?(?=\n\[)', '', text))
        words = ['--quiet', '--lib', '--features', 'tokio-comp', '--jobs', '2']
        fetch(directory, 'cargo', 'fetch', '--quiet')
        build(directory, 'cargo', 'test', *words, '--no-run', '--target-dir', target)
        said = run(['cargo', 'test', *words[1:], '--target-dir', target, '--', '--test-threads=1'], directory, side,
                   SUITE_PORTS=','.join(str(port) for port in side.servers(3)))
        return {name: word == 'ok' for name, word in re.findall(r'(?m)^test (\S+) \.\.\. (ok|FAILED)', said)}
    return at


SUITES = {
    'bsm/redislock': redislock,
    'redsync': redsync,
    'redis-py': redis_py,
    'pottery': pottery,
    'redlock-py': redlock_py,
    'python-redis-lock': python_redis_lock,
    'node-redlock 4': node_redlock_4,
    'rslock': rslock,
}

