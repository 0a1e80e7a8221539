"""Files of the checkout that a new worktree lacks: ``.env`` files, and those that ``.worktreeinclude`` names."""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from liza.git.runner import Git
from liza.model.value_classes import Value

INCLUDE_FILE = ".worktreeinclude"
"""A file of patterns, as in ``.gitignore``, that several tools read: ignored files that belong into each worktree."""
DEPENDENCY_DIRECTORIES = ("node_modules", ".venv", "venv")
"""Directories that a set-up makes. A copy would be slow, and lead back into the checkout."""
_PATTERNS = (":(glob).env", ":(glob).env.*", ":(glob)*/.env", ":(glob)*/.env.*")
_OWN_DIRECTORIES = (".liza", ".worktrees")


class IncludedFiles(Value):
    """What ``.worktreeinclude`` names and git does not track. A directory is one name without a slash.

    ``ignored``: files to copy. ``refused``: other names, each with the reason why it is not copied.
    """

    ignored: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def find_local_files(git: Git, copied: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the ignored files that no pattern of ``copied`` matches: ``.env`` files at the top and one directory
    below, and the files that ``.worktreeinclude`` names.

    Raises GitFailed.
    """
    names = git.names("ls-files", "--others", "--ignored", "--exclude-standard", "-z", "--", *_PATTERNS)
    wanted = {*(name for name in names if not _is_dependency(name)), *find_included(git).ignored}
    return tuple(sorted(name for name in wanted if not is_copied(name, copied)))


def find_included(git: Git) -> IncludedFiles:
    """Return what ``.worktreeinclude`` of the checkout names. git itself reads its patterns. Raises GitFailed."""
    path = git.directory / INCLUDE_FILE
    if not path.is_file():
        return IncludedFiles()
    listing = ("--literal-pathspecs", "ls-files", "--others", "-z")
    names = git.names(*listing, "--ignored", f"--exclude-from={path}")
    included = {shorten(name) for name in names if name.split("/")[0] not in _OWN_DIRECTORIES}
    ignored = _keep_ignored(git, included)
    # An ignored directory is one name if all its files are included. `--directory` with other patterns than those of
    # .gitignore leaves files out (git 2.39).
    for directory in _keep_ignored(git, git.names(*listing, "--ignored", "--exclude-standard", "--directory")):
        inside = {name for name in included if name.startswith(directory)} if directory.endswith("/") else set()
        if inside and inside.issuperset(git.names(*listing, "--", directory)):
            included = (included - inside) | {directory}
            ignored.add(directory)
    copied, refused = [], []
    for name in sorted(included):
        reason = _find_objection(git, name, name in ignored)
        if reason:
            refused.append(f"{name.rstrip('/')}: {INCLUDE_FILE} names it, but {reason}")
        else:
            copied.append(name.rstrip("/"))
    return IncludedFiles(tuple(copied), tuple(refused))


def _keep_ignored(git: Git, names: Iterable[str]) -> set[str]:
    # With `./` no name is a pattern of git, such as `:(top)x`.
    text = "".join(f"./{name}\0" for name in names).encode("utf-8", "surrogateescape")
    if not text:
        return set()
    output = git.run("check-ignore", "-z", "--stdin", stdin=text, codes=(0, 1)).stdout
    return {name.removeprefix("./") for name in output.decode("utf-8", "surrogateescape").split("\0")[:-1]}


def _find_objection(git: Git, name: str, is_ignored: bool) -> str:
    """Return why a name of ``.worktreeinclude`` is not copied, or an empty string."""
    if not is_ignored:
        return "git does not ignore it: an agent could commit a copy"
    if _is_dependency(name):
        return "a set-up makes dependencies (config.sandbox_setup)"
    if not os.path.realpath(git.directory / name).startswith(f"{os.path.realpath(git.directory)}/"):
        return "it is a link out of the checkout"
    return "" if name.isprintable() else "its name cannot be written to the board"


def is_copied(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a pattern of ``config.sandbox_copy`` matches the file, or a directory above it."""
    path = PurePosixPath(name)
    above = [str(part) for part in (path, *path.parents)][:-1]
    return any(fnmatch.fnmatchcase(part, pattern.rstrip("/")) for part in above for pattern in patterns)


def shorten(name: str) -> str:
    """Return the directory of dependencies that a file is in, or the file itself."""
    parts = PurePosixPath(name).parts
    ends = [number for number, part in enumerate(parts, 1) if part in DEPENDENCY_DIRECTORIES]
    return str(PurePosixPath(*parts[: ends[0]])) if ends else name


def _is_dependency(name: str) -> bool:
    return PurePosixPath(shorten(name)).name in DEPENDENCY_DIRECTORIES


def copy_patterns(names: Iterable[str]) -> tuple[str, ...]:
    """Return the patterns of ``config.sandbox_copy`` that match exactly these files."""
    return tuple(glob.escape(name) for name in names)


def copy_options(names: Sequence[str]) -> str:
    """Return the options of ``liza init`` that copy these files into each worktree."""
    return " ".join(f"--copy {shlex.quote(name)}" for name in names)


def copy_command(copied: Sequence[str], names: Sequence[str]) -> str:
    """Return the command by which an existing crew also copies these files. It keeps the patterns of ``copied``."""
    patterns = json.dumps(list(dict.fromkeys((*copied, *names))), ensure_ascii=False)
    return shlex.join(["liza", "config", "set", "sandbox_copy", patterns])
