"""One operation on the cluster. It is repeated at other nodes until one gives a definite answer, and recorded once."""

import time

from harness import RespError

NOT_DONE = ('NOLEADER', 'BUSY', 'LIMIT')


class NoAnswer(Exception):
    """No definite answer: the text says why."""


class RetriedOperation:
    """with RetriedOperation(client, f, give_up_s, fields of the operation) as a: a.ask(function, arguments)..., then a.complete().
    ask() returns NOTHING when it has given up, or was refused, and recorded that; ask_about() does so with a question, which
    changes nothing. `tries`: those of which nobody knows what became. `happened`: something did, whatever comes after. `drawn`: how
    many tokens it may have drawn, so far, that the client has not been told."""

    NOTHING = object()

    def __init__(self, client, f, give_up_s, **fields):
        self.c, self.f, self.tries, self.unknown = client, f, 0, None
        self.completed = self.happened = False
        self.drawn = 0
        self.op = client.invoke(f, **fields)
        self.end = time.monotonic() + give_up_s

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        assert kind or self.completed

    def complete(self, kind, **fields):
        self.completed = True
        if kind == 'ok':
            fields['retried'] = self.unknown is not None
        if kind == 'info':
            fields['unheard'] = self.drawn
        self.c.complete(kind, self.f, self.op, unknown=self.tries, **fields)

    def give_up(self, error):
        self.complete('info' if self.unknown or self.happened else 'fail', error=self.unknown or error)
        return self.NOTHING

    def ask(self, function, *args, changes=True):
        while True:
            try:
                return function(*args)
            except RespError as e:
                error = e.line
                if e.word == 'UNCERTAIN':
                    self.note_unknown(error, changes)
                elif e.word not in NOT_DONE:
                    return self.give_up(error)
            except NoAnswer as e:
                error = str(e)
                self.note_unknown(error, changes)
            except ConnectionRefusedError as e:
                error = 'refused: %s' % e
            self.c.nodes.elsewhere()
            if time.monotonic() > self.end:
                return self.give_up(error)
            time.sleep(0.01)

    def ask_about(self, function, *args):
        return self.ask(function, *args, changes=False)

    def note_unknown(self, error, changes):
        if changes:
            self.unknown, self.tries = error, self.tries + 1
