"""What must be kept for somebody who has to explain an anomaly later: which programs ran, what each node says of its state,
and the files of all servers as they were left."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tarfile

from harness.lab import ROOT, build_dir

PROGRAMS = ('src/cli/fencelockd', 'src/cli/fencelockd-next', 'src/cli/fencelock', 'src/cli/fencelock-store', 'src/cli/fencelock-store-unfenced',
            'tests/unit/redlock/redlock_driver', 'tests/unit/client/hold_driver')
LIBRARIES = 'tests/torture'
SOURCE = 'SOURCE'  # in a private copy: what it was copied from


def programs(directory=None):
    """{path in the build directory: SHA-256} of all that a run starts or preloads."""
    directory, found = directory or build_dir(), {}
    folder = os.path.join(directory, LIBRARIES)
    names = list(PROGRAMS)
    if os.path.isdir(folder):
        names += sorted(os.path.join(LIBRARIES, n) for n in os.listdir(folder) if n.endswith('.so'))
    for name in names:
        path = os.path.join(directory, name)
        if os.path.exists(path):
            with open(path, 'rb') as f:
                found[name] = hashlib.sha256(f.read()).hexdigest()
    return found


def source():
    """The commit of the tree, as well as that can be known. The programs may be older: their hashes are what counts."""
    copied = os.path.join(build_dir(), SOURCE)
    if os.path.exists(copied):
        with open(copied) as f:
            return f.read().strip()

    def git(*words):
        done = subprocess.run(['git', '-C', ROOT] + list(words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        return done.stdout.decode().strip()
    try:
        return (git('rev-parse', 'HEAD') or 'no commit') + (', changed' if git('status', '--porcelain', 'src', 'include') else '')
    except OSError:
        return 'unknown'


def private_copy(to):
    """Copies all that runs start to a directory of their own, where nobody builds. OSError when it changed meanwhile."""
    before = programs()
    for name in before:
        os.makedirs(os.path.dirname(os.path.join(to, name)), exist_ok=True)
        shutil.copy2(os.path.join(build_dir(), name), os.path.join(to, name))
    if programs(to) != before or programs() != before:
        raise OSError('%s changes: is somebody building there?' % build_dir())
    for folder in ('faults', 'lib'):
        shutil.copytree(os.path.join(ROOT, 'tests', folder), os.path.join(to, 'suite', 'tests', folder),
                        ignore=shutil.ignore_patterns('__pycache__'))
    os.makedirs(os.path.join(to, 'suite', LIBRARIES))
    shutil.copy2(os.path.join(ROOT, LIBRARIES, 'shim.h'), os.path.join(to, 'suite', LIBRARIES))
    with open(os.path.join(to, SOURCE), 'w') as f:
        f.write(source() + '\n')


def _linked(program):
    """Where its shared libraries come from."""
    done = subprocess.run(['ldd', os.path.join(build_dir(), program)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return [line.strip() for line in done.stdout.decode().splitlines()]


def _states(events):
    """What the nodes said of their states: of each index that more than one node was seen at, and at the end."""
    rows = {}
    for e in events:
        if e['type'] == 'sample':
            rows.setdefault(str(e['index']), {})[e['node']] = e['hash']
    return {index: row for index, row in rows.items() if len(set(row.values())) > 1 or not index.isdigit()}


def save_facts(result, before, out):
    """facts.json: of every run."""
    facts = {'command': result.command, 'source': source(), 'programs': before, 'libraries': _linked(PROGRAMS[0]),
             'machine': platform.platform(), 'python': platform.python_version(), 'counts': result.counts,
             'anomalies': {kind: [a.text for a in found] for kind, found in result.anomalies.items() if found},
             'states': _states(result.events)}
    with open(os.path.join(out, 'facts.json'), 'w') as f:
        json.dump(facts, f, indent=1)
        f.write('\n')


def save_files(lab_dir, out):
    """data.tar.gz: the directories of all servers, logs and snapshots and all. They must have ended."""
    with tarfile.open(os.path.join(out, 'data.tar.gz'), 'w:gz', compresslevel=1) as tar:
        tar.add(lab_dir, arcname='data', filter=lambda entry: entry if entry.isfile() or entry.isdir() else None)
