"""redis-py as a driver: see run for what each has to do and print."""

import json
import sys

import redis

ca, addresses = sys.argv[1], sys.argv[2].split(',')
name, password = sys.argv[3], sys.argv[4]


def connect(address, secret):
    host, port = address.split(':')
    return redis.Redis(host=host, port=int(port), ssl=True, ssl_ca_certs=ca, username=name, password=secret)


def connect_to_cluster(address):
    host, port = address.split(':')
    return redis.RedisCluster(host=host, port=int(port), ssl=True, ssl_ca_certs=ca, username=name, password=password)


def error_of(action):
    try:
        action()
    except redis.exceptions.NoPermissionError as e: # it takes the word away
        return 'NOPERM %s' % e
    except (redis.RedisError, redis.exceptions.RedisClusterException) as e:
        return str(e)
    return ''


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


for address in addresses:
    c = connect(address, password)
    owner = 'driver-of-python-0123'
    token = c.execute_command('ACQUIRE', 'a-python', 'TTL', 60000, 'OWNER', owner)
    print(json.dumps({
        'token': int(token),
        'again': int(c.execute_command('ACQUIRE', 'a-python', 'TTL', 60000, 'OWNER', owner)),
        'held': c.execute_command('ACQUIRE', 'a-python', 'TTL', 60000, 'OWNER', 'another-one-0123456') is None,
        'renewed': int(c.execute_command('RENEW', 'a-python', token)),
        'whoami': text(c.execute_command('ACL WHOAMI')),
        'forbidden': error_of(lambda: c.execute_command('ACQUIRE', 'b', 'TTL', 60000)),
        'released': int(c.execute_command('RELEASE', 'a-python', token)),
        'wrong': error_of(lambda: connect(address, 'wrong').execute_command('PING')),
        'cluster': error_of(lambda: connect_to_cluster(address)),
    }), flush=True)
