"""Boxes for the project's own commands: its set-up, tests and gates, in the slot where they run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from liza.box import box_environment, slot_directories, support, surroundings
from liza.box.box import Box, Mount, MountKind
from liza.box.run_mounts import build_slot_box
from liza.git.git_config import git_dirs
from liza.git.run_git import find_stores, forget_set_up, make_run_git, read_mark, record_set_up, update_run_git
from liza.git.runner import Git
from liza.model.model import Config, Network
from liza.model.paths import BoxPaths, Paths
from liza.model.value_classes import Value, replace
from liza.programs.presets import preset_table
from liza.programs.session.program_faults import list_logins


class BoxUse(Value):
    """What a box is made for. ``program``: bubblewrap; ``environ``: the environment that its commands would have
    outside; ``executables``: what they start, beside what is in PATH; ``socket``: that of a session."""

    program: str
    environ: Mapping[str, str]
    home: Path
    executables: tuple[Path, ...] = ()
    mounts: tuple[Mount, ...] = ()
    socket: Path | None = None


class CommandBox(Value):
    """The box of commands in one slot. ``shared``: paths that a person shares with all boxes."""

    box: Box
    own: BoxPaths
    home: Path
    shared: tuple[Path, ...]

    def wrap(self, words: Sequence[str]) -> list[str]:
        """Return the command line that runs ``words`` in the box."""
        return self.box.wrap(words)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command in the box, whose environment outside would be ``environ``."""
        return box_environment.make_box_environment(environ, self.own, self.home, self.shared)

    def with_network(self, network: Network) -> CommandBox:
        """Return the box with the network on or off. It has a loopback interface in any case."""
        return replace(self, box=replace(self.box, has_network=network is Network.ON))

    def with_writable(self, directory: Path) -> CommandBox:
        """Return the box in which a directory, also one below /tmp, is seen and can be written."""
        return replace(self, box=replace(self.box, mounts=(*self.box.mounts, Mount(MountKind.WRITABLE, directory))))


def is_confined(config: Config) -> bool:
    """Return whether commands run in a box. Raises Missing if they must and cannot."""
    return support.choose_box_program(config.confinement) is not None


def is_isolated(config: Config, network: Network | None = None) -> bool:
    """Return whether a command reaches no server outside of its box. ``network``: of a gate; None: as all commands.

    Raises Missing if it must run in a box and cannot.
    """
    return (network or config.network) is Network.OFF and is_confined(config)


def open_box(paths: Paths, git: Git, config: Config) -> CommandBox | None:
    """Return the box of commands in the slot of ``git``, whose git directory exists; None without confinement.

    Raises Missing if confinement is required and this machine cannot make a box, OSError.
    """
    program = support.choose_box_program(config.confinement)
    if program is None:
        return None
    home = Path.home()
    own = slot_directories.create_directories(paths, git.directory.name, home)
    if not own.git_pointer.is_file():
        make_run_git(git, own)
    return build_box(paths, git, config.shared, BoxUse(program, os.environ, home)).with_network(config.network)


def build_box(paths: Paths, git: Git, shared: Sequence[str], use: BoxUse) -> CommandBox:
    """Return a box in the slot of ``git``, whose directories exist. ``shared``: ``config.shared``. Raises OSError."""
    slot = git.directory.name
    own, shares = paths.box(slot), box_environment.resolve_shared(shared)
    box_environment.fill_cache(own, use.environ, use.home)
    stores = (Mount(MountKind.READ_ONLY, store) for store in find_stores(git_dirs(git)[1]))
    mounts = (*stores, *use.mounts, *box_environment.share_mounts(own, use.environ, use.home, shares))
    logins = list_logins(preset_table.load_presets(paths).rows.values(), {**os.environ, **use.environ})
    around = surroundings.read_surroundings(use.program, paths, use.environ, use.executables, logins)
    return CommandBox(build_slot_box(around, slot, socket=use.socket, shared=mounts), own, use.home, shares)


def renew_git(paths: Paths, git: Git, config: Config) -> None:
    """Make the git directory of boxes in a slot, after another commit was checked out there.

    What earlier boxes left in /tmp goes, too. Does nothing without confinement. Raises Missing, GitFailed, OSError.
    """
    if is_confined(config):
        make_run_git(git, slot_directories.prepare_directories(paths, git.directory.name, Path.home()))


def begin_set_up(paths: Paths, git: Git, config: Config) -> None:
    """Make the git directory of a slot's boxes without what an earlier set-up configured. That of a session stays.

    Does nothing without confinement. Raises Missing, GitFailed, OSError.
    """
    if is_confined(config):
        forget_set_up(paths.box(git.directory.name))
        if read_mark(git_dirs(git)[0]) is None:
            renew_git(paths, git, config)


def end_set_up(paths: Paths, git: Git, config: Config) -> None:
    """Record what the set-up of a slot configured, after it succeeded. Raises Missing, GitFailed, OSError."""
    if is_confined(config):
        record_set_up(git, paths.box(git.directory.name))


def update_git(paths: Paths, git: Git, config: Config) -> None:
    """Let the git of boxes in a slot see the commit that is checked out now, and what hides a brief.

    What the set-up wrote into its configuration stays. Does nothing without confinement. Raises Missing, OSError.
    """
    if is_confined(config):
        update_run_git(git, paths.box(git.directory.name))
