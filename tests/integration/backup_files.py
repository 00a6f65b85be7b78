#!/usr/bin/python3
"""The files that backups are written to and restored from: names that are taken, tools that run at the same time, clocks that
were wrong, and directories that are not what they should be."""

import fcntl
import itertools
import os
import re
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
from harness import PATIENCE_S, Case, Cluster, Deadline, RespError, Store, binary, main, patient_env, wait_until

ABOVE = 500


def state(pid):
    """Of a child that was not waited for."""
    with open('/proc/%d/stat' % pid) as f:
        return f.read().rpartition(')')[2].split()[0]


class Files(Case):
    def setUp(self):
        super().setUp()
        self.node = Cluster(self.lab, 1).start().nodes[0]
        self.node.call('TOKEN', 'x')
        self.store = Store(self.lab).start()
        self.store.call('SET', 'key', 'value', 'FENCE', 'lock', 100)
        self.tools = {'cluster': [binary('fencelock'), 'backup', '--nodes', self.node.address]}

    def run_it(self, argv, **options):
        return subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=PATIENCE_S, env=patient_env(), **options)

    def good(self, *argv):
        done = self.run_it(argv)
        self.assertEqual((done.returncode, done.stderr), (0, ''), done.stdout)
        return done.stdout

    def refused(self, *argv, says, code=1):
        done = self.run_it(argv)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(says, done.stderr)

    def of_store(self):
        """The tool for a storage, which goes on."""
        return [binary('fencelock-store'), '--data', self.store.data, '--backup']

    def content(self, path):
        with open(path, 'rb') as f:
            return f.read()

    def write(self, path, content):
        with open(path, 'wb') as f:
            f.write(content)

    def test_a_file_that_exists_stays(self):
        """It may be the last good one, of a cluster that is lost."""
        path = self.lab.path('precious')
        self.write(path, b'precious')
        for tool in self.tools.values():
            self.refused(*tool, path, says='--replace')
            self.refused(*tool, os.path.dirname(path), says='is a folder', code=2)
            self.refused(*tool, os.path.dirname(path), '--replace', says='is a folder', code=2)
            self.refused(*tool, '--keep', 2, '--replace', os.path.dirname(path), says='--keep', code=2)
        self.refused(*self.of_store(), path, says='exists')
        self.assertEqual(self.content(path), b'precious')
        self.assertFalse(os.path.exists(path + '.part'))
        for kind, tool in self.tools.items():
            self.good(*tool, path, '--replace')
            self.assertNotEqual(self.content(path), b'precious', kind)
            self.write(path, b'precious')

    def test_stdout_is_no_file(self):
        """A report for people in the place of the backup would be found out at the restore."""
        os.chdir(os.path.dirname(self.lab.path('x')))
        for tool in self.tools.values():
            for words in ((), ('--replace',), ('--keep', 2)):
                done = self.run_it([*tool, *words, '-'])
                self.assertEqual((done.returncode, done.stdout), (2, ''))
                self.assertIn('- is no file', done.stderr)
            for path in ('/dev/stdout', '/proc/self/fd/1', self.fifo()):
                for words in ((), ('--replace',)):
                    done = self.run_it([*tool, *words, path])
                    self.assertNotEqual(done.returncode, 0)
                    self.assertEqual(done.stdout, '')
        self.refused(*self.of_store(), '-', says="'-' is neither read nor written", code=2)
        self.assertFalse(os.path.exists('-'))

    def fifo(self):
        path = self.lab.path('fifo')
        if not os.path.exists(path):
            os.mkfifo(path)
        return path

    def test_a_name_that_is_taken_meanwhile_stays(self):
        """While the backup was fetched, somebody else made a file with the name."""
        for kind, tool in self.tools.items():
            met, numbers, patience = False, itertools.count(), Deadline(PATIENCE_S)
            while not met and not patience.passed():
                i = next(numbers)
                path = self.lab.path('taken-%s-%d' % (kind, i))
                p = subprocess.Popen(tool + [path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=patient_env())
                while p.poll() is None and not os.path.exists(path + '.part'):
                    pass
                p.send_signal(signal.SIGSTOP)
                wait_until(lambda: p.poll() is not None or state(p.pid) == 'T', 'that it stands still')
                met = p.poll() is None and not os.path.exists(path)
                if met:
                    self.write(path, b'precious')
                p.send_signal(signal.SIGCONT)
                _, err = p.communicate(timeout=PATIENCE_S)
            self.assertTrue(met, 'it was never stopped between its beginning and its end')
            self.assertEqual(self.content(path), b'precious')
            self.assertEqual(p.returncode, 1, err)
            self.assertIn('--replace', err)
            self.assertFalse(os.path.exists(path + '.part'))

    def test_two_tools_at_one_file(self):
        """The second must neither empty the file under the first, nor remove it."""
        for tool in list(self.tools.values()) + [None]:
            tool = tool or self.of_store()
            path = self.lab.path('one')
            self.write(path + '.part', b'of the first')
            with open(path + '.part', 'rb') as first:
                fcntl.flock(first, fcntl.LOCK_EX)
                self.refused(*tool, path, says='another process')
                self.assertEqual(self.content(path + '.part'), b'of the first')
                self.assertFalse(os.path.exists(path))
            self.good(*tool, path) # what a killed one has left is in nobody's way
            self.assertFalse(os.path.exists(path + '.part'))
            os.unlink(path)

    def test_two_tools_in_one_folder(self):
        folder = self.lab.path('folder')
        os.mkdir(folder)
        self.write(folder + '/new.part', b'of another cluster')
        with open(folder + '/new.part', 'rb') as first:
            fcntl.flock(first, fcntl.LOCK_EX)
            self.good(*self.tools['cluster'], '--keep', 2, folder)
            self.assertEqual(self.content(folder + '/new.part'), b'of another cluster')
        self.assertEqual(len(os.listdir(folder)), 2)

    def test_what_is_in_the_place_of_the_part(self):
        """A symlink is not followed, and a file that everybody may read is not filled with secrets."""
        for kind, tool in list(self.tools.items()) + [('store', None)]:
            tool = tool or self.of_store()
            path, other = self.lab.path('p-' + kind), self.lab.path('other')
            self.write(other, b'other')
            os.symlink(other, path + '.part')
            self.refused(*tool, path, says='.part')
            self.assertEqual(self.content(other), b'other')
            os.unlink(path + '.part')
            self.write(path + '.part', b'')
            os.chmod(path + '.part', 0o666)
            self.good(*tool, path)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)

    def test_a_clock_that_was_ahead(self):
        """Backups that were dated in the future must not push out the newest one."""
        for kind, tool in self.tools.items():
            folder = self.lab.path('folder-' + kind)
            os.mkdir(folder)
            for _ in range(2):
                self.good(*tool, '--keep', 2, folder)
                for name in os.listdir(folder):
                    os.rename('%s/%s' % (folder, name), '%s/%s' % (folder, re.sub(r'-2\d{7}T', '-29991231T', name)))
                self.node.call('TOKEN', 'x')
                self.store.call('CLAIM', 'lock', 100 + self.node.call('TOKEN', 'x'))
            told = re.search(r'^file +(\S+)$', self.good(*tool, '--keep', 2, folder), re.M)
            self.assertTrue(os.path.exists(told.group(1)), os.listdir(folder))
            if kind == 'cluster': # its index says which is the newest, whatever the clock said
                self.node.call('TOKEN', 'x')
                self.good(*tool, '--keep', 2, folder)
                self.assertTrue(os.path.exists(told.group(1)), os.listdir(folder))
            self.assertEqual(len(os.listdir(folder)), 2)

    def test_a_directory_without_a_storage(self):
        """That of a disk that is not mounted: no storage is made in it, and no empty backup is called a success."""
        empty, backup = self.lab.path('empty'), self.lab.path('backup')
        os.mkdir(empty)
        self.refused(binary('fencelock-store'), '--backup', backup, '--data', empty, says='no storage')
        self.assertEqual((os.listdir(empty), os.path.exists(backup)), ([], False))
        self.write(empty + '/owner', b'fencelock store 2\n') # its database is gone
        self.refused(binary('fencelock-store'), '--backup', backup, '--data', empty, says='no storage')

    def test_two_restores_of_one_directory(self):
        """The second would remove what the first has filled, and the first would put the second's half into place."""
        backup, data = self.lab.path('backup'), self.lab.path('new')
        self.good(*self.of_store(), backup)
        restore = [binary('fencelock-store'), '--restore', backup, '--data', data, '--above', str(ABOVE)]
        os.mkdir(data + '.restoring')
        self.write(data + '.restoring/fencelock.db', b'of the first')
        first = os.open(data + '.restoring', os.O_RDONLY)
        fcntl.flock(first, fcntl.LOCK_EX)
        self.refused(*restore, says='another restore')
        self.assertEqual(self.content(data + '.restoring/fencelock.db'), b'of the first')
        os.close(first)
        for _ in range(6):
            several = [subprocess.Popen(restore, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
            ends = [(p.communicate(timeout=PATIENCE_S)[1], p.returncode) for p in several]
            self.assertEqual([code for _, code in ends].count(0), 1, ends)
            self.assertTrue(all('another restore' in err or 'not empty' in err for err, code in ends if code != 0), ends)
            new = Store(self.lab, 'new').start()
            with self.assertRaises(RespError) as caught:
                new.call('CLAIM', 'lock', ABOVE)
            self.assertEqual(caught.exception.word, 'STALE')
            self.assertEqual(new.call('GET', 'key'), b'value')
            self.assertEqual(new.terminate(), 0)
            shutil.rmtree(data)

    def test_places_that_cannot_be_restored_to_or_from(self):
        backup, data = self.lab.path('backup'), self.lab.path('new')
        self.good(*self.of_store(), backup)
        more = ['--above', ABOVE, '--data']
        done = self.run_it(['/bin/bash', '-c', 'exec "$0" --restore <(cat "$1") --above 500 --data "$2"', binary('fencelock-store'), backup, data])
        self.assertEqual(done.returncode, 1)
        self.assertIn('is no regular file', done.stderr)
        self.write(self.lab.path('file'), b'')
        self.refused(binary('fencelock-store'), '--restore', backup, *more, self.lab.path('file'), says='Not a directory')
        os.mkdir(self.lab.path('real'))
        os.symlink(self.lab.path('real'), data)
        self.refused(binary('fencelock-store'), '--restore', backup, *more, data, says='no symlink')
        os.unlink(data)
        self.good(binary('fencelock-store'), '--restore', backup, *more, data)

    def test_a_second_storage_names_the_first(self):
        second = Store(self.lab, 'second')
        second.data = self.store.data
        done = self.run_it(second.argv())
        self.assertEqual(done.returncode, 1)
        self.assertIn('(pid %d)' % self.store.process.pid, done.stderr)
        self.assertIn('use a directory of', done.stderr)


if __name__ == '__main__':
    main()
