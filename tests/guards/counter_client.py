#!/usr/bin/python3
"""One client of tests/guards/counter: takes the lock, claims, reads, adds one, writes. Started, stopped and killed by it."""

import json
import os
import random
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '..', 'lib'), os.path.join(HERE, '..', '..', 'src', 'guards', 'kit')]
from guardkit.postgresql import Psql, text
from guardkit.storage import Refused, Unknown
from harness import Resp, RespError

LOCK, KEY = 'counter', 'n'


def main(nodes, url, role, ident, history_path, ttl_ms):
    rnd, n, pg, node = random.Random(ident), 0, None, None
    with open(history_path, 'a', buffering=1) as history:
        while True:
            n += 1
            add = {'id': '%s-%d' % (ident, n), 'key': KEY}
            def tell(**more):
                history.write(json.dumps(dict(add, **more)) + '\n')
            try:
                node = node or Resp(rnd.choice(nodes), timeout=10)
                owner = '%032x' % rnd.getrandbits(128)
                token = node.call('ACQUIRE', LOCK, 'TTL', ttl_ms, 'WAIT', 5000, 'OWNER', owner)
            except (OSError, RespError):
                node = None
                time.sleep(0.1)
                continue
            if token is None:
                continue
            add['token'] = token
            try:
                pg = pg or Psql(url, role)
                pg.sql('CALL fence.claim(%s, %d)' % (text(LOCK), token), 60)
                count, _, last = pg.one('SELECT balance FROM account WHERE id = %s' % text(KEY)).partition(' ')
                time.sleep(rnd.random() * 0.3)
                add['based_on'] = last
                tell(outcome='info')
                write = 'UPDATE account SET balance = %s WHERE id = %s RETURNING id' % (text('%d %s' % (int(count) + 1, add['id'])), text(KEY))
                held = "SELECT set_config('fence.held', %s, true)" % text(json.dumps({LOCK: token}))
                level = rnd.choice(('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'))
                pg.transaction(held, write, level=level)
                tell(outcome='ok')
            except Refused as e:
                if 'based_on' in add:
                    tell(outcome='fail', word=e.word)
            except (Unknown, OSError, AttributeError):
                if pg:
                    pg.end()
                pg = None
                time.sleep(0.1)
            try:
                if node and rnd.random() < 0.9:
                    node.call('RELEASE', LOCK, token)
            except (OSError, RespError):
                node = None


if __name__ == '__main__':
    main(sys.argv[1].split(','), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5], int(sys.argv[6]))
