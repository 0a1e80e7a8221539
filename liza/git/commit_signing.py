"""Whether the person's git signs commits, and what the git of a session needs for that. Liza's own git never signs."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from liza.box.box import Mount, MountKind
from liza.git.git_config import read_config
from liza.git.runner import Git
from liza.model.errors import Missing
from liza.system import program_path

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
    with suppress(Missing, OSError, subprocess.TimeoutExpired):
        for words in (("--launch", "gpg-agent"), ("--list-dirs", "agent-socket")):
            command = [program_path.find_program("gpgconf"), *words]
            result = subprocess.run(
                command, capture_output=True, text=True, timeout=_AGENT_LIMIT, check=False, env=dict(environ)
            )
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
