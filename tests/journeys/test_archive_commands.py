"""The archive by the installed commands: what is still shown, what is refused, what comes back after a git clean."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from liza.board.file_store import archive_files
from liza.system.locks import is_flock_held
from tests.conftest import worktree_of
from tests.journeys.crews import Crew


def merged_by_hand(crew: Crew, task: str) -> None:
    crew.work_by_hand(task)
    there = worktree_of(crew.root, task)
    crew.prepare("submit", cwd=there)
    crew.prepare("verdict", "approve", "good", "--task", task)
    crew.prepare("merge", task)


@pytest.mark.campaign
def test_an_archived_task_is_still_shown_counted_and_depended_on(crew: Crew) -> None:
    merged_by_hand(crew, "mail")
    crew.add("other")
    crew.prepare("task", "drop", "other", "not wanted")
    before = crew.json("task", "show", "mail")
    metrics = crew.json("metrics")
    moved = crew.json("archive")
    assert (moved["result"], moved["archived"], moved["total"]) == ("changed", ["mail", "other"], 2)
    assert crew.json("archive")["result"] == "unchanged"
    assert crew.state().tasks == ()

    assert crew.json("task", "show", "mail") == before
    assert "mail.txt" in crew.liza("diff", "mail")
    assert "mail merged as" in crew.liza("history", "mail")
    assert "APPROVED → MERGED" in crew.liza("history", "mail", "--all")
    assert "archive: mail, other" in crew.liza("history", "--all")
    assert "without 2 archived tasks: liza history --all" in crew.liza("history")
    status = crew.json("status")
    assert status["archived"] == {"total": 2, "by_status": {"ABANDONED": 1, "MERGED": 1}}
    assert status["tasks"] == []
    assert "1 merged" in crew.liza("status")
    now = crew.json("metrics")
    for name in ("total", "merged", "approved", "rejected", "by_status", "untested_merges"):
        assert now[name] == metrics[name], name
    assert "mail is merged and in the archive" in crew.liza("task", "drop", "mail", code=1)
    assert "mail is merged and in the archive" in crew.liza("merge", "mail", code=1)
    words = ("--desc", "d", "--done", "d", "--scope", "s", "--spec", "README.md")
    assert "belongs to a task in the archive" in crew.liza("task", "add", "--id", "mail", *words, code=1)
    crew.liza("task", "add", "--id", "next", *words, "--depends", "mail")
    crew.liza("claim", "next", "--agent", "coder-2")
    crew.liza("task", "release", "next")
    assert crew.json("validate")["valid"]

    shutil.rmtree(crew.paths.archive)
    [violation, *_] = json.loads(crew.run("validate", "--json").stdout)["violations"]
    assert (violation["entry"], violation["found"][:8]) == ("archive", "damaged:")
    restored = crew.json("restore", "--last-good")
    assert len(restored["archive"]) == 1
    assert crew.json("task", "show", "mail") == before

    shutil.rmtree(crew.root / ".liza")
    crew.liza("restore", "--last-good")
    assert crew.json("task", "show", "mail") == before
    assert [task.id for task in crew.state().tasks] == ["next"]
    assert crew.json("validate")["valid"]


def test_task_list_names_archived_tasks_and_archived_lists_them(crew: Crew) -> None:
    merged_by_hand(crew, "mail")
    crew.add("other", "open")
    crew.prepare("task", "drop", "other", "not wanted")
    assert "archive" not in crew.liza("task", "list")
    crew.prepare("archive")
    assert crew.liza("validate").endswith(": 1 task and 2 archived ones, no violation\n")
    note = "closed tasks are in the archive: liza task list --archived"
    assert crew.liza("task", "list").splitlines()[-1] == f"2 {note}"
    merged = crew.liza("task", "list", "--status", "MERGED").splitlines()
    assert merged == ["no tasks", "1 closed task is in the archive: liza task list --archived"]
    assert "archive" not in crew.liza("task", "list", "--status", "UNCLAIMED")
    listed = crew.json("task", "list")
    assert [task["id"] for task in listed["tasks"]] == ["open"]
    assert listed["archived"] == crew.json("status")["archived"]

    commit = crew.json("task", "show", "mail")["merge_commit"]
    lines = [line.split() for line in crew.liza("task", "list", "--archived").splitlines()]
    assert lines == [["mail", "merged", "merged", "as", commit[:10]], ["other", "given", "up"]]
    shown = crew.json("task", "list", "--archived", "--status", "merged")["tasks"]
    assert [(task["id"], task["status"], task["merge_commit"]) for task in shown] == [("mail", "MERGED", commit)]
    assert crew.liza("task", "show", "mail").startswith("mail  merged\n")  # what the README waits for


def test_commands_that_change_a_task_report_that_it_is_archived(crew: Crew) -> None:
    crew.add("a1", "a2")
    crew.prepare("task", "drop", "a1", "not wanted")
    crew.prepare("archive")
    for words in (
        ("claim", "a1", "--agent", "coder-1"),
        ("claim", "a1", "--agent", "code-reviewer-1"),
        ("verdict", "approve", "x", "--task", "a1"),
        ("note", "--to", "a1", "hi"),
        ("note", "--to", "a1", "--now", "hi"),
        ("answer", "a1", "yes"),
        ("answer", "a1"),
    ):
        told = crew.liza(*words, code=1)
        assert "a1 is given up and in the archive" in told, words
        assert "next: liza task show a1" in told, words


def test_closed_tasks_above_the_limit_are_archived_by_commands(crew: Crew) -> None:
    crew.configure(archive_after=2)
    crew.add("a", "b", "c")
    for task in "abc":
        crew.prepare("task", "drop", task, "no")
    assert [task.id for task in crew.state().tasks] == ["c"]
    assert crew.state().archived.total == 2
    crew.add("d")
    crew.prepare("task", "drop", "d", "no")
    merged_by_hand(crew, "mail")
    assert [task.id for task in crew.state().tasks] == ["mail"]
    assert crew.state().archived.total == 4
    assert crew.liza("task", "show", "a").startswith("a  given up")


def test_archive_files_are_never_read_under_the_board_lock(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    crew.add("a", "b", "c")
    crew.prepare("task", "drop", "a", "no")
    crew.prepare("archive")
    held = []
    read_text = archive_files.read_text

    def look(*arguments: Any) -> str:
        held.append(is_flock_held(crew.paths.state_lock))
        return read_text(*arguments)

    monkeypatch.setattr(archive_files, "read_text", look)
    words = ("--desc", "d", "--done", "d", "--scope", "s", "--spec", "README.md")
    successors = crew.notes / "successors.yaml"
    named = {"description": "d", "done_when": "d", "scope": "s", "spec_ref": "README.md", "depends_on": ["a"]}
    successors.write_text(json.dumps({"id": "d", **named}))
    for number, command in enumerate(
        (
            ("task", "edit", "b", "--depends", "a"),
            ("task", "supersede", "c", "--file", successors, "--because", "why"),
            ("task", "add", "--id", "e", *words, "--depends", "a"),
        ),
        1,
    ):
        archive_files._texts.clear()
        crew.prepare(*map(str, command))
        assert held == [False] * number, command
