#!/usr/bin/python3
"""fencelockd --check prints what a start would do and where each value comes from, and does nothing else."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, binary, main


class DaemonCheck(Case):
    def check(self, *args, env=None):
        p = subprocess.run([binary('fencelockd'), '--check'] + [str(a) for a in args], capture_output=True, text=True,
                           timeout=PATIENCE_S, env=dict(os.environ, **(env or {})), cwd=self.lab.path(''))
        return p.returncode, p.stdout, p.stderr

    def test_where_values_come_from(self):
        path = self.lab.path('node.conf')
        with open(path, 'w') as f:
            f.write('# a file\nsnapshot-bytes = 131072\nid = 2\ncluster = 1=127.0.0.1:1,2=127.0.0.1:2\n')
        code, out, err = self.check('--config', path, '--data', 'nothing', '--json',
                                    env={'FENCELOCK_HOLD_MS': '77', 'FENCELOCK_REQUIREPASS': 'geheim'})
        self.assertEqual((code, err), (0, ''))
        self.assertNotIn('geheim', out)
        said = json.loads(out)
        options = {o['option']: (o['value'], o['from']) for o in said['options']}
        self.assertEqual(options['snapshot-bytes'], ('131072', path + ':2'))
        self.assertEqual(options['hold-ms'], ('77', 'FENCELOCK_HOLD_MS in the environment'))
        self.assertEqual(options['data'], ('nothing', '--data'))
        self.assertEqual(options['listen'], ('127.0.0.1:7401', 'default'))
        self.assertEqual(options['join'], ('', 'default'))
        self.assertEqual([options[o][0] for o in ('election-ms', 'heartbeat-ms', 'address-connections', 'peer', 'advertise', 'tls-protocols')],
                         ['400', '40', '12288', '127.0.0.1:2', '127.0.0.1:7401', 'TLSv1.2 TLSv1.3'])
        self.assertTrue(all(value.isprintable() for value, _ in options.values()), options)
        self.assertEqual((said['ok'], said['node'], said['members']), (True, 2, 2))
        self.assertEqual(said['data']['state'], 'new')
        self.assertFalse(os.path.exists(self.lab.path('nothing')), 'it made the directory')

    def test_a_table(self):
        code, out, _ = self.check('--data', 'nothing')
        lines = out.splitlines()
        self.assertEqual(code, 0)
        self.assertEqual(len({line.index('default') for line in lines if line.endswith('default')}), 1, out)
        self.assertEqual({line.split()[1] for line in lines if line.startswith('tls-port ')}, {'none'}, out)
        self.assertTrue(lines[-1].startswith('ok: would run node 1 of 1'), out)

    def test_directories(self):
        cluster = Cluster(self.lab, 1).start()
        node = cluster.nodes[0]
        args = ['--data', node.data, '--cluster', cluster.members(), '--json']
        code, out, err = self.check('--id', 1, *args)
        self.assertEqual((code, json.loads(out)['data']['state']), (2, 'used'), err)
        self.assertIn('in use by another process', err)
        node.terminate()
        code, out, err = self.check('--id', 1, *args)
        self.assertEqual((code, json.loads(out)['data']['state']), (0, 'member'), err)
        self.assertEqual(self.check('--data', node.data, '--id', 7)[0], 2)
        os.mkdir(self.lab.path('other'))
        open(self.lab.path('other/file'), 'w').close()
        self.assertIn('is not empty', self.check('--data', 'other')[2])

    def test_files_that_a_start_would_refuse(self):
        with open(self.lab.path('users'), 'w') as f:
            f.write('user default on +@nothing\n')
        self.assertEqual(self.check('--aclfile', 'users')[0], 2)
        code, _, err = self.check('--tls-port', '127.0.0.1:0', '--tls-cert-file', 'no.crt', '--tls-key-file', 'no.key',
                                  '--tls-ca-cert-file', 'no.ca')
        self.assertEqual(code, 2)
        self.assertIn('no.', err)


if __name__ == '__main__':
    main()
