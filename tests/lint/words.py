#!/usr/bin/env python3
"""Refuses the words that docs/GLOSSARY.md has replaced: one thing has one word, and the field's where it has one. In pages and public
headers it also refuses turns of phrase that make a sentence hard to read, and in pages sentences of more than 25 words
(CONTRIBUTING.md, "Plain words").

words.py ROOT         checks the files under ROOT
words.py --self-test  checks that each word is found where it may not stand, and not where it may
"""
import os
import re
import sys

import source_tree

# Old word -> what to write. In identifiers (as a part between underlines), in comments and in the docs.
EVERYWHERE = {
    'seat': 'lock request', 'seats': 'lock requests', 'roster': 'members', 'outlet': 'relay client', 'inlet': 'relay server',
    'mate': 'part of a multi-lock', 'mates': 'parts of a multi-lock', 'crowd': 'wait queue, or contention record',
    'hurry': 'campaign, or redial', 'nudge': 'reconnect', 'knock': 'redial', 'ballot': 'hard state', 'askings': 'attempts',
}
# What is plain English in a sentence, and a private word in an identifier.
IDENTIFIERS = {
    'beat': 'tick', 'stamp': 'timestamp', 'doubt': 'unverified, uncertain', 'flow': 'call state', 'home': 'data directory',
    'look': 'inspect, find, poll', 'looks': 'inspect, find, poll', 'judge': 'check, classify', 'asking': 'attempt', 'undo': 'cleanup',
    'image': 'snapshot child', 'stories': 'narrative', 'question': 'probe', 'early': 'what comes early',
}
# Turns of phrase in pages and public headers, and what to write instead. Code spans and blocks are left out.
PHRASES = [
    (re.compile(r"(?:(?<=[.:;] )|(?<=\n)|(?<=\| )|(?<=\* )|\A)(?:Who|What|Whoever|Whatever)\b(?![^.|]*\?)"), 'name the actor or the thing first'),
    (re.compile(r'\b[Ww]hoever\b'), 'name the actor'),
    (re.compile(r'\b[Ll]ikewise\b'), 'say it again, or: the same'),
    (re.compile(r'(?<!no )\b[Ss]uch\b(?! as\b)'), 'say which one: this, that, of this kind'),
    (re.compile(r'\b(?:that|those) of\b(?! (?:the|a|an) (?:\w+ )?(?:who|which|that))'), 'repeat the noun'),
]
READ_BY_USERS = re.compile(r'(?:(?:deploy|jepsen|tests|src)/(?:\w+/)*)?(?:README|PARTS|CONTRIBUTING|BUGS|CHANGELOG)\.md$|docs/.*\.md$|include/fencelock/(?!client\.h).*\.h$')
SENTENCE_MAX = 25
# Where a sentence ends, within a paragraph, an item of a list or a cell of a table: a colon opens another thought.
END = re.compile(r'[.?!:](?=["\')*_\]]*(?:\s|$))')
# Code counts as one word, and so does a list of it.
CODE = re.compile(r'\0+(?:,? (?:and |or |to )?\0+)*')
# Where an old word is the right one: word, the path, why.
ALLOWED = [
    ('judge', r'include/fencelock/fence\.h|src/fence/|src/guards/|src/store/service\.c|tests/unit/fence/|tests/sim/store\.c', 'fl_fence_judge() is published'),
    ('judge', r'tests/', 'an oracle, a checker or a shim judges'),
    ('undo', r'tests/torture/', 'the shim keeps the bytes that a power cut takes back'),
    ('look', r'tests/', 'an oracle looks'), ('looks', r'src/wire/resp_read\.c', 'bytes that look like HTTP'),
    ('question', r'src/(frontdoor|metrics|redlock|store)/|tests/', 'a question in plain words: a request, an INFO, a query'),
    ('asking', r'tests/', 'a client of a test that asks'), ('home', r'tests/', 'where a table begins'),
    ('early', r'src/server/(access_users|server)\.c|src/cli/|src/commands/proposer\.c|src/log/|tests/', 'before the time'),
    ('crowd', r'tests/.*\.py$|tests/[a-z]+/[a-z_]+$', 'many clients at once'),
    ('stamp', r'tests/', 'of a model'), ('doubt', r'tests/', 'of a call'),
]
# The list itself, and what tells how things were called when they were decided.
SKIPPED = re.compile(r'tests/lint/words\.py$|docs/adr/|docs/GLOSSARY\.md$|docs/bugs\.csv$|tests/fuzz/corpus/')
TOPS = ('src', 'include', 'tests', 'docs', 'deploy/README.md', 'jepsen/README.md', 'README.md', 'CONTRIBUTING.md', 'BUGS.md', 'CHANGELOG.md')
TOKEN = re.compile(r'(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<text>"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')|(?P<name>[A-Za-z_]\w*)', re.S)
WORD = re.compile(r'[A-Za-z]+')


def parts(name):
    return {p.lower() for p in name.split('_')}


def pieces(path, text):
    """(offset, word, whether it is a part of an identifier)"""
    if path.endswith('.md'):
        without_tests = re.sub(r'`tests/[^`]*`', lambda m: ' ' * len(m.group()), text)
        for m in WORD.finditer(without_tests):
            yield m.start(), m.group().lower(), False
        return
    if not path.endswith(('.c', '.h')):
        for m in re.finditer(r'[A-Za-z_]\w*', text):
            for part in parts(m.group()):
                yield m.start(), part, False
        return
    for m in TOKEN.finditer(text):
        if m.lastgroup == 'name':
            for part in parts(m.group()):
                yield m.start(), part, True
        elif m.lastgroup == 'comment':
            for w in re.finditer(r'[A-Za-z_]\w*', m.group()):
                inside = parts(w.group())
                for part in inside:
                    yield m.start() + w.start(), part, len(inside) > 1


def allowed(path, word):
    return any(word == w and re.match(where, path) for w, where, _ in ALLOWED)


def check_file(path, text):
    for at, word, named in pieces(path, text):
        instead = EVERYWHERE.get(word) or (IDENTIFIERS.get(word) if named else None)
        if instead and not allowed(path, word):
            yield '%s:%d: %s: write %s (docs/GLOSSARY.md)' % (path, text.count('\n', 0, at) + 1, word, instead)


def files(root):
    for top in TOPS:
        full = os.path.join(root, top)
        if os.path.isfile(full):
            yield top
        for folder, names, found in os.walk(full):
            names[:] = sorted(n for n in names if n != '__pycache__')
            yield from (os.path.relpath(os.path.join(folder, name), root) for name in sorted(found))


def blank(m):
    return re.sub(r'[^\n]', ' ', m.group())


def prose(path, text):
    """The sentences of a page, or the comments of a header, at their places."""
    if path.endswith('.h'):
        inside = [False] * len(text)
        for m in re.finditer(r'/\*.*?\*/', text, re.S):
            inside[m.start():m.end()] = [True] * (m.end() - m.start())
        text = ''.join(c if inside[i] or c == '\n' else ' ' for i, c in enumerate(text))
    text = re.sub(r'^```.*?^```', blank, text, flags=re.M | re.S)
    return re.sub(r'`[^`\n]*`|\]\([^)]*\)', lambda m: 'x' * len(m.group()), text)


def check_phrases(path, text):
    text = prose(path, text)
    for phrase, instead in PHRASES:
        for m in phrase.finditer(text):
            yield '%s:%d: "%s": %s (CONTRIBUTING.md, "Plain words")' % (path, text.count('\n', 0, m.start()) + 1, m.group(), instead)


def blocks(text):
    """(line, text) of each paragraph, item of a list, and cell of a table."""
    block, first = [], 0
    for number, line in enumerate(text.split('\n') + [''], 1):
        bare = line.strip()
        alone = not bare or bare.startswith(('#', '|'))
        if block and (alone or re.match(r'(?:\d+\.|[-*>]) ', bare)):
            yield first, '\n'.join(block)
            block = []
        if bare.startswith('|'):
            yield from ((number, cell) for cell in bare.strip('|').split(' | '))
        elif not alone and (block or not line.startswith('    ')):
            first = first if block else number
            block.append(line)


def check_sentences(path, text):
    text = re.sub(r'^```.*?^```', blank, text, flags=re.M | re.S)
    text = re.sub(r'<!--.*?-->', blank, text, flags=re.S)
    text = re.sub(r'\]\([^()\s]*\)', ']', text)
    text = re.sub(r'`[^`\n]*`', lambda m: '\0' * len(m.group()), text)
    for first, block in blocks(text):
        at = 0
        for end in [m.end() for m in END.finditer(block)] + [len(block)]:
            sentence = CODE.sub('code', ' '.join(block[at:end].split()))
            count = sum(bool(re.search(r'\w', word)) for word in sentence.split())
            if count > SENTENCE_MAX:
                yield '%s:%d: a sentence of %d words, and %d are the most: %s...' % (
                    path, first + block.count('\n', 0, at), count, SENTENCE_MAX, ' '.join(sentence.split()[:6]))
            at = end


def check(root):
    for path in files(root):
        if SKIPPED.match(path):
            continue
        with open(os.path.join(root, path), 'rb') as f:
            data = f.read()
        if path.endswith(('.c', '.h', '.md', '.py', '.build')) or data.startswith(b'#!'):
            yield from check_file(path, data.decode('utf-8', 'replace'))
        if READ_BY_USERS.match(path):
            yield from check_phrases(path, data.decode('utf-8', 'replace'))
            if path.endswith('.md'):
                yield from check_sentences(path, data.decode('utf-8', 'replace'))
        yield from ('%s: a file of that name: write %s (docs/GLOSSARY.md)' % (path, EVERYWHERE[w])
                    for w in parts(os.path.basename(path).split('.')[0]) if w in EVERYWHERE and not allowed(path, w))


def self_test():
    bad = {word: ('src/net/a.c', 'int a_%s_b;\n' % word) for word in list(EVERYWHERE) + list(IDENTIFIERS)}
    bad.update({word + ' in a comment': ('src/net/a.c', '/* the %s */\n' % word) for word in EVERYWHERE})
    bad.update({word + ' in the docs': ('docs/A.md', 'The %s is.\n' % word.capitalize()) for word in EVERYWHERE})
    bad['an identifier in a comment'] = ('src/net/a.c', '/* see cluster_clock_beat() */\n')
    bad['a constant'] = ('src/net/a.h', '#define ROSTER_MAX 1\n')
    bad['a script'] = ('tests/run', '#!/bin/sh\n# the roster\n')
    bad['a name of a file'] = ('src/net/seat.c', '\n')
    for number, sentence in enumerate(('It ends. Who asks later is refused.', 'What a node says is true.', 'It serves whoever asks.', 'The others do likewise.',
                                       'It refuses such a node.', 'The lease is that of a session.')):
        bad['phrase %d' % number] = ('docs/A.md', sentence + '\n')
        bad['phrase %d in a header' % number] = ('include/fencelock/a.h', '/* ' + sentence + ' */\n')
    long = 'The node that leads ' + 'and waits ' * 12 + 'answers.'
    bad['a long sentence'] = ('docs/A.md', 'Short. ' + long + ' One more.\n')
    bad['a long cell'] = ('docs/A.md', '| a | b |\n|---|---|\n| short. | ' + long + ' |\n')
    bad['a long item'] = ('docs/A.md', '- short\n- ' + long.replace(' and', '\n  and', 1) + '\n')
    good = {
        'a sentence of 25 words': ('docs/A.md', 'The node ' + 'word ' * 22 + 'ends. The node ends.\n'), 'a long sentence of C': ('src/a.c', '/* ' + long + ' */\n'),
        'a long list of code': ('docs/A.md', 'It has ' + ', '.join(['`a`'] * 40) + ' and `b`.\n'), 'a colon': ('docs/A.md', 'The node says: ' + 'word ' * 25 + '.\n'),
        'a question': ('docs/A.md', 'What is a lock? Who asks?\n'), 'plain phrases': ('docs/A.md', 'Errors such as `such`: there is no such key.\n'),
        'a list of commands': ('docs/A.md', '```\nlikewise\n```\n'), 'a phrase in code': ('src/a.c', '/* What such a thing is. */\n'),
        'a string': ('src/net/a.c', 'const char *a = "the roster";\n'), 'plain English': ('src/net/a.c', '/* look here, without doubt */\n'),
        'the name of a test': ('docs/A.md', 'see `tests/attacks/attacks.py::Crowd.test_a`\n'),
        'a longer word': ('src/net/a.c', 'int crowded, heartbeat_ms, seating;\n'), 'the list itself': ('tests/lint/words.py', '# seat\n'),
        'history': ('docs/adr/0001-a.md', 'A seat.\n'), 'what is published': ('include/fencelock/fence.h', 'int fl_fence_judge(void);\n'),
    }
    failed = 0
    for (what, (path, text)), wanted in [(x, True) for x in bad.items()] + [(x, False) for x in good.items()]:
        found = source_tree.complaints_of(check, {path: text})
        if bool(found) != wanted:
            print('self-test: %s: %s' % (what, found or 'not found'))
            failed += 1
    unused = [a for a in ALLOWED if a[0] not in EVERYWHERE and a[0] not in IDENTIFIERS]
    if unused:
        print('self-test: allowed, and refused nowhere:', unused)
    print('self-test: %d cases, %d wrong' % (len(bad) + len(good), failed))
    return 1 if failed or unused else 0


if __name__ == '__main__':
    sys.exit(source_tree.run(__doc__, check, self_test, lambda root, found: 'words: %d old ones' % len(found)))
