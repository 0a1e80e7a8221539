"""Save what people wrote into .liza (specs, table of programs) as commits before a purge deletes it.

Files are saved byte by byte, links as links.
"""

from __future__ import annotations

import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from liza.crew import layout
from liza.crew.crew import Crew
from liza.crew.layout import default_goal_text
from liza.git.runner import Git
from liza.model.errors import NotRegularFile, Refused
from liza.model.paths import Paths
from liza.model.value_classes import Value
from liza.system import untrusted_files

SPECS_REF = "refs/liza/specs"
PROGRAMS_REF = "refs/liza/programs"
MAX_FILE_SIZE = 100 * 1000 * 1000
"""Maximum size of a saved file, in bytes: the limit of common git hosts."""


class SaveResult(Value):
    """Whether there was anything to save, and the names of special files that were skipped."""

    saved: bool
    skipped: tuple[str, ...]


def save_specs(crew: Crew) -> SaveResult:
    """Save specs that differ from what Liza shipped, on top of what an earlier purge saved.

    Raises Refused for a file that cannot be saved, GitFailed, Missing. Then the repository has new objects at most.
    """
    top = crew.paths.specs
    if not os.path.lexists(top):
        return SaveResult(False, ())
    if top.is_symlink() or not top.is_dir():
        return SaveResult(False, (".liza/specs",))
    goal = default_goal_text(crew.board.read().goal.description).encode("utf-8", "surrogateescape")
    contents: dict[str, tuple[str, bytes]] = {}
    skipped: list[str] = []
    for path in _list_entries(crew.paths):
        name = path.relative_to(top).as_posix()
        content = _read_content(crew.paths, path)
        if content is None:
            skipped.append(f".liza/specs/{name}")
        elif not _is_shipped(name, content[1], goal):
            contents[name] = content
    if contents:
        _save(crew, SPECS_REF, "The specs that were in .liza/specs", top, contents)
    return SaveResult(bool(contents), tuple(skipped))


def save_programs(crew: Crew) -> SaveResult:
    """Save this crew's table of programs, on top of what an earlier purge saved. Raises as ``save_specs``."""
    path = crew.paths.liza / "programs.toml"
    if not os.path.lexists(path):
        return SaveResult(False, ())
    content = _read_content(crew.paths, path)
    if content is None:
        return SaveResult(False, (".liza/programs.toml",))
    message = "The table of programs that was .liza/programs.toml"
    _save(crew, PROGRAMS_REF, message, path.parent, {path.name: content})
    return SaveResult(True, ())


def _list_entries(paths: Paths) -> Iterator[Path]:
    """Yield what is below .liza/specs, directories left out. Raises Refused for an unreadable directory."""

    def refuse(error: OSError) -> NoReturn:
        _refuse(paths, Path(error.filename), error.strerror or str(error))

    for directory, directories, names in os.walk(paths.specs, onerror=refuse):
        directories.sort()
        for path in (Path(directory, name) for name in sorted([*directories, *names])):
            if path.is_symlink() or not path.is_dir():
                yield path


def _read_content(paths: Paths, path: Path) -> tuple[str, bytes] | None:
    """Return the mode in git and the bytes of a file or a link; None for another kind. Raises Refused."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return "120000", os.fsencode(path.readlink())
        if not stat.S_ISREG(mode):
            return None
        return "100755" if mode & stat.S_IXUSR else "100644", untrusted_files.read(path, MAX_FILE_SIZE)
    except NotRegularFile as error:
        _refuse(paths, path, error.message)
    except OSError as error:
        _refuse(paths, path, error.strerror or str(error))


def _is_shipped(name: str, data: bytes, goal: bytes) -> bool:
    if name == "goal.md":
        return data == goal
    shipped = layout.find_texts("specs") / name
    return name.split("/")[0] in layout.SPEC_DIRECTORIES and shipped.is_file() and shipped.read_bytes() == data


def _refuse(paths: Paths, path: Path, reason: str) -> NoReturn:
    name = path.relative_to(paths.root).as_posix()
    raise Refused(f"{name} cannot be saved: {reason}", shlex.join(["mv", "-n", str(path), str(paths.root)]))


def _save(crew: Crew, ref: str, message: str, top: Path, contents: dict[str, tuple[str, bytes]]) -> None:
    """Commit files to a ref. Raises Refused for a name that git does not allow, such as .git."""
    git: Git = crew.git.with_timeout(600)
    with tempfile.TemporaryDirectory(dir=crew.paths.tx) as directory:
        git_copy = git.with_environment(GIT_INDEX_FILE=f"{directory}/index")
        blobs = {name: git.out("hash-object", "-w", "--stdin", stdin=data) for name, (_, data) in contents.items()}
        rows = "".join(f"{contents[name][0]} {blob}\t{name}\0" for name, blob in blobs.items())
        git_copy.out("update-index", "-z", "--index-info", stdin=rows)
        # git skips such names with a message on stderr and exit status 0.
        accepted = set(git_copy.names("ls-files", "-z"))
        for name in contents:
            if name not in accepted:
                _refuse(crew.paths, top / name, "git does not allow this name")
        _commit_tree(git, git_copy.out("write-tree"), ref, message)


def _commit_tree(git: Git, tree: str, ref: str, message: str) -> None:
    old = git.find_commit(ref)
    if old is not None and git.out("rev-parse", f"{old}^{{tree}}") == tree:
        return
    parent = () if old is None else ("-p", old)
    commit = git.with_identity().out("commit-tree", tree, *parent, "-m", message)
    git.out("update-ref", ref, commit, old or "0" * len(commit))
