"""The block in a program's instructions file: written at a session's start, removed without a trace at its end.

The file is the block (after a byte order mark), followed by the bytes that were there before. Removing the block
restores exactly those bytes, with any encoding, line ends or missing last newline.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from liza.model.value_classes import Value
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import BriefLocation, RunDir
from liza.system import atomic
from liza.text.brief_marks import strip_blocks
from liza.text.quoting import render_block

NEW_FILE_MODE = 0o644
MAX_FILE_SIZE = 1 << 23  # bytes


class BlockPlacement(Value):
    """``file``: the file with the block, relative to the worktree. None: ``reason`` says why there is none, and the
    prompt has to contain the block."""

    file: str | None
    reason: str | None = None


class _UnsuitableInstructions(Exception):
    """The instructions file cannot hold the block."""


def write_block(worktree: Path, preset: Preset, run_dir: RunDir, block: str) -> BlockPlacement:
    """Write the block into the first of the preset's files that exists, else into a new one; it replaces older blocks.

    Nothing outside the worktree is ever written. Raises OSError if writing fails.
    """
    worktree = worktree.resolve()
    name = next(
        (name for name in preset.instructions if os.path.lexists(worktree / name)), preset.new_instructions_file
    )
    if not name:
        return BlockPlacement(None, f"{preset.name} reads no instructions file")
    try:
        target = _resolve_target(worktree, name)
    except _UnsuitableInstructions as error:
        return BlockPlacement(None, str(error))
    relative = str(target.relative_to(worktree))
    if target.exists() and target.stat().st_nlink > 1:
        # The file is replaced by a rename, which would part it from its other names.
        return BlockPlacement(None, f"{name} has other names (hard links)")
    old = target.read_bytes() if target.exists() else None
    own = strip_blocks(old or b"", run_dir.find_block_keys(old or b""))
    created = old is None or (not own and own != old and _was_created(run_dir, relative))
    run_dir.write_brief_location(BriefLocation(file=relative, created=created))
    _replace_file(target, render_block(block, run_dir.run, run_dir.block_key(), own), run_dir)
    return BlockPlacement(relative)


def remove_block(worktree: Path, run_dir: RunDir) -> str | None:
    """Remove this run's block, and nothing else; also the file, if this run created it and it has no other content.
    Idempotent.

    Return the file's name, relative to the worktree; None if there is no block of this run.
    """
    location = run_dir.read_brief_location()
    if location is None:
        return None
    worktree = worktree.resolve()
    try:
        target = _resolve_target(worktree, location.file)
        old = target.read_bytes()
    except (_UnsuitableInstructions, FileNotFoundError):
        return None
    remaining = strip_blocks(old, (run_dir.block_key(),))
    if remaining == old:
        return None
    if remaining or not location.created:
        _replace_file(target, remaining, run_dir)
    else:
        target.unlink()
    return location.file


def find_block_file(worktree: Path, run_dir: RunDir) -> str | None:
    """Return the file of the worktree that this run's block was written into, with or without the block now.

    None if there was none, or if it is not a regular file now.
    """
    location = run_dir.read_brief_location()
    try:
        is_file = location is not None and _resolve_target(worktree.resolve(), location.file).is_file()
    except _UnsuitableInstructions:
        return None
    return location.file if location is not None and is_file else None


def _resolve_target(worktree: Path, name: str) -> Path:
    """Return the path that ``name`` leads to. Raises _UnsuitableInstructions unless it is, or can be, a regular file
    of the worktree."""
    path = worktree / name
    try:
        target = path.resolve(strict=os.path.lexists(path))
    except (OSError, RuntimeError) as error:
        raise _UnsuitableInstructions(f"{name} is a link that cannot be resolved ({error})") from error
    if not target.is_relative_to(worktree):
        raise _UnsuitableInstructions(f"{name} is a link that leads out of the worktree, to {target}")
    if ".git" in target.relative_to(worktree).parts:
        raise _UnsuitableInstructions(f"{name} is a link into git's own files")
    if target.relative_to(worktree).parts[0] == ".liza":
        raise _UnsuitableInstructions(f"{name} is a link into Liza's own files")
    if not target.parent.is_dir():
        raise _UnsuitableInstructions(
            f"{target.parent.relative_to(worktree)}, the directory of {name}, is not a directory"
        )
    inner = target.relative_to(worktree).parents
    if any(os.path.lexists(worktree / parent / ".git") for parent in inner if parent.name):
        raise _UnsuitableInstructions(f"{name} is a link into a submodule")
    if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):
        raise _UnsuitableInstructions(f"{name} is not a regular file")
    if os.path.lexists(target) and target.lstat().st_size > MAX_FILE_SIZE:
        raise _UnsuitableInstructions(f"{name} is too large: {target.lstat().st_size} bytes, limit {MAX_FILE_SIZE}")
    return target


def _was_created(run_dir: RunDir, relative: str) -> bool:
    """Return whether the file was created by the run whose block is now replaced: this run or an earlier one."""
    for writer in (run_dir, *run_dir.other_runs()):
        location = writer.read_brief_location()
        if location is not None and location.file == relative and location.created:
            return True
    return False


def _replace_file(target: Path, data: bytes, run_dir: RunDir) -> None:
    """Replace the file by a rename; keep its mode. The temporary file is in the run's directory, where git does not
    look."""
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else NEW_FILE_MODE
    atomic.write_from(run_dir.path, target, data, mode, sync=False, label="brief")
