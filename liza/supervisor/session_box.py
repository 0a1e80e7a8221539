"""The box of a session: its git directory, its copies of `.liza`, the private state of its program, its variables."""

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
from liza.crew.crew import Crew
from liza.git import commit_signing, run_git
from liza.model.model import Config
from liza.model.owned_work import CurrentWork
from liza.model.paths import BoxPaths
from liza.model.statuses import WorkKind
from liza.model.value_classes import Value
from liza.programs.hooks.hook_install import merge_objects
from liza.programs.presets.preset import Preset
from liza.programs.session import _session_socket, private_state
from liza.programs.session.run_directory import RunDir
from liza.project.command_box import BoxUse, build_box
from liza.system import atomic, boxed_calls, untrusted_files

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
        *(Mount(MountKind.READ_ONLY, crew.paths.liza / name) for name in SHOWN_DIRECTORIES if _is_there(crew, name)),
        *private_state.state_mounts(directories),
        *commit_signing.signing_mounts(git, order.env, home),
    )
    files = (order.executable, *_list_files((*preset.args, *(preset.acp.args if preset.acp is not None else ()))))
    use = BoxUse(order.program, order.env, home, files, mounts, directory.path / _session_socket.NAME)
    boxed = build_box(crew.paths, git, order.config.shared, use)
    env = {
        **boxed.environment(order.env),
        **private_state.state_variables(directories),
        **preset.box_env,
        boxed_calls.CONFINED: "yes",
        "LIZA_COMMAND_SERVER": str(SESSION_SOCKET),
        "LIZA_API": str(SESSION_SOCKET),
    }
    names = dict.fromkeys([*order.env, *env])
    return SessionBox(boxed.box, {name: env.get(name) for name in names if env.get(name) != order.env.get(name)})


def _list_files(words: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that words of a command line name, such as the script of an interpreter."""
    return tuple(Path(word) for word in words if word.startswith("/") and Path(word).is_file())


def _is_there(crew: Crew, name: str) -> bool:
    return (crew.paths.liza / name).is_dir()


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
    shutil.copyfile(crew.paths.state, own.liza / crew.paths.state.name)
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
