"""Users of the nodes, for runs with --users: whoever has not logged in may do what the lab itself does, and take nothing."""

NAME, PASSWORD = 'clients', 'the-clients-password'
FILE = '''user default on nopass ~* +@see +@token +@break +@admin
user %s on >%s ~* +@see +@acquire +@token
''' % (NAME, PASSWORD)
