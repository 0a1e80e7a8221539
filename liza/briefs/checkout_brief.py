"""The context of a program that a person starts in their own checkout: written for its time, removed afterwards.

Each program has a directory ``.liza/by-hand/by-hand-1.PID`` with what was written where, and a lock that the program
inherits. A killed command leaves the directory; ``remove_abandoned`` removes the block as soon as nothing holds the
lock. Git never sees the block: decision 6. Agents can write ``.liza``: an entry that cannot be a program's directory is
ignored, and one that fails is left to the person without stopping a command.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from liza.briefs.brief_writer import BeaconTopic, format_beacon
from liza.briefs.instructions_file import BlockPlacement, BlockSite, hide_from_git, place_block, remove_placed
from liza.crew.caller import current_person
from liza.crew.crew import Crew
from liza.git import hiding
from liza.model.errors import LizaError
from liza.model.model import State, Status
from liza.model.paths import Paths
from liza.model.value_classes import Value
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir
from liza.system import atomic, crash_points, untrusted_files
from liza.system.installation import liza_path
from liza.system.locks import Lock
from liza.text.quoting import BLOCK_BEGIN, BLOCK_END, quote_line, quote_lines

_AGENT = "by-hand-1"
"""The block's name has the form of a run, or git's filter would keep it. It is the run of no agent."""
_RUN_NAME = re.compile(rf"{_AGENT}\.[1-9][0-9]{{0,9}}")
_LOCK_FILE = "lock"


class CheckoutRunDir(RunDir):
    """The directory of one program in a person's checkout. It has only the files of the brief."""

    def __init__(self, paths: Paths, run: str) -> None:
        self.paths = paths
        self.run = run
        self.agent = _AGENT
        self.path = _directory(paths) / run

    def other_runs(self) -> Iterator[RunDir]:
        """Yield the directories of the other programs in the checkout."""
        return (CheckoutRunDir(self.paths, name) for name in _list_names(self.paths) if name != self.run)


class CheckoutBrief(Value):
    """A placed context. The program inherits ``lock_descriptor``: the block stays while the program lives."""

    placement: BlockPlacement
    lock_descriptor: int


@contextmanager
def written(crew: Crew, preset: Preset, notify: Callable[[str], None]) -> Iterator[CheckoutBrief]:
    """Write the context into the checkout's instructions file; remove it at the end.

    ``notify`` gets a line for each earlier context that cannot be removed. Raises NotRegularFile, LizaError, OSError.
    """
    directory = CheckoutRunDir(crew.paths, f"{_AGENT}.{os.getpid()}")
    with _changing_checkout(crew.paths):
        if directory.path.parent.is_symlink():
            raise untrusted_files.not_regular_error(directory.path.parent)
        for path in (directory.path.parent, directory.path):
            atomic.make_directory(crew.paths.root, path)
        for name, reason in _remove_abandoned(crew, but=directory.run)[1].items():
            notify(f"! the context of {name}, which has ended, was not removed: {reason}")
        lock = Lock(directory.path / _LOCK_FILE)
        lock.acquire(timeout=0)
    try:
        try:
            with _changing_checkout(crew.paths):
                brief = CheckoutBrief(_place(crew, preset, directory), lock.descriptor)
            yield brief
        finally:
            with _changing_checkout(crew.paths):
                _remove(crew, directory)
    finally:
        lock.release()


def remove_abandoned(crew: Crew) -> tuple[str, ...]:
    """Remove the blocks of programs that have ended without that; return their names. Raises LizaError, OSError.

    One that cannot be removed is left, and stops none of the others: the next ``liza run`` says why.
    """
    if not _list_names(crew.paths):
        return ()
    with _changing_checkout(crew.paths):
        return _remove_abandoned(crew)[0]


def _remove_abandoned(crew: Crew, but: str = "") -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the names of the removed ones, and why others were not."""
    removed, failed = [], {}
    for name in _list_names(crew.paths):
        if name == but:
            continue
        directory = CheckoutRunDir(crew.paths, name)
        try:
            lock = Lock(directory.path / _LOCK_FILE)
            if not lock.try_acquire():
                continue
            try:
                _remove(crew, directory)
            finally:
                lock.release()
            removed.append(name)
        except (LizaError, OSError) as error:
            failed[name] = str(error)
    return tuple(removed), failed


def _changing_checkout(paths: Paths) -> AbstractContextManager[object]:
    """Let one command at a time write the checkout's file: two of them would fail on the lock of git's index."""
    return Lock(paths.locks / "by-hand.lock").acquire()


def remove_all(crew: Crew) -> None:
    """Remove the blocks of all programs, also of living ones, which have read them. Raises LizaError, OSError."""
    if not _list_names(crew.paths):
        return
    with _changing_checkout(crew.paths):
        for name in _list_names(crew.paths):
            _remove(crew, CheckoutRunDir(crew.paths, name))


def is_checkout_run(run: str) -> bool:
    """Return whether a bound block belongs to a person's program, not to an agent's session."""
    return run.startswith(f"{_AGENT}.")


def _place(crew: Crew, preset: Preset, directory: CheckoutRunDir) -> BlockPlacement:
    """Write the block and hide it. Without a file that can hold it, the placement says why."""
    git, root, state = crew.git, crew.paths.root, crew.board.read()
    if state.config.brief == "prompt":
        return BlockPlacement(None, "config.brief is prompt")
    context = GeneralContext(state, directory.run, current_person(), crew.clock.now(), root, liza_path())
    names = hiding.find_bindable(git, preset.instructions)
    site = BlockSite(git, git, root, directory)
    try:
        placement = place_block(site, preset, compose_general_block(context), names)
    except OSError as error:  # a checkout or a file that is read-only: the program can do without
        path = error.filename2 or error.filename or "a file of the checkout"
        return BlockPlacement(None, f"{path} cannot be written: {error.strerror}")
    crash_points.point("checkout-brief", "written")
    if placement.file is not None:
        hide_from_git(site, (placement.file,))
    return placement


def _remove(crew: Crew, directory: CheckoutRunDir) -> None:
    """Remove the block, what hides it from git, and the directory. Idempotent: the directory is removed last."""
    remove_placed(BlockSite(crew.git, crew.git, crew.paths.root, directory))
    with suppress(FileNotFoundError):  # a purge removes all of .liza
        shutil.rmtree(directory.path)


def _directory(paths: Paths) -> Path:
    return paths.liza / "by-hand"


def _list_names(paths: Paths) -> list[str]:
    """Return the names of the programs' directories. A planted link, or another name, is no program's."""
    directory = _directory(paths)
    if directory.is_symlink() or not directory.is_dir():
        return []
    return sorted(
        path.name
        for path in directory.iterdir()
        if path.is_dir() and not path.is_symlink() and _RUN_NAME.fullmatch(path.name)
    )


MAX_GOAL = 2000  # bytes


class GeneralContext(Value):
    """``run`` names the block. ``person`` is who started the program, ``liza`` the absolute path of the command."""

    state: State
    run: str
    person: str
    now: datetime
    root: Path
    liza: Path


def compose_general_block(context: GeneralContext) -> str:
    """Compose the block: what the crew is, the goal, and how the board is used as a person."""
    state, liza = context.state, shlex.quote(str(context.liza))
    config, spec = state.config, state.goal.spec_ref
    path = str(context.root / spec) if spec.startswith(".liza/") else spec
    lines = (
        BLOCK_BEGIN.format(run=context.run),
        format_beacon("program", context.person, context.now, f"{BeaconTopic.COLD_START}:by hand", context.run),
        f"{quote_line(context.person, 60)} started you by hand in the person's own checkout. You are no agent of the",
        "crew, you hold no task, and no supervisor watches you. The person is here: ask instead of guessing.",
        "Liza runs a crew of coding agents on this repository. Each works on one task of the board in a worktree of",
        f"its own. Reviewed and tested work is merged into the branch {config.integration_branch}.",
        f"GOAL  {quote_lines(state.goal.description, MAX_GOAL)}",
        *([f"SPEC  {quote_line(path, 300)}"] if spec else []),
        f"NOW   {_describe_tasks(state)}",
        "USE THE BOARD as a person does, by commands only, and never edit .liza/state.yaml yourself:",
        f"  {liza} status                         open questions, tasks, agents, and why something waits",
        f"  {liza} task list · {liza} task show ID · {liza} diff ID · {liza} path ID",
        f'  {liza} task add --id ID --desc "…" --done "…" --scope "…" --spec FILE      work for the crew',
        f'  {liza} answer ID "…"                  answer an agent\'s question, if the person says so',
        f'  {liza} note --to coder-1 "…"          tell an agent something',
        "LEAVE ALONE  the worktrees and branches of tasks: agents work there. Do not commit this block.",
        f"MORE  {Paths(context.root).contracts / 'CORE.md'} and {Paths(context.root).specs / 'architecture'}",
        BLOCK_END.format(run=context.run),
    )
    return "\n".join(lines) + "\n"


def _describe_tasks(state: State) -> str:
    """Return how many tasks have each status, and which ones wait for a person."""
    counts = Counter(task.status.value for task in state.tasks)
    blocked = [task.id for task in state.tasks if task.status is Status.BLOCKED]
    text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items())) or "no tasks"
    return quote_line(f"{text}; BLOCKED: {', '.join(blocked)}" if blocked else text, 400)
