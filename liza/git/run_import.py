"""Import the commits of a run from its git directory, which an agent can write: nothing of it is trusted.

Refs are read by hand, without following a link. A boxed git that can write nothing reads the objects; another one
outside writes and verifies them in a directory of Liza's beside the object store. Only what passes every check is moved
into the store. A killed import leaves that directory, which the next import of the slot removes.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.box.box import Box
from liza.git.git_config import git_dirs
from liza.git.run_git import BASE_PREFIX, REMOTE, ImportRefused, format_alternates, read_tip
from liza.git.runner import Git, GitResult
from liza.model.errors import GitFailed, NotRegularFile
from liza.model.value_classes import Value
from liza.system import atomic, crash_points, files, untrusted_files

MAX_PACK: Final = 1 << 30
"""Maximum size of the new objects of an import as git packs them, in bytes."""
MAX_OBJECT: Final = 512 << 20
"""Maximum size of one new object, in bytes."""
MAX_GROWTH: Final = 4 << 30
"""Maximum size of the changed files of an import, in bytes: a small pack can make a huge checkout."""
MAX_PATHS: Final = 1_000_000
"""Maximum number of changed paths of an import."""
_LIST_LIMIT: Final = 120.0  # seconds to list the changed paths: trees without files may have no end
_MAX_LFS: Final = 16 << 30
_READ_LIMIT: Final = 600.0  # seconds
_CPU_LIMIT: Final = 600  # seconds
_MEMORY_LIMIT: Final = 8 << 20  # KiB
_LIMITED: Final = ("/bin/sh", "-c", f'ulimit -t {_CPU_LIMIT} && ulimit -v {_MEMORY_LIMIT} && exec "$@"', "sh")
_FEW_MAPS: Final = (("core.packedGitWindowSize", "32m"), ("core.packedGitLimit", "1g"), ("pack.threads", "1"))
_INCOMING: Final = "incoming-liza-"
_MAX_ARGUMENTS: Final = 500  # names of changed directories that are passed to git
_LFS_NAME: Final = re.compile(r"[0-9a-f]{64}")


class RunStore(Value):
    """The git directory of a run. ``reader``: a box that can write nothing and has no network, where git reads it."""

    git_dir: Path
    slot: str
    reader: Box


def import_commit(git: Git, store: RunStore, commit: str, bases: Sequence[str]) -> None:
    """Copy a commit of a run, with what it needs, into the repository of ``git``. No ref is changed.

    ``bases``: commits of the repository that the new ones are likely to be based on. The caller holds the lock of the
    slot's import. Raises ImportRefused, GitFailed, OSError.
    """
    remove_incoming(git, store.slot)
    common = git_dirs(git)[1]
    incoming = _incoming_directory(common, store.slot)
    (incoming / "info").mkdir(parents=True)
    try:
        (incoming / "info" / "alternates").write_bytes(format_alternates(common))
        quarantined = git.with_environment(GIT_OBJECT_DIRECTORY=str(incoming)).with_timeout(_READ_LIMIT)
        is_partial = _is_partial(git)
        crash_points.point("import", "begun")
        _transfer(git, quarantined, store, commit, bases, is_partial=is_partial)
        crash_points.point("import", "read")
        packs = sorted((incoming / "pack").glob("pack-*.pack"))
        names = [name for pack in packs for name in _list_objects(pack.with_suffix(".idx"), len(commit) // 2)]
        if names:
            _check(git, quarantined, commit, bases, names, is_partial=is_partial)
        elif git.run("cat-file", "-e", f"{commit}^{{commit}}", codes=(0, 1, 128)).code != 0:
            raise ImportRefused(f"{commit[:12]} is not a commit", f"git cat-file -t {commit[:12]}")
        crash_points.point("import", "checked")
        _move_packs(packs if names else [], common / "objects" / "pack")
    finally:
        shutil.rmtree(incoming, ignore_errors=True)


def import_branch(
    git: Git, store: RunStore, branch: str, run: str, target: str, prepare: Callable[[str], None]
) -> str | None:
    """Move a branch of the repository to where a run has it, with its objects and files of LFS.

    Return the commit of the run's branch; None if the run has no such branch. ``target``: the branch that the work is
    merged into. ``prepare`` is called with that commit before the branch moves. The caller holds the lock of the slot's
    import. Idempotent. Raises ImportRefused, also if something else moved the branch and the run is not based on that,
    GitFailed, OSError.
    """
    ref, base_ref, target_ref = f"refs/heads/{branch}", f"{BASE_PREFIX}{run}", f"refs/heads/{target}"
    tip = read_tip(store.git_dir, ref)
    refs = dict(
        row.split(" ")
        for row in git.lines("for-each-ref", "--format=%(refname) %(objectname)", ref, base_ref, target_ref)
    )
    old, base = refs.get(ref), refs.get(base_ref)
    if tip is None or tip in (old, base):
        return tip
    import_commit(git, store, tip, tuple(filter(None, (old, base, refs.get(target_ref)))))
    import_lfs(git, store)
    crash_points.point("import", "files")
    if old not in (None, base) and not git.ok("merge-base", "--is-ancestor", str(old), tip):
        raise ImportRefused(
            f"{branch} was moved to {str(old)[:12]} outside of {run}, whose commits are not based on that",
            f"git fetch {REMOTE} && git rebase {REMOTE}/{branch}",
        )
    prepare(tip)
    crash_points.point("import", "prepared")
    git.out("update-ref", "--stdin", stdin=f"update {ref} {tip} {old or '0' * len(tip)}\nupdate {base_ref} {tip}\n")
    crash_points.point("import", "ref")
    return tip


def import_lfs(git: Git, store: RunStore) -> None:
    """Copy the files of LFS that a run added, each verified by its name. Raises ImportRefused, OSError."""
    common = git_dirs(git)[1]
    for path in _list_lfs(store.git_dir):
        target = common / path
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            _copy_verified(store.git_dir, path, target)


def remove_incoming(git: Git, slot: str) -> None:
    """Remove what a killed import of a slot left. Raises OSError."""
    with suppress(FileNotFoundError):
        shutil.rmtree(_incoming_directory(git_dirs(git)[1], slot))


def list_incoming(git: Git) -> tuple[str, ...]:
    """Return the slots with an import that runs or was killed. Raises OSError."""
    directory = git_dirs(git)[1] / "objects"
    return tuple(sorted(path.name.removeprefix(_INCOMING) for path in directory.glob(f"{_INCOMING}*")))


def _incoming_directory(common: Path, slot: str) -> Path:
    return common / "objects" / f"{_INCOMING}{slot}"


def _is_partial(git: Git) -> bool:
    return any((git_dirs(git)[1] / "objects" / "pack").glob("*.promisor"))


class _BoxedReader(Value):
    """Runs a git in the box of a store, with limits of time and memory."""

    box: Box

    def wrap(self, _git: Git, _args: Sequence[str], argv: Sequence[str]) -> list[str]:
        """Return the command line that runs ``argv`` in the box."""
        return self.box.wrap([*_LIMITED, *argv])


def _transfer(
    git: Git, quarantined: Git, store: RunStore, commit: str, bases: Sequence[str], *, is_partial: bool
) -> None:
    """Read the objects of a commit in the box, and write them to the quarantine, verified."""
    common = git_dirs(git)[1]
    borrowed = str(common / "objects").replace("\\", "\\\\").replace('"', '\\"')
    reader = git.with_box(_BoxedReader(store.reader)).with_config(*_FEW_MAPS).with_timeout(_READ_LIMIT)
    reader = reader.with_environment(
        GIT_OBJECT_DIRECTORY=str(store.git_dir / "objects"),
        GIT_ALTERNATE_OBJECT_DIRECTORIES=f'"{borrowed}"',
    )
    missing = ("--missing=allow-promisor",) if is_partial else ()
    revisions = "".join(f"{line}\n" for line in (commit, *(f"^{base}" for base in bases)))
    # The objects of a partial clone may name others that only its remote has.
    strict = "--fsck-objects" if is_partial else "--strict"
    words = ("index-pack", "--stdin", "--fix-thin", strict, f"--max-input-size={MAX_PACK}")
    written: GitResult | None = None
    try:
        options = ("--revs", "--thin", "--stdout", "-q", "--delta-base-offset", *missing)
        with reader.converse("pack-objects", *options) as (requests, pack):
            with suppress(BrokenPipeError):
                requests.write(revisions.encode())
                requests.close()
            written = quarantined.run(*words, stdin=pack)
    except GitFailed as error:
        if written is not None and written.code != 0 and "early EOF" not in written.stderr:
            raise _explain_index_pack(commit, written.stderr) from error  # it ended first
        raise ImportRefused(
            f"the objects of {commit[:12]} cannot be read: {error.message}", f"git fsck {commit[:12]}"
        ) from error
    if written.code != 0:
        raise _explain_index_pack(commit, written.stderr)


def _explain_index_pack(commit: str, stderr: str) -> GitFailed:
    lines = [line for line in stderr.splitlines() if line.startswith(("fatal:", "error:"))]
    reason = " · ".join(lines[:2]) or "no error message"
    if "exceeds maximum allowed size" in stderr:
        return _too_large(commit, f"its new objects have more than {MAX_PACK >> 20} MB")
    if "No space left" in stderr or "Disk quota" in stderr:
        return GitFailed(f"{commit[:12]} was not imported: {reason}", "df -h .")
    return ImportRefused(f"{commit[:12]} has an object that git does not accept: {reason}", f"git fsck {commit[:12]}")


def _too_large(commit: str, reason: str) -> ImportRefused:
    return ImportRefused(f"{commit[:12]} is too large to be imported: {reason}", f"git show --stat {commit[:12]}")


def _list_objects(index: Path, size: int) -> list[str]:
    """Return the ids of the objects of a pack from its index (version 2), which git has just written."""
    data = index.read_bytes()
    start = 8 + 256 * 4
    count = int.from_bytes(data[start - 4 : start], "big")
    return [data[at : at + size].hex() for at in range(start, start + count * size, size)]


def _check(
    git: Git, quarantined: Git, commit: str, bases: Sequence[str], names: Sequence[str], *, is_partial: bool
) -> None:
    """Raise ImportRefused if the quarantine has no complete commit, or one that is too large to be checked out."""
    missing = ("--exclude-promisor-objects",) if is_partial else ()
    offline = quarantined.with_environment(GIT_NO_LAZY_FETCH="1")
    kinds = _read_headers(offline, [commit, *names])
    if kinds[commit][0] != "commit":
        raise ImportRefused(f"{commit[:12]} is a {kinds[commit][0]}, not a commit", f"git cat-file -t {commit[:12]}")
    largest = max(names, key=lambda name: kinds[name][1])
    size = kinds[largest][1]
    if size > MAX_OBJECT:
        raise _too_large(commit, f"{largest[:12]} has {size >> 20} MB, at most {MAX_OBJECT >> 20} MB are allowed")
    blobs = _list_changed_blobs(offline.with_timeout(_LIST_LIMIT), commit, bases[:1])
    sizes = _read_headers(offline, list(dict.fromkeys(blobs)))
    growth = sum(sizes[blob][1] for blob in blobs) >> 20
    if growth > MAX_GROWTH >> 20:
        raise _too_large(commit, f"its changed files have {growth} MB, at most {MAX_GROWTH >> 20} MB are allowed")
    connected = quarantined.run("rev-list", "--objects", "--quiet", *missing, commit, "--not", "--all")
    if connected.code != 0:
        raise ImportRefused(f"{commit[:12]} is not complete: {connected.stderr[:200]}", f"git fsck {commit[:12]}")


def _read_headers(git: Git, names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the types of objects and their sizes in bytes; ``missing`` and 0 for an absent one. Raises GitFailed."""
    text = git.raw("cat-file", "--batch-check", stdin="".join(f"{name}\n" for name in names)).decode("ascii", "replace")
    rows = (line.split(" ") for line in text.splitlines())
    return {row[0]: (row[1], int(row[2]) if len(row) == 3 else 0) for row in rows}


def _list_changed_blobs(git: Git, commit: str, base: Sequence[str]) -> list[str]:
    """Return the object of each file that a checkout of ``commit`` writes in one of ``base``, if there is one.

    A small pack can have a tree with more paths than fit on a disk: no more than MAX_PATHS are read. Raises
    ImportRefused.
    """
    changed = git.names("diff-tree", "-z", "--name-only", "--no-renames", *base, commit) if base else ()
    only = changed if len(changed) <= _MAX_ARGUMENTS else ()
    before = set(git.names("ls-tree", "-r", "-z", *base, "--", *only)) if base else set()
    blobs: list[str] = []
    rest = b""
    try:
        # Unlike git diff-tree -r this command prints each path at once.
        with git.converse("ls-tree", "-r", "-z", commit, "--", *only) as (_, output):
            while block := output.read(1 << 16):
                *rows, rest = (rest + block).split(b"\0")
                new = (row.decode("utf-8", "surrogateescape") for row in rows)
                blobs += [row.split(" ", 2)[2].partition("\t")[0] for row in new if row not in before]
                if len(blobs) > MAX_PATHS:
                    raise _too_large(commit, f"it changes more than {MAX_PATHS} paths")
    except ImportRefused:
        raise
    except GitFailed as error:
        text = f"the paths that {commit[:12]} changes cannot be listed: {error.message}"
        raise ImportRefused(text, f"git show --stat {commit[:12]}") from error
    return blobs


def _move_packs(packs: Sequence[Path], directory: Path) -> None:
    """Move packs into the object store. The index is last: git looks for the pack only if there is one."""
    directory.mkdir(exist_ok=True)
    for pack in packs:
        for suffix in (".pack", ".rev", ".idx"):
            with suppress(FileNotFoundError):
                pack.with_suffix(suffix).rename(directory / pack.with_suffix(suffix).name)
            crash_points.point("import", f"moved{suffix}")
    if packs:
        files.fsync_directory(directory)


def _list_lfs(git_dir: Path) -> Iterator[str]:
    """Yield the paths of the LFS files below a run's git directory. Links are not followed."""
    top = "lfs/objects"
    for first in _list_names(git_dir, top):
        for second in _list_names(git_dir, f"{top}/{first}"):
            names = _list_names(git_dir, f"{top}/{first}/{second}")
            own = (name for name in names if _LFS_NAME.fullmatch(name) and name.startswith(f"{first}{second}"))
            yield from (f"{top}/{first}/{second}/{name}" for name in own)


def _list_names(git_dir: Path, path: str) -> list[str]:
    try:
        return untrusted_files.list_below(git_dir, path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _copy_verified(git_dir: Path, path: str, target: Path) -> None:
    """Copy a file whose name is the SHA-256 of its content. Raises ImportRefused if it is not."""
    digest = target.name
    try:
        descriptor = untrusted_files.open_below(git_dir, path)
    except (OSError, NotRegularFile) as error:
        raise ImportRefused(
            f"the LFS file {digest[:12]} of {git_dir} cannot be read: {error}", shlex.join(["rm", str(git_dir / path)])
        ) from error
    computed = hashlib.sha256()
    with os.fdopen(descriptor, "rb") as source, atomic.replacing(target, 0o644, label="lfs") as copy:
        size = 0
        while chunk := source.read(1 << 20):
            size += len(chunk)
            computed.update(chunk)
            copy.write(chunk)
            if size > _MAX_LFS:
                break
        if computed.hexdigest() != digest:
            raise ImportRefused(f"the LFS file {digest[:12]} of {git_dir} has another content", "git lfs fsck")
