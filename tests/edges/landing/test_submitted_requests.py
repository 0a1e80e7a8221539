"""liza submit PR: the head of a pull request of origin is reviewed, and its author is told of a return."""

from __future__ import annotations

import json
import os
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from liza.cli.entry_points import run_command
from liza.landing.submitted_requests import comment_returns
from liza.model.model import Submission
from liza.supervisor.foreground import RequestPoll
from tests.conftest import git
from tests.edges.merge_crew import Merges, prepared

GH = """\
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if (here / "fails").exists():
    sys.exit("HTTP 403: no access")
notes = here / "notes"
rows = json.loads(notes.read_text()) if notes.exists() else []
if "--input" in sys.argv:
    (here / "comment").write_text(json.load(sys.stdin)["body"])
    row = {"id": 1, "body": (here / "comment").read_text().replace("\\n", "\\r\\n")}
    notes.write_text(json.dumps([*rows, row if here.joinpath("gh").exists() else {"notes": [row]}]))
elif "comments" in sys.argv[2] or "discussions" in sys.argv[2]:
    print(json.dumps(rows))
else:
    print((here / "answer").read_text())
"""
BY_MEMBER = {
    "state": "open",
    "user": {"login": "ann"},
    "head": {"repo": {"full_name": "acme/shop"}},
    "base": {"repo": {"full_name": "acme/shop"}},
}
FORK = {"head": {"repo": {"full_name": "mallory/shop"}}, "user": {"login": "mallory"}}


@pytest.fixture
def gitlab(crew: Merges, tmp_path: Path) -> Merges:
    """The crew with an origin of GitLab, of which the merge request 12 is."""
    made, url = push(crew.root, "first"), "https://gitlab.com/acme/shop.git"
    git(crew.root, "push", "-q", "origin", f"{made}:refs/merge-requests/12/head")
    git(crew.root, "remote", "set-url", "origin", url)
    git(crew.root, "config", f"url.{tmp_path / 'origin.git'}.insteadOf", url)
    (tmp_path / "bin" / "gh").rename(tmp_path / "bin" / "glab")
    return crew


@pytest.fixture
def crew(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Merges:
    """A crew whose origin, of GitHub, has the request 12."""
    with prepared(tmp_path_factory) as root:
        pass
    origin, programs = tmp_path / "origin.git", tmp_path / "bin"
    git(tmp_path, "init", "-q", "--bare", str(origin))
    git(root, "remote", "add", "origin", "https://github.com/acme/shop.git")
    git(root, "config", f"url.{origin}.insteadOf", "https://github.com/acme/shop.git")
    push(root, "first")
    programs.mkdir()
    (programs / "gh").write_text(f"#!{sys.executable} -IS\n{GH}")
    (programs / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    answer(tmp_path)
    return Merges(root, tmp_path)


def answer(tmp_path: Path, **fields: object) -> None:
    (tmp_path / "bin" / "answer").write_text(json.dumps({**BY_MEMBER, **fields}))


def push(root: Path, text: str) -> str:
    """Push a commit on integration as the head of the request; nothing of it stays in this clone but objects."""
    tree = git(root, "rev-parse", "integration^{tree}")
    made = git(root, "commit-tree", tree, "-p", "integration", "-m", f"Add {text}")
    git(root, "push", "-q", "--force", "origin", f"{made}:refs/pull/12/head")
    return made


def submit(crew: Merges, *words: str) -> int:
    with chdir(crew.root):
        return run_command(["submit", *words])


@pytest.mark.parametrize("word", ["12", "#12", "https://github.com/acme/shop/pull/12"])
def test_a_request_of_a_member_becomes_a_task(crew: Merges, word: str) -> None:
    assert submit(crew, word) == 0
    (task,) = crew.crew.board.read().tasks
    assert task.id == "add-first"
    assert task.submission == Submission(request=12, author="ann")
    assert task.review == "agent"
    assert git(crew.root, "rev-parse", "refs/liza/review/add-first") == task.review_commit


@pytest.mark.parametrize(("source", "is_foreign"), [(7, False), (8, True)])
def test_a_merge_request_of_gitlab_becomes_a_task(
    gitlab: Merges, tmp_path: Path, source: int, is_foreign: bool
) -> None:
    row = {"state": "opened", "author": {"username": "ann"}, "source_project_id": source, "target_project_id": 7}
    (tmp_path / "bin" / "answer").write_text(json.dumps(row))
    assert submit(gitlab, "https://gitlab.com/acme/shop/-/merge_requests/12") == 0
    (task,) = gitlab.crew.board.read().tasks
    assert task.submission == Submission(request=12, author="ann", is_foreign=is_foreign)
    with chdir(gitlab.root):
        assert run_command(["verdict", "reject", "no test", "--task", task.id]) == 0
    assert "no test" in (tmp_path / "bin" / "comment").read_text()


def test_a_request_of_a_fork_waits_for_a_person(crew: Merges, tmp_path: Path) -> None:
    answer(tmp_path, **FORK)
    assert submit(crew, "12", "--review", "agent") == 0
    (task,) = crew.crew.board.read().tasks
    assert task.submission == Submission(request=12, author="mallory", is_foreign=True)
    assert task.review == "human"


def test_without_the_program_its_author_counts_as_foreign(
    crew: Merges, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bin" / "fails").touch()
    assert submit(crew, "12") == 0
    (task,) = crew.crew.board.read().tasks
    assert task.submission is not None
    assert task.submission.is_foreign
    assert "nothing is known of the author of request 12" in capsys.readouterr().err


def test_the_next_push_of_a_request_is_reviewed_anew(crew: Merges) -> None:
    submit(crew, "12")
    second = push(crew.root, "second")
    assert submit(crew, "12") == 0
    (task,) = crew.crew.board.read().tasks
    assert (task.id, task.review_commit) == ("add-first", second)
    assert submit(crew, "12") == 0


def test_a_push_during_review_is_noticed(crew: Merges, tmp_path: Path) -> None:
    answer(tmp_path, **FORK)
    submit(crew, "12")
    first = crew.crew.board.read().tasks[0].review_commit
    told: list[str] = []
    poll = RequestPoll(crew.crew, lambda _, text: told.append(text))
    poll.poll()
    second = push(crew.root, "second")
    poll.poll()
    poll.poll()
    (line,) = told
    assert line.startswith(f"pull request 12 is at {second[:12]}, and add-first was submitted at {str(first)[:12]}")
    assert line.endswith("next: liza submit 12")
    assert crew.alarms()["branch_moved"] in told[0].replace("; next: ", " → ")
    assert crew.crew.board.read().tasks[0].review_commit == first
    submit(crew, "12")
    assert "branch_moved" not in crew.alarms()


@pytest.mark.parametrize("host", ["crew", "gitlab"])
def test_a_comment_is_made_once(host: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    crew: Merges = request.getfixturevalue(host)
    submit(crew, "12")
    (task,) = crew.crew.board.read().tasks
    with chdir(crew.root):
        assert run_command(["verdict", "reject", "no test of it\n\nand  more", "--task", task.id]) == 0
    assert comment_returns(crew.crew, [task.id]) == ("request 12 has this comment",)
    assert len(json.loads((tmp_path / "bin" / "notes").read_text())) == 1


def test_a_rejection_is_a_comment_on_the_request(
    crew: Merges, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    submit(crew, "12")
    with chdir(crew.root):
        assert run_command(["verdict", "reject", "no test", "--task", "add-first"]) == 0
    assert "no test" in (tmp_path / "bin" / "comment").read_text()
    assert "request 12 got a comment" in capsys.readouterr().err
    (tmp_path / "bin" / "fails").touch()
    push(crew.root, "second")
    submit(crew, "12")
    with chdir(crew.root):
        assert run_command(["verdict", "reject", "no test", "--task", "add-first"]) == 0
    assert "request 12 got no comment: gh api" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "code", "says"),
    [
        ("13", 5, "has no request 13"),
        ("https://github.com/other/shop/pull/12", 1, "is no request of github.com/acme/shop"),
    ],
)
def test_a_request_that_is_not_there_is_refused(
    crew: Merges, capsys: pytest.CaptureFixture[str], word: str, code: int, says: str
) -> None:
    assert submit(crew, word) == code
    assert says in capsys.readouterr().err


def test_a_closed_request_is_refused(crew: Merges, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(tmp_path, state="closed")
    assert submit(crew, "12") == 1
    assert "request 12 is closed, not open" in capsys.readouterr().err
