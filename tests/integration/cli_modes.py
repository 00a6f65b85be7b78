#!/usr/bin/python3
"""Locks that several hold, and several locks at once, through `fencelock` and the library below it: taken, refused,
waited for, held by `run`, given back."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, ClusterCase, Excuse, binary, env_without_options, main, try_again, wait_until
from scripted_server import ScriptedServer

DONE, NO, UNKNOWN = 0, 1, 3
OWNERS = ['owner-%d-0123456789' % i for i in range(4)]


class Modes(ClusterCase):
    def setUp(self):
        super().setUp()
        self.env = env_without_options(FENCELOCK_NODES=','.join(self.cluster.addresses()), FENCELOCK_TIMEOUT='120s')

    def start(self, *args):
        child = subprocess.Popen([binary('fencelock'), *map(str, args)], env=self.env, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return self.kill_at_cleanup(child)

    def cli(self, *args):
        child = self.start(*args)
        out, err = child.communicate(timeout=PATIENCE_S)
        self.assertNoReport(err.encode())
        return child.returncode, out, err

    def take(self, *args):
        code, out, err = self.cli('acquire', *args, '--ttl', '600s')
        self.assertEqual(code, DONE, err)
        return int(out)

    def release(self, name, token):
        """When a node is late, or does not lead any more, another one is asked, and then says that it is not held any more: the outcome is
        unknown, and rightly so."""
        excuse = Excuse(self.cluster)
        code, _, err = self.cli('release', name, token)
        if code != DONE:
            self.assertEqual(code, UNKNOWN, err)
            self.assertTrue(excuse.holds(), err)
        try_again(lambda: self.cli('release', name, token)[0] == NO, 'the release of ' + name)

    def refused(self, error, *args):
        code, out, _ = self.cli('acquire', *args, '--json')
        self.assertEqual((code, json.loads(out).get('error')), (NO, error))

    def shown(self, name):
        return json.loads(self.cli('show', name, '--json')[1])

    def test_shared(self):
        first, second = (self.take('x', '--shared', '--owner', OWNERS[i]) for i in range(2))
        self.assertGreater(second, first)
        self.refused('EMISMATCH', 'x', '--owner', OWNERS[0]) # its mode does not change
        self.refused('EMISMATCH', 'x', '--permits', 2)
        self.assertEqual(self.cli('acquire', 'x')[0], NO)
        self.assertEqual([h['token'] for h in self.shown('x')['held_by']], [first, second])
        self.assertEqual([l['mode'] for l in json.loads(self.cli('locks', '--json')[1])['locks']], ['shared'] * 2)
        reader = self.start('run', 'x', '--shared', '--ttl', '600s', '--', 'sh', '-c', 'echo $FENCELOCK_TOKEN; read line')
        third = int(reader.stdout.readline())
        self.assertGreater(third, second)
        writer = self.start('acquire', 'x', '--wait', '600s')
        wait_until(lambda: self.shown('x')['waiters'] == 1, 'the writer')
        for token in (first, second):
            self.release('x', token)
        self.assertIsNone(writer.poll())
        _, err = reader.communicate('\n', timeout=PATIENCE_S)
        self.assertEqual(reader.returncode, 0)
        if 'not given back' in err: # for which it has two seconds
            self.release('x', third)
        self.assertGreater(int(writer.communicate(timeout=PATIENCE_S)[0]), third)

    def test_permits(self):
        tokens = [self.take('s', '--permits', 3, '--owner', OWNERS[i]) for i in range(3)]
        self.assertEqual(self.cli('acquire', 's', '--permits', 3)[0], NO)
        for how in ((), ('--shared',), ('--permits', 2)):
            self.refused('EMISMATCH', 's', *how)
        self.assertEqual((self.shown('s')['holders'], self.shown('s')['permits']), (3, 3))
        self.release('s', tokens[1])
        code, out, _ = self.cli('run', 's', '--permits', 3, '--ttl', '600s', '--', 'sh', '-c', 'echo $FENCELOCK_TOKEN')
        self.assertEqual(code, 0)
        self.assertGreater(int(out), tokens[2])

    def test_several(self):
        token = self.take('a', '--also', 'b', '--also', 'c d', '--owner', OWNERS[0])
        for name in ('a', 'b', 'c d'):
            self.assertEqual(self.cli('check', name, token)[0], DONE)
        self.assertEqual(self.shown('b')['together'], 3)
        self.assertEqual(self.take('c d', '--also', 'a', '--also', 'b', '--owner', OWNERS[0]), token) # asked again
        self.refused('EMISMATCH', 'a', '--owner', OWNERS[0])
        self.assertEqual(self.cli('acquire', 'e', '--also', 'b')[0], NO)
        self.assertEqual(self.shown('e')['state'], 'free') # all or none
        waiting = self.start('run', 'e', '--also', 'c d', '--also', 'f', '--ttl', '50s', '--', 'sh', '-c', 'echo $FENCELOCK_TOKEN; read line')
        wait_until(lambda: self.shown('c d').get('waiters') == 1, 'the waiter')
        self.assertEqual(self.cli('renew', 'b', token, '--ttl', '600s')[0], DONE)
        self.release('b', token)
        second = int(waiting.stdout.readline())
        self.assertGreater(second, token)
        for name in ('e', 'c d', 'f'):
            self.assertEqual(self.cli('check', name, second)[0], DONE)
        self.assertEqual(self.cli('check', 'a', token)[0], NO)
        _, err = waiting.communicate('\n', timeout=PATIENCE_S)
        self.assertEqual(waiting.returncode, 0, err)
        for name in ('e', 'c d', 'f'):
            if 'not given back' in err: # for which it has two seconds: then they end with their lease
                wait_until(lambda: self.shown(name)['state'] == 'free', 'the end of ' + name)
            self.assertEqual(self.shown(name)['state'], 'free')

    def test_as_many_as_may_be(self):
        most = [w for i in range(15) for w in ('--also', 'n-%d' % i + 'x' * (250 - len(str(i))))]
        token = self.take('first' + 'x' * 250, *most, '--value', 'v' * 1024, '--owner', 'o' * 255)
        self.assertEqual(self.cli('check', most[-1], token)[0], DONE)
        code, out, _ = self.cli('run', 'other', '--also', most[1], '--wait', '0', '--', 'true')
        self.assertEqual(code, 124)


class Shown(Case):
    def ask(self, answer, *args):
        server = ScriptedServer([answer])
        self.addCleanup(server.close)
        got = subprocess.run([binary('fencelock'), *args, '--nodes', server.address], capture_output=True, text=True,
                             timeout=PATIENCE_S)
        return got.returncode, got.stdout

    def test_show_of_several_holders(self):
        def held(mode, permits):
            return (b'*16\r\n+name\r\n$1\r\nx\r\n+state\r\n+held\r\n+token\r\n:7\r\n+owner\r\n$1\r\na\r\n+mode\r\n$%d\r\n%s\r\n'
                    b'+permits\r\n:%d\r\n+holders\r\n:2\r\n+held_by\r\n*2\r\n*4\r\n+token\r\n:7\r\n+owner\r\n$1\r\na\r\n'
                    b'*6\r\n+token\r\n:9\r\n+owner\r\n$1\r\nb\r\n+ttl_left_ms\r\n:500\r\n' % (len(mode), mode, permits))
        code, out = self.ask(held(b'shared', 1), 'show', 'x')
        self.assertEqual(code, DONE)
        self.assertIn('mode      shared by 2\nand token 9, ttl left 500 ms, b\n', out)
        code, out = self.ask(held(b'permits', 3), 'show', 'x')
        self.assertIn('mode      2 of 3 permits\n', out)
        code, out = self.ask(held(b'permits', 3), 'show', 'x', '--json')
        value = json.loads(out)
        self.assertEqual((value['mode'], value['permits'], value['holders']), ('permits', 3, 2))
        self.assertEqual([(h['token'], h['ttl_left_ms'], h['address']) for h in value['held_by']], [(7, 0, None), (9, 500, None)])


if __name__ == '__main__':
    main()
