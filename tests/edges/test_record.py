"""What is recorded of a crew, and what comes back of one from there."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.board import journal
from liza.board.lock import Lock
from liza.repo import history
from liza.repo.runner import Git
from liza.rules.errors import GitFailed
from liza.rules.model import Agent
from liza.rules.paths import HISTORY_REF, Paths
from liza.verbs import record
from liza.verbs.crew import Crew
from liza.verbs.down import purge
from liza.verbs.init import InitOptions, init
from tests.conftest import FakeClock, git


def begun(repo: Path, goal: str, clock: FakeClock) -> Crew:
    init(repo, InitOptions(goal=goal, no_test=True, program="script:/bin/true"))
    return Crew(Paths(repo), clock)


def signed(crew: Crew, agent: str) -> None:
    """A revision, recorded."""
    with crew.change("human:ann", f"hire {agent}") as tx:
        tx.state = tx.state.with_agent(agent, Agent(role="coder", status="OFFLINE"))
    record.record(crew)


def recorded(repo: Path) -> list[tuple[int, str]]:
    return [(one.revision, one.subject) for one in history.log(Git(repo), None, 99)]


def test_a_spool_that_grew_too_large_is_drained_by_the_writer_although_a_supervisor_lives(
    repo: Path, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    crew = begun(repo, "x", clock)
    with crew.change("human:ann", "note") as tx:
        tx.state = tx.state.with_agent("coder-1", Agent(role="coder", status="OFFLINE"))
    supervisor = Lock(crew.paths.supervisor_lock("coder-1"))
    with supervisor.acquire():
        record.record_if_alone(crew)
        assert crew.board.spool.revisions() == [2]
        monkeypatch.setattr(record, "LARGEST_SPOOL", 10)
        record.record_if_alone(crew)
    assert crew.board.spool.revisions() == []
    assert crew.git.out("rev-list", "--count", "liza/blackboard") == "2"


def test_a_new_crew_goes_on_in_the_history_that_was_kept_of_the_last_one(repo: Path, clock: FakeClock) -> None:
    first = begun(repo, "The first goal", clock)
    for agent in ("coder-1", "coder-2"):
        signed(first, agent)
    kept = git(repo, "rev-parse", HISTORY_REF)
    purge(first)
    git(repo, "update-ref", HISTORY_REF, kept)

    said: list[str] = []
    answer = init(repo, InitOptions(goal="The second goal", no_test=True), lambda name, text: said.append(text))
    second = Crew(Paths(repo), clock)
    assert answer.more["revision"] == second.board.read().revision == 4
    assert any("an earlier crew, up to 3" in line for line in said)
    assert recorded(repo)[0] == (4, "init (human)")
    signed(second, "coder-9")
    assert recorded(repo) == [
        (5, "hire coder-9 (human:ann)"),
        (4, "init (human)"),
        (3, "hire coder-2 (human:ann)"),
        (2, "hire coder-1 (human:ann)"),
        (1, "init (human)"),
    ]
    assert [one.revision for one in journal.newest(second.paths.journal)] == [5, 4]


def test_a_history_that_was_tampered_with_stops_init_before_anything_is_made(repo: Path, clock: FakeClock) -> None:
    git(repo, "update-ref", HISTORY_REF, "main")
    refs = git(repo, "for-each-ref")
    with pytest.raises(GitFailed, match="no Liza-Revision"):
        begun(repo, "x", clock)
    assert not (repo / ".liza").exists()
    assert git(repo, "for-each-ref") == refs
