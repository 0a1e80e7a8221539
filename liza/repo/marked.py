"""Sections in a file that belongs to a person: put in, found and taken out again by name, the rest untouched.

Used for ``.git/info/exclude`` and ``.git/info/attributes``, which all work trees of a repository share. A section is
named after the run that needs it, so that several runs at once need no counting and a killed one leaves a name.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from liza import faults
from liza.repo.flock import locked


def put(path: Path, name: str, lines: Sequence[str]) -> None:
    """Have exactly ``lines`` in the section ``name``; no lines, no section. Repeatable. Raises OSError."""
    with locked(path.parent):
        text = _read(path)
        kept = _section(name).sub("", text)
        if lines:
            joined = "\n".join(lines)
            kept += "" if kept.endswith("\n") or not kept else "\n"
            kept += f"# liza:begin {name}\n{joined}\n# liza:end {name}\n"
        if kept != text:
            _write(path, kept)


def take_out(path: Path, name: str) -> None:
    """Remove the section ``name``; nothing happens where there is none. Raises OSError."""
    put(path, name, ())


def sections(path: Path) -> dict[str, tuple[str, ...]]:
    """The sections of a file, name to lines. Raises OSError."""
    found = re.finditer(r"^# liza:begin (.+)\n((?:.*\n)*?)# liza:end \1$", _read(path), re.MULTILINE)
    return {match.group(1): tuple(match.group(2).splitlines()) for match in found}


def _section(name: str) -> re.Pattern[str]:
    mark = re.escape(name)
    return re.compile(rf"^# liza:begin {mark}\n(?:.*\n)*?# liza:end {mark}(?:\n|\Z)", re.MULTILINE)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except FileNotFoundError:
        return ""


def _write(path: Path, text: str) -> None:
    """Write aside and rename; a link to a person's own file is followed, not replaced."""
    place = path.resolve()
    handle, aside = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))
    mode = place.stat().st_mode & 0o777 if place.exists() else 0o644
    Path(aside).chmod(mode)
    faults.point("written", place.name)
    Path(aside).replace(place)
    faults.point("renamed", place.name)
