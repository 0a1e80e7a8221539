"""What a person sees and types at a terminal of 60 columns: questions, the pager, lines, mistyped words."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import git, worktree_of
from tests.journeys.crews import BIN, LIMIT, Crew
from tests.journeys.test_up_and_down import AT_A_TERMINAL

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def at_a_terminal(crew: Crew, *words: str, typed: str = "", code: int = 0, **env: str) -> str:
    """What ``liza`` showed at a pseudo-terminal. ``code``: its exit status."""
    done = subprocess.run(
        [sys.executable, "-c", AT_A_TERMINAL, str(BIN / "liza"), *words],
        cwd=crew.root,
        env={**os.environ, "COLUMNS": "60", "TERM": "xterm", **env},
        input=typed.encode(),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == code, done
    return done.stdout.decode().replace("\r\n", "\n")


def blocked(crew: Crew, *tasks: str) -> None:
    """Tasks that ask: each was claimed by hand, and its coder does not know how to go on."""
    for number, task in enumerate(tasks, 1):
        crew.add(task)
        crew.liza("claim", task, "--agent", f"coder-{number}")
        there = worktree_of(crew.root, task)
        crew.liza("block", "no document says it", "--ask", f"Which one for {task}?", "--ask", "And when?", cwd=there)


@pytest.mark.campaign
def test_answer_asks_its_questions_one_by_one_at_a_terminal(crew: Crew) -> None:
    assert crew.liza("answer") == "no task has an open question\n"
    blocked(crew, "t1", "t2", "t3")
    listed = crew.liza("answer")
    assert listed.count("  And when?\n") == 3
    assert '    liza answer t2 "…"\n' in listed
    assert [one["task"] for one in crew.json("answer")["questions"]] == ["t1", "t2", "t3"]
    first = crew.liza("status").splitlines()
    assert "3 wait for you" in first[0]
    assert first[1].startswith("the crew is off: liza up")
    assert first[3].startswith("! t1 is blocked (no document says it) and asks: Which one for t1? / And when? (for ")
    assert first[4] == '    liza answer t1 "…"'

    shown = at_a_terminal(crew, "answer", typed="red\nnow\n\nblue\nlater\n")
    assert "3 of 3" in shown
    assert "unchanged; answer later: liza answer t2" in shown
    assert [crew.status(task) for task in ("t1", "t2", "t3")] == ["UNCLAIMED", "BLOCKED", "UNCLAIMED"]
    assert [(one.question, one.answer) for one in crew.task("t3").answers] == [
        ("Which one for t3?", "blue"),
        ("And when?", "later"),
    ]
    assert "1 waits for you" in crew.liza("status")
    crew.liza("answer", "t2", "green", "never")
    assert crew.status("t2") == "UNCLAIMED"
    assert "is to do: it has no question" in crew.liza("answer", "t2", code=1)


def test_task_add_asks_for_missing_values_only_at_a_terminal(crew: Crew) -> None:
    shown = at_a_terminal(crew, "task", "add", "--id", "a", "--scope", "a.txt", typed="Write a\n\nREADME.md\n")
    assert "what is to be done" in shown
    assert "files that it may change" not in shown
    added = crew.task("a")
    assert (added.status, added.description, added.done_when) == ("DRAFT", "Write a", "")
    assert (added.scope, added.spec_ref) == ("a.txt", "README.md")
    at_a_terminal(crew, "task", "add", typed="b\nWrite b\nb.txt is there\nb.txt\nREADME.md\n")
    assert crew.status("b") == "UNCLAIMED"
    complete = ("--desc", "d", "--done", "w", "--scope", "s", "--spec", "README.md")
    assert "Enter leaves" not in at_a_terminal(crew, "task", "add", "--id", "c", *complete)
    crew.liza("task", "add", "--id", "d")
    assert crew.status("d") == "DRAFT"
    assert "--id is missing" in crew.liza("task", "add", code=2)
    assert "Enter leaves" not in at_a_terminal(crew, "task", "add", "--id", "e", "--draft")


@pytest.mark.campaign
def test_task_add_refuses_an_unusable_id_before_asking_further(crew: Crew) -> None:
    crew.add("a")
    crew.git("branch", "task/mine")
    for words, typed, code, message in (
        (("--id", "a"), "", 1, "there is a task a already"),
        ((), "a\n", 1, "there is a task a already"),
        ((), "mine\n", 1, "there is a branch task/mine already"),
        ((), "a b\n", 2, "a b"),
        ((), "\n", 2, "--id is missing"),
    ):
        shown = at_a_terminal(crew, "task", "add", *words, typed=typed, code=code)
        assert message in shown
        assert "what is to be done" not in shown


def test_merge_at_a_terminal_names_the_tests_it_waits_for(crew: Crew) -> None:
    crew.prepare("config", "set", "integration_command", "test -f README.md")
    for task in ("first", "second"):
        there = crew.work_by_hand(task)
        crew.prepare("submit", cwd=there)
        crew.prepare("verdict", "approve", "read it", "--task", task)
    shown = at_a_terminal(crew, "merge", "first")
    assert shown.index("testing with: test -f README.md\n") < shown.index("first merged as")
    done = crew.run("merge", "second")
    assert (done.returncode, done.stderr) == (0, "")
    assert "testing with: test -f README.md\n" in at_a_terminal(crew, "land", "--merge")


def test_land_pr_accepts_only_the_address_that_it_shows(crew: Crew, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "origin.git")
    crew.git("remote", "add", "origin", "../origin.git")
    crew.git("push", "-q", "origin", "main")
    crew.git("checkout", "-q", "integration")
    crew.git("commit", "-q", "--allow-empty", "-m", "a person's own")
    crew.git("checkout", "-q", "main")
    crew.prepare("sync", "integration")
    said = crew.liza("land", "--pr", code=1)
    assert "push integration at" in said.splitlines()[0]
    assert said.endswith("next: liza land --pr --origin ../origin.git\n")
    shown = at_a_terminal(crew, "land", "--pr", typed="y\n")
    said = " ".join(shown.split())
    assert "of ../origin.git (no person has accepted the address of origin" in said.replace(", and refs/notes/liza", "")
    tip = crew.git("rev-parse", "integration")
    assert git(tmp_path / "origin.git", "rev-parse", "integration") == tip
    assert "is already at integration of origin" in crew.liza("land", "--pr")


@pytest.mark.sample(1)
def test_history_uses_the_coloured_pager_of_git(crew: Crew) -> None:
    crew.add("t1")
    pager = f'echo "LESS=$LESS" > {crew.notes}/paged; tee -a {crew.notes}/paged'
    shown = at_a_terminal(crew, "history", "-p", PAGER=pager)
    assert (crew.notes / "paged").exists()
    paged = (crew.notes / "paged").read_text()
    assert paged.startswith("LESS=FRX\n")
    assert "\x1b[38;5;28m+" in paged
    assert paged.partition("\n")[2].strip() == shown.strip()
    assert at_a_terminal(crew, "history", "-p", GIT_PAGER="no-such-pager-here", NO_COLOR="1").count("diff --git")
    crew.git("config", "core.pager", f"touch {crew.notes}/configured; cat")
    assert at_a_terminal(crew, "history", "-p", PAGER="no-such-pager-here").count("diff --git")
    assert (crew.notes / "configured").exists()
    (crew.notes / "paged").unlink()
    assert "\x1b" not in crew.liza("history", "-p", PAGER=pager)
    assert not (crew.notes / "paged").exists()


def test_lines_wrap_between_words_and_commands_stay_whole(crew: Crew) -> None:
    text = "Customers of every country must see their prices in the money of their own country, with the tax"
    crew.add("t1", description=text)
    shown = ESCAPE.sub("", at_a_terminal(crew, "status")).splitlines()
    rows = [number for number, line in enumerate(shown) if line.startswith("t1  to do  ")]
    assert shown[rows[0] + 1].startswith(" " * len("t1  to do  "))
    assert all(len(line) <= 60 or line.startswith("    ") for line in shown), shown
    assert {*text.split()[:10]} <= {word for line in shown for word in line.split()}


def test_a_mistyped_word_or_id_suggests_the_right_one(crew: Crew, tmp_path: Path) -> None:
    crew.add("invoice-model")
    crew.liza("claim", "invoice-model", "--agent", "coder-1")
    assert crew.liza("statsu", code=2).endswith("'statsu'; did you mean status?\n  next: liza status --help\n")
    assert crew.liza("task", "shwo", code=2).endswith("; did you mean show?\n  next: liza task show --help\n")
    assert "; did you mean invoice-model?" in crew.liza("task", "show", "invoise-model", code=1)
    assert "; did you mean coder-1?" in crew.liza("logs", "coder-2", code=1)
    nowhere = tmp_path / "nowhere"
    nowhere.mkdir()
    told = crew.liza("status", code=5, cwd=nowhere)
    begin = 'git init && git add -A && git commit --allow-empty -m "start" && liza init "what you want to have"'
    assert told.endswith(f"nowhere is not in a git repository\n  next: {begin}\n")
    assert crew.liza("note", "use the fonts").startswith("noted for the next brief\n")
    assert crew.liza("note", "--to", "coder-1", "use them").startswith("noted for the next brief of coder-1\n")


def test_purge_names_the_sessions_it_ended(crew: Crew) -> None:
    crew.add("t1")
    crew.agent("coder-1", crew.script("agent", 'echo > "$NOTES/at"\nexec sleep 600\n'))
    crew.wait_note("at")
    told = crew.liza("down", "--purge")
    assert told.startswith("ended first: coder-1, coder-1.1\n")


@pytest.mark.sample(1)
@pytest.mark.parametrize("rows", [24, 5])
def test_a_watched_status_is_repainted_within_the_terminals_rows(crew: Crew, rows: int) -> None:
    crew.add(*(f"task-{number}" for number in range(8)))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(crew.root)
        os.execve(BIN / "liza", ["liza", "status", "--watch"], {**os.environ, "TERM": "xterm", "LINES": str(rows)})
    shown = ""

    def read_until(end: str) -> None:
        nonlocal shown
        while end not in shown.rpartition("\x1b[H")[2]:
            assert select.select([terminal], [], [], LIMIT)[0], shown
            shown += os.read(terminal, 1 << 16).decode()

    try:
        read_until("task-7" if rows == 24 else "more lines: liza status\x1b[K")
        crew.liza("task", "drop", "task-0", "not needed")
        read_until("1 given up")
        read_until("\x1b[J" if rows == 24 else "more lines: liza status\x1b[K")
        os.kill(pid, signal.SIGINT)
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    start, *frames = shown.split("\x1b[H")
    assert start == "\r\n" * (rows - 1), "what the terminal showed is scrolled away"
    assert len(frames) >= 2
    assert "\x1b[2J" not in shown, "nothing is cleared"
    for frame in frames:
        assert len(ESCAPE.sub("", frame.removesuffix("\r\n\x1b[J")).split("\r\n")) <= rows


@pytest.mark.campaign
def test_status_short_names_what_a_directory_lacks(crew: Crew, tmp_path: Path) -> None:
    crew.add("one", "two")
    crew.liza("task", "drop", "two", "not needed")
    assert crew.liza("status", "--short") == "0 wait · 0/1\n"
    other = tmp_path / "other"
    other.mkdir()
    done = crew.run("status", "--short", str(crew.root), str(other))
    first, second = done.stdout.splitlines()
    assert (first, done.returncode) == (f"{crew.root.name}  0 wait · 0/1", 5)
    assert second.startswith("other  ")
    assert "not in a git repository" in second
    crew.paths.state.write_text("tasks: [")
    broken = crew.run("status", "--short", str(crew.root))
    assert (broken.returncode, len(broken.stdout.splitlines())) == (4, 1)
    assert crew.run("status", str(crew.root)).returncode == 2
