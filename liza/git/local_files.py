"""What a new worktree lacks: ``.env`` files, files that ``.worktreeinclude`` names, and what a sparse checkout omits.

`git worktree add` copies the patterns of the person's sparse checkout to a new worktree. Only the patterns of the slot
are changed here: the configuration, which the person's checkout may share, is not.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.model.errors import GitFailed
from liza.model.value_classes import Value
from liza.system import atomic

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


_ALL = b"/*\n"
"""A pattern file that includes every file, in cone mode too."""


def list_included(git: Git) -> tuple[str, ...]:
    """Return what a sparse checkout includes: directories in cone mode, else patterns. Empty if all is checked out.

    Raises GitFailed.
    """
    if not list_absent(git):
        return ()
    done = git.run("sparse-checkout", "list", codes=(0, 128))  # 128: files are left out by hand
    return tuple(done.stdout.decode(errors="replace").splitlines()) or ((".",) if done.code == 0 else ())


def list_absent(git: Git) -> tuple[str, ...]:
    """Return the tracked files that a sparse checkout leaves out. Raises GitFailed."""
    return tuple(row[2:] for row in git.names("ls-files", "-t", "-z") if row.startswith("S "))


def make_full(git: Git) -> None:
    """Check out all files of a slot whose checkout is sparse. Does nothing else.

    Raises GitFailed, also if the remote of a partial clone cannot be reached, OSError.
    """
    path = git_dirs(git)[0] / "info" / "sparse-checkout"
    patterns = path.read_bytes() if path.is_file() else _ALL
    if patterns == _ALL:
        return
    absent = list_absent(git)
    atomic.write(path, _ALL, sync=False)
    if absent:
        # Patterns are read only if the setting is on. Patterns of directories and of files mean the same here.
        full = git.with_config(("core.sparseCheckout", "true"), ("core.sparseCheckoutCone", "false"))
        try:
            full.with_timeout(1800).out("read-tree", "-m", "-u", "HEAD")
        except GitFailed as error:
            atomic.write(path, patterns, sync=False)
            raise GitFailed(f"there is no full checkout: {error.message}", "liza config set checkout sparse") from error


def count_missing_objects(git: Git, commit: str) -> int:
    """Return how many objects of a commit a partial clone has to fetch; 0 for a complete clone. Raises GitFailed."""
    if not git.ok("config", "--get-regexp", r"^remote\..*\.promisor$"):
        return 0
    words = ("rev-list", "--objects", "--no-walk", "--no-object-names", "--missing=print", commit)
    return sum(line.startswith("?") for line in git.with_timeout(600).lines(*words))
