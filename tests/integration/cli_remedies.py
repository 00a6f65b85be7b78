#!/usr/bin/python3
"""What `fencelock` says to somebody who meets it for the first time: what to do about a refusal, and why it waits; and to
operators on a bad day."""

import json
import os
import resource
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Cluster, binary, free_ports, main, wait_until
import cli_scripted
from cli_scripted import CLOSE, DONE, NO, UNKNOWN, USAGE, CliCase
from scripted_server import bulk


class Remedies(CliCase):
    def test_status_when_no_node_could_be_asked(self):
        """A port that refuses says nothing about leaders."""
        for server in (self.server(b'-NOAUTH Authentication required.\r\n'), self.server(b'', listen=False)):
            code, out, err = self.status(server)
            self.assertEqual(code, UNKNOWN)
            self.assertIn('could be asked', err)
            self.assertNotIn('none of these nodes leads', err)

    def test_help_is_a_command_too(self):
        for words in ([], ['acquire'], ['cluster', 'add']):
            code, out, err = self.run_cli('help', *words)
            self.assertEqual((code, err), (DONE, ''))
            self.assertEqual(out, self.run_cli(*words, '--help')[1])
        self.assertEqual(self.run_cli('help', 'nosuch')[0], USAGE)

    def test_what_to_do_about_a_refusal(self):
        code, _, err = self.ask(self.server(b'-NOAUTH Authentication required.\r\n'), 'acquire', 'x')
        self.assertEqual(code, NO)
        self.assertIn('Authentication required. Log in with --user', err)
        stale = self.server(b'-STALE token 1 is below the mark 2; acquire the lock again\r\n')
        code, _, err = self.ask_store(stale, 'set', 'k', 'v', '--lock', 'x', '--token', '1')
        self.assertEqual((code, err.count('acquire the lock again')), (NO, 1))

    def test_a_long_name_moves_its_own_row_only(self):
        s = self.server(cli_scripted.Output.page(b'', b'a', b'n' * 41, b'n' * 40))
        rows = self.ask(s, 'locks')[1].splitlines()
        self.assertEqual(rows[1].index('held'), 42)
        self.assertEqual(rows[2].index('held'), 43)
        self.assertEqual(rows[3].index('held'), 42)

    def test_who_holds_it(self):
        """An owner that `fencelock run` made is shown in one form everywhere; else the label, the value or the owner stand for it."""
        def shown(*more):
            fields = [b'name', b'a', b'state', b'held', *(() if b'owner' in more else (b'owner', b'me')), *more]
            lock = b'*%d\r\n' % len(fields) + b''.join(bulk(f) for f in fields)
            row = self.ask(self.server(b'*2\r\n' + bulk(b'') + b'*1\r\n' + lock), 'locks')[1].splitlines()[1]
            return row[row.index('  0  ') + 5:].split('  ')[-1]
        random = b'/' + b'0a' * 16
        self.assertEqual(shown(b'owner', b'kite@web1/42/the report.sh' + random, b'value', b'hello'), 'kite@web1 42, the report.sh')
        for owner in (b'kite@web1/42/a/b' + random, b'kite/42/a' + random, b'k@w/x/a' + random, b'k@w//a' + random, b'k@w/42/a' + random[:-1], b'k@w/42/a/'):
            self.assertEqual(shown(b'owner', owner).encode(), owner)
        self.assertEqual(shown(b'value', b'hello', b'label', b'job'), 'job')
        self.assertEqual(shown(b'value', b'v' * 5000), 'v' * 5000)
        self.assertEqual(shown(), 'me')

    def test_a_person_is_told_why_nothing_happens(self):
        dead = self.server(b'', listen=False)
        def told(*words):
            """It is said after two seconds of five; a busy machine may have slept through the others."""
            for timeout in ('5s', '50s'):
                code, seen = self.on_terminal(*words, '--timeout', timeout, waits=True)
                self.assertEqual(code, UNKNOWN)
                if 'fencelock: waiting' in seen:
                    break
            return seen
        seen = told('show', 'x', '--nodes', dead.address)
        self.assertIn('fencelock: waiting: no node takes the request: %s: cannot connect' % dead.address, seen)
        with socket.create_server(('127.0.0.1', 0)) as silent:
            address = '127.0.0.1:%d' % silent.getsockname()[1]
            for words in (('store', 'get', 'k', '--store', address), ('show', 'x', '--nodes', address)):
                self.assertIn('fencelock: waiting: no ', told(*words))

    def test_run_says_soon_why_it_waits(self):
        """Before it gives up after four seconds; it used to say it after four and a half."""
        dead = self.server(b'', listen=False)
        for timeout in ('4s', '40s'): # a busy machine outlasts the two requests that it is said after
            code, _, err = self.run_cli('run', 'x', '--nodes', dead.address, '--wait', '0', '--timeout', timeout, '--', 'true')
            self.assertEqual(code, 125)
            if 'waiting, but' in err:
                break
        self.assertIn('waiting, but the nodes do not say for what', err)

    def test_a_key_is_not_missing_where_no_storage_is(self):
        """Redis and fencelockd serve GET too."""
        server = self.server(b'$-1\r\n', b"-ERR unknown command 'MARK'\r\n")
        code, out, err = self.ask_store(server, 'get', 'k')
        self.assertEqual((code, out), (USAGE, ''))
        self.assertIn('--store', err)


class Daemons(CliCase):
    """What a start that fails says to do."""

    def fail(self, *args, env=None, files=None, stdout=subprocess.PIPE):
        clean = {k: v for k, v in os.environ.items() if not k.startswith('FENCELOCK_')}
        few = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))) if files else None
        p = subprocess.run([binary(args[0]), *map(str, args[1:])], env=dict(clean, **(env or {})), timeout=PATIENCE_S,
                           stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, text=True, preexec_fn=few)
        self.assertNotEqual(p.returncode, 0)
        return p.stderr

    def test_an_address_of_another_machine(self):
        for program in ('fencelockd', 'fencelock-store'):
            err = self.fail(program, '--listen', '192.0.2.1:0', '--protected-mode', 'no', '--data', self.lab.path(program))
            self.assertIn('this machine has no such address', err)

    def test_too_few_open_files(self):
        for program, files in (('fencelockd', 12), ('fencelock-store', 8)):
            err = self.fail(program, '--listen', '127.0.0.1:0', '--data', self.lab.path(program + '-few'), files=files)
            self.assertIn('raise the limit on open files (ulimit -n', err)

    def test_a_limit_is_no_reason_to_give_up_data(self):
        cluster = Cluster(self.lab, 1).start()
        node = cluster.nodes[0]
        self.assertEqual(self.run_cli('backup', self.lab.path('backup'), '--nodes', node.address)[0], DONE) # takes a snapshot
        node.terminate()
        said = []
        while not self.starts_with(node, 9 + len(said), said):
            pass
        self.assertGreater(len(said), 5)
        for err in said: # whatever part of the start has met the limit
            self.assertIn('raise the limit on open files', err)
            self.assertNotIn('out of the way', err)

    def starts_with(self, node, files, said):
        """Whether the node starts with so many open files. If not, what it said is appended to `said`."""
        path = self.lab.path('said')

        def output():
            with open(path) as f:
                return f.read()
        with open(path, 'w') as out:
            p = subprocess.Popen([binary('fencelockd'), '--id', '1', '--listen', '127.0.0.1:0', '--cluster', node.cluster.members(), '--data', node.data],
                                 stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files)))
        try:
            wait_until(lambda: p.poll() is not None or 'ready: ' in output(), 'its start or its end')
            if p.poll() is None:
                return True
            said.append(output())
            return False
        finally:
            p.kill()
            p.wait()

    def test_variables_of_the_other_programs(self):
        env = {'FENCELOCK_STORE': '127.0.0.1:7411', 'FENCELOCK_NODES': '127.0.0.1:7401'}
        err = self.fail('fencelockd', '--listen', '192.0.2.1:0', '--protected-mode', 'no', '--data', self.lab.path('other'), env=env)
        self.assertNotIn('there is no option', err)
        self.assertIn("did you mean 'hold-ms'", self.fail('fencelockd', '--check', env={'FENCELOCK_HODL_MS': '77'}))

    def test_a_result_that_cannot_be_written(self):
        for words in (('fencelockd', '--help'), ('fencelockd', '--version'), ('fencelockd', '--check', '--data', self.lab.path('none')),
                      ('fencelock-store', '--help'), ('fencelock', '--help')):
            with self.subTest(words), open('/dev/full', 'w', encoding='utf-8') as full:
                self.assertIn('cannot write the result', self.fail(*words, stdout=full))

    def log_of(self, node):
        with open(self.lab.path(node.name + '.log'), encoding='utf-8') as f:
            return f.read()

    def test_status_while_the_cluster_is_formed(self):
        cluster = Cluster(self.lab, 3)
        first, second, third = cluster.nodes
        first.start()
        second.start()
        nodes = '%s,%s' % (first.address, second.address)
        wait_until(lambda: 'forming' in (first.info()['cluster_state'], second.info()['cluster_state']), 'the word for it')
        wait_until(lambda: 'the first time all its nodes must be up, and 2 of 3 are connected' in self.run_cli('status', '--nodes', nodes)[2], 'the sentence about the third node')
        wait_until(lambda: 'the cluster is being formed' in self.run_cli('health', '--nodes', nodes)[1], 'the same of health')
        sentence = 'waiting for node 3 (%s); the first time all members must be up' % third.peer
        wait_until(lambda: any(sentence in self.log_of(node) for node in (first, second)), 'the same in the log')
        third.start()
        wait_until(lambda: self.run_cli('health', '--nodes', nodes)[0] == DONE, 'the formed cluster')
        for node in cluster.nodes:
            node.kill()
        first.start()
        self.assertEqual(first.info()['cluster_state'], 'no leader') # a cluster that was formed once is not being formed
        self.assertNotIn('is being formed', self.run_cli('status', '--nodes', first.address)[2])

    def test_a_member_that_waits_for_its_place_forms_no_cluster(self):
        """It has lost its disk, and the leader looks for it at an address where it is not."""
        cluster = Cluster(self.lab, 3).start()
        victim = cluster.followers()[0]
        victim.kill()
        cluster.wipe(victim)
        wrong = '127.0.0.1:%d' % free_ports(1)[0]
        others = [n for n in cluster.nodes if n is not victim]
        wait_until(lambda: cluster.leader(among=others).call('CLUSTER', 'REPLACE', victim.id, wrong) == 'OK', 'the order')
        victim.start()
        wait_until(lambda: 'it is up and hears no leader' in self.run_cli('health', '--nodes', victim.address)[1], 'the sentence about it')
        self.assertEqual(victim.info()['cluster_state'], 'no leader')
        self.assertNotIn('is being formed', self.run_cli('status', '--nodes', victim.address)[2])


class Strange(CliCase):
    """Answers that no node of today gives, or only on a bad day."""

    def test_a_change_of_members_that_is_refused_after_an_unknown_try_is_not_done(self):
        for change in (('transfer', '2'), ('transfer',), ('replace', '2', '--of', '0123456789abcdef')):
            with self.subTest(change=change):
                s = self.server(CLOSE, b'-ERR node 2 is not a member\r\n')
                code, out, err = self.ask(s, 'cluster', *change)
                self.assertEqual((code, out), (UNKNOWN, ''))
                self.assertIn('node 2 is not a member', err)
                self.assertIn('again with --of' if '--of' in change else 'Ask again', err)
                self.assertEqual(s.requests[0], s.requests[1])

    def test_a_setting_cannot_drive_a_terminal(self):
        s = self.server(b'*2\r\n$1\r\na\r\n$7\r\n\x1b]0;x\x07\n\r\n')
        self.assertEqual(self.ask(s, 'cluster', 'config', 'get', 'a'), (DONE, '\\x1b]0;x\\x07\\x0a\n', ''))


class Slow(CliCase):
    def test_a_user_is_made_once(self):
        """The hash of a password takes longer than most answers. The change is not sent to another node meanwhile: a second one
        would end what has logged in by the first."""
        path = self.lab.path('audit')
        cluster = Cluster(self.lab, 3, ['--auditlog', path]).start()
        names = ['user%d' % i for i in range(8)]
        for name in names:
            words = [binary('fencelock'), 'user', 'add', name, '+@see', '--nodes', ','.join(cluster.addresses())]
            done = subprocess.run(words, input=b'a password\n', stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S,
                                  env=dict(os.environ, FENCELOCK_TIMEOUT='200s'))
            self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(cluster.leader().call('ACL', 'SETUSER', 'last', 'on'), 'OK')

        def changed():
            with open(path) as f:
                lines = [json.loads(line) for line in f if line.endswith('\n')]
            return [line['changed'] for line in lines if line['node'] == 1 and line['event'] == 'user_changed']
        wait_until(lambda: 'last' in changed(), 'the last change')
        self.assertEqual(changed(), names + ['last'])


if __name__ == '__main__':
    main()
