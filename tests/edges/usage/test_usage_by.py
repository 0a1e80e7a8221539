"""Usage in groups: each session once, whether it lives, has just ended, or ended long ago."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from liza.crew.crew import Crew
from liza.model.errors import UsageError
from liza.model.paths import Paths
from liza.model.spending import USAGE_GROUPS, LedgerEntry, TokenUsage, ToolTotal
from liza.printing.render_metrics import format_usage
from liza.programs.liveness import RunningSession
from liza.programs.session.run_directory import Gauge, RunRecord
from liza.system import atomic, processes
from liza.usage import ledger
from liza.usage.costs import ToolUsage
from liza.usage.rules.telemetry_rules import ReportedCall, TelemetryEvent, TurnUsage
from liza.usage.run_account import RunAccount, write_run_account
from liza.usage.telemetry_log import TelemetryLog
from liza.view.metrics import usage_by
from tests.campaign.small_board import FIRST
from tests.conftest import FakeClock

RUN = "coder-1.1"
USED = TokenUsage(input=1_200_000, cached=200, output=300, cost=0.5)


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    made = Crew(Paths(tmp_path), clock)
    made.board.create(FIRST + "    runs: 1\n    program: modelled\n")
    return made


def live(crew: Crew, clock: FakeClock) -> None:
    """A session that runs, with an account, and whose runtime has reported one turn."""
    directory = crew.run_dir(RUN)
    directory.create(RunRecord(agent="coder-1", run=RUN, kind="work", started=clock.now(), program="modelled"))
    me = processes.identify_self()
    session = RunningSession(shim=me, child=me, time=clock.now())
    atomic.write(directory.path / "session.json", msgspec.json.encode(session))
    write_run_account(directory, RunAccount(account="modelled/a", read=clock.now()))
    directory.write_gauge(Gauge(calls=1, used=USED))
    usage = TurnUsage(input_tokens=1_199_800, cache_read_tokens=200, output_tokens=300, model="m-1", cost_usd=0.5)
    calls = (ReportedCall(name="shell", duration_ms=1500), ReportedCall(name="shell", success=False))
    TelemetryLog(directory.path).append([TelemetryEvent(timestamp=clock.now(), usage=usage, tools_called=calls)])
    clock.advance(90)


def ended(clock: FakeClock, run: str = RUN) -> LedgerEntry:
    return LedgerEntry(
        run=run,
        time=clock.now(),
        kind="work",
        program="modelled",
        outcome="finished",
        seconds=90.0,
        task="task-1",
        account="modelled/a",
        used=USED,
        models={"m-1": USED},
        tools={"shell": ToolTotal(calls=2, failures=1, milliseconds=1500)},
    )


def test_a_session_counts_once_before_and_after_its_end(crew: Crew, clock: FakeClock) -> None:
    live(crew, clock)
    before = usage_by(crew, USAGE_GROUPS).fields()
    ledger.append_entry(crew.paths, ended(clock))
    after = usage_by(crew, USAGE_GROUPS).fields()
    for group in ("agent", "program", "account", "model", "tool", "day"):
        assert before[f"by_{group}"] == after[f"by_{group}"] != {}, group
    assert before["by_outcome"] == {"living": after["by_outcome"]["finished"]}
    (row,) = after["by_model"].values()
    assert (row.tokens, row.input, row.cached, row.output, row.money) == (
        1_200_300,
        1_200_000,
        200,
        300,
        0.5,
    )
    assert after["by_account"]["modelled/a"].sessions == 1
    assert after["by_tool"] == {"shell": ToolUsage(2, 1, 1.5)}


def test_a_session_counts_for_each_account_with_its_own_part(crew: Crew, clock: FakeClock) -> None:
    first, second = TokenUsage(input=1_000_000, cached=200, output=300), TokenUsage(input=200_000, cost=0.5)
    entry = msgspec.structs.replace(
        ended(clock), account="modelled/b", accounts={"modelled/a": first, "modelled/b": second}
    )
    ledger.append_entry(crew.paths, entry)
    rows = usage_by(crew, ("account",)).usage.by_account
    assert {name: row.tokens for name, row in rows.items()} == {"modelled/a": 1_000_300, "modelled/b": 200_000}


def test_a_living_session_is_in_the_figures_of_its_model(crew: Crew, clock: FakeClock) -> None:
    live(crew, clock)
    directory = crew.run_dir(RUN)
    (directory.path / "telemetry.jsonl").unlink()
    directory.write_gauge(Gauge(calls=1, used=USED, models={"m-2": USED}))
    assert usage_by(crew, ("model",)).usage.by_model["m-2"].tokens == USED.tokens


def test_only_the_groups_that_are_asked_for_are_returned(crew: Crew, clock: FakeClock) -> None:
    ledger.append_entry(crew.paths, ended(clock))
    clock.advance(timedelta(days=1).total_seconds())
    ledger.append_entry(crew.paths, ended(clock, "coder-2.1"))
    result = usage_by(crew, ("day", "tool"))
    assert list(result.fields()) == ["sprint", "by_day", "by_tool"]
    assert list(result.usage.by_day) == ["2026-01-01", "2026-01-02"]
    lines = format_usage(result).splitlines()
    assert lines[0].split() == ["day", "sessions", "time", "tokens", "money"]
    assert lines[-1].split() == ["shell", "4", "2", "3", "s"]
    assert format_usage(usage_by(crew, ())) == "no session has reported this yet"
    with pytest.raises(UsageError, match=r"unknown group 'modle'.*did you mean model"):
        usage_by(crew, ("modle",))
