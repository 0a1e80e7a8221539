"""The history of the board: a commit a revision, on a ref that is no branch.

``git log -p liza/blackboard`` finds it, because git looks a short name up below ``refs/`` before it thinks of tags and
branches; ``git branch`` and ``git push --all`` do not see it. The index and HEAD of nobody are touched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise

from liza.repo import symbolic_refs
from liza.repo.runner import Git
from liza.rules.errors import GitFailed
from liza.rules.paths import HISTORY_REF

BOARD_FILE = "state.yaml"
GOAL_FILE = "goal.md"
SETTINGS_FILE = "settings.json"
_TRAILER = "Liza-Revision"
_REVISION = re.compile(rf"^{_TRAILER}: ([0-9]{{1,16}})\s*\Z", re.MULTILINE)
_COMMITTER = "Liza <liza@localhost>"


@dataclass(frozen=True)
class NewRevision:
    """A revision to record: its number, subject and body, when and by whom, and the whole text of the board.

    ``goal`` is the person's page of the goal, ``settings`` are those they confirmed, where these are kept with it.
    """

    revision: int
    subject: str
    body: str
    time: datetime
    author: str
    text: str
    goal: bytes | None = None
    settings: bytes | None = None


@dataclass(frozen=True)
class Revision:
    """A recorded revision, as the log shows it."""

    revision: int
    subject: str
    body: str
    time: datetime
    author: str
    commit: str


def record_revisions(git: Git, commits: Sequence[NewRevision]) -> int:
    """Add revisions in one batch and give their number; those up to the recorded tip are left out.

    Raises ValueError where revisions do not ascend, GitFailed when git fails: then none was added.
    """
    if any(first.revision >= second.revision for first, second in pairwise(commits)):
        raise ValueError(f"revisions do not ascend: {[commit.revision for commit in commits]}")
    known = _newest_commit(git)
    new = [commit for commit in commits if known is None or commit.revision > known[1]]
    if not new:
        return 0
    # Nothing keeps git from following it here.
    symbolic_refs.refuse_symbolic(git, HISTORY_REF)
    stream = b"".join(_fast_import_stream(new, known[0] if known else None))
    git.raw("fast-import", "--quiet", "--done", "--date-format=raw", stdin=stream, timeout=600)
    return len(new)


def read_newest(git: Git) -> tuple[int, str] | None:
    """The newest recorded revision and its text; None where nothing was recorded. Raises GitFailed."""
    known = _newest_commit(git)
    return None if known is None else (known[1], read_board_at(git, known[0]))


def read_goal(git: Git) -> bytes | None:
    """The page of the goal as it was recorded last; None where none was. Raises GitFailed."""
    return _read_blob(git, GOAL_FILE)


def read_settings(git: Git) -> bytes | None:
    """The settings that a person had confirmed, as they were recorded last; None where none were. Raises GitFailed."""
    return _read_blob(git, SETTINGS_FILE)


def read_first(git: Git) -> str | None:
    """The board as it was recorded first; None where nothing was recorded. Raises GitFailed."""
    if _newest_commit(git) is None:
        return None
    return read_board_at(git, git.out("rev-list", "--max-parents=0", "--max-count=1", HISTORY_REF))


def _read_blob(git: Git, name: str) -> bytes | None:
    done = git.run("cat-file", "blob", f"{HISTORY_REF}:{name}", codes=(0, 128))
    return done.stdout if done.code == 0 else None


def read_board_at(git: Git, commit: str) -> str:
    """The board as it was in a commit of the history. Raises GitFailed."""
    return git.raw("cat-file", "blob", f"{commit}:{BOARD_FILE}").decode("utf-8", "surrogateescape")


def list_revisions(git: Git, task: str | None, limit: int) -> tuple[Revision, ...]:
    """The newest ``limit`` revisions, of one task or of all, newest first. Raises GitFailed."""
    if _newest_commit(git) is None:
        return ()
    words = ["log", "-z", "--format=%H%x01%at%x01%an%x01%B", HISTORY_REF]
    if task is None:
        words.insert(1, f"--max-count={limit}")
    else:
        words.insert(1, f"--grep=^{re.escape(task)}: ")
        words.insert(1, "--extended-regexp")
    entries = (_parse_entry(word) for word in git.raw(*words).decode("utf-8", "surrogateescape").split("\0") if word)
    found = [entry for entry in entries if task is None or entry.subject.startswith(f"{task}: ")]
    return tuple(found[:limit])


def _newest_commit(git: Git) -> tuple[str, int] | None:
    """The newest commit of the history and its revision."""
    done = git.run("rev-parse", "-q", "--verify", f"{HISTORY_REF}^{{commit}}", codes=(0, 1))
    commit = done.stdout.decode().strip()
    if not commit:
        return None
    message = git.out("log", "--max-count=1", "--format=%B", commit)
    return commit, _parse_revision(message, commit)


def _parse_revision(message: str, commit: str) -> int:
    found = _REVISION.search(message.rstrip() + "\n")
    if not found:
        raise GitFailed(f"{commit[:10]} in the history of the board has no {_TRAILER}", "git log liza/blackboard")
    return int(found.group(1))


def _parse_entry(word: str) -> Revision:
    commit, seconds, author, message = word.split("\x01", 3)
    subject, _, rest = message.strip("\n").partition("\n")
    body = rest.strip("\n").rpartition(f"{_TRAILER}:")[0].strip("\n")
    time = datetime.fromtimestamp(int(seconds), UTC)
    return Revision(_parse_revision(message, commit), subject, body, time, author, commit)


def _fast_import_stream(commits: Sequence[NewRevision], parent: str | None) -> Iterator[bytes]:
    for commit in commits:
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
            parent = None
        yield f"M 100644 inline {BOARD_FILE}\n".encode() + _data_command(commit.text)
        if commit.goal is not None:
            yield f"M 100644 inline {GOAL_FILE}\n".encode() + _data_command(
                commit.goal.decode("utf-8", "surrogateescape")
            )
        if commit.settings is not None:
            yield f"M 100644 inline {SETTINGS_FILE}\n".encode() + _data_command(commit.settings.decode())
    yield b"done\n"


def _data_command(text: str) -> bytes:
    content = text.encode("utf-8", "surrogateescape")
    return b"data %d\n%s\n" % (len(content), content)
