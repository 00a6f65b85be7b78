#!/usr/bin/python3
"""What --json prints, against the table of fields in docs/CLI.md: each field is in the row of its command, and each row's fields come."""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Store, binary, main, try_again
from harness.lab import ROOT

# In a row, but not a field of every such call: words that a field has, and fields of other outcomes.
WORDS = {
    'show': {'held', 'delayed', 'queued', 'free', 'exclusive', 'shared', 'permits', 'show', 'queue', 'held_by'},
    'break': {'--claim'}, 'cluster config': {'default', 'set'}, 'store get': {'--default'}, 'status': {'error', 'message'},
    'locks': {'held', 'delayed', 'queued', 'free', 'exclusive', 'shared', 'permits', 'queue', 'held_by'},
    'backup': {'--keep'}, 'top --once': {'leader', 'healthy', 'problems', 'error', 'message'},
}


def rows():
    with open(os.path.join(ROOT, 'docs', 'CLI.md'), encoding='utf-8') as f:
        table = f.read().split('| command | fields |\n')[1].split('\n\n')[0]
    found = {}
    for commands, fields in re.findall(r'^\| (`.*?) \| (.*) \|$', table, re.M):
        names = set(re.findall(r'`([^`]+)`', re.sub(r'as (?:in|of) `[^`]+`', '', fields)))
        for other in re.findall(r'as (?:in|of) `([^`]+)`', fields):
            names |= found[other]
        for command in re.findall(r'`([^`]+)`', commands):
            found[command] = names
    return found


def names_of(value):
    if isinstance(value, list):
        return set().union(*map(names_of, value)) if value else set()
    return set(value).union(*map(names_of, value.values())) if isinstance(value, dict) else set()


class Fields(Case):
    def setUp(self):
        super().setUp()
        self.node = Cluster(self.lab, 1).start().nodes[0]
        store = Store(self.lab)
        store.start()
        self.env = dict(os.environ, FENCELOCK_NODES=self.node.address, FENCELOCK_STORE=store.address, FENCELOCK_TIMEOUT='120s')
        self.rows = rows()
        self.seen = {}

    def ask(self, row, *words, code=0, hurried=False, given=b''):
        """hurried: a command that gives a node two seconds; None, when it had no answer in that time."""
        done = subprocess.run([binary('fencelock')] + [str(w) for w in words] + ['--json'], env=self.env, cwd=self.lab.dir, timeout=PATIENCE_S,
                              input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if hurried and b'no answer' in done.stdout + done.stderr:
            return None
        self.assertEqual(done.returncode, code, done.stderr.decode())
        answer = json.loads(done.stdout)
        names = names_of(answer)
        self.assertEqual(names - self.rows[row], set(), 'fields of %s that the page lacks' % row)
        self.seen.setdefault(row, set()).update(names)
        return answer

    def test_each_command(self):
        token = self.ask('acquire', 'acquire', 'hot', '--ttl', '10m')['token']
        self.ask('acquire', 'acquire', 'hot', '--wait', '100ms', code=1)
        self.ask('renew', 'renew', 'hot', token)
        self.ask('check', 'check', 'hot', token)
        self.ask('show', 'show', 'hot')
        self.ask('locks', 'locks')
        self.ask('locks --by wait', 'locks', '--by', 'wait')
        waiter = self.lab.start([binary('fencelock'), 'acquire', 'hot', '--wait', '1h', '--nodes', self.env['FENCELOCK_NODES']], 'waiter')
        try_again(lambda: self.ask('queue', 'queue', 'hot')['queue'], 'a queue')
        waiter.kill()
        self.node.call('SESSION', 'OPEN', 'owner-of-a-session', 'TTL', 600000)
        self.ask('sessions', 'sessions')
        try_again(lambda: self.ask('health', 'health', hurried=True), 'an answer in the two seconds that it has')
        self.ask('cluster status', 'cluster', 'status')
        self.ask('cluster config', 'cluster', 'config')
        self.ask('cluster config', 'cluster', 'config', 'set', 'locks-max', 3000000)
        self.ask('cluster add', 'cluster', 'transfer', 1)
        self.ask('user add', 'user', 'add', 'ann', '+@see', given=b'ann-password\n')
        self.ask('user list', 'user', 'list')
        self.ask('user add', 'user', 'remove', 'ann')
        try_again(lambda: self.ask('status', 'status', hurried=True), 'an answer in the two seconds that it has')
        try_again(lambda: self.ask('top --once', 'top', '--once', hurried=True), 'an answer in time')
        self.ask('token', 'token', 'x')
        self.ask('break', 'break', 'hot', '--claim', self.env['FENCELOCK_STORE'])
        token = self.ask('acquire', 'acquire', 'hot', '--ttl', '10m')['token']
        self.ask('release', 'release', 'hot', token)
        fence = ('--lock', 'hot', '--token', token)
        self.ask('claim', 'store', 'claim', *fence)
        self.ask('store set', 'store', 'set', 'key', 'value', *fence)
        self.ask('store get', 'store', 'get', 'key')
        self.ask('del', 'store', 'del', 'key', *fence)
        self.ask('store mark', 'store', 'mark', '--lock', 'hot')
        self.ask('backup', 'backup', 'one.backup')
        self.ask('backup', 'backup', '--verify', 'one.backup')
        for row, names in self.seen.items():
            documented = set().union(*(n for r, n in self.rows.items() if n == self.rows[row]))
            others = set().union(*(n for r, n in self.seen.items() if self.rows[r] == self.rows[row]))
            self.assertEqual(documented - others - WORDS.get(row, set()), set(), 'fields on the page that %s does not have' % row)


if __name__ == '__main__':
    main()
