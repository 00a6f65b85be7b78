"""How each driver's probe is built: below the build directory, or at DRIVER_PROBE, of the driver at DRIVER_SOURCE."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILT = os.path.join(os.environ.get('BUILD_DIR') or os.path.join(ROOT, 'build'), 'drivers')


SKIP = 77 # meson's exit code for a test that cannot run here


def skip(why):
    print('skipped: ' + why)
    sys.exit(SKIP)


class GoProbe:
    calls_libc = False
    module = 'github.com/fencelock/fencelock/src/drivers/go'
    driver = os.environ.get('DRIVER_SOURCE') or os.path.join(ROOT, 'src/drivers/go')
    argv = [os.environ.get('DRIVER_PROBE') or os.path.join(BUILT, 'probe-go')]

    def build(self):
        """From a copy, since the driver's place is part of go.mod."""
        if shutil.which('go') is None:
            skip('there is no go')
        with tempfile.TemporaryDirectory() as scratch:
            self.program(os.path.join(HERE, 'go'), scratch, self.argv[0])

    def program(self, source, scratch, target):
        copy = self.copy(source, scratch)
        if subprocess.run(['go', 'mod', 'download'], cwd=copy).returncode != 0:
            skip('the modules that the driver stands on cannot be had')
        if subprocess.run(['go', 'build', '-o', target, '.'], cwd=copy).returncode != 0:
            sys.exit('the probe cannot be built')

    def copy(self, source, scratch):
        """Its go.mod finds the modules of the driver."""
        copy = os.path.join(scratch, 'program')
        shutil.copytree(source, copy)
        places = {self.module + part: self.driver + part for part in ('', '/pgxfence', '/s3fence', '/k8slock')}
        places['github.com/fencelock/fencelock/src/guards/s3/go'] = os.path.join(ROOT, 'src/guards/s3/go')
        subprocess.run(['go', 'mod', 'edit', *('-replace=%s=%s' % place for place in places.items())], cwd=copy, check=True)
        return copy

    def own_tests(self):
        return ['go', 'test', '-count=1', './...'], self.driver

    def fences(self, scratch):
        target = os.path.join(scratch, 'fences')
        self.program(os.path.join(HERE, 'go-fences'), scratch, target)
        return [target]

    def kubernetes(self, scratch):
        """Elections of client-go and controller-runtime: the command, and where it runs."""
        return ['go', 'test', '-count=1', '-v', '-timeout=20m', './...'], self.copy(os.path.join(os.path.dirname(HERE), 'k8s'), scratch)

    USER = """package main

import (
	"context"
	"os"

	fencelock "%(module)s"
)

func main() {
	locks, err := fencelock.Connect(os.Args[1])
	if err == nil {
		err = locks.With(context.Background(), "of-the-module", func(context.Context, *fencelock.Lease) error { return nil })
	}
	if err != nil {
		panic(err)
	}
}
"""

    def publish(self, proxy):
        """The modules as a proxy of modules has them."""
        subprocess.run([os.path.join(self.driver, 'package'), proxy, '0.1.0'], check=True)

    def package(self, scratch, url):
        """A program that gets the module from a proxy, into a cache that has nothing yet, and takes a lock."""
        proxy, program = os.path.join(scratch, 'proxy'), os.path.join(scratch, 'user')
        self.publish(proxy)
        os.makedirs(program)
        with open(os.path.join(program, 'main.go'), 'w', encoding='utf-8') as f:
            f.write(self.USER % {'module': self.module})
        had = subprocess.run(['go', 'env', 'GOPROXY', 'GOMODCACHE'], capture_output=True, text=True, check=True).stdout.split()
        bare = {'GOPROXY': 'file://%s,file://%s/cache/download,%s' % (proxy, had[1], had[0]), 'GOSUMDB': 'off', 'GOWORK': 'off',
                'GOMODCACHE': os.path.join(scratch, 'cache'), 'GOFLAGS': '-modcacherw -buildvcs=false'}
        inside = ['go', '-C', program]
        yield [*inside, 'mod', 'init', 'user'], bare
        yield [*inside, 'get', self.module + '@v0.1.0', self.module + '/pgxfence@v0.1.0'], bare
        yield [*inside, 'run', '.', url], bare
        yield [*inside, 'vet', self.module + '/...'], bare

    PAGE = """package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	fencelock "%(module)s"
	"%(module)s/pgfence"
	_ "github.com/jackc/pgx/v5/stdlib"
)

%(functions)s

func schedule(context.Context, int64) error { return nil }

func fragments(ctx context.Context, locks *fencelock.Client) {
%(fragments)s
}

func main() {
	locks, err := fencelock.Connect(os.Args[1])
	if err != nil {
		panic(err)
	}
	db, err := sql.Open("pgx", os.Args[2])
	if err == nil {
		err = add(context.Background(), locks, db, 10)
	}
	if err != nil {
		panic(err)
	}
}
"""

    def text_of_page(self):
        """The program of src/drivers/go/README.md, which adds 10 to account/42, and every other block of the page."""
        with open(os.path.join(ROOT, 'src/drivers/go/README.md'), encoding='utf-8') as f:
            blocks = re.findall(r'^```go\n(.*?)^```', f.read(), re.M | re.S)
        functions = [b for b in blocks if b.startswith('func ')]
        fragments = ['{\n%s\n_ = err\n}' % b for b in blocks if not b.startswith('func ')]
        assert functions and fragments
        return self.PAGE % {'module': self.module, 'functions': '\n'.join(functions), 'fragments': '\n'.join(fragments)}

    def page(self, scratch):
        source = os.path.join(scratch, 'page')
        shutil.copytree(os.path.join(HERE, 'go'), source)
        with open(os.path.join(source, 'main.go'), 'w', encoding='utf-8') as f:
            f.write(self.text_of_page())
        target = os.path.join(scratch, 'add')
        self.program(source, scratch, target)
        return [target]


class PythonProbe:
    """face: of asyncio, or the blocking one. Below the build directory there is a venv with psycopg, which is made once."""
    calls_libc = True
    driver = os.environ.get('DRIVER_SOURCE') or os.path.join(ROOT, 'src/drivers/python')
    library = os.path.join(os.path.dirname(BUILT), 'src/client/libfencelock.so')
    venv = os.path.join(BUILT, 'venv')
    needs = ['psycopg[binary,pool]', 'SQLAlchemy', 'psycopg2-binary', 'greenlet', 'setuptools', 'wheel', 'build', 'pdoc', 'APScheduler<4', 'celery', 'boto3']

    def __init__(self, face):
        self.face = face
        self.argv = [os.path.join(self.venv, 'bin/python'), '-B', os.path.join(HERE, 'python', 'probe.py')]

    def build(self):
        os.environ.update(FENCELOCK_LIBRARY=self.library, FACE=self.face, PYTHONPATH=self.driver)
        os.makedirs(BUILT, exist_ok=True)
        with open(self.venv + '.lock', 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(self.has_all()):
                self.make()

    def make(self):
        shutil.rmtree(self.venv, ignore_errors=True)
        made = subprocess.run([sys.executable, '-m', 'venv', self.venv]).returncode == 0
        if not made or subprocess.run([os.path.join(self.venv, 'bin/pip'), 'install', '-q', '--retries', '1', '--timeout', '30',
                                       '--disable-pip-version-check', *self.needs]).returncode != 0:
            skip('the packages that the driver is tested with cannot be had')
        open(self.has_all(), 'w').close()

    def has_all(self):
        """The mark of a venv that has what is needed now."""
        return os.path.join(self.venv, 'has-' + hashlib.sha256(' '.join(self.needs).encode()).hexdigest()[:16])

    def own_tests(self):
        return [self.argv[0], '-B', '-W', 'error::ResourceWarning', '-m', 'unittest', 'discover', '-q', '-s', 'tests'], self.driver


    def package(self, scratch, url):
        """The wheel, in a venv that has nothing else."""
        copy, clean = os.path.join(scratch, 'python'), os.path.join(scratch, 'venv')
        shutil.copytree(self.driver, copy)
        program = 'import sys, fencelock\nassert sys.argv[2] in fencelock.__file__, fencelock.__file__\n' \
                  'with fencelock.connect(sys.argv[1]) as locks, locks.acquire("of-the-wheel") as lease:\n    lease.check()\n'
        bare = {'PYTHONPATH': ''}
        yield [self.argv[0], '-m', 'build', '-q', '-w', '-n', '-o', scratch, copy], bare
        yield [sys.executable, '-m', 'venv', clean], bare
        wheel = [name for name in os.listdir(scratch) if name.endswith('.whl')][0]
        assert '-py3-none-linux_' in wheel, wheel
        yield [os.path.join(clean, 'bin/pip'), 'install', '-q', '--no-deps', '--no-index', os.path.join(scratch, wheel)], bare
        yield [os.path.join(clean, 'bin/python'), '-B', '-c', program, url, clean], dict(bare, FENCELOCK_LIBRARY='')
        yield [self.argv[0], '-B', '-W', 'error', '-m', 'pdoc', '-o', os.path.join(scratch, 'pages'), 'fencelock', 'fencelock.aio'], {}

    def kubernetes(self, scratch):
        return None

    def fences(self, scratch):
        return [self.argv[0], '-B', os.path.join(self.driver, 'tests', 'fences.py')]

    RUN = {'threads': """
import sys
locks = fencelock.connect(sys.argv[1])
with psycopg.connect(sys.argv[2]) as db:
    add(locks, db, 10)
""", 'asyncio': """
import asyncio, sys
async def main():
    async with fencelock.aio.connect(sys.argv[1]) as locks, await psycopg.AsyncConnection.connect(sys.argv[2]) as db:
        await add_async(locks, db, 10)
asyncio.run(main())
"""}

    def page(self, scratch):
        """The programs of src/drivers/python/README.md, which add 10 to account/42; and its other blocks, run with what they name."""
        with open(os.path.join(ROOT, 'src/drivers/python/README.md'), encoding='utf-8') as f:
            blocks = re.findall(r'^```python\n(.*?)^```', f.read(), re.M | re.S)
        assert len(blocks[0].splitlines()) <= 15 and len(blocks) == 6
        program = os.path.join(scratch + '.py')
        with open(program, 'w', encoding='utf-8') as f:
            f.write(blocks[0] + blocks[1] + self.RUN[self.face] + self.rest(blocks[2:]))
        return [self.argv[0], '-B', program]

    @staticmethod
    def rest(blocks):
        """The recipes: a decorated function, a task of Celery and a job of APScheduler, an election, a watch."""
        report, task, election, watch = blocks
        return '''
import celery, time
from apscheduler.schedulers.background import BackgroundScheduler
def render(day, token):
    ran.append(day)
    return token
def schedule(token, until):
    return not until.is_set()
ran = []
app = celery.Celery(broker='memory://')
app.conf.task_always_eager = True
scheduler = BackgroundScheduler()
locks = fencelock.connect(sys.argv[1])
%s
%s
%s
report("today")
nightly.delay("tonight").get()
scheduler.start()
scheduler.get_job("nightly").modify(next_run_time=__import__("datetime").datetime.now().astimezone())
end = time.monotonic() + 60
while len(ran) < 3 and time.monotonic() < end:
    time.sleep(0.01)
scheduler.shutdown()
assert ran == ["today", "tonight", "today"], ran
class Enough(Exception):
    pass
def print(kind, lock, token):
    assert kind == "resync"
    raise Enough
try:
%s
except Enough:
    locks.close()
''' % (report, task, election, '\n'.join('    ' + line for line in watch.splitlines()))


from .java_probe import JavaProbe # noqa: E402
from .nodejs import NodeProbe # noqa: E402
from .rustcargo import RustProbe # noqa: E402

PROBES = {'go': GoProbe(), 'java': JavaProbe(), 'python': PythonProbe('asyncio'), 'python-threads': PythonProbe('threads'), 'node': NodeProbe(),
          'rust': RustProbe()}
