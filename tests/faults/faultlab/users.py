"""Users of the nodes and of the storage, for runs with --users: a client without a login may do what the lab itself does, but take and write
nothing."""

NAME, PASSWORD = 'clients', 'the-clients-password'
FILE = '''user default on nopass ~* +@see +@token +@break +@admin
user %s on >%s ~* +@see +@acquire +@token
''' % (NAME, PASSWORD)
STORE_FILE = '''user default on nopass ~* +@read +@admin
user %s on >%s ~* +@read +@write +@claim
''' % (NAME, PASSWORD)
FORBIDDEN = ('NOPERM', 'NOAUTH')
NO_ANSWER = ('NOLEADER', 'BUSY', 'UNCERTAIN')


def stranger_asks(nodes, store):
    """(address, command) that nobody may be answered yes who has not logged in. The largest token would shut everybody else out."""
    largest = 2 ** 53 - 1
    asked = [(node.address, ('ACQUIRE', 'lock-0', 'TTL', 60000, 'OWNER', 'one-who-has-not-logged-in')) for node in nodes]
    if store:
        asked += [(store.address, ('CLAIM', 'lock-0', largest)),
                  (store.address, ('SET', 'counter-of-lock-0', 'spoilt', 'FENCE', 'lock-0', largest)),
                  (store.address, ('DEL', 'counter-of-lock-0', 'FENCE', 'lock-0', largest))]
    return asked
