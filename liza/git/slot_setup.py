"""Untracked files of a slot: copies of the person's files, what the set-up left, and what tests left.

The record in the git directory of a slot says for which inputs the set-up ran, and which names were untracked after it.
In a merge slot only those names stay from one gate to the next. A directory without a tracked file is one name.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from liza.box import support
from liza.config.rules import breakage, test_proof
from liza.git import hiding, reset
from liza.git.git_config import git_dirs
from liza.git.rules import slot_states
from liza.git.runner import Git
from liza.model.configuration import Config, Confinement
from liza.model.errors import Refused, UsageError
from liza.model.value_classes import Value, asdict, decodable, replace
from liza.system import atomic

_NEVER_COPIED = {".git", ".liza", ".worktrees"}
# Files in the git directory of a slot: the last set-up; tests that have started and not passed.
_SETUP_RECORD = "liza-setup"
_TESTS_MARK = "liza-unproved"
_NAMES_PER_COMMAND = 500
_CLEAN_LIMIT = 600.0  # seconds
_MEDIA = frozenset(
    (".png", ".jpg", ".jpeg", ".gif", ".webp", ".ico", ".svg", ".pdf", ".woff", ".woff2", ".ttf", ".mp4")
)


class SetupRecord(Value):
    """The last set-up of a slot: the digest of its inputs, the names that git ignores in this slot only, and the
    untracked names after it. ``before``: the unignored names before a set-up that has not completed."""

    inputs: str = ""
    hidden: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    before: tuple[str, ...] | None = None


def copy_files(root: Path, git: Git, patterns: Sequence[str]) -> tuple[str, ...]:
    """Copy files of ``root`` that match ``patterns`` (relative globs) into the slot of ``git``. Return their names.

    Tracked and identical files are skipped. Raises UsageError for a pattern that leaves the root, Refused if a link
    leads out of the slot, OSError.
    """
    names = _find_copied(root, patterns)
    tracked = set(git.names("ls-files", "-z")) if names else set()
    slot = git.directory
    copied: list[str] = []
    for name in names:
        source, target = root / name, slot / name
        if name in tracked or _has_equal_content(source, target):
            continue
        _make_parents(slot, target)
        with source.open("rb") as file, atomic.replacing(target, source.stat().st_mode & 0o777, sync=False) as copy:
            shutil.copyfileobj(file, copy)
        shutil.copystat(source, target)
        copied.append(name)
    return tuple(copied)


def bring(root: Path, git: Git, config: Config) -> bool:
    """Copy the files of ``config.sandbox_copy`` into the slot of ``git``. Return whether its set-up is due.

    Copies that git does not ignore are hidden in the slot. Raises what ``copy_files`` and ``is_setup_due`` raise.
    """
    copied = copy_files(root, git, config.sandbox_copy)
    record = _read_record(git)
    names = (*record.hidden, *_list_unignored(git, copied))
    _write_record(git, replace(record, hidden=_hide(git, names)), record)
    return is_setup_due(root, git, config)


def begin_setup(git: Git) -> None:
    """Record the untracked files before a set-up: what it adds to them is hidden. Raises GitFailed, OSError."""
    record = _read_record(git)
    if record.before is None:  # else a set-up was killed: what it left is not work of the agent
        _write_record(git, replace(record, before=list_unignored(git)), record)


def is_setup_due(root: Path, git: Git, config: Config) -> bool:
    """Return whether the set-up must run in the slot of ``git``: it never ran there, or its inputs changed.

    Inputs are the command, ``config.sandbox_setup_files``, the files of ``config.sandbox_copy`` in ``root``, HEAD if
    the set-up builds from sources, and whether it runs in a box. For a directory, such as a submodule, its entry in
    the commit counts. In a merge slot each tracked file is an input that is no source, test or document: a set-up can
    read files that its command does not name. Raises GitFailed, OSError.
    """
    return bool(config.sandbox_setup) and _read_record(git).inputs != digest_inputs(root, git, config)


def mark_setup_done(root: Path, git: Git, config: Config) -> None:
    """Record that the set-up has run for the current inputs, and what is untracked now. Hide what it left.

    Raises GitFailed, OSError.
    """
    record = _read_record(git)
    left = [name for name in list_unignored(git) if name not in (record.before or ())]
    hidden = _hide(git, (*record.hidden, *left))
    inputs = digest_inputs(root, git, config)
    _write_record(git, SetupRecord(inputs, hidden, tuple(list_untracked(git))), record)


def clear_setup_mark(git: Git) -> None:
    """Make the set-up due again: its results were removed. Raises GitFailed, OSError."""
    record = _read_record(git)
    _write_record(git, SetupRecord(hidden=record.hidden), record)


def forget_untracked(git: Git) -> None:
    """Drop the list of untracked files before a set-up: the slot has another owner. Raises GitFailed, OSError."""
    record = _read_record(git)
    _write_record(git, replace(record, before=None), record)


def hidden_names(git: Git) -> tuple[str, ...]:
    """Return the names that git ignores in this slot only. A directory ends with a slash. Raises GitFailed."""
    return _read_record(git).hidden


def list_unignored(git: Git) -> tuple[str, ...]:
    """Return the untracked files that git does not ignore. A directory is one name with a slash. Raises GitFailed."""
    return git.names("ls-files", "--others", "--exclude-standard", "--directory", "--no-empty-directory", "-z")


def mark_tests_started(git: Git) -> None:
    """Record durably that tests have started in the slot and have not passed. Raises GitFailed, OSError."""
    path = _tests_mark_path(git)
    with path.open("w") as stream:
        stream.write("tests began here and have not passed\n")
        stream.flush()
        os.fsync(stream.fileno())


def mark_tests_passed(git: Git) -> None:
    """Record that the tests in the slot have passed. Raises GitFailed, OSError."""
    _tests_mark_path(git).unlink(missing_ok=True)


def remove_leftovers(root: Path, git: Git, config: Config) -> None:
    """Remove from a merge slot what ``config.merge_clean`` says, except names that match ``config.sandbox_keep``.

    ``after_red``: what the set-up left stays while its inputs are the same and the last tests passed. Anything else
    that git does not track is removed. If a part of what the set-up left is missing, it is due again. Raises
    GitFailed, OSError.
    """
    if config.merge_clean == "never":
        return
    record = _read_record(git)
    is_reusable = (
        config.merge_clean == "after_red"
        and bool(config.sandbox_setup)
        and not _tests_mark_path(git).exists()
        and not is_setup_due(root, git, config)
        and all(os.path.lexists(git.directory / name) for name in record.results)
    )
    leftovers = _list_leftovers(git, record.results) if is_reusable else None
    if leftovers is None:
        remove_untracked(git, config.sandbox_keep)
        return
    options = _clean_options(config.sandbox_keep)
    for repository, names in leftovers:
        for start in range(0, len(names), _NAMES_PER_COMMAND):
            chunk = names[start : start + _NAMES_PER_COMMAND]
            repository.with_timeout(_CLEAN_LIMIT).out("--literal-pathspecs", "clean", *options, "--", *chunk)


def _list_leftovers(git: Git, results: Sequence[str]) -> list[tuple[Git, list[str]]] | None:
    """Return the untracked names beside ``results``, by repository. None if a directory contains files of both kinds:
    the candidate removed the last tracked file of that directory."""
    kept, leftovers = set(results), []
    for prefix, repository in _repositories(git):
        names = [name for name in _list_own(repository) if not _is_covered(prefix + name, kept)]
        if any(other.startswith(prefix + name) for name in names if name.endswith("/") for other in results):
            return None
        if names:
            leftovers.append((repository, names))
    return leftovers


def _is_covered(name: str, results: set[str]) -> bool:
    """Return whether ``name`` or a directory above it is in ``results``."""
    ends = [number + 1 for number, letter in enumerate(name) if letter == "/"]
    return name in results or any(name[:end] in results for end in ends)


def _repositories(git: Git) -> Iterator[tuple[str, Git]]:
    """Yield the slot itself and its fetched submodules, each with the prefix of its names."""
    yield "", git
    if reset.may_have_submodules(git):
        for name, inner in reset.open_submodules(git):
            yield f"{name}/", inner


def list_untracked(git: Git) -> Iterator[str]:
    """Yield the untracked and ignored names of a slot and its submodules. A directory is one name with a slash."""
    for prefix, repository in _repositories(git):
        yield from (prefix + name for name in _list_own(repository))


def _list_own(git: Git) -> tuple[str, ...]:
    # Without exclude rules git lists ignored names too, and does not read a directory that has no tracked file.
    return git.names("ls-files", "--others", "--directory", "-z")


def _list_unignored(git: Git, names: Sequence[str]) -> tuple[str, ...]:
    unignored: list[str] = []
    for start in range(0, len(names), _NAMES_PER_COMMAND):
        chunk = names[start : start + _NAMES_PER_COMMAND]
        unignored += git.names("--literal-pathspecs", "ls-files", "--others", "--exclude-standard", "-z", "--", *chunk)
    return tuple(unignored)


def _hide(git: Git, names: Sequence[str]) -> tuple[str, ...]:
    """Hide ``names`` in the slot, without those that are gone or hold a tracked file. Return the hidden names."""
    present = [name for name in dict.fromkeys(names) if os.path.lexists(git.directory / name)]
    tracked: list[str] = []
    for start in range(0, len(present), _NAMES_PER_COMMAND):
        chunk = present[start : start + _NAMES_PER_COMMAND]
        tracked += git.names("--literal-pathspecs", "ls-files", "-z", "--", *chunk)
    hidden = tuple(
        name
        for name in present
        if not any(other == name or (name.endswith("/") and other.startswith(name)) for other in tracked)
    )
    hiding.write_excludes(git, hidden)
    return hidden


def remove_untracked(git: Git, keep: Sequence[str]) -> None:
    """Remove all untracked and ignored files from a slot, except names that match ``keep`` (as in ``.gitignore``).

    The set-up becomes due. Raises GitFailed, OSError.
    """
    options = _clean_options(keep)
    reset.empty_submodules(git, options)
    git.with_timeout(_CLEAN_LIMIT).out("clean", *options)
    clear_setup_mark(git)


def _clean_options(keep: Sequence[str]) -> tuple[str, ...]:
    return ("--quiet", "-ffdx", *(option for pattern in keep for option in ("-e", pattern)))


def empty_submodules(git: Git, *, remove_foreign: bool = True) -> None:
    """Reset the submodules of a slot to the commit. The set-up becomes due if one must be fetched again.

    ``remove_foreign``: as ``reset.empty_submodules``. Raises GitFailed, OSError.
    """
    if not reset.empty_submodules(git, remove_foreign=remove_foreign):
        clear_setup_mark(git)


def _tests_mark_path(git: Git) -> Path:
    return git_dirs(git)[0] / _TESTS_MARK


def _find_copied(root: Path, patterns: Sequence[str]) -> list[str]:
    """Return the names of the files of ``root`` that match ``patterns``, sorted."""
    return sorted({name for pattern in patterns for name in _find_matches(root, pattern)})


def _find_matches(root: Path, pattern: str) -> Iterator[str]:
    """Yield the names of files that match a pattern, without Liza's and git's own."""
    if not pattern or Path(pattern).is_absolute() or ".." in Path(pattern).parts:
        raise UsageError(f"config.sandbox_copy has {pattern!r}, which is not a path inside the repository", "liza edit")
    for match in root.glob(pattern):
        paths = [match] if not match.is_dir() else [path for path in match.rglob("*") if not path.is_dir()]
        names = (path.relative_to(root) for path in paths if path.is_file())
        yield from (str(name) for name in names if not _NEVER_COPIED & set(name.parts))


def _has_equal_content(source: Path, target: Path) -> bool:
    if target.is_symlink() or not target.is_file() or source.stat().st_size != target.stat().st_size:
        return False
    return source.read_bytes() == target.read_bytes()


def _make_parents(slot: Path, target: Path) -> None:
    """Create the parent directories of ``target``. Raises Refused if a link leads out of the slot."""
    top = slot.resolve()
    path = slot
    for part in target.relative_to(slot).parts[:-1]:
        path = path / part
        if not path.resolve().is_relative_to(top):
            raise Refused(
                f"{path} leads out of the worktree {slot}: no file is copied there", shlex.join(["ls", "-l", str(path)])
            )
        path.mkdir(exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        raise Refused(
            f"{target} is a directory: a file of the same name cannot be copied", shlex.join(["ls", "-l", str(target)])
        )


def _read_record(git: Git) -> SetupRecord:
    """Return the record of a slot. One that is absent, or of another version, says that no set-up has run."""
    try:
        fields = json.loads(_record_path(git).read_text())
        return msgspec.convert(fields, decodable(SetupRecord))
    except (FileNotFoundError, ValueError):
        return SetupRecord()


def _write_record(git: Git, record: SetupRecord, former: SetupRecord) -> None:
    if record != former:
        # json instead of msgspec: a file name may contain bytes that are not UTF-8.
        atomic.write(_record_path(git), json.dumps(asdict(record)).encode(), sync=False)


def _record_path(git: Git) -> Path:
    return git_dirs(git)[0] / _SETUP_RECORD


def digest_inputs(root: Path, git: Git, config: Config, *, are_all_inputs: bool = False) -> str:
    """Return a digest of the inputs of the set-up. An absent file counts as absent.

    ``are_all_inputs``: as in a merge slot, each tracked file is an input that is no source, test or document.
    """
    digest = hashlib.sha256((config.sandbox_setup or "").encode())
    for name in sorted(set(config.sandbox_setup_files)):
        path = git.directory / name
        text = path.read_bytes() if path.is_file() else None
        if path.is_dir():
            text = git.run("rev-parse", "-q", "--verify", f"HEAD:{name}", codes=(0, 1, 128)).stdout
        digest.update(f"\0{name}\0{'absent' if text is None else len(text)}\0".encode() + (text or b""))
    for name in _find_copied(root, config.sandbox_copy):
        content = (root / name).read_bytes()
        digest.update(f"\0copied\0{name}\0{len(content)}\0".encode("utf-8", "surrogateescape") + content)
    if are_all_inputs or slot_states.is_merge_slot(git.directory.name):
        for row in git.names("ls-tree", "-r", "-z", "HEAD"):
            if _may_be_setup_input(row.partition("\t")[2]):
                digest.update(f"\0{row}".encode("utf-8", "surrogateescape"))
    if test_proof.is_setup_due_for_each(config):
        digest.update(b"\0commit\0" + git.out("rev-parse", "HEAD").encode())
    if config.confinement is not Confinement.OFF and support.find_support().works:
        digest.update(b"\0box\0")  # what is in a cache of the person, such as an environment, is not seen there
    return digest.hexdigest()


def _may_be_setup_input(name: str) -> bool:
    """Return whether a set-up may read a tracked file, although its command does not name it.

    Not so are a test, a document, a picture, and a source: the proof breaks sources to see whether the set-up builds.
    """
    return not (
        breakage.is_test(name)
        or breakage.broken_source(name, "") is not None
        or test_proof.is_documentation(name)
        or PurePosixPath(name).suffix.lower() in _MEDIA
    )
