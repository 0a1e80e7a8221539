from __future__ import annotations

from pathlib import Path

import pytest

from liza.board.lock import Lock
from liza.rules.model import Agent
from liza.rules.paths import Paths
from liza.verbs import record
from liza.verbs.crew import Crew
from liza.verbs.init import InitOptions, init
from tests.conftest import FakeClock


def test_a_spool_that_grew_too_large_is_drained_by_the_writer_although_a_supervisor_lives(
    repo: Path, monkeypatch: pytest.MonkeyPatch, clock: FakeClock
) -> None:
    init(repo, InitOptions(goal="x", no_test=True, program="script:/bin/true"))
    crew = Crew(Paths(repo), clock)
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
