"""Telemetry of a run in its files: each turn once, whatever is sent again, restarted, rotated or cut off."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liza.api.health import TelemetryRequest, record_telemetry
from liza.model.errors import FutureTime
from liza.model.paths import Paths
from liza.model.spending import TokenUsage, ToolTotal
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.usage.rules.telemetry_rules import ReportedCall, TelemetryEvent, TurnUsage
from liza.usage.telemetry_log import TelemetryLog

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def turn(number: int, name: str | None = None, **more: object) -> TelemetryEvent:
    return TelemetryEvent(
        timestamp=NOW + timedelta(seconds=number),
        usage=TurnUsage(input_tokens=number, output_tokens=1, cache_read_tokens=2, cache_creation_tokens=3, model="m"),
        id=name,
        **more,  # type: ignore[arg-type]
    )


def run_at(root: Path) -> RunDir:
    run = RunDir(Paths(root), "coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW, task="task-1"))
    return run


def turns(directory: Path) -> int:
    sums = TelemetryLog(directory).read()
    return 0 if sums is None else sums.turns


def test_a_turn_is_counted_once_even_after_a_restart(tmp_path: Path) -> None:
    run = run_at(tmp_path)
    log = TelemetryLog(run.path)

    def send(*events: TelemetryEvent, log: TelemetryLog | None = log) -> tuple[int, int]:
        answer = record_telemetry(
            run, TelemetryRequest(run_id="coder-1.1", events=events), NOW + timedelta(hours=1), log
        )
        return answer.recorded, answer.repeated

    assert TelemetryLog(run.path).read() is None
    assert send(turn(1, "a"), turn(2), turn(2), turn(9, "a")) == (2, 2)
    assert send(turn(5, "a"), turn(2)) == (0, 2)
    assert send(turn(2), turn(3, "b"), log=None) == (1, 1)
    assert send(turn(3, "b"), turn(4, "c")) == (1, 1), "another process has stored b meanwhile"
    sums = TelemetryLog(run.path).read()
    assert sums is not None
    assert (sums.turns, sums.used) == (4, TokenUsage(input=1 + 2 + 3 + 4 + 4 * 5, cached=8, output=4))
    assert sums.models == {"m": sums.used}


def test_tools_and_context_usage_are_those_of_the_reports(tmp_path: Path) -> None:
    run = run_at(tmp_path)
    calls = (ReportedCall(name="shell", duration_ms=5), ReportedCall(name="shell", success=False, duration_ms=7))
    newest = turn(9, tools_called=calls, context_usage=0.5)
    record_telemetry(run, TelemetryRequest(run_id="coder-1.1", events=(newest, turn(1, context_usage=0.9))), NOW)
    sums = TelemetryLog(run.path).read()
    assert sums is not None
    assert sums.tools == {"shell": ToolTotal(calls=2, failures=1, milliseconds=12)}
    assert sums.context_usage == 0.5


def test_a_request_with_a_turn_of_the_future_stores_nothing(tmp_path: Path) -> None:
    run = run_at(tmp_path)
    with pytest.raises(FutureTime):
        record_telemetry(run, TelemetryRequest(run_id="coder-1.1", events=(turn(1), turn(99))), NOW)
    assert turns(run.path) == 0


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 40), min_size=1, max_size=8), st.sampled_from(["same", "other", "restart"])),
        max_size=30,
    )
)
def test_repeated_telemetry_counts_each_turn_once(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[list[int], str]]
) -> None:
    directory = tmp_path_factory.mktemp("run")
    first, second = TelemetryLog(directory), TelemetryLog(directory)
    counted: set[int] = set()
    for numbers, by in requests:
        log = {"same": first, "other": second, "restart": TelemetryLog(directory)}[by]
        fresh = set(numbers) - counted
        assert log.append([turn(number, str(number)) for number in numbers]) == len(fresh)
        counted |= fresh
    sums = TelemetryLog(directory).read()
    assert (0 if sums is None else sums.used.output) == len(counted)


def test_a_turn_whose_writer_was_killed_is_counted_once(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from liza.usage import telemetry_log as t\n"
        "from tests.edges.usage.test_telemetry import turn\n"
        f"log = t.TelemetryLog(Path({str(tmp_path)!r}))\n"
        "for number in range(100): log.append([turn(number)])\n"
    )
    env = {**os.environ, "LIZA_FAULT": "telemetry.appended"}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == -9
    before = turns(tmp_path)
    log = TelemetryLog(tmp_path)
    assert log.append([turn(number) for number in range(before)]) == 0
    assert log.append([turn(1000), turn(1001)]) == 2
    assert turns(tmp_path) == before + 2


def test_a_cut_line_is_removed_and_an_agents_line_skipped(tmp_path: Path) -> None:
    log = TelemetryLog(tmp_path)
    log.append([turn(1)])
    with (tmp_path / "telemetry.jsonl").open("ab") as file:
        file.write(b'{"type":"turn_complete","timestamp":"2026\n[]\n\xff\n{"type":"turn_co')
    assert log.append([turn(2)]) == 1
    assert turns(tmp_path) == 2
    assert (tmp_path / "telemetry.jsonl").read_bytes().endswith(b"}\n")


def _send(root: Path, first: int) -> int:
    log = TelemetryLog(root)
    return sum(log.append([turn(number) for number in range(start, start + 10)]) for start in range(first, 300, 5))


@pytest.mark.campaign
def test_a_turn_sent_by_many_processes_is_counted_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        stored = pool.starmap(_send, [(tmp_path, 0), (tmp_path, 1), (tmp_path, 2)])
    assert sum(stored) == turns(tmp_path) == 307
    log = TelemetryLog(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        more = list(threads.map(lambda number: log.append([turn(number), turn(number + 1)]), [1000, 1001] * 20))
    assert sum(more) == 3
