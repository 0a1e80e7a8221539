"""Run git in a box where it reads what an agent wrote: the files of a slot, and the git directory of a run.

A repository below the slot, such as a submodule, has a configuration of its own, which may name a program. In the box
that program can change nothing but what the agent can change itself, and has neither a network nor Liza's environment.
Liza's own git never signs; that of a session gets what it needs to sign as the person's git does.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from liza.box.box import Box, Mount, MountKind
from liza.box.run_mounts import Surroundings, build_git_box
from liza.git import run_git
from liza.git.git_config import read_config
from liza.git.hiding import FILTER_KEY
from liza.git.runner import Git
from liza.model.errors import GitFailed, Missing
from liza.model.value_classes import Value, replace
from liza.system import program_path
from liza.system.limited_program import run_limited

_READING: Final = {"check-attr", "check-ignore", "diff", "diff-files", "diff-index", "ls-files", "status"}
"""Commands that may run git in a repository below the slot. The others start no program but filters."""
_FILTERING: Final = {
    "add", "checkout", "checkout-index", "hash-object", "read-tree", "reset", "restore", "stash", "switch",
    "update-index",
}  # fmt: skip
"""Commands outside of a box that run filters. A filter may be a program of the worktree, such as ``./tools/clean``."""
_LFS: Final = re.compile(r"git[ -]lfs (clean|smudge|filter-process)( --skip)?( --)?( %f)?")
"""Filters that run no program of the worktree, and need the person's network and credentials."""
_SAFE_VARIABLES: Final = re.compile(r"PATH|HOME|USER|LOGNAME|LANG|LC_.*|TZ|XDG_CONFIG_HOME|GIT_.*|LIZA_FAULT.*")
_ENV: Final = "/usr/bin/env"


class SlotBox(Value):
    """Runs git of one slot. ``git_dir``: that of the slot, or of its run; in the latter every command is boxed.

    ``shown``: the directories of the repository that git reads.
    """

    around: Surroundings
    slot: str
    git_dir: Path
    shown: tuple[Path, ...]

    def wrap(self, git: Git, args: Sequence[str], argv: Sequence[str]) -> list[str]:
        """Return the command line for ``argv``, in a box if ``args`` may lead git into files of an agent."""
        worktree, own = self.around.paths.slot(self.slot), self.around.paths.box(self.slot)
        command = next((arg for arg in args if not arg.startswith("-")), "")
        if git.git_dir != self.git_dir:
            inner = (git.git_dir,) if git.git_dir is not None else ()
            return self._run((worktree, own.git, *inner), argv)
        if self.git_dir == own.git:
            return self._run((worktree, own.git), argv)
        if command in _READING:
            return self._read(git.common_dir or self.git_dir, argv)
        return [*argv[:1], *self._box_filters(git), *argv[1:]] if command in _FILTERING else list(argv)

    def _read(self, common: Path, argv: Sequence[str]) -> list[str]:
        """Run a command that changes nothing. What a filter of LFS stores for a comparison stays in the box."""
        box = build_git_box(self.around, self.slot, (), self.shown)
        stored, private = common / "lfs", self.around.paths.box(self.slot).tmp
        if stored.is_dir():
            mount = Mount(MountKind.WRITABLE, stored, private) if private.is_dir() else Mount(MountKind.EMPTY, stored)
            box = replace(box, mounts=(*box.mounts, mount))
        return wrap_without_secrets(box, argv)

    def _box_filters(self, git: Git) -> list[str]:
        pairs = list_boxed_filters(self.around, self.slot, git.with_box(None), self.shown)
        return [word for key, command in pairs for word in ("-c", f"{key}={command}")]

    def _run(self, writable: Sequence[Path], argv: Sequence[str]) -> list[str]:
        existing = [path for path in writable if path.is_dir()]
        return wrap_without_secrets(build_git_box(self.around, self.slot, existing, self.shown), argv)


def list_boxed_filters(
    around: Surroundings, slot: str, git: Git, shown: tuple[Path, ...]
) -> tuple[tuple[str, str], ...]:
    """Return settings of git with which each configured filter runs in a box of the slot that can write nothing.

    ``git`` runs in no box. Raises GitFailed.
    """
    words = ("config", "--null", "--get-regexp", r"^filter\..*\.(clean|smudge|process)$")
    rows = git.run(*words, codes=(0, 1)).stdout.decode("utf-8", "surrogateescape").split("\0")
    settings = {key: command for key, _, command in (row.partition("\n") for row in rows)}
    worktree = around.paths.slot(slot)
    box = build_git_box(around, slot, (), shown)
    if not worktree.is_dir():  # git makes it before it runs a filter.
        box = replace(box, mounts=(*box.mounts, Mount(MountKind.READ_ONLY, worktree)))
    box = replace(box, directory=worktree)
    return tuple(
        (key, _box_filter(key, command, box))
        for key, command in settings.items()
        if command and key != FILTER_KEY and not _LFS.fullmatch(command)
    )


def _box_filter(key: str, command: str, box: Box) -> str:
    if "=" in key:
        raise GitFailed(f"{key} has a name with =, so git cannot run it in a box", f"git config --unset {key}")
    # Git replaces %f by the quoted name of the file. The shell in the box gets that name as its first argument.
    is_process = key.endswith(".process")
    script = command if is_process else command.replace("%f", '"$1"')
    boxed = shlex.join(wrap_without_secrets(box, ["/bin/sh", "-c", script, "sh"]))
    return boxed if is_process else f"{boxed.replace('%', '%%')} %f"


def make_reader(around: Surroundings, slot: str, common: Path) -> Box:
    """Return the box in which git reads the objects of a run: nothing can be written."""
    return build_git_box(around, slot, (), shown_directories(common))


def shown_directories(common: Path) -> tuple[Path, ...]:
    """Return the directories of a repository that a boxed git reads. Raises OSError."""
    return (common, *run_git.find_stores(common))


def wrap_without_secrets(box: Box, argv: Sequence[str]) -> list[str]:
    """Return the command line that runs ``argv`` in a box, with the variables of the environment that git needs.

    The others are removed from bubblewrap, too: its environment can be read in the box.
    """
    removed = sorted(name for name in os.environ if not _SAFE_VARIABLES.fullmatch(name))
    return [_ENV, *(word for name in removed for word in ("-u", name)), *box.wrap(argv)]


_PUBLIC_FILES = ("pubring.kbx", "pubring.gpg", "trustdb.gpg", "gpg.conf", "common.conf")
"""What gpg reads to sign with a key that its agent has."""
_AGENT_LIMIT = 10.0  # seconds for gpg's agent to start
_NAMES_OF_TRUE = ("true", "yes", "on", "1", "")


def is_signing(git: Git) -> bool:
    """Return whether the person's git signs each commit or tag. Raises GitFailed."""
    values = read_config(git)
    return any(values.get(key, ("false",))[-1].lower() in _NAMES_OF_TRUE for key in ("commit.gpgsign", "tag.gpgsign"))


def key_settings(git: Git, email: str) -> tuple[tuple[str, str], ...]:
    """Return the setting that selects the person's key where git would select one by the name of the committer.

    The name of a session has its run, and no key has that name. Raises GitFailed.
    """
    values = read_config(git)
    chooses_by_name = values.get("gpg.format", ("openpgp",))[-1] != "ssh" and "user.signingkey" not in values
    return (("user.signingkey", f"<{email}>"),) if chooses_by_name and email and is_signing(git) else ()


def signing_mounts(git: Git, environ: Mapping[str, str], home: Path) -> tuple[Mount, ...]:
    """Return what a box shows so that git in it signs as the person's does: public keys, and the socket of the agent
    that has the others. Empty if the person's git does not sign.

    ``environ``: that of the session. Raises GitFailed.
    """
    if not is_signing(git):
        return ()
    values = read_config(git)
    if values.get("gpg.format", ("openpgp",))[-1] == "ssh":
        mounts = _ssh_mounts(values.get("user.signingkey", ("",))[-1], environ.get("SSH_AUTH_SOCK", ""), home)
    else:
        mounts = _gpg_mounts(environ, home)
    return tuple(mount for mount in mounts if mount.shown.exists())


def _ssh_mounts(key: str, agent: str, home: Path) -> Iterator[Mount]:
    """Yield the public key and the socket of the agent. With the socket a box can also push, as the person's ssh."""
    if key and not key.startswith(("key::", "ssh-")):
        path = home / key.removeprefix("~/")
        yield Mount(MountKind.READ_ONLY, path if path.suffix == ".pub" else path.with_name(f"{path.name}.pub"))
    if agent.startswith("/"):
        yield Mount(MountKind.READ_ONLY, Path(agent))


def _gpg_mounts(environ: Mapping[str, str], home: Path) -> Iterator[Mount]:
    """Yield the public keys, and the socket of the agent at the place where gpg looks without a directory in /run."""
    directory = Path(environ.get("GNUPGHOME") or home / ".gnupg")
    for name in _PUBLIC_FILES:
        yield Mount(MountKind.READ_ONLY, directory / name)
    with suppress(Missing, OSError):
        for words in (("--launch", "gpg-agent"), ("--list-dirs", "agent-socket")):
            result = run_limited([program_path.find_program("gpgconf"), *words], _AGENT_LIMIT, environ=environ)
        if result.returncode == 0 and result.stdout.startswith("/"):
            yield Mount(MountKind.READ_ONLY, directory / "S.gpg-agent", Path(unquote(result.stdout.strip())))


def unlock_command(git: Git) -> str:
    """Return the command that asks a person for the passphrase of the key, which an agent then keeps.

    gpg has an agent at all times; ssh needs one in this terminal. Raises GitFailed.
    """
    values = read_config(git)
    if values.get("gpg.format", ("openpgp",))[-1] != "ssh":
        return "git commit-tree -S -m trial 'HEAD^{tree}'"  # no ref names that commit
    key = values.get("user.signingkey", ("",))[-1].removesuffix(".pub")
    # A literal key is not a file that ssh-add could read.
    add = shlex.join(["ssh-add", *([str(Path(key).expanduser())] if Path(key).expanduser().is_file() else [])])
    return add if os.environ.get("SSH_AUTH_SOCK") else f'eval "$(ssh-agent -s)" && {add} && liza doctor'
