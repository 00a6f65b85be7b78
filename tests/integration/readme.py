#!/usr/bin/python3
"""Every block of README.md and of docs/START.md, run as it stands there: here, or in the test that BLOCKS names; and one of each page
of OTHERS. Those that need fixed ports run in a network namespace of their own."""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
from harness import PATIENCE_S, Case, main
from harness.lab import build_dir

ROOT = os.path.abspath(os.path.join(HERE, '..', '..'))
SCREEN = 28  # lines
LINES_MAX = 120
PAGES = ('README.md', 'docs/START.md')
OTHERS = ('docs/FRONTDOOR.md', 'tests/README.md')

# The mark over a block, and the file with the test that runs it.
BLOCKS = {
    'quickstart': 'tests/integration/readme.py', 'node': 'tests/integration/readme.py', 'three nodes': 'tests/integration/readme.py',
    'build': 'tests/integration/readme.py', 'try': 'tests/integration/first_steps.py', 'guard': 'tests/guards/postgresql.py',
}

# Waits for a node, as a shell: at most four minutes.
AWAIT = 'for i in $(seq 2400); do redis-cli -p %d PING >reply 2>&1 && grep -q PONG reply && break; sleep 0.1; done\n'


def text(page):
    with open(os.path.join(ROOT, page), encoding='utf-8') as f:
        return f.read()


def block(mark):
    return re.search(r'^<!-- %s -->\n```\w+\n(.*?)^```' % mark, '\n'.join(map(text, PAGES + OTHERS)), re.M | re.S).group(1)


class Blocks(Case):
    def setUp(self):
        super().setUp()
        self.dir = self.lab.path('readme')
        os.makedirs(self.dir)
        for name in ('deploy', 'tests'):
            os.symlink(os.path.join(ROOT, name), os.path.join(self.dir, name))
        os.symlink(build_dir(), os.path.join(self.dir, 'build'))
        self.env = dict(os.environ, BUILD_DIR=build_dir(), FENCELOCK_TIMEOUT='120s', PATH=os.path.join(build_dir(), 'src', 'cli') + ':' + os.environ['PATH'])

    def run_script(self, script, timeout=300):
        """In a network namespace of its own; whatever it leaves running ends with it."""
        words = ['unshare', '--net', '--pid', '--fork', '--mount-proc', '--kill-child', 'bash', '-euc', 'ip link set lo up\n' + script]
        done = subprocess.run(words, cwd=self.dir, env=self.env, timeout=timeout, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        out = done.stdout.decode(errors='replace')
        self.assertEqual(done.returncode, 0, out)
        return out

    def test_every_block_has_its_test(self):
        fences = re.findall(r'^((?:<!-- [^\n]* -->\n)?)```(\w*)\n.*?^```', '\n'.join(map(text, PAGES)), re.M | re.S)
        self.assertEqual([f for f in fences if f[0] == ''], [], 'a block without a mark')
        marks = {f[0][5:-5] for f in fences}
        self.assertEqual(marks, set(BLOCKS))
        for mark, path in BLOCKS.items():
            self.assertRegex(text(path), 'README|START', path)
            self.assertIn(mark, text(path), '%s does not look for the block %r' % (path, mark))

    def test_the_first_example_is_on_the_first_screen(self):
        lines = text('README.md').split('\n')
        self.assertLess(lines.index('<!-- guard -->') + 2, SCREEN)
        self.assertLess(lines.index('<!-- quickstart -->'), lines.index('<!-- guard -->'))
        self.assertLessEqual(len(lines), LINES_MAX)

    def test_quickstart(self):
        command = block('quickstart').strip()
        self.assertEqual(len(command.split('\n')), 2)
        self.assertRegex(command, r'^deploy/quickstart +#')
        out = self.run_script(command.replace('quickstart ', 'quickstart --no-setup --svg story.svg ', 1))
        self.assertIn('STALE', out)
        self.assertTrue(os.path.getsize(os.path.join(self.dir, 'story.svg')) > 1000)

    def test_a_node_and_a_library(self):
        out = self.run_script('%s &\n' % block('node').strip() + AWAIT % 7401 +
                              "/usr/bin/python3 -c '\nimport redis\n%s\nprint(\"token\", token)'\n" % block('library').replace("'", '"'))
        self.assertRegex(out, r'token [1-9]')

    def test_three_nodes(self):
        command = block('three nodes').replace('\\\n', ' ').strip()
        script = ''
        for i in (1, 2, 3):
            mine = command.replace('--id 1', '--id %d' % i).replace('/var/lib/fencelock', 'node-%d' % i)
            mine = mine.replace('--listen 127.0.0.1:7401', '--listen 127.0.0.1:740%d' % i)
            script += '%s &\n' % mine.replace('--peer 127.0.0.1:7501', '--peer 127.0.0.1:750%d' % i)
        out = self.run_script(script + AWAIT % 7401 + 'fencelock acquire report --ttl 60000 --wait 200000 '
                              '--nodes 127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403\n')
        self.assertRegex(out, r'(?m)^[1-9][0-9]*$')

    def test_faults(self):
        faults, simulation = [line.split('  #')[0].strip() for line in block('faults').strip().split('\n')]
        self.assertIn('--seeds 1000', simulation)
        out = self.run_script(simulation.replace('1000', '10') + '\n')
        self.assertRegex(out, r'(?m)^10 seeds')
        env = dict(self.env, FENCELOCK_BUILD=build_dir())
        done = subprocess.run(['bash', '-c', faults + ' --seconds 5 --out out'], cwd=self.dir, env=env, timeout=PATIENCE_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout.decode(errors='replace'))

    def test_build(self):
        script = block('build')
        for old, new in (('deploy/setup ', 'deploy/setup --dry-run '), ('meson setup build', 'meson setup fresh ' + ROOT),
                         ('ninja -C build', 'ninja -n -C fresh'), ('ldconfig ', 'true '),
                         ('meson install -C build', 'DESTDIR=$PWD/dest meson install -C build --no-rebuild --quiet')):
            self.assertEqual(script.count(old), 1, old)
            script = script.replace(old, new)
        self.run_script(script)
        self.assertTrue(os.path.exists(os.path.join(self.dir, 'dest/usr/local/bin/fencelockd')))


if __name__ == '__main__':
    main()
