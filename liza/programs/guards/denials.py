"""The denials of a run, counted by rule."""

from __future__ import annotations

from pathlib import Path

import msgspec

from liza.rules.errors import NotRegularFile
from liza.rules.guards.guard_paths import DENIALS_FILE
from liza.rules.value_classes import Value, decodable
from liza.system import untrusted_files

_MAX_SIZE = 2 << 20  # bytes that are read; more are not written


class DenialLine(Value):
    """A line of ``denials.jsonl``."""

    rule: str
    reason: str = ""


class DenialCount(Value):
    """How often a rule denied tools of a run, and what was said at the last time."""

    count: int
    last: str


def count_denials(run_directory: Path) -> dict[str, DenialCount]:
    """Return the denials of a run by rule. An agent can write the file, so lines that cannot be read are skipped."""
    try:
        data = untrusted_files.read_if_exists(run_directory / DENIALS_FILE, _MAX_SIZE) or b""
    except (OSError, NotRegularFile):
        return {}
    counts: dict[str, DenialCount] = {}
    for text in data.splitlines():
        try:
            line = msgspec.json.decode(text, type=decodable(DenialLine))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        before = counts.get(line.rule)
        counts[line.rule] = DenialCount(before.count + 1 if before else 1, line.reason)
    return counts
