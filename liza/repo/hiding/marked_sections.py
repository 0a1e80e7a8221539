"""Sections in a file that belongs to a person: put in, found and taken out again by name, the rest untouched.

Used for ``.git/info/exclude`` and ``.git/info/attributes``, which all work trees of a repository share. A section is
named after the run that needs it, so that several runs at once need no counting and a killed one leaves a name.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from liza.rules.errors import GitFailed
from liza.system import crash_points
from liza.system.flock import lock_path

BEGIN, END = "# liza:begin ", "# liza:end "
MAX_FILE_SIZE = 1 << 24


def write_section(path: Path, name: str, lines: Sequence[str]) -> None:
    """Have exactly ``lines`` in the section ``name``; no lines, no section. Repeatable. Raises OSError."""
    with lock_path(path.parent):
        text = _read_text(path)
        kept = _remove_from_text(text, name)
        if lines:
            joined = "\n".join(lines)
            kept += "" if kept.endswith("\n") or not kept else "\n"
            kept += f"# liza:begin {name}\n{joined}\n# liza:end {name}\n"
        if kept != text:
            _write_atomic(path, kept)


def remove_section(path: Path, name: str) -> None:
    """Remove the section ``name``; nothing happens where there is none. Raises OSError."""
    write_section(path, name, ())


def read_sections(path: Path) -> dict[str, tuple[str, ...]]:
    """The sections of a file, name to lines. Raises OSError."""
    found: dict[str, tuple[str, ...]] = {}
    name: str | None = None
    inside: list[str] = []
    for line in _read_text(path).split("\n"):
        if line.startswith(BEGIN):
            name, inside = line.removeprefix(BEGIN), []
        elif name is not None and line == f"{END}{name}":
            found[name], name = tuple(inside), None
        else:
            inside.append(line)
    return found


def _remove_from_text(text: str, name: str) -> str:
    """``text`` without the section ``name``; a mark without its partner is text."""
    kept: list[str] = []
    begun: int | None = None
    for line in text.splitlines(keepends=True):
        mark = line.removesuffix("\n")
        kept.append(line)
        if mark == f"{BEGIN}{name}":
            begun = len(kept) - 1
        elif begun is not None and mark == f"{END}{name}":
            del kept[begun:]
            begun = None
    return "".join(kept)


def _read_text(path: Path) -> str:
    """Anybody who works in the repository can put anything there, a device or a thousand megabytes."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_SIZE:
            raise GitFailed(f"{path} is no file of a sensible size any more", f"ls -lL {path}")
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _write_atomic(path: Path, text: str) -> None:
    """Write aside and rename; a link to a person's own file is followed, not replaced."""
    place = path.resolve()
    handle, aside = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    with os.fdopen(handle, "wb") as stream:
        stream.write(text.encode("utf-8", "surrogateescape"))
    mode = place.stat().st_mode & 0o777 if place.exists() else 0o644
    Path(aside).chmod(mode)
    crash_points.point("written", place.name)
    Path(aside).replace(place)
    crash_points.point("renamed", place.name)
