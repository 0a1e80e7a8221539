"""Record the tracked files of a worktree, and find which of them a command wrote or changed.

The stat of each file tells what was written. git tells whether the content differs: a file that a checkout itself
leaves different from the commit, because of line endings, filters or modes, does not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from liza.git import reset
from liza.git.runner import Git
from liza.model.value_classes import Value, field, replace
from liza.project.rules.tree_changes import ChangedFile, TreeChanges

FileStat = tuple[int, int, int, int, int]
"""Mode, inode, size, and the times of modification and change in nanoseconds."""
_NAMES_PER_COMMAND = 500
_SKIPPED = ("S ", "s ")
"""Beginning of an entry of the index that a sparse checkout leaves out."""
_MAX_LINE = 120  # characters of a changed line that a message shows


class TreeSnapshot(Value):
    """State of a worktree before a command runs. ``stats``: the stat of each tracked file, None if it is absent.
    ``different``: digests of the tracked files that differ from the commit already. ``absent``: tracked files that a
    sparse checkout leaves out. ``inner``: the submodules.
    """

    head: str
    index: str
    stats: Mapping[str, FileStat | None]
    different: Mapping[str, str]
    absent: tuple[str, ...] = ()
    inner: Mapping[str, TreeSnapshot] = field(default_factory=dict)


def take_snapshot(git: Git) -> TreeSnapshot:
    """Record the HEAD, the index and the tracked files of a worktree. Raises GitFailed, OSError."""
    return add_submodules(git, _take_own(git))


def accept_rewritten(git: Git, before: TreeSnapshot, contents: Mapping[str, bytes]) -> TreeSnapshot:
    """Return the snapshot with the present stats of files that Liza rewrote, if they have these contents again."""
    own = {
        name: _stat(git.directory / name)
        for name, data in contents.items()
        if name in before.stats and (git.directory / name).is_file() and (git.directory / name).read_bytes() == data
    }
    return replace(before, stats={**before.stats, **own})


def add_submodules(git: Git, snapshot: TreeSnapshot) -> TreeSnapshot:
    """Return the snapshot with the submodules that a set-up has fetched since. Raises GitFailed, OSError."""
    if not reset.may_have_submodules(git):
        return snapshot
    fetched = {name: inner for name, inner in _open_submodules(git) if name not in snapshot.inner}
    return replace(snapshot, inner={**snapshot.inner, **{name: _take_own(inner) for name, inner in fetched.items()}})


def find_changes(git: Git, before: TreeSnapshot) -> TreeChanges:
    """Return what differs from a snapshot of the same worktree. Raises GitFailed, OSError."""
    changes = _find_own(git, before)
    if not before.inner:
        return changes
    for name, inner in _open_submodules(git):
        if name in before.inner:
            changes = changes.with_inner(name, _find_own(inner, before.inner[name]))
    return changes


def restore_files(git: Git, before: TreeSnapshot, changes: TreeChanges) -> None:
    """Put the changed files back to the commit. Those of submodules are put back with them. Raises GitFailed."""
    names = [file.name for file in changes.changed if file.name in before.stats]
    for start in range(0, len(names), _NAMES_PER_COMMAND):
        git.out("--literal-pathspecs", "checkout", "HEAD", "--", *names[start : start + _NAMES_PER_COMMAND])


def _open_submodules(git: Git) -> list[tuple[str, Git]]:
    roots = reset.list_roots(git)
    names = (name for name, _ in reset.list_submodules(git))
    opened = ((name, reset.open_submodule(git, roots, name)) for name in names)
    return [(name, inner) for name, inner in opened if inner is not None]


def _take_own(git: Git) -> TreeSnapshot:
    # git compares stats and reads only files whose stat it does not know.
    different = git.names("diff-files", "--name-only", "-z")
    rows = _read_index(git)
    return TreeSnapshot(
        git.out("rev-parse", "HEAD"),
        _index_digest(rows),
        {name: _stat(git.directory / name) for name in map(_name, rows)},
        {name: _digest(git.directory / name) for name in different},
        tuple(_name(row) for row in rows if row.startswith(_SKIPPED)),
    )


def _read_index(git: Git) -> tuple[str, ...]:
    """Return the entries of the index with their flags."""
    return git.names("ls-files", "-s", "-v", "-z")


def _name(row: str) -> str:
    return row.partition("\t")[2]


def _index_digest(rows: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


def _stat(path: Path) -> FileStat | None:
    try:
        stat = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if path.is_dir() and not path.is_symlink():
        return (stat.st_mode, 0, 0, 0, 0)  # a submodule: its own files are compared
    return (stat.st_mode, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def _digest(path: Path) -> str:
    try:
        return str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return ""


def _find_own(git: Git, before: TreeSnapshot) -> TreeChanges:
    index = _index_digest(_read_index(git))
    head = git.out("rev-parse", "HEAD")
    touched = [name for name, stat in before.stats.items() if _stat(git.directory / name) != stat]
    changed = _changed_files(git, before, touched) if touched else ()
    if index != before.index:
        # Flags of the index hide changes from git's comparison.
        reported = {file.name for file in changed}
        changed += _hidden_changes(git, before, [name for name in touched if name not in reported])
    changed_names = {file.name for file in changed}
    return TreeChanges(
        head=head if head != before.head else None,
        written=tuple(
            name
            for name in touched
            if name not in changed_names and _is_rewritten(before.stats[name], _stat(git.directory / name))
        ),
        changed=changed,
    )


def _is_rewritten(before: FileStat | None, after: FileStat | None) -> bool:
    """Return whether the content was written: a change of the mode or of the number of links changes ``ctime`` only."""
    return before is None or after is None or (before[1], before[3]) != (after[1], after[3])


def _changed_files(git: Git, before: TreeSnapshot, touched: Sequence[str]) -> tuple[ChangedFile, ...]:
    """Return the touched files whose content or mode differs from the commit, or from what it was before."""
    files: list[ChangedFile] = []
    regular = [name for name in touched if name not in before.different]
    for start in range(0, len(regular), _NAMES_PER_COMMAND):
        files += _diff(git, before.head, regular[start : start + _NAMES_PER_COMMAND])
    files += [
        ChangedFile(name)
        for name, digest in before.different.items()
        if name in touched and _digest(git.directory / name) != digest
    ]
    return tuple(sorted(files, key=lambda file: file.name))


def _hidden_changes(git: Git, before: TreeSnapshot, names: Sequence[str]) -> tuple[ChangedFile, ...]:
    """Return the files whose content differs from the commit, whatever the index says."""
    hidden = []
    for name in names:
        path = git.directory / name
        if name in before.different or path.is_symlink() or not path.is_file():
            continue
        stored = git.out("hash-object", f"--path={name}", "--", str(path))
        if stored != git.out("rev-parse", f"{before.head}:{name}"):
            hidden.append(ChangedFile(name))
    return tuple(hidden)


def _diff(git: Git, head: str, names: Sequence[str]) -> list[ChangedFile]:
    """Return the files that differ from the commit. ``names`` must not be empty: without names git compares all."""
    changed = git.names("--literal-pathspecs", "diff", "--name-only", "--no-renames", "-z", head, "--", *names)
    return [_describe(git, head, name) for name in changed]


def _describe(git: Git, head: str, name: str) -> ChangedFile:
    patch = git.raw("--literal-pathspecs", "diff", "-U0", "--no-renames", head, "--", name).splitlines()
    if any(line.startswith(b"deleted file mode") for line in patch):
        return ChangedFile(name, "it is gone")
    is_content = any(line.startswith((b"@@", b"Binary files")) for line in patch)
    return ChangedFile(name, _first_line(patch), is_mode_only=not is_content)


def _first_line(patch: Sequence[bytes]) -> str:
    """Return the first changed line of a patch with its number; empty without one, as for a binary file."""
    number = ""
    for line in patch:
        if line.startswith(b"@@ -"):
            number = line.split(b"+", 1)[1].split(b" ")[0].split(b",")[0].decode()
        elif number and line[:1] in (b"+", b"-"):
            text = line.decode("utf-8", "backslashreplace")
            return f"line {number}: {text[:_MAX_LINE]}"
    return ""
