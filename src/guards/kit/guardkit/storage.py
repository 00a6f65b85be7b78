"""What the suite asks of a storage: an adapter of seven functions.

    open()                                   a session of its own: a connection, a client
    create(key, lock, value)                 a record that belongs to a lock, with a first value
    claim(session, lock, token)              raises the mark; what is read afterwards is not older
    read(session, lock, key)                 the value
    write(session, lock, token, key, value, how)   one fenced write in the way `how`, one of `kinds`
    bypasses()                               [(name, function(session, lock, key, value))]: each way round the guard
    mark(session, lock)                      the mark, 0 when there is none

A refusal is raised as Refused, whose word tells why; an outcome that nobody can know as Unknown. Optional: restart()
(kill -9 and a new start), close(), and own(), attacks that only this storage knows: [(rule, name, function(report))].
"""


class Refused(Exception):
    """Surely not done. word: STALE, NOTOKEN, NOTCLAIMED, WRONGLOCK, BUSY, or ERROR."""

    def __init__(self, word, text=''):
        super().__init__(text or word)
        self.word = word


class Unknown(Exception):
    """Perhaps done."""


class Storage:
    name = 'a storage'
    kinds = ('write',)
    odd_names = ("it's", 'a"b', 'a\\b', "x'); DROP TABLE account; --", 'ünï/ cödé', '$$', '%s', ' ')
    workers = 6
    restart = None          # a storage that can be killed has a function here

    def own(self):
        return ()

    def end_sessions(self):
        """After each attack: servers have few connections to give. Those that open() has put into self.sessions."""
        sessions, self.sessions = getattr(self, 'sessions', []), []
        for session in sessions:
            session.end()

    def close(self):
        pass
