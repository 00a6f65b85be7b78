#!/usr/bin/env python3
"""The page that shows the simulation, in a real Chromium, from a file: every preset is played by keyboard, at desk and phone
width, dark and light. Whatever it shows on the way is the state that the native program has for the same address.

    page.py PAGE SIM_WEB [-k WORD]...
"""

import json
import os
import subprocess
import sys
import unittest

from chromium import Chromium

PAGE, SIM_WEB = (os.path.abspath(p) for p in sys.argv[1:3])
LOOKS = {'desk, light': (1280, 900, False), 'desk, dark': (1280, 900, True), 'phone, light': (375, 780, False), 'phone, dark': (375, 780, True)}
SIZE_MAX = 1000000
LINES_MAX = 1200


def native(*args):
    return subprocess.run([SIM_WEB, *args], stdout=subprocess.PIPE, check=True).stdout.decode().strip()


PRESETS = [line.split() for line in native('--presets').splitlines()]


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Chromium()
        cls.browser.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def open(self, look, address=''):
        width, height, dark = LOOKS[look]
        self.browser.look(width, height, dark, look.startswith('phone'))
        self.browser.go('file://' + PAGE + ('#' + address if address else ''))
        self.browser.until("typeof page === 'object'", 'the page is there')

    def tearDown(self):
        self.assertEqual(self.browser.faults(), [])

    def same(self):
        """What the page shows is what the native program says."""
        address = self.browser.evaluate('page.address()')
        self.assertEqual(self.browser.evaluate('page.state()'), native(address), address)
        return address

    def shown(self, element):
        return self.browser.evaluate(f"document.getElementById('{element}').textContent")

    def visible(self, element):
        return self.browser.evaluate(f"document.getElementById('{element}').checkVisibility()")

    def hops(self, number, name, guess):
        """A preset, event by event, with the question on the way."""
        self.browser.press(str(number))
        asked = 0
        for _ in range(60):
            self.same()
            if self.browser.evaluate('page.waits()'):
                self.assertTrue(self.visible('ask'), name)
                asked += 1
                self.browser.press(guess)
                self.browser.press('ArrowRight')  # it would play on
                self.same()
            if self.visible('moral'):
                break
            self.browser.press('ArrowRight')
        self.assertEqual(asked, 1, name)
        self.assertTrue(self.visible('moral'), name)
        address = self.same()
        self.assertEqual(address, native_address(PRESETS[number - 1][1]), name)
        self.assertIn('wise' if wrong(name, guess) else 'right', self.shown('verdict'), name)
        state = json.loads(native(address))
        self.assertEqual(self.shown('value'), str(state['storage']['value']), name)
        self.assertEqual('lost' in self.browser.evaluate("document.getElementById('storage').className"), state['storage']['lost'] > 0, name)

    def all_presets(self, look, guess):
        self.open(look)
        for number, (name, _) in enumerate(PRESETS, 1):
            self.hops(number, name, guess)
            wide = self.browser.evaluate('[document.documentElement.scrollWidth, innerWidth]')
            self.assertLessEqual(wide[0], LOOKS[look][0], name)
            self.assertEqual(wide[1], LOOKS[look][0], name)

    def test_desk_light(self):
        self.all_presets('desk, light', 'y')

    def test_desk_dark(self):
        self.all_presets('desk, dark', 'n')

    def test_phone_light(self):
        self.all_presets('phone, light', 'n')

    def test_phone_dark(self):
        self.all_presets('phone, dark', 'y')

    def test_played_through(self):
        """With the space bar, in its own time: it stops to ask, and again at the end."""
        self.open('desk, light')
        self.browser.press(' ')
        self.browser.until('page.waits()', 'it asks')
        self.same()
        self.browser.press('n')
        self.browser.until("document.getElementById('moral').checkVisibility()", 'it ends')
        self.same()
        self.assertIn('right', self.shown('verdict'))

    def test_address(self):
        """The address of a state opens that state elsewhere, in the middle of a preset too."""
        self.open('desk, light')
        self.browser.press('3')
        for _ in range(9):
            self.browser.press('ArrowRight')
        address = self.same()
        self.assertEqual(self.browser.evaluate('location.hash'), '#' + address)
        state = self.browser.evaluate('page.state()')
        self.open('phone, dark', address)
        self.assertEqual(self.browser.evaluate('page.state()'), state)
        self.assertEqual(self.same(), address)
        self.open('desk, light', '1.nonsense')
        self.assertIn('no address', self.shown('note'))

    def test_time_goes_both_ways(self):
        """Back from the end and on again: each event shows the same both times."""
        self.open('desk, light')
        self.browser.press('4')
        self.browser.press('End')
        seen = {}
        for _ in range(60):
            seen[self.same()] = self.browser.evaluate('page.state()')
            if self.browser.evaluate("document.getElementById('back').disabled"):
                break
            self.browser.press('ArrowLeft')
        for _ in range(len(seen)):
            self.browser.press('ArrowRight')
            address = self.same()
            if address in seen:
                self.assertEqual(self.browser.evaluate('page.state()'), seen[address])
        self.assertGreater(len(seen), 8)

    def test_own_steps(self):
        """What the reader does by hand, and what cannot be done."""
        self.open('desk, light')
        self.browser.evaluate("document.getElementById('own').open = true")
        for word in ('go1', 'ready1', 'pause1', 'go2', 'ready2', 'wake1'):
            self.browser.evaluate(f"document.querySelector('[data-word={word}]').click()")
            self.browser.press(' ')
            self.browser.until('!page.playing()', 'it stops')
            self.same()
        for _ in range(8):
            self.browser.press('ArrowRight')
        self.same()
        self.assertEqual(json.loads(self.browser.evaluate('page.state()'))['storage']['lost'], 0)
        self.assertTrue(self.browser.evaluate("document.querySelector('[data-word=wake1]').disabled"))

    def test_everything_explains_itself(self):
        self.open('desk, light')
        short = self.browser.evaluate(
            "[...document.querySelectorAll('main button, .box, summary')].filter(e => !e.closest('#log, #ask, #moral') &&"
            " !e.closest('[data-x]') && !e.title && !['play'].includes(e.id)).map(e => e.outerHTML)")
        self.assertEqual(short, [])

    def test_size(self):
        self.assertLess(os.path.getsize(PAGE), SIZE_MAX)
        with open(PAGE, encoding='utf-8') as f:
            self.assertLessEqual(len(f.readlines()), LINES_MAX)


def native_address(address):
    """As it reads once its steps have been taken."""
    state = json.loads(native(address))
    return '.'.join([str(state['seed']), *(s['word'] for s in state['steps'])])


def wrong(name, guess):
    """y is the first answer: accepted, both have it, the same token."""
    first = {'pause': False, 'unchecked': True, 'unclaimed': True, 'claimed': False, 'jump': True, 'jumptoken': False, 'restart': True, 'grant': True}
    return first[name] != (guess == 'y')


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
