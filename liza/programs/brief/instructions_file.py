"""The block in a program's instructions file: written at its start, and taken away without a trace.

The file is the block directly followed by the bytes that were there before. So taking the block away gives exactly
those bytes back, whatever their encoding, line ends or missing last newline.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from liza.programs.brief.quoting import strip_block, strip_blocks
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import BriefLocation, RunDir
from liza.system import crash_points

NEW_FILE_MODE = 0o644
MAX_FILE_SIZE = 1 << 23


@dataclass(frozen=True)
class BlockPlacement:
    """``file``: where the block stands, relative to the worktree. None: nowhere, ``reason`` says why, and the block has
    to go with the prompt."""

    file: str | None
    reason: str | None = None


class _UnsuitableInstructions(Exception):
    """The instructions file cannot hold the block."""


def write_block(worktree: Path, preset: Preset, run_dir: RunDir, block: str) -> BlockPlacement:
    """Put the block into the first of the preset's files that exists, else into a new one; it replaces older blocks.

    Nothing outside the worktree is ever written. Raises OSError when the disk says no.
    """
    worktree = worktree.resolve()
    named = next(
        (name for name in preset.instructions if os.path.lexists(worktree / name)), preset.new_instructions_file
    )
    if not named:
        return BlockPlacement(None, f"{preset.name} reads no instructions file")
    try:
        target = _resolve_target(worktree, named)
    except _UnsuitableInstructions as error:
        return BlockPlacement(None, str(error))
    relative = str(target.relative_to(worktree))
    old = target.read_bytes() if target.exists() else None
    created = old is None or (not strip_blocks(old) and strip_blocks(old) != old and _was_created(run_dir, relative))
    run_dir.write_brief_location(BriefLocation(file=relative, created=created))
    _replace_file(target, block.encode() + strip_blocks(old or b""), run_dir)
    return BlockPlacement(relative)


def remove_block(worktree: Path, run_dir: RunDir) -> str | None:
    """Take away what this run wrote, and nothing else; a file that held only that goes with it. Repeatable.

    The file's name, relative to the worktree; None when this run's block is nowhere any more.
    """
    noted = run_dir.read_brief_location()
    if noted is None:
        return None
    worktree = worktree.resolve()
    try:
        target = _resolve_target(worktree, noted.file)
        old = target.read_bytes()
    except (_UnsuitableInstructions, FileNotFoundError):
        return None
    left = strip_block(old, run_dir.run)
    if left == old:
        return None
    if left or not noted.created:
        _replace_file(target, left, run_dir)
    else:
        target.unlink()
    return noted.file


def find_block_file(worktree: Path, run_dir: RunDir) -> str | None:
    """The file of the worktree that this run's block was written into, whether it is still there or not; None where
    none was, or where that is no file now."""
    noted = run_dir.read_brief_location()
    try:
        there = noted is not None and _resolve_target(worktree.resolve(), noted.file).is_file()
    except _UnsuitableInstructions:
        return None
    return noted.file if noted is not None and there else None


def _resolve_target(worktree: Path, name: str) -> Path:
    """The file that ``name`` leads to. Raises _Unsuitable unless it is, or may become, a plain file of the worktree."""
    path = worktree / name
    try:
        target = path.resolve(strict=os.path.lexists(path))
    except (OSError, RuntimeError) as error:
        raise _UnsuitableInstructions(f"{name} is a link that leads nowhere ({error})") from error
    if not target.is_relative_to(worktree):
        raise _UnsuitableInstructions(f"{name} is a link that leads out of the worktree, to {target}")
    if ".git" in target.relative_to(worktree).parts:
        raise _UnsuitableInstructions(f"{name} is a link into git's own files")
    if not target.parent.is_dir():
        raise _UnsuitableInstructions(f"{target.parent.relative_to(worktree)}, where {name} would be, is no directory")
    if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):
        raise _UnsuitableInstructions(f"{name} is no plain file")
    if os.path.lexists(target) and target.lstat().st_size > MAX_FILE_SIZE:
        raise _UnsuitableInstructions(f"{name} is larger than any instructions: {target.lstat().st_size} bytes")
    return target


def _was_created(run_dir: RunDir, relative: str) -> bool:
    """Whether the run whose block is now replaced, an earlier one or this, had made the file."""
    for writer in (run_dir, *run_dir.other_runs()):
        noted = writer.read_brief_location()
        if noted is not None and noted.file == relative and noted.created:
            return True
    return False


def _replace_file(target: Path, data: bytes, run_dir: RunDir) -> None:
    """Write aside in the run's directory, where git does not look, then rename; the file's mode stays."""
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else NEW_FILE_MODE
    aside = run_dir.path / f"brief.{os.getpid()}.aside"
    _write(aside, data, mode)
    crash_points.point("written", "brief")
    try:
        aside.replace(target)
        crash_points.point("renamed", "brief")
    except OSError as error:
        aside.unlink()
        if error.errno != errno.EXDEV:
            raise
        # The worktree lies on another disk: git may see the aside file for the blink of an eye.
        beside = target.with_name(f".{target.name}.aside")
        _write(beside, data, mode)
        beside.replace(target)


def _write(path: Path, data: bytes, mode: int) -> None:
    path.write_bytes(data)
    path.chmod(mode)
