#!/usr/bin/python3
"""Runs every block of commands on the pages of docs/operations as it stands there, in a network namespace of its own, and checks
afterwards that the job is done. Compares their tables of options, figures, alerts and lines of the log with the programs."""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Store, binary, main
from harness.lab import build_dir

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
PAGES = os.path.join(ROOT, 'docs', 'operations')
# The jobs of each page, which tests below run; and the pages that only explain.
JOBS = {
    'start.md': {'start', 'serves'}, 'options.md': {'check'},
    'members.md': {'who', 'grow', 'shrink', 'add', 'learner', 'remove', 'replace', 'move'},
    'lost-disk.md': {'lost disk'}, 'lost-majority.md': {'lost majority'}, 'older-copy.md': {'older copy', 'witness'},
    'backup.md': {'backup', 'schedule'}, 'restore.md': {'restore', 'restore beyond loopback'},
    'store-backup.md': {'store backup', 'store schedule', 'store restore'},
    'upgrade.md': {'stop', 'transfer', 'upgrade', 'go back'}, 'limits.md': {'limits'},
    'secure.md': {'tls', 'renew', 'node certificates', 'secret', 'new secret', 'users', 'audit'},
    'monitoring.md': {'ask', 'metrics'}, 'incidents.md': {'killed leader', 'hot lock'}, 'log.md': {'debug'},
}
EXPLAINING = {'service.md', 'sizing.md', 'info.md'}
# Lines of the log that the source puts together of several pieces.
COMPOSED = {'is gone', 'cannot make ready', 'TLS: clients are shown', 'TLS: the new files are refused, and the old ones stay in use:',
            'between nodes: the new files are refused, and the old ones stay in use:', 'stays a learner: the states of node', 'gets no snapshot:'}
# Each node has two seconds for its answer to these, and a whole cluster half a minute to be healthy: a busy machine needs more. What
# they said then is shown beside the output of the job.
PATIENT = '''
fencelock() {
  local out code end=$((SECONDS + 240))
  case "$1" in
    status | health)
      while true; do
        code=0
        out=$(command fencelock "$@") || code=$?
        if [ $code = 0 ]; then printf '%s\n' "$out"; return; fi
        echo "exit code $code of fencelock $*: $out" >&2
        if [ $code = 2 ] || [ $SECONDS -ge $end ]; then return $code; fi # 2: wrong words, which are so the next time
        sleep 1
      done ;;
    *) command fencelock "$@" ;;
  esac
}
'''
STATUS = '\necho; echo ==STATUS==; fencelock cluster status --json\n'


def page(name):
    with open(os.path.join(PAGES, name), encoding='utf-8') as f:
        return f.read()


def block(job):
    name = next(name for name, jobs in JOBS.items() if job in jobs)
    return re.search(r'^<!-- job: %s -->\n```sh\n(.*?)^```' % job, page(name), re.M | re.S).group(1)


def last_number(out):
    """The last line that is a number; nodes that run beside may log after it."""
    return int(re.findall(r'^\d+$', out, re.M)[-1])


def members_of(out):
    """What STATUS has printed, among lines of the nodes' logs."""
    status = out.split('==STATUS==')[1]
    return {m['id']: m for m in json.JSONDecoder().raw_decode(status[status.index('{"version"'):])[0]['members']}


class Jobs(Case):
    def setUp(self):
        super().setUp()
        self.dir = self.lab.path('jobs')
        os.makedirs(os.path.join(self.dir, 'new'))
        os.symlink(binary('fencelockd-next'), os.path.join(self.dir, 'new', 'fencelockd'))
        os.symlink(os.path.join(ROOT, 'deploy'), os.path.join(self.dir, 'deploy'))

    def run_jobs(self, *jobs, end=''):
        """One script, in a network namespace of its own; whatever it leaves running ends with it."""
        known = set().union(*JOBS.values())
        script = 'ip link set lo up\n' + PATIENT + ''.join(block(job) if job in known else job for job in jobs) + end
        words = ['unshare', '--net', '--pid', '--fork', '--mount-proc', '--kill-child', 'bash', '-euc', script]
        env = dict(os.environ, PATH=os.path.join(build_dir(), 'src', 'cli') + ':' + os.environ['PATH'], FENCELOCK_TIMEOUT='60s')
        done = subprocess.run(words, cwd=self.dir, env=env, timeout=800, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        out = done.stdout.decode(errors='replace')
        self.assertEqual(done.returncode, 0, out)
        return out

    def states(self, *jobs):
        """Their states by id, after the jobs."""
        self.members = members_of(self.run_jobs(*jobs, end=STATUS))
        return {i: m['state'] for i, m in self.members.items()}

    def voters(self, *ids):
        return {i: 'voter' for i in ids}

    def test_start(self):
        out = self.run_jobs('start', 'serves')
        self.assertIn('\n0\n', out)
        self.assertEqual(len(set(re.findall(r'^127\.0\.0\.1:1740(\d) .* (?:leader|follower) ', out, re.M))), 3, out)

    def test_grow_from_one_to_three_to_five_and_shrink(self):
        self.assertEqual(self.states('grow', 'fencelock cluster status --json | grep -o voter | grep -c . | grep -x 5\n', 'shrink'),
                         self.voters(1, 2, 3))

    def test_add_and_remove(self):
        states = self.states('start', 'who', 'add', 'learner', 'remove')
        self.assertEqual(states, {1: 'voter', 2: 'voter', 4: 'voter', 5: 'learner'})

    def test_replace(self):
        self.assertEqual(self.states('start', 'replace'), self.voters(1, 2, 3))
        self.assertIn('127.0.0.1:17505', str(self.members[3]))

    def test_move(self):
        self.assertEqual(self.states('start', 'move'), self.voters(1, 2, 3))
        self.assertIn('127.0.0.1:17506', str(self.members[3]))

    def test_a_lost_disk(self):
        self.assertEqual(self.states('start', 'lost disk'), self.voters(1, 2, 3))

    def test_a_lost_majority(self):
        out = self.run_jobs('start', 'fencelock token kept\n', 'lost majority', 'fencelock token kept --nodes 127.0.0.1:17401\n')
        self.assertGreater(last_number(out), 1000000000)

    def test_backup_schedule_and_restore(self):
        out = self.run_jobs('start', 'fencelock acquire held --ttl 10m\n', 'backup', 'schedule', 'restore')
        self.assertGreater(last_number(out), 1000000000 + 123456)
        self.assertEqual(len(os.listdir(os.path.join(self.dir, 'backups'))), 1)

    def test_a_restore_of_nodes_beyond_loopback(self):
        far = 'for i in 1 2 3; do ip addr add 10.7.0.$i/24 dev lo; done\n'
        backup = 'fencelock backup tuesday.backup\nkill $n1 $n2 $n3; wait $n1 $n2 $n3\n'
        refused = 'fencelockd --restore tuesday.backup --data far --id 1 --cluster 1=10.7.0.1:7501,2=10.7.0.2:7501 && exit 1\n'
        out = self.run_jobs(far, 'start', backup, refused, 'restore beyond loopback')
        self.assertIn('or --cluster-secret-file FILE', out)
        self.assertGreater(last_number(out), 1000000000 + 123456)

    def test_a_storage(self):
        out = self.run_jobs('start', 'store backup', 'store schedule', 'old=$(fencelock token report)\n', 'store restore',
                            'fencelock store set balance 0 --lock report --token $old && exit 1\necho refused\n')
        self.assertRegex(out, r'\n100')
        self.assertIn('STALE', out)
        self.assertRegex(out, r'(?m)^refused$')
        self.assertEqual(len(os.listdir(os.path.join(self.dir, 'store-backups'))), 1)

    def test_stop_hand_over_and_upgrade(self):
        out = self.run_jobs('start', 'fencelock acquire kept --ttl 10m >kept\n', 'stop', 'transfer',
                            # On a busy machine another may be elected meanwhile.
                            'until fencelock cluster status | grep -E "^ *2 .* leader "; do fencelock cluster transfer 2 || sleep 1; done\n',
                            'go back', 'until fencelock cluster status | grep "at version 1"; do sleep 1; done\n', 'upgrade',
                            'for i in $(seq 1200); do fencelock cluster status | grep "at version 2" && break; sleep 0.2; done\n'
                            'fencelock cluster status | grep "at version 2"; fencelock check kept "$(cat kept)"\n')
        self.assertIn('at version 2', out)

    def test_limits_a_check_and_the_level_of_the_log(self):
        out = self.run_jobs('start', 'limits', 'check', 'debug')
        self.assertRegex(out, r'locks-max +3000000')
        self.assertRegex(out, r'election-ms +600')
        self.assertRegex(out, r'log-level +default')
        self.assertRegex(out, r'election-ms.*300.*fencelock\.conf')
        self.assertIn('SIGUSR1: the level of the log is changed', out)

    def test_an_older_copy_and_a_witness(self):
        out = self.run_jobs('start', 'older copy', 'witness', end=STATUS)
        self.assertIn('is an older copy', out)
        self.assertEqual({i: m['state'] for i, m in members_of(out).items()}, self.voters(1, 2, 3))
        self.assertTrue(os.path.exists(os.path.join(self.dir, 'other-disk', 'n1.witness')))

    def test_tls(self):
        out = self.run_jobs('tls', 'fencelock token anything\n', 'renew',
                            'FENCELOCK_TLS=no FENCELOCK_CACERT= FENCELOCK_CERT= FENCELOCK_KEY= fencelock token anything --timeout 1s && exit 1\n'
                            'echo refused\n')
        self.assertRegex(out, r'tls_reloads:[1-9]')
        self.assertRegex(out, r'(?m)^refused$')

    def test_certificates_between_nodes(self):
        out = self.run_jobs('node certificates', 'fencelock token anything\n')
        self.assertRegex(out, r'\n[1-9]\d*\n$')

    def test_a_secret_between_nodes_and_users(self):
        out = self.run_jobs('secret', 'start', 'new secret', 'users', 'fencelock token anything --timeout 1s && exit 1\necho refused\n')
        self.assertRegex(out, r'peer_reloads:3')
        self.assertRegex(out, r'(?m)^refused$')
        with open(os.path.join(self.dir, 'cluster-secret'), encoding='utf-8') as f:
            self.assertEqual(len(f.read().split()), 1)

    def test_audit(self):
        self.assertIn('"event":"granted"', self.run_jobs('audit'))

    def test_ask(self):
        out = self.run_jobs('start', 'ask')
        self.assertIn('applied_index:', out)

    def test_metrics(self):
        out = self.run_jobs('metrics')
        self.assertRegex(out, r'(?m)^fencelock_leads(\{.*\})? 1')
        self.assertIn('[+]', out)

    def test_a_killed_leader(self):
        out = self.run_jobs('start', 'killed leader')
        self.assertIn('node 2, the leader, does not run any more', out)

    def test_a_hot_lock(self):
        self.assertIn('nightly-report', self.run_jobs('start', 'hot lock'))


def names_in(text):
    return set(re.findall(r'`([^`]+)`', text))


def sources(folder):
    for path, _, names in os.walk(folder):
        for name in names:
            if name.endswith('.c'):
                with open(os.path.join(path, name), encoding='utf-8') as f:
                    yield re.sub(r'" *(?:PRI\w+ *)?\s*"', lambda m: '%' if 'PRI' in m.group() else '', f.read())


def literals(folder):
    return [m for text in sources(folder) for m in re.findall(r'"((?:\\.|[^"\\\n])*)"', text)]


def messages(folder):
    """Each warning and error that the daemons write to their logs, as in the source."""
    for text in sources(folder):
        for m in re.findall(r'(?:_log|log_message|log|_write|_printf)\((?:[^;"]*?, )?(?:[12]|LOG_[A-Z]+_(?:WARNING|ERROR)),\s*(?:"daemon",\s*|"store",\s*)?'
                            r'"((?:\\.|[^"\\])*)"|\bhost_fail\([^;"]*"((?:\\.|[^"\\])*)"', text):
            if not re.fullmatch(r'%?\w*', m[0] or m[1]):
                yield m[0] or m[1]


class Tables(Case):
    """What the pages list is what the programs have."""

    def test_every_job_has_a_page_and_every_page_a_test(self):
        with open(os.path.abspath(__file__), encoding='utf-8') as f:
            tests = f.read().split('\nclass Jobs(')[1]
        with open(os.path.join(ROOT, 'docs', 'OPERATIONS.md'), encoding='utf-8') as f:
            entry = f.read()
        self.assertEqual({n for n in os.listdir(PAGES) if n.endswith('.md')}, set(JOBS) | EXPLAINING)
        for name in sorted(set(JOBS) | EXPLAINING):
            text = page(name)
            self.assertIn('(operations/%s)' % name, entry)
            self.assertRegex(text, r'^# .+\n\nFor people who .*\. After this page ', 'for whom, and what is true afterwards: ' + name)
            self.assertRegex(text, r'`tests/', 'no test is named: ' + name)
            marks = re.findall(r'^((?:<!-- (?:job|by): .* -->\n)?)```(\w*)\n.*?^```', text, re.M | re.S)
            self.assertEqual([m for m in marks if (m[1] == 'sh') != (m[0] != '')], [], 'commands without a mark: ' + name)
            jobs = re.findall(r'^<!-- job: (.*) -->$', text, re.M)
            self.assertEqual(len(jobs), len(set(jobs)), name)
            self.assertEqual(set(jobs), JOBS.get(name, set()), name)
            for path in re.findall(r'^<!-- by: (.*) -->$', text, re.M):
                self.assertTrue(os.path.exists(os.path.join(ROOT, path)), path)
                self.assertIn('`%s`' % path, text, 'the reader is not told: ' + name)
            for job in jobs:
                self.assertIn(repr(job), tests, 'no test runs it')

    def test_options(self):
        text = page('options.md')
        for program, heading in (('fencelockd', '## Options of fencelockd\n'), ('fencelock-store', '## Options of fencelock-store\n')):
            rows = re.findall(r'^\| (`.*?) \| (.*?) \|', text.split(heading)[1].split('\n## ')[0], re.M)
            documented = {name: default for names, default in rows for name in names_in(names)}
            output = subprocess.run([binary(program), '--help'], check=True, stdout=subprocess.PIPE, timeout=PATIENCE_S).stdout.decode()
            serving = re.split(r'(?i)\ninstead of serving', output)[0]
            options = set(re.findall(r'--([a-z][a-z-]+)', serving)) - {'help', 'version', 'witness-reset'}
            if program == 'fencelock-store':
                documented.update({name: None for name in options if name.startswith('tls-')})
            self.assertEqual(set(documented), options)
            for name, default in re.findall(r'^  --([a-z-]+) [^\n]*\(([0-9]+)\)$', output, re.M):
                self.assertIn(default, documented[name].replace('`', ''), name)

    def test_figures(self):
        node_text, store_text = page('info.md').split('\n## ')[1:]
        self.compare_figures(set(Cluster(self.lab, 1).start().nodes[0].info()), node_text)
        store = Store(self.lab)
        store.start()
        self.compare_figures(set(store.info()), store_text)

    def compare_figures(self, figures, text):
        """All that is answered is on the page, and what is on the page is somewhere in the source."""
        self.assertGreater(len(figures), 20)
        parts = {f[len('loop_ms_'):] for f in figures if f.startswith('loop_ms_')}
        self.assertTrue(parts <= names_in(text), parts - names_in(text))
        plain = {f for f in figures if not f.startswith(('loop_ms_', 'loop_turns_slow_')) or f == 'loop_turns_slow_working'}
        self.assertEqual(sorted(plain - names_in(text)), [], 'figures that the page lacks')
        words = set(re.findall(r'\w+', ' '.join(literals(os.path.join(ROOT, 'src'))).replace('\\r\\n', ' ')))
        named = {n for n in names_in(text) if re.fullmatch(r'[a-z0-9]+(_[a-z0-9]+)+', n)}
        self.assertEqual(sorted(named - words - figures), [], 'figures that no program has')

    def test_lines_of_the_log(self):
        lines = [[f.strip() for f in re.split(r'\.\.\.|\b[NMT]\b|HOST(?::PORT)?|FILE|"', line) if len(f.strip()) > 3]
                 for row in re.findall(r'^\| (`.*`)[^|]* \| ', page('log.md'), re.M) for line in re.findall(r'`([^`]+)`', row)]
        self.assertGreater(len(lines), 60)
        source = '\n'.join(literals(os.path.join(ROOT, 'src')))
        self.assertEqual([f for line in lines for f in line if f not in source and f not in COMPOSED], [], 'lines that no program writes')
        said = list(messages(os.path.join(ROOT, 'src')))
        self.assertGreater(len(said), 40)
        self.assertEqual([m for m in said if not any(line and all(f in m for f in line) for line in lines)], [], 'warnings that the page lacks')

    def test_alerts(self):
        with open(os.path.join(ROOT, 'deploy', 'prometheus', 'alerts.yml'), encoding='utf-8') as f:
            rules = f.read()
        alerts = re.findall(r'- alert: (\w+)\n.*?severity: (\w+)', rules, re.S)
        self.assertGreaterEqual(len(alerts), 20)
        self.assertEqual(re.findall(r'^\| (Fencelock\w+) \| (\w+) \|', page('monitoring.md'), re.M), alerts)
        for name in re.findall(r'docs/[\w/.-]+\.md', rules):
            self.assertTrue(os.path.exists(os.path.join(ROOT, name)), name)


if __name__ == '__main__':
    main()
