"""Our part in a settings file of the worktree: laid in between two marks, and taken out without a trace.

The marks are a brief's, behind what begins a comment, so that the filter which keeps a brief out of commits keeps this
out of them, too. What was there before stays as it is, byte for byte, and what it says goes on holding.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import msgspec

from liza.programs.brief.quoting import BLOCK_BEGIN, BLOCK_END, strip_block, strip_blocks
from liza.programs.hooks.hook_templates import HookFile, list_worktree_files
from liza.programs.session.run_directory import RunDir, read_struct
from liza.rules.model import FrozenStruct
from liza.system import atomic, crash_points

MAX_FILE_SIZE = 1 << 20
_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class SectionNote(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``hooks.json``: the file in the worktree that our part is about to be laid into; ``created`` if it was not there
    before, ``parent`` if the directory that it is in was not either."""

    file: str
    created: bool = False
    parent: bool = False


class _UnsuitableSettings(Exception):
    """The file cannot take our part."""


def add_section(worktree: Path, file: HookFile, text: str, run_dir: RunDir) -> str | None:
    """Have ``text``, an object, hold in the file together with what it says already; older parts of ours go.

    None, or why it cannot be. Raises OSError, LizaError.
    """
    try:
        target = _resolve_target(worktree, file.worktree)
        old = target.read_bytes() if target.exists() else None
        left = strip_blocks(old or b"")
        created = old is None or (not left and old != left)
        if not created and not file.comment:
            raise _UnsuitableSettings(f"{file.worktree} is the project's own, and is left as it is")
        new = _render_whole(file, text, run_dir.run) if created else _insert_section(file, left, text, run_dir.run)
    except _UnsuitableSettings as error:
        return str(error)
    laid = SectionNote(file=file.worktree, created=created, parent=not target.parent.is_dir())
    if not file.comment:
        _hooks_directory(run_dir).mkdir(mode=0o700, exist_ok=True)
        atomic.write(_hooks_directory(run_dir) / "whole", new)
    atomic.write(run_dir.path / "hooks.json", msgspec.json.encode(laid) + b"\n")
    crash_points.point("hooks", "noted")
    target.parent.mkdir(exist_ok=True)
    _replace_file(target, new, run_dir)
    return None


def read_section_note(run_dir: RunDir) -> SectionNote | None:
    """What this run laid down, or was about to. Raises LizaError."""
    found = read_struct(run_dir.path / "hooks.json", SectionNote)
    # An agent can write it, and what it names is changed, or deleted.
    return found if found is not None and found.file in list_worktree_files() else None


def remove_section(worktree: Path, run_dir: RunDir) -> str | None:
    """Take this run's part out of the file; one that held nothing else goes with it. The name of a file that was
    changed. Repeatable. Raises OSError, LizaError."""
    laid = read_section_note(run_dir)
    if laid is None:
        return None
    try:
        target = _resolve_target(worktree, laid.file)
        old = target.read_bytes()
    except FileNotFoundError:
        _remove_directory(worktree, laid)
        return None
    except (_UnsuitableSettings, NotADirectoryError):
        return None
    left = strip_block(old, run_dir.run) if _is_marked(old) else _remove_whole(old, run_dir)
    if left == old:
        return None
    if left or not laid.created:
        _replace_file(target, left, run_dir)
        return laid.file
    target.unlink()
    _remove_directory(worktree, laid)
    return laid.file


def _remove_directory(worktree: Path, laid: SectionNote) -> None:
    """The directory that was made for the file goes, unless something else is in it."""
    place = (worktree / laid.file).parent
    if laid.parent and place.is_dir() and not any(place.iterdir()):
        place.rmdir()


def blank_comments(text: str) -> str:
    """``text`` with blanks for its comments, so that every other character keeps its place."""
    return _COMMENT.sub(lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]), text)


def _is_marked(data: bytes) -> bool:
    return b"<!-- liza:begin run=" in data


def _remove_whole(old: bytes, run_dir: RunDir) -> bytes:
    """A file without comments is ours as a whole, as long as nobody changed it."""
    kept = _hooks_directory(run_dir) / "whole"
    return b"" if kept.is_file() and kept.read_bytes() == old else old


def _render_whole(file: HookFile, text: str, run: str) -> bytes:
    if not file.comment:
        return text.encode()
    begin, end = file.comment + BLOCK_BEGIN.format(run=run), file.comment + BLOCK_END.format(run=run)
    return f"{begin}\n{text.rstrip()}\n{end}\n".encode()


def _insert_section(file: HookFile, old: bytes, text: str, run: str) -> bytes:
    """The file with our keys behind its own ones, just before it ends: of two keys that are the same the last one
    holds, so what stood under the first is said again under ours."""
    try:
        said = old.decode()
        bare = blank_comments(said)
        theirs: Any = json.loads(bare)
    except (ValueError, RecursionError) as error:
        raise _UnsuitableSettings(f"{file.worktree} cannot be read ({error})") from error
    at = bare.rstrip().rfind("}")
    line = bare.rfind("\n", 0, at) + 1
    if not isinstance(theirs, dict) or bare[line:at].strip() or said[line:at].strip():
        raise _UnsuitableSettings(f"{file.worktree} does not end with a line of its own that can be written above")
    ours = {key: _merge_values(theirs.get(key), value, file) for key, value in json.loads(text).items()}
    comma = ", " if theirs else ""
    try:
        keys = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in ours.items())
    except RecursionError as error:
        raise _UnsuitableSettings(f"{file.worktree} is nested too deeply") from error
    # What they say may hold our marks, and would end our part before its end.
    keys = keys.replace("<!--", "\\u003c!--")
    begin, end = file.comment + BLOCK_BEGIN.format(run=run), file.comment + BLOCK_END.format(run=run)
    return f"{said[:line]}{begin}\n{comma}{keys}\n{end}\n{said[line:]}".encode()


def _merge_values(theirs: Any, ours: Any, file: HookFile) -> Any:
    if theirs is None:
        return ours
    if isinstance(theirs, list) and isinstance(ours, list):
        return [*theirs, *ours]
    if isinstance(theirs, dict) and isinstance(ours, dict):
        return {**theirs, **{key: _merge_values(theirs.get(key), value, file) for key, value in ours.items()}}
    raise _UnsuitableSettings(f"{file.worktree} holds hooks of another form")


def _resolve_target(worktree: Path, name: str) -> Path:
    """The file. Raises _Unsuitable unless it is, or may become, a plain file of the worktree, reached by no link."""
    target = worktree / name
    for path in (target.parent, target):
        if path.is_symlink():
            raise _UnsuitableSettings(f"{path.relative_to(worktree)} is a link")
    if os.path.lexists(target.parent) and not target.parent.is_dir():
        raise _UnsuitableSettings(f"{target.parent.relative_to(worktree)} is no directory")
    if os.path.lexists(target):
        found = target.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_FILE_SIZE:
            raise _UnsuitableSettings(f"{name} is no file of a sensible size")
    return target


def _replace_file(target: Path, data: bytes, run_dir: RunDir) -> None:
    """Written in the run's directory, where git does not look, then renamed; the file's mode stays."""
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o644
    _hooks_directory(run_dir).mkdir(mode=0o700, exist_ok=True)
    ready = _hooks_directory(run_dir) / "ready"
    atomic.write(ready, data, mode)
    try:
        ready.replace(target)
    except OSError as error:
        ready.unlink()
        if error.errno != errno.EXDEV:
            raise
        # The worktree lies on another disk: git may see the file that is written aside for the blink of an eye.
        atomic.write(target, data, mode)
    crash_points.point("hooks", "laid")


def _hooks_directory(run_dir: RunDir) -> Path:
    return run_dir.path / "hooks"
