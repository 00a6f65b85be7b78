"""A node for a test."""

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import contextmanager


def _free_address():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return '127.0.0.1:%d' % s.getsockname()[1]


@contextmanager
def node():
    """Runs a node of its own (the program FENCELOCKD, or fencelockd of the PATH) with an empty directory and free ports, and gives its URL
    for connect(). As a fixture of pytest: pytest.fixture(scope='session') of a function that does `with node() as url: yield url`."""
    program = os.environ.get('FENCELOCKD') or 'fencelockd'
    if shutil.which(program) is None:
        raise RuntimeError('there is no %s: install fencelock, or set FENCELOCKD to the program' % program)
    with tempfile.TemporaryDirectory() as scratch:
        log = open(os.path.join(scratch, 'log'), 'w+')
        child = subprocess.Popen([program, '--data', os.path.join(scratch, 'node'), '--listen', '127.0.0.1:0', '--peer', _free_address()],
                                 stdout=subprocess.PIPE, stderr=log, text=True)
        reader = None
        try:
            for line in child.stdout:
                _, ready, address = line.partition('listening on ')
                if ready:
                    break
            else:
                log.seek(0)
                raise RuntimeError('the node ended before it was ready:\n' + log.read())
            reader = threading.Thread(target=lambda: [None for _ in child.stdout], daemon=True) # it must never wait for one
            reader.start()
            yield 'fencelock://' + address.strip()
        finally:
            child.kill()
            child.wait()
            reader and reader.join()
            child.stdout.close()
            log.close()
