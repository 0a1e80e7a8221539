"""What a session finds: its brief and its program's hooks in the worktree, hidden from git, and what its box has.

A box has a git directory of its own, copies of `.liza`, and the private state of its program.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.box import slot_directories
from liza.box.box import Box, Mount, MountKind
from liza.box.run_mounts import SESSION_SOCKET
from liza.briefs import brief_writer, instructions_file
from liza.briefs.brief_context import gather_brief_facts
from liza.briefs.instructions_file import BlockSite, hide_from_git, place_block
from liza.crew.crew import Crew
from liza.git import boxed_git, hiding, run_git
from liza.git.runner import Git
from liza.model.configuration import Config
from liza.model.derived import CurrentWork
from liza.model.model import State
from liza.model.narration import Detail
from liza.model.paths import BoxPaths
from liza.model.statuses import WorkKind
from liza.model.value_classes import Value
from liza.programs.hooks import hook_install as hooks
from liza.programs.hooks.hook_install import InstalledHooks, merge_objects
from liza.programs.presets.preset import Preset
from liza.programs.session import _session_socket, private_state
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.programs.session.session_process import SOCKET_VARIABLE
from liza.project.commands import BoxUse, build_box
from liza.system import ancestors, atomic, crash_points, untrusted_files
from liza.system.installation import liza_path


class LaunchInputs(Value):
    """Inputs of the command line: the prompt, and the hooks' arguments and variables."""

    prompt: str
    hooks: InstalledHooks


class WorktreeFiles:
    """Writes the files of one agent's sessions; ``notify`` prints notices."""

    def __init__(self, crew: Crew, preset: Preset, notify: Callable[[str], None]) -> None:
        self.crew = crew
        self.preset = preset
        self.notify = notify

    def install(self, state: State, work: CurrentWork, directory: RunDir, worktree: Path) -> LaunchInputs:
        """Write the hooks and the brief, and hide both from git. Raises LizaError, OSError."""
        git = self.crew.worktrees.slot_git(worktree.name)
        installed, bindable = self._install_hooks(git, directory, worktree)
        crash_points.point("launch", "hooked")
        prompt, file = self._write_brief(git, state, work, directory, worktree, installed.files, bindable)
        site = BlockSite(git, self.crew.git, worktree, directory)
        hide_from_git(site, (*installed.files, *file), hooks.list_created_files(directory))
        return LaunchInputs(prompt, installed)

    def rewrite_brief(self, state: State, work: CurrentWork, directory: RunDir, worktree: Path) -> None:
        """Write the brief of a living session again, with the messages since then. Raises LizaError, OSError."""
        # That of the session: its index has the size of the file without the block.
        git = self.crew.worktrees.open_git(worktree.name)
        hook_files = hooks.list_hook_files(directory)
        bindable = hiding.find_bindable(git, self.preset.instructions)
        _, file = self._write_brief(git, state, work, directory, worktree, hook_files, bindable)
        site = BlockSite(git, self.crew.git, worktree, directory)
        hide_from_git(site, (*hook_files, *file), hooks.list_created_files(directory))

    def _install_hooks(self, git: Git, directory: RunDir, worktree: Path) -> tuple[InstalledHooks, tuple[str, ...]]:
        """Install the hooks; remove them again if git's filter cannot hide one of their files.

        Return them, and the instructions files that the filter can hide.
        """
        installed = hooks.install_hooks(self.preset, worktree, directory, liza_path())
        bindable = hiding.find_bindable(git, (*installed.files, *self.preset.instructions))
        if {*installed.files} - {*bindable}:
            hooks.remove_hooks(worktree, directory)
            installed = InstalledHooks(reason=f"another git filter is set for {installed.files[0]}")
        if installed.reason is not None:
            self.notify(f"{directory.run} runs without hooks: {installed.reason}")
        return installed, tuple(name for name in self.preset.instructions if name in bindable)

    def _write_brief(
        self,
        git: Git,
        state: State,
        work: CurrentWork,
        directory: RunDir,
        worktree: Path,
        others: tuple[str, ...],
        names: tuple[str, ...],
    ) -> tuple[str, tuple[str, ...]]:
        """Write the brief; return the prompt for the command line and the file with the block.

        ``names`` are the instructions files that git's filter can hide. Without a file, or if ``config.brief`` says so,
        the block is part of the prompt.
        """
        text = brief_writer.compose_brief(gather_brief_facts(self.crew, state, work, directory))
        directory.write_brief(text.assignment, text.beacon_fields, text.prompt, text.block, text.quoted)
        # A session that began with a file gets its messages there.
        uses_file = state.config.brief == "file" or directory.read_brief_location() is not None
        site = BlockSite(git, self.crew.git, worktree, directory)
        placement = place_block(site, self.preset, text.block, names if uses_file else (), others)
        if placement.file is None:
            if self.preset.instructions and uses_file:
                self.notify(Detail(f"{work.run} gets its brief in the prompt: {placement.reason}"))
            return f"{text.prompt}\n\n{text.block}", ()
        return text.prompt, (placement.file,)


def remove_worktree_files(crew: Crew, record: RunRecord) -> None:
    """Remove what ``WorktreeFiles.install`` wrote for a run. Idempotent. Raises LizaError, OSError."""
    if record.worktree:
        # Only the name of the record's path is used: an agent can write any path into the record.
        worktree, directory = crew.paths.slot(Path(record.worktree).name), crew.run_dir(record.run)
        hooks.remove_hooks(worktree, directory)
        instructions_file.remove_block(worktree, directory)
        if crew.worktrees.exists(worktree.name):
            # An earlier removal may have crashed before it refreshed the index.
            for name in {
                *hooks.list_hook_files(directory),
                *filter(None, [instructions_file.find_block_file(worktree, directory)]),
            }:
                hiding.refresh_index_entry(crew.worktrees.slot_git(worktree.name), name)
    hiding.unbind_filter(crew.git, record.run)
    hiding.unhide_files(crew.git, record.run)


OWNER_FILE: Final = "owner"
"""File beside the private directories of a slot, which no box can write: whose conversations they have."""
SHOWN_FILES: Final = ("assignment.md", "prompt", "block.md", "beacon.json", "hooks")
"""What a box has of the directory of its run, as copies."""
SHOWN_DIRECTORIES: Final = ("contracts", "specs")
"""Directories of `.liza` that a box can read."""


class SessionBox(Value):
    """The box of one session. ``changes``: the variables that its program gets beside the session's; None: removed."""

    box: Box
    changes: Mapping[str, str | None]

    def wrap(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return the command line that runs the program in the box."""
        return tuple(self.box.wrap(argv))

    def complete(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the program in the box."""
        return {name: value for name, value in {**env, **self.changes}.items() if value is not None}


class BoxOrder(Value):
    """What a box is made for. ``program``: bubblewrap; ``executable``: that of the agent program; ``env``: the
    environment that the session would have without a box."""

    program: str
    work: CurrentWork
    slot: str
    executable: Path
    env: Mapping[str, str]
    config: Config


def make_session_box(
    crew: Crew, preset: Preset, directory: RunDir, order: BoxOrder, notify: Callable[[str], None]
) -> SessionBox:
    """Make what the box of a session contains, and return it. No process of the slot runs. Raises LizaError,
    OSError."""
    home = Path(order.env.get("HOME") or Path.home())
    own = slot_directories.prepare_directories(crew.paths, order.slot, home)
    begin_ownership(own, order.work)
    git = crew.worktrees.slot_git(order.slot)
    run_git.make_run_git(git, own, directory.run, salvages_of=order.work.task or "")
    _fill_liza(crew, own, directory, preset)
    directories = private_state.list_directories(preset, own, order.env, home)
    private_state.bring_state(directories, own.program_state(preset.name), directory, notify)
    mounts = (
        *(Mount(MountKind.READ_ONLY, path) for name in SHOWN_DIRECTORIES if (path := crew.paths.liza / name).is_dir()),
        *private_state.state_mounts(directories),
        *boxed_git.signing_mounts(git, order.env, home),
    )
    files = (order.executable, *_list_files((*preset.args, *(preset.acp.args if preset.acp is not None else ()))))
    use = BoxUse(order.program, order.env, home, files, mounts, directory.path / _session_socket.NAME)
    boxed = build_box(crew.paths, git, order.config.shared, use)
    env = {
        **boxed.environment(order.env),
        **private_state.state_variables(directories),
        **preset.box_env,
        ancestors.CONFINED: "yes",
        "LIZA_COMMAND_SERVER": str(SESSION_SOCKET),
        "LIZA_API": str(SESSION_SOCKET),
    }
    env.pop(SOCKET_VARIABLE, None)  # It is another path here.
    names = dict.fromkeys([*order.env, *env])
    return SessionBox(boxed.box, {name: env.get(name) for name in names if env.get(name) != order.env.get(name)})


def _list_files(words: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that words of a command line name, such as the script of an interpreter."""
    return tuple(Path(word) for word in words if word.startswith("/") and Path(word).is_file())


def begin_ownership(own: BoxPaths, work: CurrentWork) -> None:
    """Remove the conversations of an earlier owner of the slot: of another task, or of an earlier review.

    Its git directory is replaced when the next one is made; the repositories of submodules in it stay.
    """
    owner = work.task if work.kind is WorkKind.WORK and work.task else work.run
    path = own.directory / OWNER_FILE
    if untrusted_files.read_if_exists(path) == owner.encode():
        return
    slot_directories.remove_tree(own.state)
    own.state.mkdir(mode=0o700)
    atomic.write(path, owner.encode(), sync=False)


def _fill_liza(crew: Crew, own: BoxPaths, directory: RunDir, preset: Preset) -> None:
    """Write what a box has of `.liza`: copies of the board, of the assignment and of the hooks. Raises OSError."""
    slot_directories.remove_tree(own.liza)
    inside = own.liza / directory.path.relative_to(crew.paths.liza)
    inside.mkdir(mode=0o700, parents=True)
    (own.liza / crew.paths.state.name).write_text(crew.board.read_text(), encoding="utf-8")
    for name in SHOWN_FILES:
        with suppress(FileNotFoundError):
            source = directory.path / name
            if source.is_dir():
                shutil.copytree(source, inside / name)
            else:
                shutil.copyfile(source, inside / name)
    for name, settings in preset.box_settings.items():
        path = inside / "hooks" / name
        if path.is_file():
            merged = merge_objects(json.loads(path.read_bytes()), json.loads(settings))
            path.write_text(json.dumps(merged))
