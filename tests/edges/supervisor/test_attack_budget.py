"""What a runtime reports must not switch a budget off. Each of these failed when it was written."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from liza.model.paths import Paths
from liza.programs.presets.command_line import USAGE
from liza.programs.presets.preset import Preset
from liza.programs.reported_figures import ReportedUsage
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.usage.meter import Meter
from liza.usage.rules.telemetry_rules import ReportedCall, TelemetryEvent, TurnUsage
from liza.usage.telemetry_log import TelemetryLog

NOW = datetime.now(UTC).replace(microsecond=0)


def _measured(tmp_path: Path, lines: list[dict], event: TelemetryEvent) -> int:
    (tmp_path / ".liza").mkdir()
    run = RunDir(Paths(tmp_path), "coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW - timedelta(minutes=5)))
    run.output_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    TelemetryLog(run.path).append([event])
    used = Meter(Preset(name="x", usage=USAGE, events="acp"), run, NOW, {}, lambda: 0.0).measure(5.0).used
    return 0 if used is None else used.tokens


def _calls(count: int) -> list[dict]:
    return [
        line
        for number in range(count)
        for line in (
            {
                "type": "tool_call",
                "id": str(number),
                "tool": "shell",
                "title": "x",
                "input": {"command": f"ls {number}"},
            },
            {"type": "tool_result", "id": str(number), "status": "completed", "output": "y" * 4000},
        )
    ]


def test_a_program_over_acp_that_reports_no_usage_is_estimated(tmp_path: Path) -> None:
    # As SurfaceCalls.record_turn sends it at the end of each turn, also without any usage.
    event = TelemetryEvent(timestamp=NOW, id="s/1", tools_called=tuple(ReportedCall(name="shell") for _ in range(50)))
    assert _measured(tmp_path, _calls(50), event) > 0


def test_one_small_report_does_not_hide_what_the_program_printed(tmp_path: Path) -> None:
    lines = [{"type": "usage", "input_tokens": 5_000_000, "cached_tokens": 0, "output_tokens": 10}]
    event = TelemetryEvent(timestamp=NOW, id="x", usage=TurnUsage(input_tokens=1))
    assert _measured(tmp_path, lines, event) > 1_000_000


def test_a_line_that_an_agent_wrote_makes_no_negative_usage(tmp_path: Path) -> None:
    line = '{"type":"sums_of_earlier_turns","turns":1,"used":{"input":-10000000,"cost":-500.0}}'
    (tmp_path / "telemetry.jsonl").write_text(line + "\n")
    sums = TelemetryLog(tmp_path).read()
    assert sums is None or (sums.used.tokens >= 0 and (sums.used.cost or 0) >= 0)


def test_measured_usage_survives_changes_of_the_file_by_agents(tmp_path: Path) -> None:
    (tmp_path / ".liza").mkdir()
    run = RunDir(Paths(tmp_path), "coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW))
    event = TelemetryEvent(timestamp=NOW, id="x", usage=TurnUsage(input_tokens=2_000_000, cost_usd=10.0))
    TelemetryLog(run.path).append([event])
    meter = Meter(Preset(name="x"), run, NOW, {}, lambda: 0.0)
    file = run.path / "telemetry.jsonl"
    with file.open("a") as log:
        log.write('{"type":"sums_of_earlier_turns"}\n')
    sums = TelemetryLog(run.path).read()
    assert sums is not None
    assert (sums.used.tokens, sums.used.cost) == (2_000_000, 10.0)
    assert meter.measure(5.0).used == sums.used
    turns = '{"type":"sums_of_earlier_turns","turns":999}\n'
    for change in (
        lambda: file.write_text(turns),
        lambda: file.write_text(turns.replace(',"turns":999', "")),
        file.unlink,
    ):
        change()
        assert meter.measure(5.0).used == sums.used
    assert meter.final_usage() == ReportedUsage(sums.used)
