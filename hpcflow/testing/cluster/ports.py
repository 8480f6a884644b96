"""Find free TCP ports.

They are below the kernel's ephemeral range, where a client could take a port before the daemon
starts.
"""

from __future__ import annotations

import random
import socket

from hpcflow.errors import HpcflowError

_FIRST, _LAST = 12_000, 32_000


def is_free(port: int) -> bool:
    """Return whether a daemon could listen on this port now, on all addresses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Return whether something accepts connections on this port of the loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def free_block(count: int) -> int:
    """Return the first of ``count`` consecutive free ports, at random for concurrent starts."""
    for _ in range(200):
        first = random.randint(_FIRST, _LAST - count)
        if all(is_free(port) for port in range(first, first + count)):
            return first
    raise HpcflowError(
        f"no {count} consecutive free TCP ports between {_FIRST} and {_LAST}",
        next_action="see what listens: ss -ltn",
    )
