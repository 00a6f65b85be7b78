"""A Chromium that a test drives: DevTools commands through a pipe, so nothing but Debian's chromium is needed."""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

DEADLINE_S = 300  # for one command; a busy machine is slow


class Chromium:
    """with Chromium() as c: c.go(url); c.evaluate('1 + 1')"""

    def __init__(self, program='chromium'):
        self.program = program
        self.number = 0
        self.text = b''
        self.events = []

    def __enter__(self):
        self.profile = tempfile.mkdtemp(prefix='fencelock-chromium-')
        to_child, self.out = os.pipe()
        self.into, from_child = os.pipe()
        flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run', '--hide-scrollbars',
                 '--disable-background-networking', '--disable-component-update', '--disable-extensions', '--remote-debugging-pipe',
                 '--user-data-dir=' + self.profile, 'about:blank']
        # DevTools reads descriptor 3 and writes to 4.
        self.child = subprocess.Popen(
            ['bash', '-c', f'exec 3<&{to_child} 4>&{from_child}; exec "$@"', 'bash', self.program, *flags], pass_fds=(to_child, from_child),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_child)
        os.close(from_child)
        targets = self.call('Target.getTargets', {}, None)['targetInfos']
        page = next(t for t in targets if t['type'] == 'page')
        self.session = self.call('Target.attachToTarget', {'targetId': page['targetId'], 'flatten': True}, None)['sessionId']
        for domain in ('Page', 'Runtime', 'Network', 'Log'):
            self.call(domain + '.enable')
        return self

    def __exit__(self, *_):
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.profile, ignore_errors=True)

    def receive(self, deadline):
        while b'\0' not in self.text:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise TimeoutError('chromium does not answer')
            data = os.read(self.into, 1 << 20)
            if not data:
                raise EOFError('chromium has ended')
            self.text += data
        message, self.text = self.text.split(b'\0', 1)
        return json.loads(message)

    def call(self, method, params=None, session=True):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': params or {}}
        if session:
            message['sessionId'] = self.session
        os.write(self.out, json.dumps(message).encode() + b'\0')
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = self.receive(deadline)
            if answer.get('id') == self.number:
                if 'error' in answer:
                    raise RuntimeError(f'{method}: {answer["error"]["message"]}')
                return answer['result']
            if 'method' in answer:
                self.events.append(answer)

    def evaluate(self, expression):
        result = self.call('Runtime.evaluate', {'expression': expression, 'returnByValue': True, 'awaitPromise': True})
        if 'exceptionDetails' in result:
            raise RuntimeError(f'{expression}: {json.dumps(result["exceptionDetails"])[:800]}')
        return result['result'].get('value')

    def until(self, expression, what):
        deadline = time.monotonic() + DEADLINE_S
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise TimeoutError('not in time: ' + what)
            time.sleep(0.05)

    def look(self, width, height, dark, phone=False):
        self.call('Emulation.setDeviceMetricsOverride', {'width': width, 'height': height, 'deviceScaleFactor': 1, 'mobile': phone})
        self.call('Emulation.setEmulatedMedia', {'features': [{'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}]})

    def go(self, url):
        self.call('Page.navigate', {'url': 'about:blank'})
        self.call('Page.navigate', {'url': url})

    def press(self, key):
        text = key if len(key) == 1 else ''
        code = {'ArrowRight': 39, 'ArrowLeft': 37, 'End': 35, 'Home': 36, ' ': 32, 'Tab': 9, 'Enter': 13}.get(key, ord(key[0].upper()))
        params = {'key': key, 'code': 'Space' if key == ' ' else key, 'windowsVirtualKeyCode': code}
        self.call('Input.dispatchKeyEvent', {'type': 'keyDown', 'text': text, **params} if text else {'type': 'rawKeyDown', **params})
        self.call('Input.dispatchKeyEvent', {'type': 'keyUp', **params})

    def picture(self, path, whole=False):
        import base64
        data = self.call('Page.captureScreenshot', {'format': 'png', 'captureBeyondViewport': whole})['data']
        with open(path, 'wb') as f:
            f.write(base64.b64decode(data))

    def faults(self):
        """What the page has thrown, logged as an error, or asked for of anybody."""
        found = []
        for e in self.events:
            p = e.get('params', {})
            if e['method'] == 'Runtime.exceptionThrown':
                found.append(p['exceptionDetails'].get('exception', {}).get('description', 'an exception'))
            elif e['method'] == 'Log.entryAdded' and p['entry']['level'] == 'error':
                found.append(p['entry']['text'])
            elif e['method'] == 'Network.requestWillBeSent' and not p['request']['url'].startswith(('file:', 'data:', 'blob:')):
                if p['request']['url'] != 'about:blank':
                    found.append('asks for ' + p['request']['url'])
        return found
