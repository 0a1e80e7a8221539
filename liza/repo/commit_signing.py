"""Whether the person's git signs commits, and what the git of a session needs for that. Liza's own git never signs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from liza.repo.git_config import read_config
from liza.repo.runner import Git

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
