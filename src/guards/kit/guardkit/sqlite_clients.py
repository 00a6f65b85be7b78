"""Clients of SQLite, each in its own process, which an attack kills: sqlite_clients.py DESCRIPTOR starts them, until the
other end of that pipe is closed. This process has one thread. Forked from one with more, a client may get a copy of a lock
that nobody gives back to it."""

import os
import signal
import sqlite3
import sys
from multiprocessing import reduction
from multiprocessing.connection import Connection

sys.path.append(os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..', 'sqlite')))
import fencelock_sqlite


def answer(fence, name, args):
    """(the guard's word, or ok, BUSY, ERROR; the result, or why)"""
    try:
        if name == 'execute':
            return 'ok', fence.execute(*args).fetchall()
        return 'ok', getattr(fence, name)(*args)
    except fencelock_sqlite.Refused as e:
        return e.word, str(e)
    except (sqlite3.Error, OverflowError) as e:
        return 'BUSY' if 'locked' in str(e) else 'ERROR', str(e)


def serve(pipe, path):
    fence = fencelock_sqlite.Fenced(path)
    while True:
        pipe.send(answer(fence, *pipe.recv()))


def start(orders, path):
    pipe = reduction.recv_handle(orders)
    pid = os.fork()
    if pid == 0:
        orders.close()
        try:
            serve(Connection(pipe), path)
        except (EOFError, OSError): # nobody is there any more
            os._exit(0)
    os.close(pipe)
    return pid


def end(orders, pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def main(orders):
    while True:
        try:
            order, what = orders.recv()
        except EOFError:
            return
        orders.send((start if order == 'start' else end)(orders, what))


if __name__ == '__main__':
    main(Connection(int(sys.argv[1])))
