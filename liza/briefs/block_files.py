"""Place a block in an instructions file of a worktree, and hide it from git."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from liza.briefs import instructions_file
from liza.briefs.instructions_file import BlockPlacement
from liza.git.hiding import brief_filter
from liza.git.runner import Git
from liza.model.value_classes import Value, replace
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir


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
    brief_filter.bind_filter(site.repository, (*names, *others), run, key)
    only_names = replace(preset, instructions=tuple(names), creates=preset.creates if preset.creates in names else "")
    # Git would take the new file for the tracked one, and its removal for a deletion.
    new = only_names.new_instructions_file
    if (
        new
        and not any(os.path.lexists(site.worktree / name) for name in names)
        and brief_filter.is_left_out(site.git, new)
    ):
        return BlockPlacement(None, f"the sparse checkout leaves {new} out")
    placement = instructions_file.write_block(site.worktree, only_names, site.directory, block)
    if placement.file is None or placement.file in names:
        return placement
    if not brief_filter.find_bindable(site.git, (placement.file,)):
        instructions_file.remove_block(site.worktree, site.directory)
        return BlockPlacement(None, f"another git filter is set for {placement.file}")
    # One of the names is a symlink: git sees the block under the name of its target.
    brief_filter.bind_filter(site.repository, (*names, placement.file, *others), run, key)
    return placement


def hide_from_git(site: BlockSite, files: Iterable[str], created: Collection[str] = ()) -> None:
    """Hide files from git: a tracked one by the filter, an untracked one by an exclude while it has only our content.

    ``created``: files that Liza created. Raises GitFailed, OSError.
    """
    hidden = []
    for file in files:
        if brief_filter.is_tracked(site.git, file):
            brief_filter.refresh_index_entry(site.git, file)
        elif file in created or not brief_filter.read_without_blocks(site.git, file):
            hidden.append(file)
    if hidden:
        brief_filter.hide_files(site.repository, hidden, site.directory.run)


def remove_placed(site: BlockSite) -> None:
    """Remove the block of the site's run, and what hides it from git. Idempotent. Raises LizaError, OSError."""
    file = instructions_file.find_block_file(site.worktree, site.directory)
    instructions_file.remove_block(site.worktree, site.directory)
    if file is not None and (site.worktree / file).exists():
        brief_filter.refresh_index_entry(site.git, file)
    brief_filter.unbind_filter(site.repository, site.directory.run)
    brief_filter.unhide_files(site.repository, site.directory.run)
