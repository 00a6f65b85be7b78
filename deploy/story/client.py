"""One client of the story, as its own process. It does what every writer does: takes the lock, claims
and reads with its token, thinks, and writes. It says what happens as lines of JSON, each with the time
on the system's monotonic clock, which all processes of a machine share."""

import argparse
import json
import secrets
import sys
import time

from harness import Resp, RespError

PATIENCE_S = 20.0
STEPS = 20 # of work, so that a stopped client still has some to do when it goes on


def tell(what, **more):
    print(json.dumps(dict(more, t=time.monotonic(), what=what)), flush=True)


def ask_any_node(nodes, *args):
    """Asks one node after the other until one has a definite answer. Asking again is safe, because
    the request names its owner. Returns the answer and the address that gave it."""
    give_up = time.monotonic() + PATIENCE_S
    at = 0
    while True:
        address = nodes[at % len(nodes)]
        try:
            with Resp(address, timeout=PATIENCE_S) as c:
                return c.call(*args), address
        except RespError as e:
            if e.word not in ('NOLEADER', 'UNCERTAIN', 'BUSY') or time.monotonic() > give_up:
                raise
        except OSError:
            if time.monotonic() > give_up:
                raise
        at += 1
        time.sleep(0.01)


def main():
    parser = argparse.ArgumentParser()
    for name in ('--name', '--nodes', '--store', '--lock', '--key'):
        parser.add_argument(name, required=True)
    parser.add_argument('--ttl', type=int, required=True)
    parser.add_argument('--work', type=float, required=True)
    options = parser.parse_args()
    nodes = options.nodes.split(',')

    tell('asks')
    token, node = ask_any_node(nodes, 'ACQUIRE', options.lock, 'TTL', options.ttl, 'OWNER', secrets.token_hex(16),
                               'WAIT', int(PATIENCE_S * 500))
    if token is None:
        tell('not granted')
        return 1
    tell('granted', token=token, node=node)

    with Resp(options.store, timeout=PATIENCE_S) as store:
        tell('asks to read', token=token)
        old = store.call('GET', options.key, 'FENCE', options.lock, token) or b''
        tell('has read', token=token, value=old.decode())
        for _ in range(STEPS): # thinking; this is where client 1 is stopped
            time.sleep(options.work / STEPS)
        new = (old.decode() + ' + ' if old else '') + options.name
        tell('writes', token=token, value=new)
        try:
            store.call('SET', options.key, new, 'FENCE', options.lock, token)
        except RespError as e:
            tell('refused', token=token, value=new, error=e.line)
            return 0
        tell('has written', token=token, value=new)
    released, _ = ask_any_node(nodes, 'RELEASE', options.lock, token)
    tell('released', token=token, released=released)
    return 0


if __name__ == '__main__':
    sys.exit(main())
