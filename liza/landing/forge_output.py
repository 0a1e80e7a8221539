"""What ``gh`` and ``glab`` print: decode it, and clean the texts of strangers in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from liza.git.rules.remote_urls import Forge, hide_credentials
from liza.model.errors import Missing
from liza.model.type_errors import describe_decode_error
from liza.model.value_classes import decodable
from liza.text.quoting import sanitize

PAGE_SIZE = 100
MAX_PAGES = 20
"""Pages of one list. A longer list is an error, never a part of the list."""
_MAX_ADDRESS = 500
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
T = TypeVar("T")


def decode_output(forge: Forge, output: str, kind: type[T], what: str) -> T:
    """Return the JSON that the program printed. Raises Missing if it is not of this type."""
    try:
        return msgspec.json.decode(output, type=decodable(kind))
    except msgspec.DecodeError as error:
        reason = describe_decode_error(error, kind)
        raise Missing(f"{forge} printed no {what} that can be read: {reason}", f"{forge} --version") from error


def read_pages(what: str, read_page: Callable[[str], list[T]]) -> Iterator[T]:
    """Yield the entries of a list. ``read_page`` takes the parameters of a page. Raises Missing for a longer list."""
    for page in range(1, MAX_PAGES + 1):
        rows = read_page(f"per_page={PAGE_SIZE}&page={page}")
        yield from rows
        if len(rows) < PAGE_SIZE:
            return
    raise Missing(f"{what} has more than {MAX_PAGES * PAGE_SIZE} entries", "liza task add --help")


def clean_text(text: str) -> str:
    """Return a text without escape sequences, control characters and secrets."""
    return sanitize(_ESCAPES.sub("", text))


def clean_address(url: str | None) -> str:
    """Return a web address of one line without credentials; empty for anything else."""
    text = hide_credentials(clean_text(url or ""))
    is_address = text.startswith(("https://", "http://")) and len(text.split()) == 1
    return text if is_address and len(text) <= _MAX_ADDRESS else ""
