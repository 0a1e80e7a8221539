"""Files of a person that are in the way when their branch moves, and the commands that show them and put them away.

Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum

from liza.model.value_classes import Value
from liza.text.undecoded import MAX_NAMES


class BlockingKind(StrEnum):
    """What is in the way: a changed file of the commit that is checked out, a path that the commit does not have, a
    submodule at another commit, or a submodule with files whose path is needed for something else."""

    CHANGED = "changed"
    OWN = "own"
    MOVED_SUBMODULE = "moved submodule"
    FILLED_SUBMODULE = "filled submodule"


class BlockingFile(Value):
    """A path in a checkout that a move of its branch would change or delete.

    ``flags``: flags of its index entry that hide its changes from git. ``free_name``: an unused name, to which the
    path can be renamed; empty if nothing is at the path.
    """

    name: str
    kind: BlockingKind
    is_in_index: bool = False
    flags: tuple[str, ...] = ()
    free_name: str = ""


def show_command(files: Sequence[BlockingFile], directory: str = "") -> str:
    """Return the command that shows the files; ``directory`` is the checkout if it is not the current directory."""
    hidden = [file.name for file in files if file.flags]
    filled = [_path(file.name, directory) for file in files if file.kind is BlockingKind.FILLED_SUBMODULE]
    rest = [file.name for file in files if not file.flags and file.kind is not BlockingKind.FILLED_SUBMODULE]
    commands = (
        _git(directory, ("ls-files", "-v"), hidden),
        ["ls", "-dl", *filled] if filled else [],
        _git(directory, ("status", "--ignored"), rest),
    )
    return " && ".join(map(shlex.join, filter(None, commands)))


def put_away_command(files: Sequence[BlockingFile], directory: str = "") -> str:
    """Return the command that puts the files away without losing them: into a stash, or under another name."""
    commands: list[list[str]] = []
    own = [file for file in files if file.kind is BlockingKind.OWN][:MAX_NAMES]
    commands.append(_git(directory, ("rm", "-rq", "--cached"), [file.name for file in own if file.is_in_index]))
    commands += [
        ["mv", _path(file.name, directory), _path(file.free_name, directory)] for file in own if file.free_name
    ]
    for file in files:
        if file.kind is BlockingKind.FILLED_SUBMODULE:
            path = _path(file.name, directory)
            commands += [["mv", path, _path(file.free_name, directory)], ["mkdir", path]]
    moved = [file.name for file in files if file.kind is BlockingKind.MOVED_SUBMODULE]
    commands.append(_git(directory, ("reset", "-q"), moved))
    commands.append(_git(directory, ("submodule", "update", "-q"), moved))
    changed = [file for file in files if file.kind is BlockingKind.CHANGED]
    for flag in sorted({flag for file in changed for flag in file.flags}):
        names = [file.name for file in changed if flag in file.flags]
        commands.append(_git(directory, ("update-index", f"--no-{flag}"), names))
    commands.append(_git(directory, ("reset", "-q"), [file.name for file in changed if not file.is_in_index]))
    few = len(changed) <= MAX_NAMES
    stash = _git(directory, ("stash", "push", "-q"), [file.name for file in changed])
    commands.append(stash if few else stash[: stash.index("--")])
    return " && ".join(shlex.join(command) for command in commands if command)


def _git(directory: str, words: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return a git command on these paths; an empty list without paths."""
    if not names:
        return []
    literal = ["--literal-pathspecs"] if any(name.startswith(":") or set("*?[\\") & {*name} for name in names) else []
    return ["git", *(["-C", directory] if directory else []), *literal, *words, "--", *names]


def _path(name: str, directory: str) -> str:
    name = name.rstrip("/")
    return f"{directory or '.'}/{name}" if directory or name.startswith("-") else name
