"""Starts of the server that fail, and what the thread of its event loop may read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from liza.api import server_failure, server_start
from liza.api.api_requests import AuthorizeRequest, TelemetryRequest
from liza.api.calls import Call, ServerFacts, WouldWait
from liza.api.operation_table import OPERATIONS
from liza.api.server_keeper import ServerKeeper
from liza.crew.crew import Crew
from liza.guards.authorize import GuardsCache
from liza.guards.rules.guard_rules import GUARDS_FILE
from liza.model.errors import NotRegularFile
from liza.model.paths import Paths
from liza.model.rests import FIRST_DELAY
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.system.untrusted_files import MAX_RECORD_SIZE
from liza.usage.rules.telemetry_rules import TelemetryEvent
from liza.usage.run_account import account_of, config_dir_of, run_account_path
from liza.usage.telemetry_log import TelemetryLog
from tests.conftest import FakeClock

RUN = "coder-1.1"
BY_NAME = {operation.name: operation for operation in OPERATIONS}


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    (tmp_path / ".liza").mkdir()
    return Crew(Paths(tmp_path), clock)


@pytest.fixture
def run(crew: Crew) -> RunDir:
    directory = crew.run_dir(RUN)
    directory.create(RunRecord(agent="coder-1", run=RUN, kind="work", started=crew.clock.now()))
    return directory


def test_a_start_that_failed_in_the_future_of_a_clock_delays_no_other(crew: Crew, clock: FakeClock) -> None:
    server_failure.record_failure(crew, "no", "liza doctor")
    server_failure.record_failure(crew, "no", "liza doctor")
    assert server_failure.seconds_to_retry(crew) > 0
    clock.advance(-86_400)
    assert server_failure.seconds_to_retry(crew) == 0


def test_a_start_that_failed_for_one_supervisor_is_waited_for_by_all_of_them(
    crew: Crew, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = tmp_path / "starts"
    program = tmp_path / "no-server"
    program.write_text(f"#!/bin/sh\necho start >> {starts}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(server_start, "liza_argv", lambda: (str(program),))
    said: list[str] = []
    crew.paths.locks.mkdir()
    keepers = [ServerKeeper(crew, said.append) for _ in range(3)]
    delays = []
    for round_number in range(1, 4):
        delays.append([keeper._ensure_served() for keeper in keepers])
        assert len(starts.read_text().splitlines()) == round_number
        clock.advance(max(delays[-1]))
    assert delays == [[FIRST_DELAY * factor] * 3 for factor in (1, 2, 4)]
    assert len(said) == 1


def test_a_server_that_cannot_be_spawned_leaves_no_open_descriptor(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_start, "liza_argv", lambda: ("/there/is/no/liza",))
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(FileNotFoundError):
            server_start.start(crew)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_an_account_whose_record_cannot_be_read_is_unknown(run: RunDir) -> None:
    path = run_account_path(run)
    path.parent.mkdir(parents=True)
    path.symlink_to(path.name)
    assert (account_of(run), config_dir_of(run)) == (None, "")


def _call(crew: Crew, facts: ServerFacts, name: str, request: Any) -> Any:
    caller: Any = None
    return BY_NAME[name].function(Call(crew, caller, facts, request, RUN, None, may_wait=False))


def _question() -> AuthorizeRequest:
    return AuthorizeRequest(run_id=RUN, tool="Bash", input={"command": "ls"})


def test_guards_that_changed_are_not_read_in_the_event_loop(crew: Crew, run: RunDir) -> None:
    facts = ServerFacts()
    guards = run.path / GUARDS_FILE
    guards.write_text('{"rules": [{"name": "no"}]}')
    with pytest.raises(WouldWait):
        _call(crew, facts, "authorize", _question())
    facts.guards.read(run)
    assert _call(crew, facts, "authorize", _question()).rule is not None
    guards.unlink()
    with pytest.raises(WouldWait):
        _call(crew, facts, "authorize", _question())


def test_guards_of_more_than_a_record_are_refused(run: RunDir) -> None:
    (run.path / GUARDS_FILE).write_bytes(b'{"rules": [1]}' + b" " * MAX_RECORD_SIZE)
    with pytest.raises(NotRegularFile):
        GuardsCache().read(run)


@pytest.mark.parametrize("change", [lambda path: path.replace(f"{path}.x"), lambda path: path.write_bytes(b"")])
def test_telemetry_that_others_wrote_is_not_read_in_the_event_loop(
    crew: Crew, run: RunDir, change: Callable[[Path], object]
) -> None:
    facts = ServerFacts()
    events = [TelemetryEvent(timestamp=crew.clock.now() - timedelta(seconds=n), id=f"e{n}") for n in range(3)]
    requests = [TelemetryRequest(run_id=RUN, events=(event,)) for event in events]
    with pytest.raises(WouldWait):
        _call(crew, facts, "telemetry", requests[0])
    log: TelemetryLog = facts.telemetry.log_of(run)
    log.append([events[0]])
    assert _call(crew, facts, "telemetry", requests[1]).recorded == 1
    change(run.path / "telemetry.jsonl")
    with pytest.raises(WouldWait):
        _call(crew, facts, "telemetry", requests[2])
