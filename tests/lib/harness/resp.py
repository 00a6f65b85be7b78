"""A raw RESP client. It knows no commands and hides nothing: tests see what is on the wire."""

import socket

from .wait import ANSWER_S


class RespError(RuntimeError):
    """An error reply: `word` is the upper-case word it began with, `text` the rest."""

    def __init__(self, line):
        self.line = line
        self.word, _, self.text = line.partition(' ')
        super().__init__(line)


class Push(list):
    """A RESP3 push message."""


def encode(*args):
    out = [b'*%d\r\n' % len(args)]
    for arg in args:
        if isinstance(arg, str):
            arg = arg.encode()
        elif not isinstance(arg, (bytes, bytearray)):
            arg = str(arg).encode()
        out.append(b'$%d\r\n%s\r\n' % (len(arg), arg))
    return b''.join(out)


class Resp:
    """One connection. An address is 'HOST:PORT' or (host, port). Bulk strings come back as bytes,
    simple strings as str, nulls as None; an error reply is raised by call() and returned by read(). `source` is the address
    to connect from."""

    def __init__(self, address, timeout=ANSWER_S, rcvbuf=None, source=None):
        if isinstance(address, str):
            host, _, port = address.rpartition(':')
            address = (host, int(port))
        self.sock = socket.socket(socket.AF_INET)
        try:
            if rcvbuf:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            if source:
                self.sock.bind((source, 0))
            self.sock.settimeout(timeout)
            self.sock.connect(address)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            self.sock.close()
            raise
        self.buffer = b''
        self.at = 0

    def close(self):
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    # -- asking ---------------------------------------------------------------------------------
    def call(self, *args, timeout=None):
        self.send(*args)
        value = self.read(timeout)
        if isinstance(value, RespError):
            raise value
        return value

    def pipeline(self, requests, timeout=None):
        """Sends all requests at once; returns all replies, errors among them."""
        self.send_raw(b''.join(encode(*r) for r in requests))
        return [self.read(timeout) for _ in requests]

    def send(self, *args):
        self.send_raw(encode(*args))

    def send_raw(self, data):
        self.sock.sendall(data)

    # -- answers --------------------------------------------------------------------------------
    def read(self, timeout=None):
        """The next reply. ConnectionError when the server closed, socket.timeout when it is silent."""
        if timeout is not None:
            before = self.sock.gettimeout()
            self.sock.settimeout(timeout)
            try:
                return self._value()
            finally:
                self.sock.settimeout(before)
        return self._value()

    def read_until_closed(self, timeout=ANSWER_S):
        """All replies up to the server's close, then True; fails when it does not close in time."""
        replies = []
        try:
            while True:
                replies.append(self.read(timeout))
        except ConnectionError:
            return replies

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionResetError('the server closed the connection')
        self.buffer = self.buffer[self.at:] + data
        self.at = 0

    def _line(self):
        while True:
            end = self.buffer.find(b'\r\n', self.at)
            if end >= 0:
                line = self.buffer[self.at:end]
                self.at = end + 2
                return line
            self._more()

    def _bytes(self, n):
        while len(self.buffer) - self.at < n + 2:
            self._more()
        data = self.buffer[self.at:self.at + n]
        if self.buffer[self.at + n:self.at + n + 2] != b'\r\n':
            raise ValueError('a bulk string does not end in CR LF')
        self.at += n + 2
        return data

    def _value(self):
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b'+':
            return rest.decode()
        if kind == b'-':
            return RespError(rest.decode())
        if kind in b':(':
            return int(rest)
        if kind == b'$':
            return None if rest == b'-1' else self._bytes(int(rest))
        if kind == b'=':
            return self._bytes(int(rest))[4:]
        if kind == b'!':
            return RespError(self._bytes(int(rest)).decode())
        if kind == b'_':
            return None
        if kind == b'#':
            return {b't': True, b'f': False}[rest]
        if kind == b',':
            return float(rest)
        if kind == b'*' or kind == b'~':
            return None if rest == b'-1' else [self._value() for _ in range(int(rest))]
        if kind == b'>':
            return Push(self._value() for _ in range(int(rest)))
        if kind == b'%':
            pairs = [(self._value(), self._value()) for _ in range(int(rest))]
            return dict(pairs)
        raise ValueError('not RESP: %r' % line)


def text(value):
    return value.decode(errors='surrogateescape') if isinstance(value, bytes) else value


def as_dict(reply):
    """An array of names and values in turn, which RESP2 has for a map. Its bulk strings become str."""
    return {text(name): text(value) for name, value in zip(reply[::2], reply[1::2])}


def read_request(reader):
    """The words of the next request of a client, from a binary file; None at its end."""
    head = reader.readline()
    if not head:
        return None
    words = []
    for _ in range(int(head[1:])):
        size = int(reader.readline()[1:])
        words.append(reader.read(size + 2)[:-2])
    return words


def shut_down(sock):
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


def close_all(sockets):
    """Whoever waits in a call on one of them is woken."""
    for sock in sockets:
        shut_down(sock)
        sock.close()


def info_fields(text):
    """INFO's `key:value` lines as a dict of str; numbers as int."""
    if isinstance(text, bytes):
        text = text.decode()
    fields = {}
    for line in text.splitlines():
        key, colon, value = line.partition(':')
        if colon and not line.startswith('#'):
            fields[key] = int(value) if value.isdigit() else value
    return fields
