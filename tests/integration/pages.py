#!/usr/bin/python3
"""Checks what is installed beside the programs: man pages and completions made from --help, units, manifests."""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, binary, main
from harness.lab import ROOT

SECURITY_MAX = 2.0  # of systemd-analyze security, 0 to 10


def text_of(*argv, **options):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, timeout=PATIENCE_S, **options).stdout.decode()


class Pages(Case):
    def setUp(self):
        super().setUp()
        self.share = self.lab.path('share')
        subprocess.run([sys.executable, os.path.join(ROOT, 'deploy', 'pages'), '--programs', os.path.dirname(binary('fencelock')),
                        '--headers', os.path.join(ROOT, 'include', 'fencelock'), '--out', self.lab.dir], check=True, timeout=PATIENCE_S)

    def commands(self):
        lines = text_of(binary('fencelock'), '--help').splitlines()
        return [re.match(r'^  ([a-z]+(?: [a-z]+)?)\b', line).group(1).split() for line in lines if re.match(r'^  [a-z]', line)]

    def man(self, section, name):
        with open(os.path.join(self.share, 'man', 'man' + section, '%s.%s' % (name, section)), encoding='utf-8') as f:
            return f.read()

    def test_a_page_for_each_command_with_each_option(self):
        commands = self.commands()
        self.assertIn(['store', 'get'], commands)
        for words in commands:
            page = self.man('1', '-'.join(['fencelock'] + words)).replace('\\', '')
            for option in re.findall(r'^  (--[a-z-]+)', text_of(binary('fencelock'), *words, '--help'), re.M):
                self.assertIn('fB' + option, page)
        for daemon in ('fencelockd', 'fencelock-store'):
            page = self.man('8', daemon).replace('\\', '')
            for option in re.findall(r'^  (--[a-z-]+)', text_of(binary(daemon), '--help'), re.M):
                self.assertIn('fB' + option, page)

    def test_a_page_for_each_function(self):
        folder = os.path.join(ROOT, 'include', 'fencelock')
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding='utf-8') as f:
                for function in re.findall(r'^FL_API [^;]*?\b(fl_\w+)\(', f.read(), re.M):
                    self.assertEqual(self.man('3', function), '.so man3/fencelock_%s.3\n' % name[:-2])
                    self.assertIn(function, self.man('3', 'fencelock_' + name[:-2]))

    def test_pages_are_sound(self):
        if shutil.which('man') is None:
            self.skipTest('man is not installed')
        for folder in ('man1', 'man3', 'man8'):
            for name in sorted(os.listdir(os.path.join(self.share, 'man', folder))):
                if self.man(folder[-1], name[:-2]).startswith('.so '):
                    continue
                done = subprocess.run(['man', '--warnings', '-E', 'UTF-8', '-l', '-Tutf8', '-Z', os.path.join('man', folder, name)],
                                      cwd=self.share, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=PATIENCE_S,
                                      env=dict(os.environ, LC_ALL='C.UTF-8', MANROFFSEQ=''))
                self.assertEqual(done.stderr.decode(), '', name)

    def complete(self, *words):
        script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fencelock; printf "%s\\n" "${COMPREPLY[@]}"'
        path = os.path.join(self.share, 'bash-completion', 'completions', 'fencelock')
        return text_of('bash', '-c', script, path, *words).split()

    def test_bash(self):
        self.assertEqual(set(self.complete('fencelock', '')) - {'--help', '--version'}, {w[0] for w in self.commands()})
        self.assertEqual(self.complete('fencelock', 'acq'), ['acquire'])
        self.assertEqual(self.complete('fencelock', 'store', 'g'), ['get'])
        self.assertEqual(self.complete('fencelock', 'store', 'get', 'key', '--def'), ['--default'])
        self.assertEqual(self.complete('fencelock', 'run', '--on-lost', ''), ['kill', 'term', 'warn'])
        self.assertIn('--quiet', self.complete('fencelock', 'run', '--ttl', '5s', '--'))
        self.assertEqual(self.complete('fencelock', 'run', '--ttl', ''), [])

    def test_zsh_and_fish_read_theirs(self):
        checked = 0
        for shell, flag, folder in (('zsh', '-n', 'zsh/vendor-completions'), ('fish', '--no-execute', 'fish/vendor_completions.d')):
            for name in sorted(os.listdir(os.path.join(self.share, folder))):
                if shutil.which(shell) is not None:
                    done = subprocess.run([shell, flag, os.path.join(self.share, folder, name)], stderr=subprocess.PIPE, timeout=PATIENCE_S)
                    self.assertEqual((done.returncode, done.stderr), (0, b''), name)
                    checked += 1
        if not checked:
            self.skipTest('neither zsh nor fish is installed')
        if shutil.which('fish') is not None:
            path = os.path.join(self.share, 'fish', 'vendor_completions.d', 'fencelock.fish')
            found = text_of('fish', '-c', 'source %s; complete -C "fencelock store "' % path)
            self.assertEqual({line.split('\t')[0] for line in found.splitlines()}, {w[1] for w in self.commands() if w[0] == 'store'})


class Units(Case):
    def test_sandbox(self):
        if shutil.which('systemd-analyze') is None:
            self.skipTest('systemd-analyze is not installed')
        for name in ('fencelockd', 'fencelock-store'):
            with open(os.path.join(ROOT, 'deploy', 'systemd', name + '.service.in'), encoding='utf-8') as f:
                unit = f.read().replace('@bindir@', os.path.dirname(binary(name)))
            path = self.lab.path(name + '.service')
            with open(path, 'w', encoding='utf-8') as f:
                f.write(unit)
            found = subprocess.run(['systemd-analyze', 'security', '--offline=yes', path], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, timeout=PATIENCE_S).stdout.decode()
            level = re.search(r'exposure level for \S+ ([0-9.]+)', found)
            if level is None:
                self.skipTest('this systemd-analyze judges no files')
            self.note('%s: %s' % (name, level.group(1)))
            self.assertLessEqual(float(level.group(1)), SECURITY_MAX)
            wrong = subprocess.run(['systemd-analyze', 'verify', '--man=no', path], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, timeout=PATIENCE_S).stdout.decode()
            self.assertNotIn(name + '.service', wrong)

    def test_sample_configuration(self):
        """As it stands it is refused nowhere, nor is any line that is only to be uncommented."""
        path = os.path.join(ROOT, 'deploy', 'config', 'fencelock.conf')
        with open(path, encoding='utf-8') as f:
            text = f.read()
        known = text_of(binary('fencelockd'), '--help')
        names = re.findall(r'^#?([a-z-]+) = ', text, re.M)
        self.assertGreater(len(names), 5)
        for name in names:
            self.assertIn('--%s ' % name, known)
        with open(os.path.join(ROOT, 'deploy', 'config', 'store.env'), encoding='utf-8') as f:
            for name in re.findall(r'^#(FENCELOCK_STORE_\w+)=', f.read(), re.M):
                self.assertIn('--%s ' % name[len('FENCELOCK_STORE_'):].lower().replace('_', '-'),
                              text_of(binary('fencelock-store'), '--help'))


if __name__ == '__main__':
    main()
