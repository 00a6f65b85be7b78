"""An address of this machine that is not its loopback."""

import socket


def own_address():
    """An address of this machine that is not loopback; None when it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(('192.0.2.1', 9))
            host = s.getsockname()[0]
        except OSError:
            return None
    return None if host.startswith('127.') else host
