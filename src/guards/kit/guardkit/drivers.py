"""The driver for each kind of URL. Each is imported only when used, since some need packages that the others do not."""

import importlib

from .driver import Usage

KINDS = {'postgres': 'postgresql', 'postgresql': 'postgresql', 'redis': 'redis', 'rediss': 'redis', 'mysql': 'mysql', 'mariadb': 'mysql',
         'sqlite': 'sqlite', 's3': 's3'}


def of(url):
    scheme = url.split(':')[0]
    if scheme not in KINDS or ':' not in url:
        raise Usage("'%s' names no storage that a guard can be put into: give a URL that begins with postgres://, mysql://, redis://, "
                    'sqlite: or s3://. docs/FENCING.md has the others' % url[:60])
    return importlib.import_module('.drive_' + KINDS[scheme], __package__).Driver(url)
