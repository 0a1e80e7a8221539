"""A brief like that of a session, for the baseline: do the tests see the block in an instructions file?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from liza.briefs.block_files import BlockSite, hide_from_git, place_block, remove_placed
from liza.briefs.brief_context import BriefContext
from liza.briefs.brief_writer import compose_brief
from liza.git.hiding import brief_filter
from liza.git.runner import Git
from liza.model.model import Goal, State, Status, Task
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir
from liza.system.clock import SystemClock
from liza.system.liza_path import liza_path

_AGENT = "coder-0"  # no crew has it: agents are numbered from 1


@contextmanager
def written(paths: Paths, repository: Git, git: Git, presets: Sequence[Preset]) -> Iterator[dict[str, bytes]]:
    """Write a sample brief into the worktree of ``git``, hidden as in a session; remove it at the end. Yield the files,
    with their own contents.

    Each instructions file that exists gets it, and for the first preset, the crew's program, also a new one. Raises
    LizaError, OSError.
    """
    sites: list[BlockSite] = []
    contents: dict[str, bytes] = {}
    try:
        for number, name in enumerate(_choose_files(git.directory, presets), 1):
            directory = RunDir(paths, f"{_AGENT}.{number}")
            directory.path.mkdir(0o700, parents=True, exist_ok=True)
            site = BlockSite(git, repository, git.directory, directory)
            sites.append(site)
            only = replace(presets[0], instructions=(name,), creates="")
            block = _compose_block(directory.run, paths.root, git.directory)
            placement = place_block(site, only, block, brief_filter.find_bindable(git, (name,)))
            if placement.file is not None:
                hide_from_git(site, (placement.file,))
                contents[placement.file] = brief_filter.read_without_blocks(git, placement.file)
        yield contents
    finally:
        for site in sites:
            remove_placed(site)
        shutil.rmtree(paths.runs / _AGENT, ignore_errors=True)


def _choose_files(worktree: Path, presets: Sequence[Preset]) -> tuple[str, ...]:
    names = [name for preset in presets for name in preset.instructions if os.path.lexists(worktree / name)]
    if presets and not {*names} & {*presets[0].instructions}:
        names += [presets[0].new_instructions_file]
    return tuple(dict.fromkeys(filter(None, names)))


def _compose_block(run: str, root: Path, worktree: Path) -> str:
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
