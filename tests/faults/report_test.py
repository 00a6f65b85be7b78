#!/usr/bin/python3
"""The report: the story of an anomaly has the operations that make it in the order of their effects, and the page says it all."""

import glob
import html.parser
import os
import re
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, '..', 'lib')]
sys.dont_write_bytecode = True
from checkers_test import Story
from faultlab import checkers, report, report_story
from harness import main

EMPTY = ('meta', 'br', 'i')


class Balance(html.parser.HTMLParser):
    """Every element that is opened is closed again."""

    def __init__(self):
        super().__init__()
        self.open, self.wrong = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in EMPTY and (not self.open or self.open.pop() != tag):
            self.wrong.append(self.getpos())


def result(story, finals, events=(), **options):
    """As a run has it: judged for lost updates and the order of tokens."""
    r = types.SimpleNamespace(origin=0.0, began_utc=1700000000.25, healed=9.0, seconds=10.0, counts={'faults': 1}, overlap_s=0.0)
    r.ops = story.ops()
    r.events = sorted(story.events + list(events), key=lambda e: e['t'])
    r.options = types.SimpleNamespace(**dict({'workload': 'counter', 'seed': 7, 'clients': 2, 'locks': 1, 'nodes': 3, 'nemesis': ['hold']},
                                             **options))
    r.anomalies = {'tokens': [], 'storage order': checkers.storage_order(r.ops), 'lost updates': checkers.lost_updates(r.ops, finals)}
    r.anomalies_list = lambda: [a for found in r.anomalies.values() for a in found]
    return r


def late_write():
    """Client 0 writes, late, what it read before client 1 had the lock; then client 1 writes over it."""
    s = Story().acquire(1, 0, 0.1, lock='x').read(1, 0.2, 0.21, 0).add('a', 'nothing', 1, 0.3, 2.0)
    s.acquire(2, 0.2, 1.5, client=1, lock='x').read(2, 1.6, 1.61, 1).add('b', 'nothing', 2, 2.1, 2.11, client=1)
    marks = [{'t': t, 'type': 'mark', 'f': f, 'lock': 'x', 'token': 1, 'id': 'a', 'after_next_read': True}
             for t, f in ((0.31, 'held'), (1.9, 'let through'))]
    return s, marks + [{'t': 0.25, 'until': 2.5, 'type': 'nemesis', 'f': 'hold', 'targets': ['store']}]


class Stories(unittest.TestCase):
    def test_in_the_order_of_effects(self):
        s, events = late_write()
        r = result(s, {'k': '1 b'}, events)
        found = [a for a in r.anomalies_list() if a.kind == 'lost updates']
        self.assertEqual(len(found), 1)
        told = report_story.steps(r, found[0])
        self.assertEqual([t.t for t in told], sorted(t.t for t in told))
        words = ('gets x with token 1', 'fault hold', 'writes k', 'a is held back', 'lease of token 1 is over', 'gets x with token 2',
                 'reads k with token 2', 'a is let through', 'is answered about a: accepted', 'writes k with token 2')
        at = 0
        for step in told:
            at += at < len(words) and words[at] in step.text
        self.assertEqual(at, len(words), [t.text for t in told])
        marked = [(t.who, t.text.split()[0]) for t in told if t.kind == 'bad']
        self.assertEqual(marked, [(0, 'writes'), (1, 'reads'), (0, 'is'), (1, 'writes')])

    def test_pauses_of_other_clients_are_left_out(self):
        s, events = late_write()
        pauses = [{'t': 0.5, 'until': 0.6, 'type': 'nemesis', 'f': 'clients', 'targets': [who]} for who in ('client0, before its next write',
                                                                                                           'client3')]
        r = result(s, {'k': '1 b'}, events + pauses)
        told = [t.text for t in report_story.steps(r, r.anomalies['lost updates'][0]) if 'fault clients' in t.text]
        self.assertEqual(len(told), 1, told)
        self.assertIn('client0', told[0])

    def test_an_anomaly_of_no_operations(self):
        r = result(Story(), {}, late_write()[1])
        self.assertEqual(report_story.steps(r, checkers.Anomaly('recovers', 'no')), [])
        told = [t.text for t in report_story.steps(r, checkers.Anomaly('liveness', 'no', at=1.0))]
        self.assertIn('fault hold', told[0])
        self.assertEqual(told[-1], 'this is seen')

    def test_the_one_that_went_over_it_is_not_the_first_to_part(self):
        # b and c part from a; c comes first, then b goes over c, and d, which was made from c, over b.
        s = Story().add('a', 'nothing', 1, 1, 2).add('c', 'a', 1, 3, 4).add('b', 'a', 2, 5, 6, client=1).add('d', 'c', 1, 7, 8)
        found = checkers.lost_updates(s.ops(), {'k': '3 d'})
        self.assertEqual([[op.get('id') for op in a.ops] for a in found], [['b', 'd']])
        related = report_story.related(result(s, {'k': '3 d'}), found[0])
        self.assertEqual([op.get('id') for op in related], ['a', 'c', 'b', 'd'])


class Pages(unittest.TestCase):
    def page(self, r):
        text = report.page(r, 'tests/faults/run --seed 7', ['node1.log'])
        balance = Balance()
        balance.feed(text)
        self.assertEqual((balance.open[-3:], balance.wrong), ([], []))
        return text

    def test_failed(self):
        s, events = late_write()
        text = self.page(result(s, {'k': '1 b'}, events))
        for words in ('FAILED.', 'Updates that were acknowledged are gone (once)', 'tests/faults/run --seed 7', 'href="node1.log"',
                      'went over it without having seen it', 'since the clients began, at 2023-11-14T22:13:20.250Z',
                      'The logs of servers are in UTC, and second 0 of this page is 2023-11-14T22:13:20.250Z.'):
            self.assertIn(words, text)
        self.assertNotIn('on purpose', text)

    def test_passed(self):
        text = self.page(result(Story().add('a', 'nothing', 1, 1, 2), {'k': '1 a'}))
        self.assertIn('Passed.', text)
        self.assertIn('UTC, and second 0', text)
        self.assertNotIn('What went wrong', text)

    def test_broken_on_purpose(self):
        s, events = late_write()
        self.assertIn('as it must be', self.page(result(s, {'k': '1 b'}, events, no_fencing=True)))
        self.assertIn('NOT CAUGHT.', self.page(result(Story(), {}, no_fencing=True)))

    def test_text_from_outside_is_text(self):
        s = Story().add('<b>', 'nothing', 1, 1, 2)
        self.assertNotIn('<b>', self.page(result(s, {'k': None})).replace('<b class="bad">marked', ''))

    def test_every_judge_is_explained(self):
        kinds = set()
        for path in glob.glob(os.path.join(HERE, 'faultlab', '*.py')) + [os.path.join(HERE, 'run')]:
            with open(path) as f:
                kinds |= set(re.findall(r"Anomaly\('([a-z ]+)'", f.read()))
        self.assertGreater(len(kinds), 10)
        self.assertEqual(kinds - set(report.JUDGES), set())


if __name__ == '__main__':
    main()
