"""Bytes of git that are not UTF-8, shown in a text. Pure.

Names and contents are decoded with ``surrogateescape``: such a byte is a lone surrogate, so that a name goes back to
git as it came. UTF-8 cannot encode a surrogate. It is escaped where a text leaves the process: at the board, in JSON,
at the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

MAX_NAMES = 20
"""How many names of files a message lists."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_FIRST_BYTE, _BYTES = 0xDC00, range(0xDC80, 0xDD00)


def escape_undecoded(text: str) -> str:
    r"""Return ``text`` with each byte that is not UTF-8 as ``\xNN``, and any other lone surrogate as ``\uNNNN``."""
    return text if text.isascii() else _SURROGATE.sub(lambda match: _escape(match[0]), text)


def escape_name(name: str) -> str:
    """Return the name of a file on one line: as ``escape_undecoded``, and each control character escaped."""
    return name if name.isprintable() else "".join(map(_escape, name))


def list_names(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """Return names of files for a message, escaped: the first ``most``, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(escape_name, names[:most])) + more


def encode_json(value: Any) -> bytes:
    """Return a value as JSON, paths and other objects as texts. Bytes that are not UTF-8 are escaped."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escape_texts(msgspec.to_builtins(value, enc_hook=str)))


def _escape_texts(value: Any) -> Any:
    if isinstance(value, str):
        return escape_undecoded(value)
    if isinstance(value, dict):
        return {_escape_texts(key): _escape_texts(entry) for key, entry in value.items()}
    return [_escape_texts(entry) for entry in value] if isinstance(value, list | tuple) else value


def _escape(letter: str) -> str:
    if letter.isprintable():
        return letter
    number = ord(letter)
    return f"\\x{number - _FIRST_BYTE:02x}" if number in _BYTES else letter.encode("unicode_escape").decode()
