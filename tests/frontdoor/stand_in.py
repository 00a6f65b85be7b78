"""Stands where a suite of a library expects a redis-server: starts one node, and passes all requests on to it, but for three. FLUSHDB
and FLUSHALL, with which suites tidy up, break all locks. SADD, with which suites make a key of another type, takes the lock by ACQUIRE.
Options as of redis-server: --port N, --unixsocket PATH; with `-` they are lines of standard input. Ends with SIGTERM or SIGINT."""

import os
import signal
import socket
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
sys.dont_write_bytecode = True
from harness import Cluster, Lab, as_dict


def options(argv):
    lines = [line.split(None, 1) for line in sys.stdin] if '-' in argv[1:2] else []
    found = {line[0]: line[1].strip().strip('"') for line in lines if len(line) == 2}
    for word, value in zip(argv, argv[1:]):
        if word in ('--port', '--unixsocket'):
            found[word[2:]] = value
    return found


def listeners(found):
    """redis-server listens at both."""
    made = []
    if found.get('port', '0') != '0':
        made.append(socket.create_server(('127.0.0.1', int(found['port'])), backlog=64))
    if 'unixsocket' in found:
        made.append(socket.socket(socket.AF_UNIX))
        made[-1].bind(found['unixsocket'])
        made[-1].listen(256)
    return made


class Backend:
    """The node. It comes up while the suite goes on: some wait two seconds at most for a server, and a client waits longer."""

    def __init__(self):
        self.up = threading.Event()
        self.lab = Lab('stand-in')
        self.node = None
        threading.Thread(target=self.start, daemon=True).start()

    def start(self):
        self.node = Cluster(self.lab, 1, ('--front-door-del', 'yes')).start().nodes[0]
        self.up.set()

    def get(self):
        self.up.wait()
        return self.node


def tidy_up(node):
    with node.client() as c:
        cursor = b''
        while True:
            cursor, found = c.call('LOCKS', *(['CURSOR', cursor] if cursor else []))
            for lock in found:
                c.call('BREAK', as_dict(lock)['name'])
            if not cursor:
                return


def request(reader):
    """The bytes of one request and its words; None at the end."""
    head = reader.readline()
    if not head:
        return None, None
    raw, words = head, []
    for _ in range(int(head[1:]) if head[:1] == b'*' else 0):
        length = reader.readline()
        word = reader.read(int(length[1:]) + 2)
        raw += length + word
        words.append(word[:-2])
    return raw, words or [b'']


def carry(backend, client):
    """Clients of suites have all their answers when they send these: no order is lost."""
    reader = client.makefile('rb')
    try:
        node = backend.get()
        with socket.create_connection(('127.0.0.1', node.port)) as server:
            threading.Thread(target=back, args=(server, client), daemon=True).start()
            while True:
                raw, words = request(reader)
                if raw is None:
                    break
                if words[0].upper() in (b'FLUSHDB', b'FLUSHALL'):
                    tidy_up(node)
                    client.sendall(b'+OK\r\n')
                elif words[0].upper() == b'SADD':
                    node.call('ACQUIRE', words[1], 'TTL', 3600000, 'OWNER', 'a-key-of-another-kind')
                    client.sendall(b':1\r\n')
                else:
                    server.sendall(raw)
    except (OSError, ValueError):
        pass
    finally:
        client.close()


def back(server, client):
    try:
        while data := server.recv(65536):
            client.sendall(data)
        client.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def serve(backend, listener):
    while True:
        client, _ = listener.accept()
        threading.Thread(target=carry, args=(backend, client), daemon=True).start()


def main():
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    backend = Backend()
    for listener in listeners(options(sys.argv)):
        threading.Thread(target=serve, args=(backend, listener), daemon=True).start()
    backend.up.wait(1.5)
    print('Ready to accept connections', flush=True)
    parent = os.getppid()  # when a suite has crashed nobody sends a signal
    while not ended.wait(0.5) and os.getppid() == parent:
        pass
    backend.lab.quiet_close(keep=False)


if __name__ == '__main__':
    main()
