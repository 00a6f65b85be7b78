"""What lock libraries send, recorded from the libraries themselves, and sent again where the libraries cannot be had. No text of
a library's script is kept: its SHA-1 stands for it, and the name of the form that it is (src/frontdoor/forms.c)."""

import hashlib
import json
import os
import re
import socket
import threading

from harness import Resp, RespError

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..')
WIRES = os.path.join(ROOT, 'tests', 'frontdoor', 'wires')


def form_texts():
    """Name -> our own text of the form."""
    with open(os.path.join(ROOT, 'src', 'frontdoor', 'forms.c'), encoding='utf-8') as f:
        found = re.findall(r'\.name = "([^"]+)",\s*\.script = ((?:"[^"]*"\s*)+)', f.read())
    return {name: ''.join(re.findall(r'"([^"]*)"', lines)) for name, lines in found}


def served(client):
    """The commands that a server has, with subcommands as in `acl|cat`."""
    docs = client.call('COMMAND', 'DOCS')
    found = set()
    for name, doc in zip(docs[::2], docs[1::2]):
        doc = dict(zip(doc[::2], doc[1::2]))
        found |= set(doc.get(b'subcommands', [name])[::2])
    return {name.decode() for name in found}


def sha1(text):
    return hashlib.sha1(text if isinstance(text, bytes) else text.encode()).hexdigest()


class Recorder:
    """Stands between one client and a Redis, and adds each request to `log` as [name of the connection, word...]."""

    def __init__(self, server, name, log):
        self.server, self.name, self.log, self.count = server, name, log, 0
        self.listener = socket.create_server(('127.0.0.1', 0))
        self.address = '127.0.0.1:%d' % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.count += 1
            threading.Thread(target=self.carry, args=(client, '%s%d' % (self.name, self.count)), daemon=True).start()

    def carry(self, client, name):
        reader = client.makefile('rb')
        with Resp(self.server, timeout=None) as server: # a library may be silent for as long as it likes
            threading.Thread(target=self.back, args=(server, client), daemon=True).start()
            while head := reader.readline():
                raw, words = head, []
                for _ in range(int(head[1:])):
                    length = reader.readline()
                    word = reader.read(int(length[1:]) + 2)
                    raw += length + word
                    words.append(word[:-2])
                self.log.append([name, *words])
                server.send_raw(raw)
        client.close()

    @staticmethod
    def back(server, client):
        try:
            while data := server.sock.recv(65536):
                client.sendall(data)
        except OSError:
            pass

    def close(self):
        self.listener.close()


def without_texts(steps, names):
    """Steps as they are kept; names: SHA-1 -> form."""
    kept = []
    for connection, *words in steps:
        command = words[0].upper()
        at = 1 if command in (b'EVAL', b'EVALSHA') else 2 if [w.upper() for w in words[:2]] == [b'SCRIPT', b'LOAD'] else None
        line = [connection, *(w.decode('latin-1') for w in words)]
        if at is not None:
            name = words[at].decode() if command == b'EVALSHA' else sha1(words[at])
            line[at + 1] = {'sha1': name, 'form': names[name]}
        kept.append(line)
    return kept


def wires():
    for name in sorted(os.listdir(WIRES)):
        with open(os.path.join(WIRES, name), encoding='utf-8') as f:
            yield json.load(f)


def known_forms():
    """SHA-1 of a library's text -> the name of its form, as src/frontdoor/known.c has them."""
    with open(os.path.join(ROOT, 'src', 'frontdoor', 'known.c'), encoding='utf-8') as f:
        text = f.read()
    return dict(KNOWN_ROW.findall(text))


KNOWN_ROW = re.compile(r'\{"([0-9a-f]{40})", "([^"]+)"\}')


def words_for(line, texts, by_sha1):
    """A kept step as a request. by_sha1: scripts by the library's own SHA-1, which only the front door knows."""
    words = []
    for word in line[1:]:
        if not isinstance(word, dict):
            words.append(word.encode('latin-1'))
        elif by_sha1 and line[1].upper() != 'SCRIPT':
            words[0] = b'EVALSHA'
            words.append(word['sha1'].encode())
        else:
            text = texts[word['form']]
            words.append((sha1(text) if line[1].upper() == 'EVALSHA' else text).encode())
    return words


def answer(c, words):
    try:
        return c.call(*words)
    except RespError as e:
        return 'error ' + e.word
