"""A session through a storage's own command line client: statements go in by a pipe, answers are read up to a marker."""

import os
import queue
import shutil
import subprocess
import threading
import time

from .storage import Unknown


class Missing(Exception):
    """The storage's client program is not installed."""


def program(*names):
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise Missing('%s is not installed, or not in PATH' % ' or '.join(names))


class Child:
    """start() sends a statement and returns at once, finish() waits for its answer, ask() does both."""

    def __init__(self, argv, env=None):
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env=dict(os.environ, **(env or {})), start_new_session=True)
        self.lines, self.count, self.open = queue.Queue(), 0, None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.decode(errors='replace').rstrip('\n'))
        self.lines.put(None)

    def marker_command(self, marker):
        raise NotImplementedError

    def start(self, text):
        self.count += 1
        self.open = 'end-of-answer-%d' % self.count
        try:
            self.process.stdin.write((text + '\n' + self.marker_command(self.open) + '\n').encode())
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            self.finish(10.0) # it ends with what the client has said last
            raise Unknown('the connection has ended') from None

    def finish(self, seconds=60.0):
        """The lines of the answer; None when it does not come in time (ask again)."""
        end, found = time.monotonic() + seconds, self.__dict__.setdefault('found', [])
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return None
            if line is None:
                self.lines.put(None)
                raise Unknown('the connection has ended: %s' % ' '.join(found[-2:]))
            if line.strip() == self.open:
                self.open, self.found = None, []
                return found
            found.append(line)

    def ask(self, text, seconds=60.0):
        self.start(text)
        answer = self.finish(seconds)
        if answer is None:
            self.end()
            raise Unknown('no answer within %g s to: %s; so far: %s' % (seconds, text[:100], self.found[-3:]))
        return answer

    def end(self):
        self.process.kill()
        self.process.wait()
