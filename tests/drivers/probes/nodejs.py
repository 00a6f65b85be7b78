"""How the probe of the driver for Node is built: from a copy of the driver, with what npm installed once for its tests."""

import atexit
import os
import re
import shutil
import subprocess
import tempfile

import redlock_peers_lab as registries

from . import HERE, ROOT, skip

BARE = {'npm_config_offline': 'true', 'npm_config_cache': '', 'NODE_PATH': ''}


class NodeProbe:
    calls_libc = False # it reads /proc/uptime
    driver = os.environ.get('DRIVER_SOURCE') or os.path.join(ROOT, 'src/drivers/node')

    def build(self):
        """The driver compiled, and in its folder the probe, which finds the driver under its own name."""
        self.needs = self.modules('node')
        self.built = os.environ.get('DRIVER_PROBE') or tempfile.mkdtemp(prefix='fencelock-node-')
        if 'DRIVER_PROBE' not in os.environ:
            atexit.register(shutil.rmtree, self.built, True)
        if not self.compile(self.built):
            raise SystemExit('the probe cannot be built')
        shutil.copytree(os.path.join(HERE, 'node'), os.path.join(self.built, 'probe'), ignore=shutil.ignore_patterns('package.json'))
        self.argv = ['node', os.path.join(self.built, 'probe', 'probe.js')]
        os.environ['FENCELOCK_VECTORS'] = os.path.join(ROOT, 'tests/vectors/lease/lease.json')

    def modules(self, folder):
        try:
            return self.installed(folder)
        except registries.Unavailable as why:
            return skip('what the driver is tested with cannot be had: %s' % why)

    @staticmethod
    def installed(folder, *more, then=()):
        """node_modules with what probes/FOLDER/package.json asks for. then: a command that ends the installation; more: files that it reads."""
        def install(directory):
            registries.fetch(directory, 'npm', 'install', '--no-package-lock', '--ignore-scripts')
            if then:
                registries.fetch(directory, *then)
        sources, registries.SOURCES = registries.SOURCES, HERE
        try:
            registries.need('node', 'npm')
            files = [os.path.join(folder, name) for name in ('package.json', *more)]
            return os.path.join(registries.installed(folder + '-driver', install, *files), 'node_modules')
        finally:
            registries.SOURCES = sources

    def tsc(self, *words):
        done = subprocess.run(['node', os.path.join(self.needs, 'typescript', 'bin', 'tsc'), *words], capture_output=True, text=True)
        print(done.stdout + done.stderr, end='')
        return done.returncode == 0

    def compile(self, copy):
        shutil.copytree(self.driver, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns('node_modules', 'dist'))
        os.symlink(self.needs, os.path.join(copy, 'node_modules'))
        return self.tsc('-p', copy)

    def own_tests(self):
        folder = os.path.join(self.built, 'test') # beside it may be programs of frameworks, which want a database
        return ['node', '--test', *sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith('.test.js'))], self.built

    def fences(self, scratch):
        return ['node', os.path.join(self.built, 'probe', 'fences.js')]

    def frameworks(self, scratch, database):
        """Programs of the page with BullMQ and a Redis server, and with Prisma. The program that Prisma would download for migrations is not run."""
        try:
            modules = self.installed('node-frameworks', 'schema.prisma', then=('env', 'PRISMA_SCHEMA_ENGINE_BINARY=/bin/true', 'CHECKPOINT_DISABLE=1', 'node',
                                                                              'node_modules/prisma/build/index.js', 'generate'))
            registries.need('redis-server')
        except registries.Unavailable as why:
            print('without frameworks: %s' % why)
            return None
        folder = os.path.join(self.built, 'frameworks')
        shutil.copytree(os.path.join(HERE, 'node-frameworks'), folder, ignore=shutil.ignore_patterns('package.json', '*.prisma'))
        os.symlink(modules, os.path.join(folder, 'node_modules'))
        files = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith('.test.js'))
        return ['node', '--test', '--test-concurrency=1', *files], folder, {'POSTGRES_URL': database, 'PAGE': os.path.join(self.driver, 'README.md')}

    USER = 'const { connect } = %s\nasync function main() {\n  const locks = connect(process.argv[2] ?? "")\n' \
           '  await locks.with("of-the-package", (lease) => { lease.check() })\n  await locks.close()\n}\nvoid main()\n'

    def package(self, scratch, url):
        """The tarball, in a folder that has nothing else, with no registry: for require() and import, and for the compiler's strict eyes."""
        copy, user = os.path.join(scratch, 'node'), os.path.join(scratch, 'user')
        assert self.compile(copy)
        shutil.copy(os.path.join(ROOT, 'LICENSE'), copy)
        os.makedirs(user)
        for name, found in {'a.js': 'require("fencelock")', 'b.mjs': 'await import("fencelock")'}.items():
            with open(os.path.join(user, name), 'w', encoding='utf-8') as f:
                f.write(self.USER % found)
        for name in ('a.cts', 'b.mts'):
            with open(os.path.join(user, name), 'w', encoding='utf-8') as f:
                f.write('import { connect, type Lease } from "fencelock"\nimport { Fence, type PgPool, type PgClient } from "fencelock/pg"\n'
                        'import { headers } from "fencelock/http"\nimport { startNode } from "fencelock/testing"\n'
                        'export async function main(pool: PgPool<PgClient>): Promise<number> {\n'
                        '  await using node = await startNode()\n  await using locks = connect(node.url)\n'
                        '  await using lease: Lease = await locks.acquire("a", { ttl: "10s", wait: 5, signal: AbortSignal.timeout(9) })\n'
                        '  await Fence.claim(pool, lease)\n  return headers(lease)["Fencing-Token"].length\n}\n')
        bare = dict(BARE, npm_config_cache=os.path.join(scratch, 'cache'))
        yield ['npm', 'pack', '--silent', '--pack-destination', scratch, copy], bare
        tarball = [name for name in os.listdir(scratch) if name.endswith('.tgz')][0]
        yield ['npm', 'install', '--silent', '--prefix', user, os.path.join(scratch, tarball)], bare
        for name in ('a.js', 'b.mjs'):
            yield ['node', os.path.join(user, name), url], bare
        yield ['node', os.path.join(self.needs, 'typescript', 'bin', 'tsc'), '--noEmit', '--strict', '--module', 'node16', '--target', 'es2022',
               '--lib', 'es2023,esnext.disposable', '--typeRoots', os.path.join(self.needs, '@types'), '--types', 'node',
               *(os.path.join(user, name) for name in ('a.cts', 'b.mts'))], bare

    REST = """
import type { Client, Lease } from 'fencelock'
declare function schedule(token: number, signal: AbortSignal): Promise<void>
export async function rest(locks: Client, lease: Lease, url: string): Promise<void> {
%s
}
"""

    def page(self, scratch):
        """The program of src/drivers/node/README.md, which adds 10 to account/42; its other blocks are compiled with it."""
        with open(os.path.join(self.driver, 'README.md'), encoding='utf-8') as f:
            program, *others = re.findall(r'^```ts\n(.*?)^```', f.read(), re.M | re.S)
        assert len(program.splitlines()) <= 15 and len(others) == 3
        folder = os.path.join(self.built, 'page')
        os.makedirs(folder)
        for name, text in {'program.mts': program, 'rest.mts': self.REST % '\n'.join('{%s}' % block for block in others)}.items():
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
                f.write(text)
        assert self.tsc('--strict', '--module', 'node16', '--target', 'es2022', '--lib', 'es2023,esnext.disposable', '--types', 'node',
                        '--typeRoots', os.path.join(self.needs, '@types'), *(os.path.join(folder, name) for name in os.listdir(folder)))
        return ['node', os.path.join(folder, 'program.mjs')]

    def kubernetes(self, scratch):
        return None
