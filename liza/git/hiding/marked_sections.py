"""Named sections in a person's file: written, listed and removed by name. Other lines stay.

Used for ``.git/info/exclude`` and ``.git/info/attributes``, which all worktrees share. A section is named after the run
that needs it: concurrent runs need no counter, and a killed run leaves its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from liza.system import atomic, untrusted_files
from liza.system.locks import lock_path

BEGIN, END = "# liza:begin ", "# liza:end "
MAX_FILE_SIZE = 1 << 24  # bytes


def write_section(path: Path, name: str, lines: Sequence[str]) -> None:
    """Replace the lines of the section ``name``. Without lines it is removed. Idempotent. Raises OSError."""
    with lock_path(path.parent):
        text = _read_text(path)
        kept = _remove_from_text(text, name)
        if lines:
            joined = "\n".join(lines)
            kept += "" if kept.endswith("\n") or not kept else "\n"
            kept += f"# liza:begin {name}\n{joined}\n# liza:end {name}\n"
        if not kept and text and not path.is_symlink():
            path.unlink()  # The section was all of it: without Liza there is no file.
        elif kept != text:
            _write_atomic(path, kept)


def remove_section(path: Path, name: str) -> None:
    """Remove the section ``name`` if it exists. Raises OSError."""
    write_section(path, name, ())


def read_sections(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the sections of a file: name to lines. Raises OSError."""
    sections: dict[str, tuple[str, ...]] = {}
    name: str | None = None
    section_lines: list[str] = []
    for line in _read_text(path).split("\n"):
        if line.startswith(BEGIN):
            name, section_lines = line.removeprefix(BEGIN), []
        elif name is not None and line == f"{END}{name}":
            sections[name], name = tuple(section_lines), None
        else:
            section_lines.append(line)
    return sections


def _remove_from_text(text: str, name: str) -> str:
    """Return ``text`` without the section ``name``. A mark without its partner is text."""
    kept: list[str] = []
    begin_index: int | None = None
    for line in text.splitlines(keepends=True):
        mark = line.removesuffix("\n")
        kept.append(line)
        if mark == f"{BEGIN}{name}":
            begin_index = len(kept) - 1
        elif begin_index is not None and mark == f"{END}{name}":
            del kept[begin_index:]
            begin_index = None
    return "".join(kept)


def _read_text(path: Path) -> str:
    """Return the text of a file, or an empty string without one.

    A link is followed: some people keep these files elsewhere. Raises NotRegularFile, OSError.
    """
    data = untrusted_files.read_if_exists(path, MAX_FILE_SIZE, follow_links=True)
    return (data or b"").decode("utf-8", "surrogateescape")


def _write_atomic(path: Path, text: str) -> None:
    """Write a file atomically. A symbolic link to a person's own file is followed, not replaced."""
    target = path.resolve()
    mode = target.stat().st_mode & 0o777 if target.exists() else 0o644
    atomic.write(target, text.encode("utf-8", "surrogateescape"), mode, sync=False)
