"""What is measured of a session while it works, from what real programs printed and kept (recorded, without a network).

Each recording is of one conversation: three commands, of which the last two are the same, and four requests.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from liza.model import spending
from liza.model.paths import Paths
from liza.model.spending import MAX_NAMES, TokenUsage
from liza.programs import reported_figures
from liza.programs.conversation_log import find_log_files
from liza.programs.presets import preset_table
from liza.programs.presets.preset import ConversationLogFormat, ModelUsageFormat, Preset, UsageFormat
from liza.programs.reported_figures import ContextWindows, ConversationUsage
from liza.programs.rules.session_events import SessionEvent, ToolCalled, ToolReturned
from liza.programs.session.run_directory import HOOK_CALLS_FILE, RunDir, RunRecord, Turn
from liza.system.file_growth import Tail
from liza.usage import meter
from liza.usage.meter import Meter
from liza.usage.rules.loop_detection import CallReader
from liza.usage.rules.telemetry_rules import TelemetryEvent, TurnUsage
from liza.usage.telemetry_log import TelemetryLog
from tests.conftest import FakeClock

STREAMS = Path(__file__).parents[2] / "data" / "streams"
PROGRAMS = ("codex", "claude", "gemini", "opencode", "pi", "copilot", "vibe", "qwen")
KEPT = tuple(name for name in PROGRAMS if name != "opencode")
BEFORE = datetime(2026, 1, 1, tzinfo=UTC)
WHOLE = TokenUsage(input=4000, cached=400, output=200)
HOME = {"HOME": str(STREAMS / "home")}
ONE_CALL = json.dumps(
    {
        "type": "tool_use",
        "part": {"callID": "1", "tool": "sh", "state": {"status": "completed", "input": {}, "output": "a"}},
    }
)
ONE_CALL += "\n"


def call_events(result: str) -> list[SessionEvent]:
    return [ToolCalled("1", "pytest"), ToolReturned("1", result)]


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    found = RunDir(Paths(tmp_path), "coder-1.1")
    found.path.mkdir(parents=True)
    return found


def row(program: str, tmp_path: Path) -> Preset:
    return preset_table.load_presets(Paths(tmp_path)).rows[program]


def metering(preset: Preset, run_dir: RunDir, clock: FakeClock, environ: dict[str, str] | None = None) -> Meter:
    return Meter(preset, run_dir, BEFORE, HOME if environ is None else environ, clock.monotonic)


@pytest.mark.parametrize("program", PROGRAMS)
def test_tool_calls_in_printed_output_are_read_with_results(
    program: str, tmp_path: Path, run_dir: RunDir, clock: FakeClock
) -> None:
    run_dir.output_path.write_bytes((STREAMS / f"{program}.jsonl").read_bytes())
    progress = metering(row(program, tmp_path), run_dir, clock).measure(10.0).progress
    assert (progress.calls, len(progress.seen_pairs)) == (3, 2), "the last two are the same, and have the same result"
    assert progress.last_call is not None
    assert "echo two" in progress.last_call.description


@pytest.mark.parametrize("program", KEPT)
def test_each_request_of_the_programs_journal_counts_before_its_sum(
    program: str, tmp_path: Path, run_dir: RunDir, clock: FakeClock
) -> None:
    printed = (STREAMS / f"{program}.jsonl").read_text().splitlines(keepends=True)
    run_dir.output_path.write_text(next(line for line in printed if "ession" in line or "thread" in line))
    measured = metering(row(program, tmp_path), run_dir, clock)
    assert measured.measure(10.0).used == WHOLE
    journal = Path(next(iter(measured._log_tails)))
    assert journal.is_relative_to(STREAMS / "home")


@pytest.mark.parametrize("program", KEPT)
def test_context_use_is_known_for_programs_whose_window_is_known(
    program: str, tmp_path: Path, run_dir: RunDir, clock: FakeClock
) -> None:
    run_dir.output_path.write_bytes((STREAMS / f"{program}.jsonl").read_bytes())
    measured = metering(row(program, tmp_path), run_dir, clock)
    window = {"claude": 1_000_000, "codex": 258_400, "copilot": 128_000, "gemini": 1_048_576}.get(program)
    assert measured.measure(10.0).context_usage == (1050 / window if window else None)
    TelemetryLog(run_dir.path).append([TelemetryEvent(timestamp=BEFORE, context_usage=0.5)])
    assert measured.measure(10.0).context_usage == 0.5, "its runtime knows better"


@pytest.mark.parametrize(
    ("requests", "usage"),
    [
        ([{"in": 160, "out": 10, "model": "m-1"}], 0.85),
        ([{"in": 160, "model": "m-1"}, {"in": 20, "model": "m-1"}], 0.1),  # it compacted its conversation
        ([{"in": 160, "model": "m-1"}, {"in": 0, "out": 0, "model": "m-1"}], 0.8),  # no request
        ([{"in": 160, "model": "m-1"}, {"in": 20, "model": "m-1", "sub": True}], 0.8),
        ([{"in": 160, "model": "m-1"}, {"model": "m-1"}], 0.8),
        ([{"in": 201, "model": "m-1"}], None),  # the window must be another one
        ([{"in": 160, "model": "m-1"}, {"in": 160, "model": "x"}], None),
        ([{"in": 160}], None),
        ([{"in": 160, "window": 320}], 0.5),
        ([{"in": 160, "window": 320, "model": "m-1"}], 0.5),
        *(([{"in": 160, "window": odd}], None) for odd in (0, -1, "320", True, [], {})),
        ([], None),
    ],
)
def test_the_last_request_of_the_conversation_itself_fills_the_window(
    requests: list[dict[str, object]], usage: float | None
) -> None:
    form = ConversationLogFormat(
        input=("in",), output=("out",), model="model", window="window", windows={"m-*": 200}, nested="sub"
    )
    log = ConversationUsage(form, BEFORE)
    for request in requests:
        log.add(request)
    assert log.context_usage == usage


@pytest.mark.parametrize(
    ("output", "logged", "usage"),
    [
        ([], "m-5", 0.1),
        ([], "m-4", None),  # its user chooses one of two windows
        ([{"model": "m-4"}], "m-4", 0.5),
        ([{"model": "m-4[1m]"}], "m-4", 0.1),
        ([{"model": "m-5"}, {"by": {"m-5": {"window": 200}, "m-4": {"window": 1}}}], "m-5", 0.5),
        ([{"model": "m-4[1m]"}, {"by": {"m-4[1m]": {"window": 400}}}], "m-4", 0.25),
        ([{"model": "m-5"}, {"by": {"m-5": {"window": "all"}}}, {"by": []}, {"model": 7}], "m-5", 0.1),
        ([{"model": "m-5"}, {"by": {"m-5": {"window": 99}}}], "m-5", None),  # it cannot be that one
        ([{"model": "other"}], "m-5", 0.1),
    ],
)
def test_the_window_in_the_output_outranks_that_of_the_row(
    output: list[dict[str, object]], logged: str, usage: float | None
) -> None:
    form = ConversationLogFormat(input=("in",), model="model", windows={"m-5": 1000})
    output_form = UsageFormat(
        model="model", models=ModelUsageFormat(table="by", window="window"), windows={"*[[]1m]": 1000, "m-4": 200}
    )
    windows = ContextWindows(output_form, form)
    log = ConversationUsage(form, BEFORE, windows=windows)
    log.add({"in": 100, "model": logged})
    for event in output:
        windows.read_output(event)
    assert log.context_usage == usage


@pytest.mark.parametrize("program", KEPT)
def test_a_resumed_conversation_does_not_count_earlier_sessions(
    program: str, tmp_path: Path, run_dir: RunDir, clock: FakeClock
) -> None:
    run_dir.output_path.write_bytes((STREAMS / f"{program}.jsonl").read_bytes())
    later = datetime(2027, 1, 1, tzinfo=UTC)
    told = row(program, tmp_path)
    silent = replace(told, usage=UsageFormat(session=told.usage.session))
    measured = Meter(silent, run_dir, later, HOME, clock.monotonic)
    assert measured.measure(10.0).used is None


FORM = ConversationLogFormat(
    file="{config}/{id}.jsonl",
    config="logs",
    subagents="{dir}/{id}/*.jsonl",
    subagent_ids=("started.*",),
    time="at",
    key="name",
    model="model",
    windows={"m-*": 2000},
    input=("in",),
)
FOLLOWED = Preset(name="x", usage=UsageFormat(session=("session",)), journal=FORM)


def log_line(path: Path, **values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(values) + "\n")


def test_a_subagent_counts_a_second_after_its_own_log_appears(
    tmp_path: Path, run_dir: RunDir, clock: FakeClock
) -> None:
    home, logs = {"HOME": str(tmp_path)}, tmp_path / "logs"
    run_dir.output_path.write_text('{"session":"s-1"}\n')
    log_line(logs / "s-1.jsonl", name="1", model="m-1", **{"in": 1000})
    measured = metering(FOLLOWED, run_dir, clock, home)
    assert measured.measure(10.0).used == TokenUsage(input=1000)
    log_line(logs / "s-1" / "agent.jsonl", name="2", model="m-2", **{"in": 40})
    # One is in a file that the conversation's directory names, one in that of a conversation that a line names.
    log_line(logs / "s-1.jsonl", started=["s-2"])
    log_line(logs / "s-2.jsonl", name="3", model="m-2", **{"in": 500})
    log_line(logs / "s-2.jsonl", started=["s-3", "../s-1", None, "s-1"])
    log_line(logs / "s-3.jsonl", name="4", model="m-3", **{"in": 7})
    # The same request in a second file.
    log_line(logs / "s-3.jsonl", name="1", model="m-1", **{"in": 1000})
    clock.advance(1.0)
    found = measured.measure(10.0)
    assert found.used == TokenUsage(input=1547)
    assert {model: used.input for model, used in found.models.items()} == {"m-1": 1000, "m-2": 540, "m-3": 7}
    assert found.context_usage == 0.5, "a sub-agent has a context of its own"
    final = metering(FOLLOWED, run_dir, clock, home).final_usage()
    assert final is not None
    assert final.used == found.used


def test_a_session_counts_no_request_of_neighbouring_sessions(
    tmp_path: Path, run_dir: RunDir, clock: FakeClock
) -> None:
    started, log = datetime(2026, 5, 1, 12, tzinfo=UTC), tmp_path / "logs" / "s-1.jsonl"
    run_dir.output_path.write_text('{"session":"s-1"}\n')
    log_line(log, name="1", at="2026-05-01T12:00:00.400Z", **{"in": 1})
    log_line(log, name="2", at="2026-05-01T12:00:00.600Z", **{"in": 20})
    log_line(log, name="3", at="2026-05-01T12:00:08.900Z", **{"in": 300})
    log_line(log, name="4", at="2026-05-01T12:00:09.100Z", **{"in": 4000})
    # The times on record have whole seconds; that of the record's file is exact.
    run_dir.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=started))
    exact = started.timestamp() + 0.5
    os.utime(run_dir.path / "run.json", (exact, exact))
    ended = datetime(2026, 5, 1, 12, 0, 8, tzinfo=UTC)
    final = Meter(FOLLOWED, run_dir, started, {"HOME": str(tmp_path)}, clock.monotonic, ended).final_usage()
    assert final is not None
    assert final.used == TokenUsage(input=320)


def test_a_running_total_counts_growth_by_model_and_can_restart() -> None:
    form = ConversationLogFormat(input=("in",), time="at", model="model", counts="conversation")
    log = ConversationUsage(form, datetime(2026, 5, 1, tzinfo=UTC))
    now = "2026-05-02T00:00:00Z"
    lines = [{"model": "m-1"}, {"in": 900, "at": "2026-04-01T00:00:00Z"}]
    lines += [{"in": total, "at": now} for total in (1000, 1000, 1200)]
    lines += [{"model": "m-2"}, {"in": 1250, "at": now}, {"in": 30, "at": now}]
    for line in lines:
        log.add(line, "thread-1")
    log.add({"in": 5, "at": now}, "thread-2")
    assert log.report is not None
    assert log.report.used == TokenUsage(input=300 + 80 + 5)
    assert {model: used.input for model, used in log.report.models.items()} == {"m-1": 300, "m-2": 80}


def test_an_agent_cannot_grow_lists_of_model_names_without_end() -> None:
    log = ConversationUsage(FORM, BEFORE)
    for number in range(3 * MAX_NAMES):
        log.add({"name": str(number), "model": f"m-{number}" + "x" * 5000, "in": 1, "started": [f"s-{number}"] * 9})
    log.add({"started": [f"t-{number}" for number in range(5 * reported_figures.MAX_SUBAGENTS)]})
    assert log.report is not None
    assert log.report.used == TokenUsage(input=3 * MAX_NAMES)
    assert len(log.report.models) <= MAX_NAMES + 1
    assert max(map(len, log.report.models)) <= reported_figures.MAX_MODEL_LENGTH
    assert len(log.new_subagents) <= reported_figures.MAX_SUBAGENTS


def test_a_conversation_id_is_a_name_and_never_a_path(tmp_path: Path) -> None:
    preset = Preset(name="x", journal=ConversationLogFormat(file="{config}/{id}.jsonl", config="logs"))
    (tmp_path / "logs").mkdir()
    for name in ("logs/abc.jsonl", "secret.jsonl"):
        (tmp_path / name).touch()
    home = {"HOME": str(tmp_path)}
    assert find_log_files(preset, "abc", home) == (tmp_path / "logs" / "abc.jsonl",)
    for odd in ("../secret", "*", "a/b", "[ab]bc", "", None):
        assert find_log_files(preset, odd, home) == (), odd


def test_a_journal_is_found_by_the_programs_own_variable(tmp_path: Path) -> None:
    preset = Preset(
        name="x", config_dir_env="X_HOME", journal=ConversationLogFormat(file="{config}/{id}.jsonl", config="logs")
    )
    (tmp_path / "abc.jsonl").touch()
    assert find_log_files(preset, "abc", {"HOME": "/nonexistent", "X_HOME": str(tmp_path)}) == (tmp_path / "abc.jsonl",)


def test_hooks_count_a_terminals_tools_and_its_journal_the_tokens(
    tmp_path: Path, run_dir: RunDir, clock: FakeClock
) -> None:
    run_dir.output_path.write_text("\x1b[2J a terminal\r\n")
    run_dir.write_turn(Turn(time=BEFORE, phase="busy", session="01a2015d-75a9-7571-bb7e-933b1606ff9b"))
    (run_dir.path / HOOK_CALLS_FILE).write_text('{"call":"a","words":"Bash ls"}\n' * 3)
    found = metering(row("codex", tmp_path), run_dir, clock).measure(10.0)
    assert (found.progress.calls, found.used) == (3, WHOLE)


def test_unreported_usage_is_estimated_after_a_few_calls_and_marked(run_dir: RunDir, clock: FakeClock) -> None:
    measured = metering(Preset(name="x", events="parts"), run_dir, clock)
    line = ONE_CALL
    run_dir.output_path.write_text(line * (meter.CALLS_BEFORE_ESTIMATE - 1))
    assert measured.measure(10.0).used is None
    with run_dir.output_path.open("a") as file:
        file.write(line)
    found = measured.measure(10.0).used
    assert found is not None
    assert found.estimated == found.tokens > spending.INITIAL_CONTEXT_TOKENS * meter.CALLS_BEFORE_ESTIMATE
    assert spending.estimate_usage(20, 4000).tokens > spending.estimate_usage(10, 4000).tokens


def test_a_price_of_0_for_used_tokens_counts_as_unknown(tmp_path: Path, run_dir: RunDir, clock: FakeClock) -> None:
    for program in ("opencode", "pi"):
        run_dir.output_path.write_bytes((STREAMS / f"{program}.jsonl").read_bytes())
        preset = row(program, tmp_path)
        assert metering(preset, run_dir, clock, {}).measure(10.0).used == WHOLE, "0 dollars would be known"
        told = replace(preset, usage=replace(preset.usage, free=True))
        assert metering(told, run_dir, clock, {}).measure(10.0).used == replace(WHOLE, cost=0.0)


def test_results_differing_only_in_times_and_numbers_are_equal() -> None:
    said = ["1 failed in 0.12s at 10:11:12 <shell 1>", "1 failed in 3.4 s at 23:59:01 <shell 22>", "2 failed in 0.12s"]
    found = [one for text in said for one in CallReader(r"<shell \d+>").read(call_events(text))]
    assert found[0] == found[1] != found[2]


def test_a_message_that_a_hook_adds_makes_no_new_result() -> None:
    told = "MESSAGE from liza: Liza sees no progress\n"
    reader = CallReader()
    texts = ("1 failed", f"1 failed\n\nGuidance from hooks:\n{told}", "2 failed")
    first, same, other = (one for text in texts for one in reader.read(call_events(text)))
    assert first == same != other


def test_a_result_without_its_call_is_no_call() -> None:
    assert list(CallReader().read([ToolReturned("1", "x")])) == []


def test_calls_in_a_slow_poll_are_no_loop(run_dir: RunDir, clock: FakeClock) -> None:
    measured = metering(Preset(name="x", events="parts"), run_dir, clock)
    measured.measure(10.0)
    run_dir.output_path.write_text(ONE_CALL * 40)
    clock.advance(40 * 30.0)
    assert max(measured.measure(10.0).progress.counts, default=0) == 0


def test_a_cut_output_is_read_from_its_new_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path)
    assert list(tail.lines()) == []
    path.write_text("one\ntw")
    assert list(tail.lines()) == ["one"]
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert list(tail.lines()) == ["two", "three"]
    path.write_text("cut\n")
    assert list(tail.lines()) == []
    with path.open("a") as file:
        file.write("four\n")
    assert list(tail.lines()) == ["four"]


def test_reading_begins_near_the_end_and_skips_large_parts(
    tmp_path: Path,
) -> None:
    path = tmp_path / "log"
    path.write_text("old\nlast\n")
    tail = Tail(path, first=5, most=10, anew=True)
    assert list(tail.lines()) == ["last"]
    with path.open("a") as file:
        file.write("much\nmore\r\nend\n")
    assert list(tail.lines()) == ["more", "end"]
    path.write_text("anew\n")
    assert list(tail.lines()) == ["anew"]


def test_half_a_character_in_a_call_is_replaced(tmp_path: Path, run_dir: RunDir, clock: FakeClock) -> None:
    printed = (STREAMS / "codex.jsonl").read_text().replace("echo two", r"echo two \ud83d")
    run_dir.output_path.write_text(printed)
    last = metering(row("codex", tmp_path), run_dir, clock).measure(10.0).progress.last_call
    assert last is not None
    assert "echo two ?" in last.description
    assert last.description.encode()


def test_an_unreadable_journal_stops_no_counting_of_calls(tmp_path: Path, run_dir: RunDir, clock: FakeClock) -> None:
    preset = replace(row("codex", tmp_path), journal=ConversationLogFormat(file=str(tmp_path / "kept-{id}.jsonl")))
    run_dir.output_path.write_bytes((STREAMS / "codex.jsonl").read_bytes())
    measured = metering(preset, run_dir, clock)
    measured._conversation = "s-1"
    (tmp_path / "kept-s-1.jsonl").symlink_to("kept-s-1.jsonl")
    found = measured.measure(10.0)
    assert list(measured._log_tails) == [tmp_path / "kept-s-1.jsonl"]
    assert (found.progress.calls, found.used is not None) == (3, True)


def test_a_usage_form_without_figures_is_ignored(run_dir: RunDir, clock: FakeClock) -> None:
    run_dir.output_path.write_text('{"type":"result","usage":{"input_tokens":5}}\n')
    assert metering(Preset(name="x", usage=UsageFormat(session=("id",))), run_dir, clock).final_usage() is None


def test_turns_reported_by_a_runtime_are_not_added_to_output(tmp_path: Path, run_dir: RunDir, clock: FakeClock) -> None:
    run_dir.output_path.write_bytes((STREAMS / "claude.jsonl").read_bytes())
    following = metering(row("claude", tmp_path), run_dir, clock)
    printed = following.measure(10.0)
    assert printed.used is not None
    assert printed.used.tokens > 1000
    log = TelemetryLog(run_dir.path)
    # Less than its output shows, as from a runtime whose report is late: the larger figure counts.
    few = TurnUsage(input_tokens=1, output_tokens=1, cost_usd=0.01)
    log.append([TelemetryEvent(timestamp=BEFORE, usage=few)])
    assert following.measure(10.0).used == printed.used
    usage = TurnUsage(input_tokens=50_000, cache_read_tokens=2, output_tokens=1, cost_usd=0.5)
    log.append([TelemetryEvent(timestamp=BEFORE, usage=usage, context_usage=0.25)])
    reported = following.measure(10.0)
    assert reported.used == TokenUsage(input=50_003, cached=2, output=2, cost=0.51)
    assert (reported.context_usage, reported.progress.calls) == (0.25, printed.progress.calls)
    final = metering(row("claude", tmp_path), run_dir, clock).final_usage()
    assert final is not None
    assert final.used == reported.used
