"""Digests of small data without hashlib, which loads OpenSSL: 3 ms of CPU time in every command.

Python has the same functions in modules of its own. For larger data OpenSSL is five times as fast. Hooks load
this module.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MAX_SMALL = 1 << 18
"""Maximum size of small data, in bytes. Its SHA-256 takes 1 ms."""
_MODULES = {"sha1": "_sha1", "sha256": "_sha2" if sys.version_info >= (3, 12) else "_sha256"}


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of ``data`` in hexadecimal."""
    return str(_hash_function("sha256", len(data))(data).hexdigest())


def sha1_hex(data: bytes) -> str:
    """Return the SHA-1 of ``data`` in hexadecimal, to compare values; it proves nothing."""
    return str(_hash_function("sha1", len(data))(data, usedforsecurity=False).hexdigest())


def _hash_function(name: str, size: int) -> Any:
    """Return the function for data of this size."""
    if size <= _MAX_SMALL:
        try:
            return getattr(__import__(_MODULES[name]), name)
        except ImportError:  # a Python that was built without it
            pass
    import hashlib

    return getattr(hashlib, name)
