"""Every revision of the board is a commit that a person can look at, on no branch."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from liza.git import board_history
from liza.git.board_history import NewRevision
from liza.git.runner import Git
from liza.model.errors import GitFailed
from tests.conftest import commit_all, git

START = datetime(2026, 1, 1, tzinfo=UTC)


def revision(number: int, task: str = "task-3", text: str | None = None) -> NewRevision:
    return NewRevision(
        number,
        f"{task}: CLAIMED → READY_FOR_REVIEW (coder-1.{number})",
        f"note {number}",
        START + timedelta(seconds=number),
        "coder-1",
        f"revision: {number}\n" if text is None else text,
    )


def test_a_person_reads_the_audit_and_branches_stay_clean(repo: Path) -> None:
    assert board_history.record_revisions(Git(repo), [revision(1), revision(2), revision(5)]) == 3
    log = git(repo, "log", "-p", "liza/blackboard")
    assert "task-3: CLAIMED → READY_FOR_REVIEW (coder-1.5)" in log
    assert "Liza-Revision: 5" in log
    assert "+revision: 5" in log
    assert git(repo, "log", "-1", "--format=%an %ae %at", "liza/blackboard").split() == [
        "coder-1",
        "coder-1@liza",
        "1767225605",
    ]
    assert git(repo, "branch", "--all") == "* main"
    assert git(repo, "status", "--porcelain") == ""


def test_a_file_named_like_the_ref_is_not_mistaken(repo: Path) -> None:
    path = repo / "refs" / "liza" / "blackboard"
    path.parent.mkdir(parents=True)
    path.write_text("of the project\n")
    commit_all(repo, "a file")
    assert board_history.read_newest(Git(repo)) is None
    assert board_history.record_revisions(Git(repo), [revision(1)]) == 1
    assert board_history.read_newest(Git(repo)) == (1, "revision: 1\n")


def test_the_short_name_works_inside_a_slot_too(repo: Path, tmp_path: Path) -> None:
    board_history.record_revisions(Git(repo), [revision(1)])
    git(repo, "worktree", "add", "-q", "--detach", str(tmp_path / "s1"))
    (repo / ".git" / "worktrees" / "s1" / "liza").write_text("{}\n")
    assert git(tmp_path / "s1", "log", "--format=%s", "liza/blackboard").startswith("task-3")


def test_a_push_of_everything_does_not_publish_it(repo: Path, tmp_path: Path) -> None:
    board_history.record_revisions(Git(repo), [revision(1)])
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    git(repo, "push", "-q", "--all", str(tmp_path / "remote.git"))
    assert git(tmp_path / "remote.git", "for-each-ref", "--format=%(refname)") == "refs/heads/main"


def test_a_batch_continues_from_the_tip_without_recorded_revisions(repo: Path) -> None:
    assert board_history.read_newest(Git(repo)) is None
    assert board_history.list_revisions(Git(repo), None, 10) == ()
    board_history.record_revisions(Git(repo), [revision(1), revision(2)])
    assert board_history.record_revisions(Git(repo), [revision(1), revision(2), revision(3)]) == 1
    assert board_history.record_revisions(Git(repo), [revision(3)]) == 0
    assert board_history.record_revisions(Git(repo), []) == 0
    assert [entry.revision for entry in board_history.list_revisions(Git(repo), None, 10)] == [3, 2, 1]
    assert board_history.read_newest(Git(repo)) == (3, "revision: 3\n")
    assert git(repo, "rev-list", "--count", "liza/blackboard") == "3"
    with pytest.raises(ValueError, match="ascend"):
        board_history.record_revisions(Git(repo), [revision(5), revision(4)])


def test_text_survives_byte_by_byte_and_words_form_no_trailer(repo: Path) -> None:
    odd = "crlf\r\nü \udcff no final newline\nfrom refs/heads/main"
    tricky = NewRevision(7, "task-3: x\nLiza-Revision: 99", "Liza-Revision: 98\n\nfrom me", START, "a <b>\n", odd)
    board_history.record_revisions(Git(repo), [tricky])
    assert board_history.read_newest(Git(repo)) == (7, odd)
    entry = board_history.list_revisions(Git(repo), None, 1)[0]
    assert (entry.revision, entry.subject, entry.author) == (7, "task-3: x Liza-Revision: 99", "a b")
    assert entry.body == "Liza-Revision: 98\n\nfrom me"
    assert board_history.read_board_at(Git(repo), entry.commit) == odd


def test_the_log_of_a_task_counts_only_its_own_lines(repo: Path) -> None:
    tasks = ["task-3", "task-31", "task-3", "other", "task-3"]
    board_history.record_revisions(Git(repo), [revision(n, task) for n, task in enumerate(tasks, start=1)])
    assert [entry.revision for entry in board_history.list_revisions(Git(repo), "task-3", 2)] == [5, 3]
    assert [entry.revision for entry in board_history.list_revisions(Git(repo), "task-31", 9)] == [2]
    assert [entry.revision for entry in board_history.list_revisions(Git(repo), None, 2)] == [5, 4]


def test_a_modified_history_is_an_error_and_not_a_beginning(repo: Path) -> None:
    git(repo, "update-ref", "refs/liza/blackboard", "main")
    with pytest.raises(GitFailed, match="no Liza-Revision"):
        board_history.record_revisions(Git(repo), [revision(1)])


def test_a_persons_index_and_a_bare_repository_are_no_matter(repo: Path, tmp_path: Path) -> None:
    (repo / "staged").write_text("x")
    git(repo, "add", "staged")
    board_history.record_revisions(Git(repo), [revision(n) for n in range(1, 150)])
    assert git(repo, "status", "--porcelain") == "A  staged"
    assert board_history.read_newest(Git(repo)) == (149, "revision: 149\n")


@pytest.mark.campaign
def test_large_boards_are_recorded_without_holding_all_in_memory(repo: Path) -> None:
    size, number = 1 << 20, 24
    opened = Git(repo)
    board_history.record_revisions(opened, [revision(1)])
    tracemalloc.start()
    try:
        boards = (revision(n, text=f"revision: {n}\n".ljust(size, "x")) for n in range(2, number + 2))
        assert board_history.record_revisions(opened, boards) == number
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size * number / 2
    assert board_history.read_newest(opened) == (number + 1, f"revision: {number + 1}\n".ljust(size, "x"))
    assert not (repo / ".git" / "liza-history-input").exists()
