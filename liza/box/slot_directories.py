"""Create, empty and remove the directories that the boxes of a slot have for themselves.

A box cannot write the directory that contains them, only their content: no link can take the place of one.
"""

from __future__ import annotations

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.box.run_mounts import NPM_SETTINGS
from liza.box.surroundings import list_private_directories
from liza.model.errors import NotRegularFile, SystemRefused
from liza.model.paths import BOXES, BoxPaths, Paths
from liza.system import program_path, untrusted_files

_SECRET_SETTING: Final = re.compile(r"\s*(//.*:)?(_authToken|_auth|_password|username|certfile|keyfile|key|otp)\s*=")


def prepare_directories(paths: Paths, slot: str, home: Path) -> BoxPaths:
    """Create what the boxes of a slot have for themselves, with an empty /tmp. Return its paths.

    For the start of a session: boxes that live in the slot lose their files in /tmp. Raises OSError, SystemRefused.
    """
    own = create_directories(paths, slot, home)
    remove_tree(own.tmp)
    _make_directory(own.tmp)
    return own


def create_directories(paths: Paths, slot: str, home: Path) -> BoxPaths:
    """Create what is missing of ``prepare_directories``, for a box beside others. Raises OSError, SystemRefused."""
    own = paths.box(slot)
    for directory in list_private_directories(home):
        with suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for directory in (own.directory.parent, own.directory, own.tmp, own.liza, own.cache, own.state):
        _make_directory(directory)
    (own.directory / NPM_SETTINGS).write_text(_without_secrets(_read_settings(home / ".npmrc")))
    return own


def remove_directories(paths: Paths, slot: str) -> None:
    """Remove what the boxes of a slot had for themselves. Raises OSError, SystemRefused."""
    remove_tree(paths.box(slot).directory)


def remove_all(paths: Paths) -> None:
    """As ``remove_directories``, for all slots of the crew."""
    remove_tree(paths.slots / BOXES)


def remove_tree(path: Path) -> None:
    """Remove a file or a tree that a box wrote: directories may be very deep, or without permissions.

    Links are not followed. Idempotent. Raises SystemRefused.
    """
    if not os.path.lexists(path):
        return
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
        if os.path.lexists(path):
            words = [program_path.find_program(command[0]), *command[1:], "--", str(path)]
            subprocess.run(words, capture_output=True, check=False)
    if os.path.lexists(path):
        raise SystemRefused(f"{path} cannot be removed", "liza doctor")


def _make_directory(path: Path) -> None:
    """Create a directory that only this user can read. What is there instead, such as a link, is removed."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        path.mkdir(mode=0o700)


def _read_settings(path: Path) -> str:
    try:
        return untrusted_files.read(path, follow_links=True).decode("utf-8", "replace")
    except (OSError, NotRegularFile):
        return ""


def _without_secrets(settings: str) -> str:
    """Return settings of npm without tokens and passwords, except those that name a variable of the environment."""
    lines = settings.splitlines(keepends=True)
    return "".join(line for line in lines if not _SECRET_SETTING.match(line) or "${" in line)
