"""A text in ASCII, for ids that are made of titles. Pure."""

from __future__ import annotations

import unicodedata

_LETTERS = str.maketrans(
    {
        "ä": "ae",
        "ö": "oe",
        "ü": "ue",
        "ß": "ss",
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
    }
)
"""Letters that have no form without their mark, or another one in German."""


def to_ascii(text: str) -> str:
    """Return ``text`` in small letters of ASCII: ``Grüße, René`` becomes ``gruesse, rene``. Others are dropped."""
    letters = unicodedata.normalize("NFC", text).lower().translate(_LETTERS)
    return unicodedata.normalize("NFKD", letters).encode("ascii", "ignore").decode()
