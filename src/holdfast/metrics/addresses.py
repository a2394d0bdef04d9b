"""Where the metrics are served: what a user may ask for, and what he is told if that cannot be.

Runs in: main process.
"""

from __future__ import annotations

import errno
import operator
import socket
from typing import Any

_START = "holdfast.metrics.start"
_ANY = "port=0 takes any that is free"
_HOSTS = '"127.0.0.1" is this machine only, "0.0.0.0" all of its networks'


def check(port: object, addr: object) -> None:
    """Raise what is wrong with the arguments of `start`."""
    if isinstance(port, bool) or not hasattr(port, "__index__"):
        raise TypeError(f"{_START}: port must be an int, not {type(port).__name__}")
    if not 0 <= operator.index(port) <= 65535:
        raise ValueError(f"{_START}: port must be between 0 and 65535, not {port}; {_ANY}")
    if not isinstance(addr, str):
        raise TypeError(f"{_START}: addr must be a str, not {type(addr).__name__}; {_HOSTS}")
    if not addr:
        raise ValueError(f"{_START}: addr must not be empty; {_HOSTS}")


def resolve(port: int, addr: str) -> tuple[int, tuple[Any, ...]]:
    """The family of the address, and what to bind to."""
    try:
        found = socket.getaddrinfo(addr, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{_START}: addr={addr!r} is no address that is known here ({error}); {_HOSTS}") from error
    family, _, _, _, where = found[0]
    return family, where


def refusal(error: OSError, port: int, addr: str, *, is_ours: bool) -> OSError:
    """What is said when the port cannot be had. `is_ours`: this process has it already, for its metrics."""
    if error.errno == errno.EADDRINUSE and is_ours:
        why = f"this process serves its metrics on port {port} already, those of every loader: one server is enough"
    elif error.errno == errno.EADDRINUSE:
        why = f"port {port} of {addr} is taken by another program: choose another port; {_ANY}"
    elif error.errno == errno.EACCES:
        why = f"port {port} is for root only, as all below 1024 are: choose another, such as 9400; {_ANY}"
    elif error.errno == errno.EADDRNOTAVAIL:
        why = f"addr={addr!r} is not an address of this machine; {_HOSTS}"
    else:
        why = f"cannot listen on port {port} of {addr} ({error.strerror})"
    return OSError(error.errno, f"{_START}: {why}")


def in_url(addr: str) -> str:
    """As it stands in a URL: where all networks were asked for, this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(addr, addr)
    return f"[{host}]" if ":" in host else host
