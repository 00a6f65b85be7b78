#!/usr/bin/python3
"""Reads history.edn with a reader of EDN that shares no code with its writer, and checks what Jepsen's checkers expect of a
history: maps with :index, :time, :type, :process, :f and :value; each completion is of the last invocation of
its process; after an :info a process invokes nothing more; faults are :info of :nemesis.

    tests/faults/edn_test.py FILE...     checks histories of runs"""

import os
import re
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib')]
sys.dont_write_bytecode = True
from faultlab import history
from harness import main

TOKEN = re.compile(r'[\s,]*(?:([\[\]{}])|("(?:\\.|[^"\\])*")|([^\s,\[\]{}"]+))')
NUMBER = re.compile(r'[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$')
KEYWORD = re.compile(r':[a-zA-Z][\w.*+!?<>=-]*$')
ESCAPES = {'t': '\t', 'r': '\r', 'n': '\n', '\\': '\\', '"': '"'}
CLOSING = {'[': ']', '{': '}'}


class Word(str):
    """A keyword, without its colon."""


class Reader:
    """Of the part of EDN that a history may use: maps, vectors, strings, keywords, numbers, nil, true, false. Nothing else."""

    def __init__(self, text):
        self.text, self.at = text, 0

    def token(self):
        found = TOKEN.match(self.text, self.at)
        if not found:
            if self.text[self.at:].strip(' ,\n\t\r'):
                raise ValueError('no EDN at %d: %r' % (self.at, self.text[self.at:self.at + 40]))
            return None
        self.at = found.end()
        return found.group(1) or found.group(2) or found.group(3)

    def forms(self):
        token = self.token()
        while token is not None:
            yield self.form(token)
            token = self.token()

    def form(self, token):
        if token in CLOSING:
            items, end = [], CLOSING[token]
            for token in iter(self.token, end):
                if token is None or token in ']}':
                    raise ValueError('%r where %r should be, at %d' % (token, end, self.at))
                items.append(self.form(token))
            return items if end == ']' else self.map_of(items)
        return self.atom(token)

    @staticmethod
    def map_of(items):
        keys = items[::2]
        if len(items) % 2 or len(set(keys)) != len(keys):
            raise ValueError('no map: %r' % items)
        return dict(zip(keys, items[1::2]))

    @staticmethod
    def atom(token):
        if token[0] == '"':
            return re.sub(r'\\(u[0-9a-fA-F]{4}|.)', lambda m: chr(int(m.group(1)[1:], 16)) if len(m.group(1)) > 1
                          else ESCAPES[m.group(1)], token[1:-1])
        if token in ('nil', 'true', 'false'):
            return {'nil': None, 'true': True, 'false': False}[token]
        if KEYWORD.match(token):
            return Word(token[1:])
        if NUMBER.match(token):
            return float(token) if set(token) & set('.eE') else int(token)
        raise ValueError('%r is nothing that a history may have' % token)


def problems(text):
    """What Jepsen would not take."""
    open_ops, gone, last = {}, set(), (-1, -1)
    for op in Reader(text).forms():
        wrong = [k for k in ('index', 'time', 'type', 'process', 'f', 'value') if Word(k) not in op]
        if wrong:
            yield '%r has no %s' % (op, wrong)
            continue
        kind, process = op['type'], op['process']
        if op['index'] != last[0] + 1 or op['time'] < last[1]:
            yield '%r does not follow %r' % (op, last)
        last = op['index'], op['time']
        if not isinstance(op['f'], Word) or kind not in ('invoke', 'ok', 'fail', 'info') or not isinstance(kind, Word):
            yield '%r: :type and :f' % op
        elif process == 'nemesis':
            if not isinstance(process, Word) or kind != 'info':
                yield '%r: a fault' % op
        elif not isinstance(process, int):
            yield '%r: a process is a number' % op
        elif kind == 'invoke':
            if process in open_ops or process in gone:
                yield '%r: this process %s' % (op, 'is busy' if process in open_ops else 'has crashed')
            open_ops[process] = op
        else:
            yield from _completion(op, open_ops.pop(process, None))
            if kind == 'info':
                gone.add(process)


def _completion(op, asked):
    if asked is None:
        yield '%r was not invoked' % op
    elif asked['f'] != op['f']:
        yield '%r completes %r' % (op, asked)
    elif op['f'] == 'txn':
        yield from _transaction(op, asked)
    elif isinstance(op['value'], list) and (len(op['value']) != 2 or op['value'][0] != asked['value'][0]):
        yield '%r: not the key of %r' % (op, asked)


def _transaction(op, asked):
    """As Elle reads list-append: [:append k v] and [:r k nil], the read with a list when it is ok."""
    for before, after in zip(asked['value'], op['value']):
        if before[:2] != after[:2] or before[0] not in ('append', 'r') or not isinstance(before[0], Word) or \
                (before[0] == 'append' and before[2] != after[2]) or \
                (before[0] == 'r' and (before[2] is not None or isinstance(after[2], list) != (op['type'] == 'ok'))):
            yield '%r: no list-append' % op


class Edn(unittest.TestCase):
    def events(self, *rows):
        return [dict(zip(('t', 'type', 'process', 'f', 'op'), row[:5]), client=0, **row[5]) for row in rows]

    def whole(self, events):
        text = history.edn(events)
        self.assertEqual(list(problems(text)), [])
        return list(Reader(text).forms())

    def test_what_is_written_is_read(self):
        odd = 'a "quoted" \\ line\nand a tab\t, \u00fc and {[:x 1]}'
        ops = self.whole(self.events(
            (1.0, 'invoke', 0, 'acquire', '0-1', {'lock': 'x', 'ttl': 0.8}), (1.1, 'ok', 0, 'acquire', '0-1', {'token': 7}),
            (1.2, 'invoke', 0, 'read', '0-2', {'key': 'list-0-of-x'}), (1.3, 'ok', 0, 'read', '0-2', {'value': 'e1 e2'}),
            (1.4, 'invoke', 0, 'append', '0-3', {'key': 'list-0-of-x', 'id': 'e3'}), (1.5, 'fail', 0, 'append', '0-3', {'error': odd}),
            (1.55, 'nemesis', 0, 'disk-slow', None, {'until': 1.9, 'targets': ['node1: 5 ms']}),
            (1.6, 'invoke', 0, 'session renew', '0-4', {'session': 's'}), (1.7, 'info', 0, 'session renew', '0-4', {'error': odd}),
            (1.8, 'invoke', 6, 'write', '0-5', {'key': 'k', 'value': 'v'}), (1.9, 'ok', 6, 'write', '0-5', {})))
        self.assertEqual([op['value'] for op in ops[:6]], ['x', 'x', [['r', 'list-0-of-x', None]], [['r', 'list-0-of-x', ['e1', 'e2']]],
                                                           [['append', 'list-0-of-x', 'e3']], [['append', 'list-0-of-x', 'e3']]])
        self.assertEqual((ops[5]['error'], ops[6]['process'], ops[6]['time']), (odd, 'nemesis', 550000000))
        self.assertEqual((ops[7]['f'], ops[-1]['value']), ('session-renew', ['k', 'v']))

    def test_a_client_goes_on_under_another_number(self):
        ops = self.whole(self.events(
            (1.0, 'invoke', 0, 'release', '0-1', {'lock': 'x', 'token': 7}), (1.1, 'ok', 0, 'release', '0-1', {'found': 0}),
            (1.2, 'invoke', 0, 'check', '0-2', {'lock': 'x', 'token': 7}), (1.3, 'ok', 0, 'check', '0-2', {'found': 0}),
            (1.4, 'invoke', 3, 'check', '0-3', {'lock': 'x', 'token': 7}), (1.5, 'ok', 3, 'check', '0-3', {'found': 0})))
        self.assertEqual([(op['type'], op['process']) for op in ops],
                         [('invoke', 0), ('info', 0), ('invoke', 4), ('ok', 4), ('invoke', 3), ('ok', 3)])

    def test_what_jepsen_would_not_take(self):
        good = '{:index 0, :time 0, :type :invoke, :process 0, :f :read, :value ["k" nil]}\n'
        self.assertEqual(list(problems(good)), [])
        for bad in (good + good, good.replace(':invoke', ':ok'), good.replace(':process 0', ':process "0"'),
                    good.replace(':index 0', ':index 1'), good.replace(':type :invoke, ', ''), good.replace(':f :read', ':f "read"'),
                    good + good.replace('0', '1', 2).replace(':invoke', ':ok').replace('read', 'write'),
                    good.replace(':process 0', ':process :nemesis')):
            self.assertTrue(list(problems(bad)), bad)
        for worse in (good[:-2], good.replace('nil', "'nil"), good.replace('"k"', '"k'), good.replace(']', '}'), good.replace('nil', 'None')):
            with self.assertRaises(ValueError, msg=worse):
                list(problems(worse))


if __name__ == '__main__':
    if [a for a in sys.argv[1:] if a.endswith('.edn')]:
        for name in sys.argv[1:]:
            with open(name) as f:
                found = list(problems(f.read()))
            print('%s: %s' % (name, '; '.join(found[:5]) or 'as Jepsen has it'))
            if found:
                sys.exit(1)
    else:
        main()
