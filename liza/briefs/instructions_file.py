"""The block in a program's instructions file: written at a session's start, removed without a trace at its end.

The file is the block (after a byte order mark), followed by the bytes that were there before. Removing the block
restores exactly those bytes, with any encoding, line ends or missing last newline. ``place_block`` also hides the file
from git; ``written_sample`` writes a sample block for the proof of the tests.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from liza.briefs.brief_context import BriefContext
from liza.briefs.brief_writer import compose_brief
from liza.git import hiding
from liza.git.runner import Git
from liza.model.model import Goal, State, Status, Task
from liza.model.paths import Paths
from liza.model.value_classes import Value, replace
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import BriefLocation, RunDir
from liza.system import atomic
from liza.system.clock import SystemClock
from liza.system.installation import liza_path
from liza.text.brief_marks import strip_blocks
from liza.text.quoting import render_block

NEW_FILE_MODE = 0o644
MAX_FILE_SIZE = 1 << 23  # bytes


class BlockPlacement(Value):
    """``file``: the file with the block, relative to the worktree. None: ``reason`` says why no file has it, and the
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


class BlockSite(Value):
    """Where a block is placed: the worktree with its git, the directory of the run, and the repository's git.

    All worktrees share the files of ``repository`` that bind the filter and hide names.
    """

    git: Git
    repository: Git
    worktree: Path
    directory: RunDir


def place_block(
    site: BlockSite, preset: Preset, block: str, names: Sequence[str], others: Sequence[str] = ()
) -> BlockPlacement:
    """Write the block into an instructions file that git's filter can hide, bound before it is written.

    ``names``: the instructions files without another filter; ``others``: more files to bind for the run. Without a
    suitable file nothing is written, and the placement says why. Raises LizaError, OSError.
    """
    run, key = site.directory.run, site.directory.block_key()
    hiding.bind_filter(site.repository, (*names, *others), run, key)
    only_names = replace(preset, instructions=tuple(names), creates=preset.creates if preset.creates in names else "")
    # Git would take the new file for the tracked one, and its removal for a deletion.
    new = only_names.new_instructions_file
    if new and not any(os.path.lexists(site.worktree / name) for name in names) and hiding.is_left_out(site.git, new):
        return BlockPlacement(None, f"the sparse checkout leaves {new} out")
    placement = write_block(site.worktree, only_names, site.directory, block)
    if placement.file is None or placement.file in names:
        return placement
    if not hiding.find_bindable(site.git, (placement.file,)):
        remove_block(site.worktree, site.directory)
        return BlockPlacement(None, f"another git filter is set for {placement.file}")
    # One of the names is a symlink: git sees the block under the name of its target.
    hiding.bind_filter(site.repository, (*names, placement.file, *others), run, key)
    return placement


def hide_from_git(site: BlockSite, files: Iterable[str], created: Collection[str] = ()) -> None:
    """Hide files from git: a tracked one by the filter, an untracked one by an exclude while it has only our content.

    ``created``: files that Liza created. Raises GitFailed, OSError.
    """
    hidden = []
    for file in files:
        if hiding.is_tracked(site.git, file):
            hiding.refresh_index_entry(site.git, file)
        elif file in created or not hiding.read_without_blocks(site.git, file):
            hidden.append(file)
    if hidden:
        hiding.hide_files(site.repository, hidden, site.directory.run)


def remove_placed(site: BlockSite) -> None:
    """Remove the block of the site's run, and what hides it from git. Idempotent. Raises LizaError, OSError."""
    file = find_block_file(site.worktree, site.directory)
    remove_block(site.worktree, site.directory)
    if file is not None and (site.worktree / file).exists():
        hiding.refresh_index_entry(site.git, file)
    hiding.unbind_filter(site.repository, site.directory.run)
    hiding.unhide_files(site.repository, site.directory.run)


_SAMPLE_AGENT = "coder-0"  # no crew has it: agents are numbered from 1


@contextmanager
def written_sample(paths: Paths, repository: Git, git: Git, presets: Sequence[Preset]) -> Iterator[dict[str, bytes]]:
    """Write a sample brief into the worktree of ``git``, hidden as in a session; remove it at the end. Yield the files,
    with their own contents.

    Each instructions file that exists gets it, and for the first preset, the crew's program, also a new one. Raises
    LizaError, OSError.
    """
    sites: list[BlockSite] = []
    contents: dict[str, bytes] = {}
    try:
        for number, name in enumerate(_choose_files(git.directory, presets), 1):
            directory = RunDir(paths, f"{_SAMPLE_AGENT}.{number}")
            directory.path.mkdir(0o700, parents=True, exist_ok=True)
            site = BlockSite(git, repository, git.directory, directory)
            sites.append(site)
            only = replace(presets[0], instructions=(name,), creates="")
            block = _compose_sample(directory.run, paths.root, git.directory)
            placement = place_block(site, only, block, hiding.find_bindable(git, (name,)))
            if placement.file is not None:
                hide_from_git(site, (placement.file,))
                contents[placement.file] = hiding.read_without_blocks(git, placement.file)
        yield contents
    finally:
        for site in sites:
            remove_placed(site)
        shutil.rmtree(paths.runs / _SAMPLE_AGENT, ignore_errors=True)


def _choose_files(worktree: Path, presets: Sequence[Preset]) -> tuple[str, ...]:
    names = [name for preset in presets for name in preset.instructions if os.path.lexists(worktree / name)]
    if presets and not {*names} & {*presets[0].instructions}:
        names += [presets[0].new_instructions_file]
    return tuple(dict.fromkeys(filter(None, names)))


def _compose_sample(run: str, root: Path, worktree: Path) -> str:
    task = Task(
        id="sample",
        status=Status.CLAIMED,
        description="A task has a text of some lines.\n" * 50,
        done_when="a command that fails without the change passes\n" * 5,
        scope="some files",
        spec_ref="specs/sample.md",
        run=run,
    )
    goal = Goal(id="goal", description="", spec_ref="", status="IN_PROGRESS")
    state = State(version=1, revision=1, goal=goal, tasks=(task,))
    return compose_brief(BriefContext(state, run, SystemClock().now(), root, liza_path(), worktree, None, task)).block
