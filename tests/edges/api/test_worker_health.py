"""The health of a run from its files: of a session that lives, of one that is over, and what its runtime says."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from liza.api.health import HealthReport, TelemetryRequest, record_telemetry, report_health, run_health
from liza.crew.crew import Crew
from liza.model.errors import FutureTime, UnknownId
from liza.model.paths import Paths
from liza.model.session_ends import SilenceKind, StopReason
from liza.programs.liveness import RunningSession
from liza.programs.presets.preset import Preset
from liza.programs.rules.lifecycle_rules import HealthStatus, WorkerState
from liza.programs.session.run_directory import Gauge, ModelNote, RunDir, RunRecord, Turn, TurnSource
from liza.system.processes import identify_self
from liza.usage.meter import Meter
from liza.usage.rules.telemetry_rules import TelemetryEvent
from tests.campaign.small_board import FIRST
from tests.conftest import FakeClock


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    crew = Crew(Paths(tmp_path), clock)
    crew.board.create(FIRST)
    return crew


@pytest.fixture
def run(crew: Crew) -> RunDir:
    directory, now = crew.run_dir("coder-1.1"), crew.clock.now()
    directory.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=now, task="t1"))
    living = RunningSession(shim=identify_self(), child=identify_self(), time=now)
    (directory.path / "session.json").write_bytes(msgspec.json.encode(living))
    return directory


def report(crew: Crew, run: RunDir, **more: object) -> None:
    values: dict[str, object] = {
        "run_id": run.run,
        "status": HealthStatus.HEALTHY,
        "current_state": WorkerState.BUSY,
        "last_activity": crew.clock.now(),
    }
    report_health(run, HealthReport(**{**values, **more}), crew.clock.now())  # type: ignore[arg-type]


def test_a_run_is_observed_unless_it_reports(crew: Crew, run: RunDir, clock: FakeClock) -> None:
    observed = run_health(crew, run)
    assert (observed.status, observed.source, observed.current_state) == ("healthy", "observed", "busy")
    clock.advance(90)
    run.write_turn(Turn(time=crew.clock.now(), phase="idle", source=TurnSource.API))
    report(crew, run, context_usage=0.5)
    reported = run_health(crew, run)
    assert (reported.source, reported.current_state, reported.context_usage) == ("reported", "idle", 0.5)
    assert (reported.uptime_seconds, reported.last_activity) == (90.0, crew.clock.now())
    report(crew, run, status=HealthStatus.DEGRADED, error="slow disk")
    assert (run_health(crew, run).status, run_health(crew, run).error) == ("degraded", "slow disk")
    assert run_health(crew, run, unanswered=75).error == "its runtime has not answered for 75 s"


def test_worker_health_includes_supervisor_notes_and_the_session_end(crew: Crew, run: RunDir) -> None:
    now = crew.clock.now()
    run.write_gauge(Gauge(stuck="20 equal calls"))
    assert run_health(crew, run).error == "20 equal calls"
    run.write_model_note(ModelNote(kind=SilenceKind.SILENT, since=now - timedelta(seconds=40), ends=now))
    assert run_health(crew, run).error == "no answer from its model for 40 s"
    run.write_stop(now, StopReason.HUNG, "hung: no activity for 1801 s")
    run.mark_concluded("crashed: hung")
    over = run_health(crew, run)
    assert (over.status, over.current_state) == ("unhealthy", "stopping")
    assert over.error == "its session is over: hung: no activity for 1801 s"
    with pytest.raises(UnknownId):
        run_health(crew, crew.run_dir("coder-1.2"))


def test_the_supervisor_uses_the_newest_context_window_report(crew: Crew, run: RunDir, clock: FakeClock) -> None:
    def turn(usage: float) -> None:
        event = TelemetryEvent(timestamp=crew.clock.now(), context_usage=usage)
        record_telemetry(run, TelemetryRequest(run_id=run.run, events=(event,)), crew.clock.now())

    def measured() -> float | None:
        meter = Meter(Preset(name="x", command="/bin/x"), run, crew.clock.now(), {}, crew.clock.monotonic)
        usage = meter.measure(1.0).context_usage
        assert usage == run_health(crew, run).context_usage
        return usage

    assert measured() is None
    report(crew, run, context_usage=0.3)
    assert measured() == 0.3
    clock.advance(1)
    turn(0.4)
    assert measured() == 0.4
    clock.advance(1)
    report(crew, run, context_usage=0.9)
    assert measured() == 0.9
    assert run_health(crew, run).error == "90% of its context window is used"


def test_a_report_of_the_future_is_refused(crew: Crew, run: RunDir) -> None:
    with pytest.raises(FutureTime):
        report(crew, run, last_activity=crew.clock.now() + timedelta(hours=1))
