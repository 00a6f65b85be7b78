#!/usr/bin/python3
"""Gives histories of real runs to Elle, Jepsen's checker of transactions. It must find the lists of a good run strictly serializable. It must
reject histories that were edited by hand, and those of a storage that ignores tokens. Needs java, and the
framework's class path in JEPSEN_CLASSPATH; skipped with the reason elsewhere.

    tests/faults/elle_test.py FILE.edn...     the histories of runs"""

import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib')]
sys.dont_write_bytecode = True
from harness import Case, Deadline, main, seed

# What is left of the time that this program has in CI.
BUDGET = Deadline(2200)

READ = re.compile(r':type :ok, .*:value \[\[:r "([^"]+)" \[([^\]]+)\]\]\]')


def judge(paths):
    """A line for each: true, false or unknown, how many were answered, and the anomalies."""
    done = subprocess.run(['java', '-Djava.awt.headless=true', '-Xmx1g', '-cp', os.environ['JEPSEN_CLASSPATH'], 'clojure.main',
                           os.path.join(HERE, 'elle', 'judge.clj'), *paths], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=max(1.0, BUDGET.left()), cwd=os.path.dirname(os.path.abspath(paths[0]))) # where it leaves classes that it makes
    said = done.stdout.decode(errors='replace')
    lines = [line for line in said.splitlines() if re.match(r'(true|false|:unknown) \d+ \(', line)]
    if done.returncode != 0 or len(lines) != len(paths):
        raise RuntimeError('Elle did not judge: ' + said[-2000:])
    return lines


def longest(lines):
    """The key and the elements of the longest list that was read."""
    found = [(m.group(1), m.group(2).split()) for m in map(READ.search, lines) if m]
    return max(found, key=lambda read: len(read[1]))


def without_one(lines):
    """The longest list is read once more at the end, without an element in its middle."""
    key, elements = longest(lines)
    del elements[len(elements) // 2]
    return reading(lines, key, elements)


def exchanged(lines):
    """The longest list is read once more, with two elements in the other order."""
    key, elements = longest(lines)
    elements[0], elements[1] = elements[1], elements[0]
    return reading(lines, key, elements)


def of_nobody(lines):
    """An element that nobody has appended."""
    key, elements = longest(lines)
    return reading(lines, key, elements + ['"nobody"'])


def of_the_past(lines):
    """After everything else, a list as it was when it had one element."""
    key, elements = longest(lines)
    return reading(lines, key, elements[:1])


def reading(lines, key, elements):
    """The history, and one read more after it."""
    end = 1 + max(int(re.search(r':time (\d+)', line).group(1)) for line in lines)
    row = '{:index %d, :time %d, :type :%s, :process 99999, :f :txn, :value [[:r "%s" %s]]}'
    return lines + [row % (len(lines), end, 'invoke', key, 'nil'),
                    row % (len(lines) + 1, end + 1, 'ok', key, '[%s]' % ' '.join(elements))]


class Elle(Case):
    TIMEOUT_S = 2300

    def setUp(self):
        super().setUp()
        if not os.environ.get('JEPSEN_CLASSPATH'):
            self.skipTest('JEPSEN_CLASSPATH does not name the framework, whose class path has Elle')
        if not any(os.access(os.path.join(d, 'java'), os.X_OK) for d in os.environ.get('PATH', '').split(os.pathsep)):
            self.skipTest('no java')

    def history_of(self, name, *words):
        """The path of the history of a run, whatever its own judges said."""
        out = self.lab.path(name)
        done = subprocess.run([sys.executable, os.path.join(HERE, 'run'), '--workload', 'append', '--seed', str(seed()), '--network', 'proxy',
                               '--out', out, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(1.0, BUDGET.left()))
        self.assertIn(done.returncode, (0, 1), done.stdout.decode(errors='replace'))
        return os.path.join(out, 'history.edn')

    def test_lists(self):
        good = self.history_of('good', '--nemesis', 'kill,pause,hold', '--seconds', '5')
        with open(good, encoding='utf-8') as f:
            lines = f.read().splitlines()
        paths = [good]
        edits = (without_one, exchanged, of_nobody, of_the_past)
        for edit in edits:
            os.mkdir(self.lab.path(edit.__name__))
            paths.append(os.path.join(self.lab.path(edit.__name__), 'history.edn'))
            with open(paths[-1], 'w', encoding='utf-8') as f:
                f.write('\n'.join(edit(list(lines))) + '\n')
        paths.append(self.history_of('broken', '--nemesis', 'hold', '--no-fencing', '--until-late', '2', '--seconds', '5'))
        said = judge(paths)
        self.assertRegex(said[0], r'^true \d\d+ \(\)')
        for line, what in zip(said[1:], [edit.__doc__ for edit in edits] + ['a storage that ignores tokens']):
            self.assertRegex(line, r'^false ', what)
        self.note('; '.join(said))


if __name__ == '__main__':
    histories = [a for a in sys.argv[1:] if a.endswith('.edn')]
    if histories:
        verdicts = judge(histories)
        print('\n'.join(verdicts))
        sys.exit(0 if all(line.startswith('true ') for line in verdicts) else 1)
    else:
        main()
