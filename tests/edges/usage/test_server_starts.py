"""Starts of the server that fail, and what the thread of its event loop may read."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.api import api_server
from liza.api.api_server import ServerKeeper
from liza.crew.crew import Crew
from liza.guards.rules.guard_rules import GUARDS_FILE
from liza.guards.session_guards import GuardsCache
from liza.model.backoff import FIRST_DELAY
from liza.model.errors import NotRegularFile
from liza.model.paths import Paths
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.system.untrusted_files import MAX_RECORD_SIZE
from liza.usage.run_account import account_of, config_dir_of, run_account_path
from tests.conftest import FakeClock

RUN = "coder-1.1"


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    (tmp_path / ".liza").mkdir()
    return Crew(Paths(tmp_path), clock)


@pytest.fixture
def run(crew: Crew) -> RunDir:
    directory = crew.run_dir(RUN)
    directory.create(RunRecord(agent="coder-1", run=RUN, kind="work", started=crew.clock.now()))
    return directory


def test_a_start_that_failed_in_the_future_delays_no_other(crew: Crew, clock: FakeClock) -> None:
    api_server.record_failure(crew, "no", "liza doctor")
    api_server.record_failure(crew, "no", "liza doctor")
    assert api_server.seconds_to_retry(crew) > 0
    clock.advance(-86_400)
    assert api_server.seconds_to_retry(crew) == 0


def test_all_supervisors_wait_after_a_failed_server_start(
    crew: Crew, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = tmp_path / "starts"
    program = tmp_path / "no-server"
    program.write_text(f"#!/bin/sh\necho start >> {starts}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(api_server, "liza_argv", lambda: (str(program),))
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
    monkeypatch.setattr(api_server, "liza_argv", lambda: ("/there/is/no/liza",))
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(FileNotFoundError):
            api_server.start(crew.paths)
    assert len(list(Path("/dev/fd").iterdir())) == before


def test_an_account_whose_record_cannot_be_read_is_unknown(run: RunDir) -> None:
    path = run_account_path(run)
    path.parent.mkdir(parents=True)
    path.symlink_to(path.name)
    assert (account_of(run), config_dir_of(run)) == (None, "")


def test_guards_of_more_than_a_record_are_refused(run: RunDir) -> None:
    (run.path / GUARDS_FILE).write_bytes(b'{"rules": [1]}' + b" " * MAX_RECORD_SIZE)
    with pytest.raises(NotRegularFile):
        GuardsCache().read(run)
