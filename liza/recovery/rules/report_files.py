"""The files of a bug report: their limits, and their texts without secrets. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Final

from liza.model.value_classes import Value
from liza.text.redaction import MAX_KEY, redact

MAX_FILE_SIZE: Final = 256 << 10  # bytes of a file of the report; of a longer one the end is kept
MAX_REPORT_SIZE: Final = 6 << 20  # bytes of all files together, before compression
MAX_RUNS: Final = 12  # runs, the newest first, whose output is in the report
MAX_LOGS: Final = 12  # other logs, the newest first
READ_SIZE: Final = MAX_FILE_SIZE + MAX_KEY
"""Bytes that are read from the end of a file. A key that begins in the part that is kept is read as a whole."""
_KEY_BEGIN, _KEY_END = "-----BEGIN ", "-----END "
_ADDRESS = re.compile(
    r"\b(?!(?:https?|git|ssh|file)://)([a-z][a-z0-9+.-]{1,20}://)[^\s\"'<>…]+"
    r"|\b(https?://)[^\s\"'<>]*(?:hook|/services/|/bot[0-9]+:)[^\s\"'<>]*"
)
"""Addresses that are credentials: those of services of messages, and webhooks."""
PRIVATE_NOTE: Final = "[cut: config.notify]"
CUT_NOTE: Final = "[… the beginning was cut …]\n"


class ReportFile(Value):
    """One file of the report. ``is_cut``: its beginning was cut."""

    name: str
    data: bytes
    is_cut: bool = False


def prepare_file(
    name: str, data: bytes, home: str, private: Collection[str] = (), *, is_tail: bool = False
) -> ReportFile:
    """Return a file without secrets, bounded, with ``~`` for the person's home directory.

    ``private``: texts that are cut, such as the addresses of ``config.notify``. ``is_tail``: ``data`` is only the end
    of the file. Secrets are cut before the beginning is: half of a key would not be recognised. Of a tail, nothing
    before its first line end is kept.
    """
    text = data.decode(errors="replace")
    if is_tail:
        text = _without_half_key(text.partition("\n")[2])
    for secret in private:
        for written in (secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
            text = text.replace(written, PRIVATE_NOTE)
    clean = _ADDRESS.sub(lambda match: f"{match[1] or match[2]}…", redact(text))
    if len(home) > 1:
        clean = clean.replace(home, "~")
    encoded = clean.encode()
    if len(encoded) <= MAX_FILE_SIZE and not is_tail:
        return ReportFile(name, encoded)
    kept = encoded[-MAX_FILE_SIZE:].decode(errors="ignore")
    return ReportFile(name, (CUT_NOTE + kept).encode(), True)


def _without_half_key(tail: str) -> str:
    """Return the end of a file without the rest of a private key whose beginning is not in it."""
    begin, end = tail.find(_KEY_BEGIN), tail.find(_KEY_END)
    return tail if end < 0 or 0 <= begin < end else tail[end:].partition("\n")[2]


def bound_report(files: list[ReportFile]) -> tuple[list[ReportFile], list[str]]:
    """Return the files that fit, in order, and the names of those that do not."""
    kept: list[ReportFile] = []
    left: list[str] = []
    size = 0
    for file in files:
        if size + len(file.data) > MAX_REPORT_SIZE:
            left.append(file.name)
            continue
        size += len(file.data)
        kept.append(file)
    return kept, left
