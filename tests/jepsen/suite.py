#!/usr/bin/python3
"""The suite in jepsen/. What needs Clojure alone (the wire client, the models, the judges on histories made by hand) runs where
Clojure's jar is; half a minute of the suite itself runs where JEPSEN_CLASSPATH names the framework."""

import glob
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, '..', '..'))
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
from harness import Case, Deadline, main
from harness.lab import build_dir

# What is left of the time that this program has in CI.
BUDGET = Deadline(2200)
JEPSEN = os.path.join(ROOT, 'jepsen')
# Clojure and what its core needs, as Debian's package clojure has them. CLOJURE_CLASSPATH names others.
JARS = ('clojure-1.*.jar', 'spec.alpha*.jar', 'core.specs.alpha*.jar')


def clojure():
    """A class path with Clojure in it, or None."""
    named = os.environ.get('CLOJURE_CLASSPATH') or os.environ.get('JEPSEN_CLASSPATH')
    if named:
        return named
    found = [sorted(glob.glob(os.path.join('/usr/share/java', jar))) for jar in JARS]
    return os.pathsep.join(jars[-1] for jars in found) if all(found) else None


def java():
    return any(os.access(os.path.join(d, 'java'), os.X_OK) for d in os.environ.get('PATH', '').split(os.pathsep))


class Jepsen(Case):
    TIMEOUT_S = 2200

    def run_java(self, argv, **options):
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=max(1.0, BUDGET.left()), **options)
        return done.returncode, done.stdout.decode(errors='replace')

    def test_with_clojure_alone(self):
        path = clojure()
        if path is None or not java():
            self.skipTest('no java, or no jar of Clojure: deploy/setup --tests installs both')
        code, out = self.run_java(['java', '-XX:TieredStopAtLevel=1', '-cp', os.pathsep.join([JEPSEN + '/src', JEPSEN + '/test', path]),
                                   'clojure.main', JEPSEN + '/test/run.clj'],
                                  env=dict(os.environ, FENCELOCK_BUILD=build_dir()))
        self.assertEqual(code, 0, out[-4000:])
        self.note([line for line in out.splitlines() if line.startswith('Ran ')][-1])

    def suite(self, *words):
        if not os.environ.get('JEPSEN_CLASSPATH') or os.geteuid() != 0:
            self.skipTest('JEPSEN_CLASSPATH does not name the framework, or namespaces need root')
        code, out = self.run_java([JEPSEN + '/run', '--local', '--build', build_dir()] + list(words))
        self.assertEqual(code, 0, out[-4000:])
        self.note(out.strip().splitlines()[-1])

    def test_half_a_minute_of_tokens_and_append(self):
        self.suite('--test', 'tokens,append', '--faults', 'kill,pause,member', '--time-limit', '15')

    def test_renewed_sessions_hold_while_leaders_end(self):
        self.suite('--test', 'sessions', '--faults', 'kill,pause', '--time-limit', '15')

    def test_without_fencing_it_is_found(self):
        self.suite('--test', 'append', '--no-fencing', '--faults', 'none', '--time-limit', '15')


if __name__ == '__main__':
    sys.exit(main())
