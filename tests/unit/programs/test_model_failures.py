"""What each real program printed when its model refused it, failed or broke off, and what that means.

The lines are recorded ones, without the fields that no pattern looks at: the program, the fault, the line, and the
kind, the words, the seconds until the next try, and whether the program tries again by itself.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.model.paths import Paths
from liza.model.session_ends import SilenceKind
from liza.programs.presets import preset_table
from liza.programs.presets.preset import FailurePattern, Preset, UsageFormat
from liza.programs.rules import model_silence
from liza.programs.rules.model_silence import ModelSilence
from liza.programs.session.failure_patterns import (
    FailureWatch,
    ModelSigns,
    find_failure,
    resolve_log_path,
    update_failure,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECORDED = [
    json.loads(line) for line in (Path(__file__).parents[2] / "data/model_failures.jsonl").read_text().splitlines()
]
ROWS = preset_table.load_presets(Paths(Path("/nowhere")), Path("/nowhere")).rows
KINDS = {"401": "login", "429-5": "quota", "429-3600": "quota", "500": "server"}


@pytest.mark.parametrize(("program", "fault", "line", "kind", "words", "seconds", "retried"), RECORDED)
def test_a_recorded_line_means_what_its_model_did(
    program: str, fault: str, line: str, kind: str, words: str, seconds: float | None, retried: bool
) -> None:
    row = ROWS[program]
    found = update_failure(ModelSigns(row.failures, row.answers), None, line, NOW, lambda _: True)
    assert found is not None
    until = None if found.until is None else (found.until - NOW).total_seconds()
    assert (found.kind, found.message, until, found.retried) == (kind, words, pytest.approx(seconds), retried)
    assert not set('{}"') & set(found.message)
    assert len(found.message) > 5


def test_every_fault_is_known_of_every_program_that_was_recorded() -> None:
    known = {(program, fault): kind for program, fault, _, kind, *_ in RECORDED}
    for (program, fault), kind in known.items():
        wanted = KINDS.get(fault, "broken")
        # One asks its model before it knows what the refusal is.
        assert kind == wanted or (program, fault) == ("opencode", "401"), (program, fault)
    assert {program for program, _ in known} == {
        "codex", "pi", "gemini", "opencode", "claude", "qwen", "copilot", "vibe", "aider",
    }  # fmt: skip


@pytest.mark.parametrize("program", sorted({one[0] for one in RECORDED}))
def test_no_failure_is_taken_for_an_answer(program: str) -> None:
    signs = ModelSigns(ROWS[program].failures, ROWS[program].answers)
    for _, _, line, kind, *_ in (one for one in RECORDED if one[0] == program):
        found = update_failure(signs, update_failure(signs, None, line, NOW, lambda _: True), line, NOW, lambda _: True)
        assert found is not None
        assert (found.kind, found.count) == (kind, 2)


ROW = Preset(
    name="x",
    failures=(
        FailurePattern(kind="server", match=r"^again (?P<words>\w+)", retried=True),
        FailurePattern(kind="quota", match=r"^\S+ (?P<pid>\d+) limited (?P<words>\w+)"),
    ),
    answers="^answer",
    usage=UsageFormat(session=("session",)),
    log="${X_HOME:-~/.x}/logs/{session}.txt",
)


def test_only_an_answer_ends_a_failure_of_a_model() -> None:
    signs = ModelSigns(ROW.failures, ROW.answers)
    said = 'again first\n{"type":"turn"}\nwords\nagain first\n{"type":"turn"}\n'
    found = find_failure(signs, said, NOW)
    assert found is not None
    assert (found.kind, found.message, found.count) == ("server", "first", 2)
    assert find_failure(signs, said + "answer\n", NOW) is None
    assert find_failure(ModelSigns(ROW.failures), said, NOW) is None


def test_a_programs_words_about_its_model_count_once(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    listener = FailureWatch(ROW, output, {"X_HOME": str(tmp_path)}, lambda pid: pid == 7)
    assert not listener.read_new(1.0, NOW)
    output.write_text("hello\nagain fir")
    assert not listener.read_new(2.0, NOW)
    with output.open("a") as file:
        file.write("st\n")
    assert listener.read_new(3.0, NOW)
    assert (listener.failure and listener.failure.message, listener.failing_since) == ("first", 3.0)
    assert not listener.read_new(4.0, NOW)
    with output.open("a") as file:
        file.write("again first\n" * (model_silence.MAX_RETRIES - 2))
    assert not listener.read_new(5.0, NOW)
    with output.open("a") as file:
        file.write("again first\n")
    assert listener.read_new(6.0, NOW)
    with output.open("a") as file:
        file.write("answer\n")
    assert listener.read_new(7.0, NOW)
    assert (listener.failure, listener.failing_since, listener.has_answered) == (None, None, True)


def test_a_shared_program_log_is_read_for_own_lines_only(
    tmp_path: Path,
) -> None:
    output, log = tmp_path / "output.log", tmp_path / "logs" / "s-1.txt"
    log.parent.mkdir()
    log.write_text("t 8 limited theirs\n")
    listener = FailureWatch(ROW, output, {"X_HOME": str(tmp_path)}, lambda pid: pid == 7)
    output.write_text('{"session":"s-1"}\n')
    assert not listener.read_new(1.0, NOW)
    with log.open("a") as file:
        file.write("t 7 limited ours\n")
    assert listener.read_new(2.0, NOW)
    assert (listener.failure and listener.failure.message) == "ours"
    assert resolve_log_path(ROW.log, {"HOME": "/h"}, "../../etc").name == ".._.._etc.txt"


@pytest.mark.parametrize("wrong", [r"\ud800", r"a\u0000b", ".."])
def test_an_impossible_conversation_id_names_no_log(tmp_path: Path, wrong: str) -> None:
    output, log = tmp_path / "output.log", tmp_path / "logs" / "s-1.txt"
    log.parent.mkdir()
    log.write_text("t 7 limited ours\n")
    listener = FailureWatch(ROW, output, {"X_HOME": str(tmp_path)}, lambda pid: pid == 7)
    output.write_text(f'{{"session":"{wrong}"}}\n{{"session":"s-1"}}\n')
    assert listener.read_new(1.0, NOW)


@pytest.mark.parametrize(
    ("model", "left", "said"),
    [
        (
            ModelSilence(SilenceKind.SILENT, 120.0),
            180.0,
            "no answer from its model for 2 min; without one the session is ended in 3 min",
        ),
        (
            ModelSilence(SilenceKind.QUOTA, 3.0, "429", retried=True),
            297.0,
            "a usage limit is reached: 429; x tries again, and without an answer the session is ended in 5 min",
        ),
        (
            ModelSilence(SilenceKind.BROKEN, 3.0, "cut", retried=True, failed_requests=10),
            0.0,
            "its model's answers break off: cut; x tries again, and without an answer the session is being ended",
        ),
        (
            ModelSilence(SilenceKind.LOGIN, 1.0, "401"),
            4.0,
            "the model refuses the program's login: 401; the session is ended in 4 s",
        ),
        (
            ModelSilence(SilenceKind.LOGIN, 1.0, "401", retried=True),
            4.0,
            "the model refuses the program's login: 401; the session is ended in 4 s",
        ),
        (
            ModelSilence(SilenceKind.BROKEN, 1.0, "cut"),
            4.0,
            "its model's answers break off: cut; the session is ended in 4 s",
        ),
    ],
)
def test_status_gives_the_reason_and_its_end(model: ModelSilence, left: float, said: str) -> None:
    assert model_silence.describe_status(model, left, "x") == said


def test_invalid_figures_of_a_row_are_ignored() -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    row = FailurePattern(kind="quota", match=r"^limit of (?P<pid>\w+) ends in (?P<minutes>\S+) min")
    said = "limit of ours ends in some min"
    assert update_failure(ModelSigns([row]), None, said, now, is_own=lambda pid: True) is None
    free = FailurePattern(kind="quota", match=r"^limit of ours ends in (?P<minutes>\S+) min")
    found = update_failure(ModelSigns([free]), None, said, now)
    assert found is not None
    assert found.until is None
