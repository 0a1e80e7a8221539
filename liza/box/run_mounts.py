"""What a process in a box sees: the mounts of a session and of a project command, in the order that they are made.

Pure but for the existence of paths, which `Surroundings` has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from liza.box.box import Box, Mount, MountKind
from liza.model.paths import Paths
from liza.model.value_classes import Value

REPLACED: Final = (Path("/tmp"), Path("/var/tmp"), Path("/run"), Path("/dev"))
"""Directories that a box has for itself. What is needed below them is mounted again."""
SECRETS: Final = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gh", ".config/glab-cli", ".config/gcloud",
    ".netrc", ".git-credentials", ".config/git/credentials", ".pypirc", ".cargo/credentials.toml", ".gem/credentials",
    ".config/hub", ".config/rclone", ".password-store", ".local/share/keyrings", ".config/op", ".1password",
    ".screen", ".abduco", ".colima", ".rd", ".lima", ".pgpass", ".pg_service.conf", ".postgresql",
)  # fmt: skip
"""Files and directories of a home directory that no box shows: secrets, and sockets of programs that run commands.

Of ~/.npmrc it shows what is no secret: the registries are needed, a token that may publish is not."""
NPM_SETTINGS: Final = "npmrc"
"""Name of the copy of ~/.npmrc without secrets."""
_NOTHING: Final = Path(__file__).with_name("empty")
"""An empty file. /dev/null could not be opened: bubblewrap binds devices without the right to use them."""


class Surroundings(Value):
    """The machine and the person around a box. All paths are resolved and exist.

    ``program``: bubblewrap. ``needed``: paths that a process in a box reads, such as the installations of Liza, of the
    agent program and of the project's tools. ``hidden``: files and directories that it must not read.
    """

    program: str
    paths: Paths
    needed: tuple[Path, ...]
    hidden_directories: tuple[Path, ...]
    hidden_files: tuple[Path, ...]
    npm_settings: tuple[Path, ...] = ()
    """Files that are shown without their secrets."""


def build_slot_box(
    around: Surroundings,
    slot: str,
    *,
    socket: Path | None = None,
    shared: tuple[Mount, ...] = (),
    has_network: bool = True,
) -> Box:
    """Return the box of a session or a project command in a slot.

    ``socket``: the session's socket, at which its verbs are answered. ``shared``: what a person allowed besides. A
    directory above the repository or the slots, such as the home directory, shows neither these nor what is hidden.
    """
    paths, own = around.paths, around.paths.box(slot)
    worktree = paths.slot(slot)
    hidden = (*around.hidden_directories, *around.hidden_files, *around.npm_settings)
    above = tuple(
        mount for mount in shared if any(mount.target in path.parents for path in (worktree, paths.liza, *hidden))
    )
    places = tuple(path for path in (paths.root, paths.slots) if any(path.is_relative_to(m.target) for m in above))
    mounts = (
        Mount(MountKind.WRITABLE, Path("/tmp"), own.tmp),
        Mount(MountKind.WRITABLE, Path("/var/tmp"), own.tmp),
        Mount(MountKind.EMPTY, Path("/run")),
        *_show_needed((*around.needed, paths.root)),
        *above,
        *(Mount(MountKind.READ_ONLY, path) for path in places),
        *(Mount(MountKind.EMPTY, path) for path in around.hidden_directories),
        *(Mount(MountKind.READ_ONLY, path, _NOTHING) for path in around.hidden_files),
        *(Mount(MountKind.READ_ONLY, path, own.directory / NPM_SETTINGS) for path in around.npm_settings),
        Mount(MountKind.EMPTY, paths.slots),
        Mount(MountKind.WRITABLE, paths.liza, own.liza),
        # Not the directory above them: in it an agent could replace one by a link, which the next box would follow.
        *(Mount(MountKind.WRITABLE, path) for path in (own.git, own.cache, own.state)),
        Mount(MountKind.WRITABLE, worktree),
        Mount(MountKind.READ_ONLY, worktree / ".git", own.git_pointer),
        *(() if socket is None else (Mount(MountKind.WRITABLE, SESSION_SOCKET, socket),)),
        *(mount for mount in shared if mount not in above),
    )
    return Box(around.program, mounts, worktree, has_network)


SESSION_SOCKET: Final = Path("/run/liza.sock")
"""Path of the session's socket inside its box."""


def _show_needed(needed: tuple[Path, ...]) -> Iterator[Mount]:
    """Yield mounts of what is needed below a replaced directory, outer paths first."""
    for path in sorted(set(needed)):
        if any(replaced in path.parents for replaced in REPLACED):
            yield Mount(MountKind.READ_ONLY, path)


def build_git_box(
    around: Surroundings,
    slot: str,
    writable: Iterable[Path] = (),
    shown: Iterable[Path] = (),
) -> Box:
    """Return the box of a git command that reads what an agent wrote in a slot or in the git directory of its run.

    ``writable``: what the command changes. ``shown``: what it reads besides, such as the stores of the repository.
    """
    worktree, own = around.paths.slot(slot), around.paths.box(slot)
    pointer = worktree / ".git"
    more = (
        *(Mount(MountKind.READ_ONLY, path) for path in (worktree, own.git) if path.is_dir()),
        *(Mount(MountKind.WRITABLE, path) for path in writable),
        *((Mount(MountKind.READ_ONLY, pointer),) if pointer.is_file() else ()),
    )
    return build_reading_box(around, more, shown)


def build_reading_box(around: Surroundings, more: Iterable[Mount], shown: Iterable[Path] = ()) -> Box:
    """Return a box without network in which only what ``more`` mounts as writable can be written.

    ``shown``: as for ``build_git_box``.
    """
    paths = around.paths
    mounts = (
        *(Mount(MountKind.EMPTY, Path(path)) for path in ("/tmp", "/var/tmp", "/run")),
        *_show_needed((*around.needed, paths.root, *shown)),
        *(Mount(MountKind.EMPTY, path) for path in around.hidden_directories),
        *(Mount(MountKind.READ_ONLY, path, _NOTHING) for path in (*around.hidden_files, *around.npm_settings)),
        *(Mount(MountKind.EMPTY, path) for path in (paths.slots, paths.liza) if path.is_dir()),
        *more,
    )
    return Box(around.program, mounts, Path("/"), has_network=False)
