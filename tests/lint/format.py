"""Checks that every C file of src, include and tests is as clang-format writes it, by the rules of .clang-format.

usage: format.py ROOT | --self-test

Run `clang-format -i FILE...` to put a file right."""

import os
import subprocess
import sys
import tempfile

# Debian 12's. Another version breaks lines in other places.
VERSION = '14'
FOLDERS = ('src', 'include', 'tests')
AT_ONCE = 100


def program():
    for name in ('clang-format-' + VERSION, 'clang-format'):
        try:
            told = subprocess.run([name, '--version'], capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        if 'version %s.' % VERSION in told:
            return name
    sys.exit('format.py: clang-format %s is not here: deploy/setup --tests installs it' % VERSION)


def c_files(root):
    found = []
    for folder in FOLDERS:
        for path, folders, names in os.walk(os.path.join(root, folder)):
            folders.sort()
            found += [os.path.join(path, n) for n in sorted(names) if n.endswith(('.c', '.h'))]
    return found


def offences(files, root):
    """The first place of each file that is not as it should be."""
    tool, seen = program(), {}
    for at in range(0, len(files), AT_ONCE):
        run = subprocess.run([tool, '--dry-run', '--ferror-limit=1', '--style=file'] + files[at:at + AT_ONCE],
                             capture_output=True, text=True, cwd=root)
        for line in run.stderr.splitlines():
            name, _, rest = line.partition(':')
            if 'clang-format-violations' in line:
                seen.setdefault(os.path.relpath(name, root), rest.split(':')[0])
        if run.returncode and not run.stderr:
            sys.exit('format.py: clang-format ended with %d and said nothing' % run.returncode)
    return sorted(seen.items())


def self_test():
    here = os.path.dirname(os.path.abspath(__file__))
    with tempfile.TemporaryDirectory() as root:
        os.mkdir(os.path.join(root, 'src'))
        with open(os.path.join(here, '..', '..', '.clang-format'), encoding='utf-8') as f:
            rules = f.read()
        for name, text in [('.clang-format', rules), ('src/good.c', 'int one(void)\n{\n    return 1;\n}\n'),
                           ('src/bad.c', 'int two(void)\n{\n  return 2;\n}\n')]:
            with open(os.path.join(root, name), 'w', encoding='utf-8') as f:
                f.write(text)
        found = offences(c_files(root), root)
    assert found == [('src/bad.c', '2')] or found == [('src/bad.c', '3')], found
    print('format: the planted offence is found')


def main():
    if sys.argv[1:] == ['--self-test']:
        return self_test()
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = os.path.abspath(sys.argv[1])
    files = c_files(root)
    if not files:
        sys.exit('format.py: no C file in %s' % root)
    bad = offences(files, root)
    for name, line in bad:
        print('%s:%s: not as clang-format writes it' % (name, line))
    if bad:
        sys.exit('%d files; run: clang-format -i FILE' % len(bad))
    print('format: %d files' % len(files))


if __name__ == '__main__':
    main()
