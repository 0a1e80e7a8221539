"""History of the board: one commit for each revision, on a ref that is not a branch.

``git log -p liza/blackboard`` shows it: git resolves a short name below ``refs/`` before tags and branches. ``git
branch`` and ``git push --all`` ignore it. The index and HEAD are not touched.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import BinaryIO

from liza.git.git_config import git_dirs
from liza.git.runner import Git
from liza.model.errors import GitFailed, Refused
from liza.model.paths import HISTORY_REF
from liza.model.value_classes import Value, field
from liza.system import files, untrusted_files

BOARD_FILE = "state.yaml"
GOAL_FILE = "goal.md"
SETTINGS_FILE = "settings.json"
ARCHIVE_DIRECTORY = "archive"
MAX_PACKS = 10
"""Number of small packs above which git joins them."""
SMALL_PACK = 32 << 20  # bytes
_TRAILER = "Liza-Revision"
_REVISION = re.compile(rf"^{_TRAILER}: ([0-9]{{1,16}})\s*\Z", re.MULTILINE)
_COMMITTER = "Liza <liza@localhost>"
_FAST_IMPORT = ("fast-import", "--quiet", "--done", "--date-format=raw")
_INPUT_FILE = "liza-history-input"
"""Name in the git directory that the input of git fast-import has while it is opened."""
_PACK_ANY_SIZE = {"GIT_CONFIG_PARAMETERS": "'fastimport.unpackLimit=1'"}
"""What ``git -c fastimport.unpackLimit=1`` gives to the git that it starts."""


class NewRevision(Value):
    """A revision to record: number, subject and body, time, author, and the complete text of the board.

    ``goal`` is the content of goal.md, ``settings`` the confirmed settings, ``archive`` the changed files of archived
    tasks by name. They are recorded with the last revision of a batch. ``is_first``: a new crew begins, to which the
    archive of an earlier one does not belong.
    """

    revision: int
    subject: str
    body: str
    time: datetime
    author: str
    text: str
    goal: bytes | None = None
    settings: bytes | None = None
    archive: Mapping[str, bytes] = field(default_factory=dict)
    is_first: bool = False


class HistoryConflict(Refused):
    """The history has another text of a revision than the board: of another crew, or of a newer .liza. Exit code 1.

    ``newest`` is the newest commit of that history.
    """

    def __init__(self, message: str, hint: str, newest: str) -> None:
        super().__init__(message, hint)
        self.newest = newest


class Revision(Value):
    """A recorded revision, as the log shows it."""

    revision: int
    subject: str
    body: str
    time: datetime
    author: str
    commit: str


def record_revisions(git: Git, commits: Iterable[NewRevision], *, packed: bool = False) -> int:
    """Commit revisions in one batch and return their number. Revisions that are recorded already are skipped.

    ``packed``: write a pack also for a small batch, which git would write as loose objects. One text at a time is in
    memory. Raises ValueError if the revisions do not ascend, HistoryConflict, GitFailed if git
    fails, WriteFailed if the disk is full; then none was recorded.
    """
    with _fast_import_input(git) as file:
        count = _write_stream(git, commits, file)
        if count:
            importing = git.with_environment(**_PACK_ANY_SIZE) if packed else git
            importing.raw(*_FAST_IMPORT, stdin=file, timeout=600)
    return count


def maintain_objects(git: Git) -> None:
    """Let git join small packs if there are many. No object is pruned, and no reflog expires.

    `git maintenance run --task=incremental-repack` joins only two of several packs of equal size. Raises GitFailed,
    OSError.
    """
    packs = (git_dirs(git)[1] / "objects" / "pack").glob("*.pack")
    small = [path for path in packs if path.stat().st_size < SMALL_PACK and not path.with_suffix(".keep").exists()]
    if len(small) > MAX_PACKS:
        for words in (("write",), ("repack", f"--batch-size={SMALL_PACK}"), ("expire",)):
            git.raw("multi-pack-index", *words, "--no-progress", timeout=600)


@contextmanager
def _fast_import_input(git: Git) -> Iterator[BinaryIO]:
    """Open an empty file without a name, for the input of git: a batch of texts may be too large for the memory."""
    path = git_dirs(git)[1] / _INPUT_FILE
    with files.convert_os_errors():
        path.unlink(missing_ok=True)
        descriptor = untrusted_files.open_regular(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        path.unlink()
    with os.fdopen(descriptor, "w+b") as file:
        yield file


def _write_stream(git: Git, commits: Iterable[NewRevision], file: BinaryIO) -> int:
    """Write the input of git fast-import for the revisions after the recorded tip; return their number."""
    newest = _newest_commit(git)
    recorded = newest[1] if newest is not None else 0
    parent = newest[0] if newest is not None else None
    count = 0
    for commit in _ascending(commits):
        if newest is not None and commit.revision <= recorded:
            _refuse_other_text(git, commit, newest)
            continue
        with files.convert_os_errors():
            file.writelines(_commit_commands(commit, parent))
        parent, count = None, count + 1
    if count:
        with files.convert_os_errors():
            file.write(b"done\n")
            file.seek(0)
    return count


def _refuse_other_text(git: Git, commit: NewRevision, newest: tuple[str, int]) -> None:
    """Raise HistoryConflict unless the history, which ends at ``newest``, has exactly this revision."""
    recorded = newest[1]
    # The numbers ascend, so the revision is among the newest ones.
    entries = list_revisions(git, None, recorded - commit.revision + 2)
    match = next((entry for entry in entries if entry.revision == commit.revision), None)
    if match is not None and read_board_at(git, match.commit) == commit.text:
        return
    base = next((entry.commit for entry in entries if entry.revision < commit.revision), None)
    reset = f"git update-ref {HISTORY_REF} {base}" if base else f"git update-ref -d {HISTORY_REF}"
    raise HistoryConflict(
        f"{HISTORY_REF} has another revision {commit.revision} than this board, of another crew or of a newer copy of "
        ".liza: nothing is recorded",
        f"git update-ref {HISTORY_REF}-{recorded} {HISTORY_REF} && {reset}",
        newest[0],
    )


def _ascending(commits: Iterable[NewRevision]) -> Iterator[NewRevision]:
    """Yield the revisions. Raises ValueError if they do not ascend."""
    before: int | None = None
    for commit in commits:
        if before is not None and commit.revision <= before:
            raise ValueError(f"revisions do not ascend: {commit.revision} after {before}")
        yield commit
        before = commit.revision


def read_newest(git: Git) -> tuple[int, str] | None:
    """Return the newest recorded revision and its text, or None without a history. Raises GitFailed."""
    newest = _newest_commit(git)
    return None if newest is None else (newest[1], read_board_at(git, newest[0]))


def newest_revision(git: Git) -> int | None:
    """Return the newest recorded revision, or None without a history. Raises GitFailed."""
    newest = _newest_commit(git)
    return None if newest is None else newest[1]


class HistoryProof(Value):
    """The history at one moment: its first and its newest commit, and the newest revision."""

    first: str
    newest: str
    revision: int


def find_proof(git: Git) -> HistoryProof | None:
    """Return the ends of the history, which identify a crew at one moment; None without a history. Raises GitFailed."""
    newest = _newest_commit(git)
    if newest is None:
        return None
    return HistoryProof(git.out("rev-list", "--max-parents=0", newest[0]).splitlines()[-1], *newest)


def read_goal(git: Git) -> bytes | None:
    """Return the last recorded goal.md, or None. Raises GitFailed."""
    return _read_blob(git, GOAL_FILE)


def read_settings(git: Git) -> bytes | None:
    """Return the last recorded confirmed settings, or None. Raises GitFailed."""
    return _read_blob(git, SETTINGS_FILE)


def list_archive(git: Git) -> dict[str, str]:
    """Return the recorded files of archived tasks: their object ids by name. Raises GitFailed."""
    return _list_objects(git, HISTORY_REF, f"{ARCHIVE_DIRECTORY}/")


def has_content(object_id: str | None, data: bytes) -> bool:
    """Return whether the object of a recorded file is this content."""
    if object_id is None:
        return False
    digest = hashlib.sha1 if len(object_id) == 40 else hashlib.sha256
    return digest(b"blob %d\0" % len(data) + data).hexdigest() == object_id


def read_archive_file(git: Git, name: str) -> bytes | None:
    """Return the last recorded file of archived tasks with that name, or None. Raises GitFailed."""
    return _read_blob(git, f"{ARCHIVE_DIRECTORY}/{name}")


def iter_archive_versions(git: Git, name: str) -> Iterator[bytes]:
    """Yield the recorded versions of a file of archived tasks, the newest first. Raises GitFailed."""
    if _newest_commit(git) is None:
        return
    path = f"{ARCHIVE_DIRECTORY}/{name}"
    for commit in git.out("rev-list", HISTORY_REF, "--", path).splitlines():
        done = git.run("cat-file", "blob", f"{commit}:{path}", codes=(0, 128))
        if done.code == 0:
            yield done.stdout
        elif not _list_objects(git, commit, path):
            # The first revision of a crew has no archive: what is older belongs to another one.
            return


def read_first(git: Git) -> str | None:
    """Return the first recorded board, or None without a history. Raises GitFailed."""
    if _newest_commit(git) is None:
        return None
    return read_board_at(git, git.out("rev-list", "--max-parents=0", "--max-count=1", HISTORY_REF))


def _read_blob(git: Git, name: str) -> bytes | None:
    done = git.run("cat-file", "blob", f"{HISTORY_REF}:{name}", codes=(0, 128))
    if done.code == 0:
        return done.stdout
    # 128 is also the exit status for an object that is missing or damaged.
    recorded = _list_objects(git, HISTORY_REF, name)
    return git.raw("cat-file", "blob", *recorded.values()) if recorded else None


def _list_objects(git: Git, commit: str, path: str) -> dict[str, str]:
    """Return the object ids of the files at a path of a commit, by name; none without a history. Raises GitFailed."""
    words = ("ls-tree", "-z", commit, "--", path)
    done = git.run(*words, codes=(0, 128))
    if done.code != 0 and _newest_commit(git) is None:
        return {}
    output = done.stdout if done.code == 0 else git.raw(*words)
    lines = filter(None, output.decode("utf-8", "surrogateescape").split("\0"))
    return {name.rpartition("/")[2]: entry.split()[2] for entry, _, name in (line.partition("\t") for line in lines)}


def read_board_at(git: Git, commit: str) -> str:
    """Return the board of a commit in the history. Raises GitFailed."""
    return git.raw("cat-file", "blob", f"{commit}:{BOARD_FILE}").decode("utf-8", "surrogateescape")


def list_revisions(git: Git, task: str | None, limit: int) -> tuple[Revision, ...]:
    """Return the newest ``limit`` revisions of one task or of all, newest first. Raises GitFailed."""
    if _newest_commit(git) is None:
        return ()
    if task is None:
        return _log_entries(git, f"--max-count={limit}")
    words = ("--extended-regexp", f"--grep=^{re.escape(task)}: ")
    # git looks at all lines of a message, and stops at the limit. Only if another line matched, ask for all.
    for entries in (_log_entries(git, *words, f"--max-count={limit}"), None):
        entries = _log_entries(git, *words) if entries is None else entries
        matching = tuple(entry for entry in entries if entry.subject.startswith(f"{task}: "))
        if len(matching) == limit or len(entries) < limit:
            break
    return matching[:limit]


def _log_entries(git: Git, *words: str) -> tuple[Revision, ...]:
    output = git.raw("log", "-z", *words, "--format=%H%x01%at%x01%an%x01%B", HISTORY_REF)
    return tuple(map(_parse_entry, filter(None, output.decode("utf-8", "surrogateescape").split("\0"))))


def _newest_commit(git: Git) -> tuple[str, int] | None:
    """Return the newest commit of the history and its revision, or None."""
    # Without `--` a file of that name in the checkout would make the argument ambiguous.
    output = git.run("log", "--max-count=1", "--format=%H%n%B", HISTORY_REF, "--", codes=(0, 128)).stdout
    commit, _, message = output.decode("utf-8", "surrogateescape").partition("\n")
    if not commit:
        commit = git.find_commit(HISTORY_REF) or ""
        if not commit:
            return None
        message = git.out("log", "--max-count=1", "--format=%B", commit, "--")
    return commit, _parse_revision(message, commit)


def _parse_revision(message: str, commit: str) -> int:
    """Return the revision number in a commit message. Raises GitFailed if it has none."""
    match = _REVISION.search(message.rstrip() + "\n")
    if not match:
        raise GitFailed(f"{commit[:10]} in the history of the board has no {_TRAILER}", "git log liza/blackboard")
    return int(match.group(1))


def _parse_entry(entry_text: str) -> Revision:
    """Return the revision in one entry of the log."""
    commit, seconds, author, message = entry_text.split("\x01", 3)
    subject, _, rest = message.strip("\n").partition("\n")
    body = rest.strip("\n").rpartition(f"{_TRAILER}:")[0].strip("\n")
    time = datetime.fromtimestamp(int(seconds), UTC)
    return Revision(_parse_revision(message, commit), subject, body, time, author, commit)


def _commit_commands(commit: NewRevision, parent: str | None) -> Iterator[bytes]:
    """Yield the commands of git fast-import for one revision. ``parent`` None: the commit before it in the input."""
    seconds = int(commit.time.timestamp())
    author = re.sub(r"[<>\x00-\x1f]", "", commit.author).strip() or "liza"
    address = re.sub(r"[^A-Za-z0-9._-]", "-", author)
    body = f"{commit.body.strip()}\n\n" if commit.body.strip() else ""
    subject = " ".join(commit.subject.split()) or "revision"
    yield f"commit {HISTORY_REF}\nauthor {author} <{address}@liza> {seconds} +0000\n".encode()
    yield f"committer {_COMMITTER} {seconds} +0000\n".encode()
    yield _data_command(f"{subject}\n\n{body}{_TRAILER}: {commit.revision}\n")
    if parent is not None:
        yield f"from {parent}\n".encode()
    if commit.is_first:
        yield f"D {ARCHIVE_DIRECTORY}\n".encode()
    yield f"M 100644 inline {BOARD_FILE}\n".encode() + _data_command(commit.text)
    if commit.goal is not None:
        yield f"M 100644 inline {GOAL_FILE}\n".encode() + _data_command(commit.goal.decode("utf-8", "surrogateescape"))
    if commit.settings is not None:
        yield f"M 100644 inline {SETTINGS_FILE}\n".encode() + _data_command(commit.settings.decode())
    for name, content in commit.archive.items():
        yield f"M 100644 inline {ARCHIVE_DIRECTORY}/{name}\n".encode() + _data_command(
            content.decode("utf-8", "surrogateescape")
        )


def _data_command(text: str) -> bytes:
    content = text.encode("utf-8", "surrogateescape")
    return b"data %d\n%s\n" % (len(content), content)
