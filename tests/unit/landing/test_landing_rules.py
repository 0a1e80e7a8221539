"""What may be pushed, which program opens the pull request, and what its text may not do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from liza.git.rules.push_address import PushFailure, classify_failure
from liza.git.rules.remote_urls import (
    Forge,
    RemoteRepository,
    find_forge_repository,
    find_request_address,
    hide_credentials,
    parse_remote_url,
)
from liza.landing.rules import request_text
from liza.landing.rules.feedback_text import Issue, complete_fields, compose_issue_spec, parse_issue_source
from liza.landing.rules.push_rules import PushFacts, PushStep, decide_push
from liza.landing.rules.request_text import RequestFacts, compose_body, compose_title, replace_section
from liza.model.errors import UsageError
from liza.model.gates import GateOutcome, GateRun
from liza.model.history_events import HistoryEvent
from liza.model.model import Event, Status, Task
from liza.tasks.rules.backlog import TaskFields

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("remote", "last", "contained", "step"),
    [
        ("tip", None, True, PushStep.NOTHING),
        (None, None, False, PushStep.PUSH),
        (None, "old", False, PushStep.PUSH),  # the branch was deleted after the pull request was merged
        ("old", None, True, PushStep.PUSH),
        ("old", "old", False, PushStep.PUSH),  # integration was moved back: the crew replaces its own commit
        ("other", None, False, PushStep.REFUSE),
        ("other", "old", False, PushStep.REFUSE),
    ],
)
def test_only_what_the_crew_pushed_or_contains_is_replaced(
    remote: str | None, last: str | None, contained: bool, step: PushStep
) -> None:
    assert decide_push(PushFacts("tip", remote, last, contained)) is step


@pytest.mark.parametrize(
    ("output", "failure"),
    [
        ("fatal: could not read Username for 'https://x': terminal prompts disabled", PushFailure.LOGIN),
        ("fatal: unable to access 'https://x/': The requested URL returned error: 403", PushFailure.LOGIN),
        ("git@x: Permission denied (publickey).\nfatal: Could not read from remote repository.", PushFailure.LOGIN),
        ("!\ta:b\t[rejected] (stale info)", PushFailure.MOVED),
        ("!\ta:b\t[remote rejected] (pre-receive hook declined)", PushFailure.REJECTED),
        ("remote: error: GH006: Protected branch update failed\n! [remote rejected]", PushFailure.REJECTED),
        ("fatal: unable to access 'https://x/': Could not resolve host: x", PushFailure.UNREACHABLE),
        ("", PushFailure.UNREACHABLE),
    ],
)
def test_the_cause_of_failed_pushes_is_read_from_git_output(output: str, failure: PushFailure) -> None:
    assert classify_failure(output) is failure


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://github.com/acme/shop.git", "github.com/acme/shop"),
        ("https://ann:secret@github.com/acme/shop", "github.com/acme/shop"),
        ("git@github.com:acme/shop.git", "github.com/acme/shop"),
        ("ssh://git@gitlab.example:2222/group/part/shop.git", "gitlab.example/group/part/shop"),
        ("/srv/git/github/shop.git", None),
        ("file:///srv/github.com/shop.git", None),
        ("https://github.com/--repo=x/y", None),
        ("", None),
    ],
)
def test_a_url_names_a_repository_on_a_host(url: str, name: str | None) -> None:
    repository = parse_remote_url(url)
    assert (repository.full_name if repository else None) == name


def test_the_program_is_chosen_by_the_host() -> None:
    urls = ("/srv/mirror.git", "https://github.acme.example/a/b", "git@gitlab.com:a/b")
    repository = find_forge_repository(urls)
    assert repository is not None
    assert (repository.forge, repository.full_name) == (Forge.GITHUB, "github.acme.example/a/b")
    assert find_forge_repository(("https://git.example/a/b",)) is None


def test_an_address_is_shown_without_credentials() -> None:
    assert hide_credentials("to https://ann:secret@host/x failed") == "to https://host/x failed"
    printed = "Create a pull request by visiting:\n  https://u:p@host/new?x=1\n"
    assert find_request_address(printed) == "https://host/new?x=1"
    assert find_request_address("nothing") is None


def _task(name: str, description: str, verdict: str = "fine") -> Task:
    history = (
        Event(time=NOW, event=HistoryEvent.REJECT.value, agent="code-reviewer-1", detail="no"),
        Event(time=NOW, event=HistoryEvent.APPROVE.value, agent="code-reviewer-1", detail=verdict),
    )
    return Task(id=name, status=Status.MERGED, description=description, approved_by="code-reviewer-1", history=history)


def test_the_request_has_tasks_verdicts_gates_and_no_mentions() -> None:
    run = GateRun(
        time=NOW, gate="tests", candidate="c0ffee", subject="a", tasks=2, seconds=61.0, outcome=GateOutcome.GREEN
    )
    hostile = "Fixes #12 for @ann | <!-- liza: end -->\n# x https://evil.example ghp_" + "a" * 36
    facts = RequestFacts("The shop\nsells", "c0ffee", (_task("a", hostile), _task("b", "Write", "ran it")), (run,))
    body = compose_body(facts)
    assert compose_title(facts) == "The shop sells: 2 tasks"
    assert "| `b` | Write | code-reviewer-1 | 1 | ran it |" in body
    assert "| tests | green | 61 s |" in body
    row = next(line for line in body.splitlines() if line.startswith("| `a`"))
    assert row.replace("\\|", "").count("|") == 6
    assert not any(text in body for text in ("#12", "@ann", "://evil", "ghp_"))
    assert body.count("<!--") == 2
    assert "untested" in compose_body(RequestFacts("", "c0ffee", (), ()))


def test_a_large_landing_keeps_to_the_size_of_a_body() -> None:
    tasks = tuple(_task(f"task-{number}", "@" * 500, "#" * 500) for number in range(1000))
    body = compose_body(RequestFacts("x" * 1000, "c0ffee", tasks, ()))
    assert len(body) < 65_536
    assert f"and {1000 - body.count('| `task-')} more tasks" in body
    assert len(compose_title(RequestFacts("x" * 1000, "c0ffee", tasks, ()))) <= 200


def test_text_of_people_around_the_section_is_kept() -> None:
    section = f"{request_text.BEGIN}\nnew\n{request_text.END}"
    old = f"above\n{request_text.BEGIN}\nold\n{request_text.END}\nbelow"
    assert replace_section(old, section) == f"above\n{section}\nbelow"
    assert replace_section("by hand", section) == f"by hand\n\n{section}"
    assert replace_section("", section) == section


def test_an_issue_is_quoted_and_values_from_a_person_win() -> None:
    issue = Issue(7, "A\u2028title", "https://x/7", "ann", "one\n\n# two\x0cthree\r\n<!-- x", "github.com/acme/shop")
    text = compose_issue_spec(issue)
    head, _, quoted = text.partition("\n> ")
    assert "data from outside" in head
    assert all(line.startswith(">") for line in f"> {quoted}".splitlines())
    fields = complete_fields(TaskFields("total", description="Mine"), issue)
    assert (fields.description, fields.spec_ref) == ("Mine", ".liza/specs/total.md")
    assert complete_fields(TaskFields("total"), issue).description == 'Issue #7: "A title"'
    assert parse_issue_source("gh:7") == 7
    for wrong in ("gh:", "gh:0", "gh:7 --web", "7", "gl:7"):
        with pytest.raises(UsageError):
            parse_issue_source(wrong)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://github.com:8080//acme/shop/", "github.com/acme/shop"),
        ("git://github.com/acme/shop.git/", "github.com/acme/shop"),
        ("github.com:/acme/shop", "github.com/acme/shop"),
        ("ftp://github.com/acme/shop", None),
        ("https://github.com/shop", None),
        ("git@github.com:shop", None),
        ("https://git hub.com/acme/shop", None),
    ],
)
def test_each_form_of_a_url_names_the_same_repository(url: str, name: str | None) -> None:
    repository = parse_remote_url(url)
    assert (repository.full_name if repository else None) == name


@pytest.mark.parametrize(
    ("host", "forge"), [("GitHub.com", Forge.GITHUB), ("my-gitlab.example", Forge.GITLAB), ("git.example", None)]
)
def test_a_host_determines_the_program_for_pull_requests(host: str, forge: Forge | None) -> None:
    assert RemoteRepository(host, "a/b").forge is forge


@pytest.mark.parametrize(
    "output",
    [
        "fatal: could not read Password for 'https://x'",
        "remote: Invalid credentials",
        "remote: Invalid username or password",
        "fatal: Authentication failed",
        "Host key verification failed.",
        "remote: Access denied",
        "error: 401",
    ],
)
def test_each_way_to_ask_for_a_login_is_recognised(output: str) -> None:
    assert classify_failure(output) is PushFailure.LOGIN


@pytest.mark.parametrize("reason", ["stale info", "fetch first", "non-fast-forward"])
def test_a_moved_branch_is_distinguished_from_a_rejected_push(reason: str) -> None:
    assert classify_failure(f"! [rejected] a -> a ({reason})") is PushFailure.MOVED
    assert classify_failure("! [rejected] a -> a (other)") is PushFailure.REJECTED
    assert classify_failure("remote: error: denied by policy 500") is PushFailure.REJECTED
    assert classify_failure("error 4031") is PushFailure.UNREACHABLE


def test_a_web_address_is_found_without_the_text_around_it() -> None:
    assert find_request_address('see "http://a/b" or http://c') == "http://a/b"
    assert find_request_address("<https://a/b>") == "https://a/b"
    assert hide_credentials("https://me@a/ and git@b:c") == "https://a/ and git@b:c"
