"""What the suite asks of a storage: an adapter of seven functions.

    open()                                   a new session: a connection, a client
    create(key, lock, value)                 a record that belongs to a lock, with a first value
    claim(session, lock, token)              raises the mark; what is read afterwards is not older
    read(session, lock, key)                 the value
    write(session, lock, token, key, value, how)   one fenced write in the way `how`, one of `kinds`
    bypasses()                               [(name, function(session, lock, key, value))]: each way to bypass the guard
    mark(session, lock)                      the mark, 0 when there is none

A refusal is raised as Refused, whose word is the reason; an unknown outcome is raised as Unknown. Optional: restart()
(kill -9 and a new start), close(), and own(), attacks that only this storage knows: [(rule, name, function(report))].
"""


class Refused(Exception):
    """The operation was surely not done. word: STALE, NOTOKEN, NOTCLAIMED, WRONGLOCK, BUSY, or ERROR."""

    def __init__(self, word, text=''):
        super().__init__(text or word)
        self.word = word


class Unknown(Exception):
    """The operation may have been done or not."""


class Storage:
    name = 'a storage'
    kinds = ('write',)
    odd_names = ("it's", 'a"b', 'a\\b', "x'); DROP TABLE account; --", 'ünï/ cödé', '$$', '%s', ' ')
    workers = 6
    restart = None          # a storage that can be killed has a function here

    def own(self):
        return ()

    def end_sessions(self):
        """Ends the sessions that open() put into self.sessions. Called after each attack, since servers allow few connections."""
        sessions, self.sessions = getattr(self, 'sessions', []), []
        for session in sessions:
            session.end()

    def close(self):
        pass
