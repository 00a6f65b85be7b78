"""Users of the nodes and of the storage, for runs with --users. A client without a login may do what the run itself does, but may take
no lock and write nothing."""

USER, PASSWORD = 'clients', 'the-clients-password'
NODE_ACL = '''user default on nopass ~* +@see +@token +@break +@admin
user %s on >%s ~* +@see +@acquire +@token
''' % (USER, PASSWORD)
STORE_ACL = '''user default on nopass ~* +@read +@admin
user %s on >%s ~* +@read +@write +@claim
''' % (USER, PASSWORD)
FORBIDDEN = ('NOPERM', 'NOAUTH')
NO_ANSWER = ('NOLEADER', 'BUSY', 'UNCERTAIN')


def requests_without_login(nodes, store):
    """(address, command) pairs that must be refused to a client without a login. The largest token would shut everybody else out."""
    largest = 2 ** 53 - 1
    asked = [(node.address, ('ACQUIRE', 'lock-0', 'TTL', 60000, 'OWNER', 'one-who-has-not-logged-in')) for node in nodes]
    if store:
        asked += [(store.address, ('CLAIM', 'lock-0', largest)),
                  (store.address, ('SET', 'counter-of-lock-0', 'spoilt', 'FENCE', 'lock-0', largest)),
                  (store.address, ('DEL', 'counter-of-lock-0', 'FENCE', 'lock-0', largest))]
    return asked
