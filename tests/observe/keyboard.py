"""A browser that is driven by its keyboard: Chromium behind chromedriver, spoken to in the W3C WebDriver protocol."""

import json
import urllib.request

TAB, ENTER = '\ue004', '\ue007'


class Keyboard:
    """One window. `at` is chromedriver's address, `profile` a folder for the browser."""

    def __init__(self, at, profile):
        self.base = 'http://%s/session' % at
        args = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
                '--disable-background-networking', '--window-size=1200,1500', '--user-data-dir=' + profile]
        wanted = {'capabilities': {'alwaysMatch': {'browserName': 'chrome', 'goog:chromeOptions': {'args': args}}}}
        self.base += '/' + self.ask('POST', '', wanted)['sessionId']

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data=data, method=method, headers={'Content-Type': 'application/json'})
        with urllib.request.urlopen(request, timeout=60) as r:
            return json.load(r)['value']

    def open(self, url):
        self.ask('POST', '/url', {'url': url})

    def press(self, *keys):
        strokes = [{'type': kind, 'value': key} for key in keys for kind in ('keyDown', 'keyUp')]
        self.ask('POST', '/actions', {'actions': [{'type': 'key', 'id': 'keyboard', 'actions': strokes}]})

    def run(self, script):
        """What the script returns."""
        return self.ask('POST', '/execute/sync', {'script': script, 'args': []})

    def focus(self):
        """(tag, text or label, whether an outline shows where the focus is) of what has the focus."""
        return tuple(self.run('''const e = document.activeElement;
            return [e.tagName, e.getAttribute('aria-label') || e.textContent.slice(0, 60), getComputedStyle(e).outlineStyle !== 'none'];'''))

    def close(self):
        self.ask('DELETE', '')
