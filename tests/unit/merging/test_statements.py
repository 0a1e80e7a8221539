"""Statements say what is known, in the form of in-toto, and leave out what is not."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from liza.git.rules.note_commits import NotesCommit, SignatureState
from liza.landing.rules.evidence_faults import trace_lines
from liza.merging.rules.statements import TaskFacts, compose_task_note, decode_line
from liza.model.gates import GateOutcome, GateRun
from liza.model.history_events import HistoryEvent
from liza.model.model import Event, Status, Task
from liza.model.spending import LedgerEntry, TokenUsage

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
REVIEWED, LANDED, TESTED = "a" * 40, "b" * 40, "c" * 40


def task() -> Task:
    events = [
        Event(time=NOW, event=HistoryEvent.REJECT, agent="code-reviewer-1", run="code-reviewer-1.1", commit="d" * 40),
        Event(time=NOW, event=HistoryEvent.APPROVE, agent="code-reviewer-1", run="code-reviewer-1.2", commit=REVIEWED),
    ]
    return Task(
        id="a",
        description="Write it\nwith care",
        status=Status.MERGED,
        review_commit=REVIEWED,
        merge_commit=LANDED,
        tested=True,
        history=tuple(events),
    )


def facts(**fields: Any) -> TaskFacts:
    usual = {
        "branch": "integration",
        "tested": None,
        "runs": (),
        "sessions": (),
        "living": frozenset(),
        "trailers": (),
        "logs": {},
        "writer": "liza 1",
    }
    return TaskFacts(**{**usual, **fields})


def session(run: str, program: str, **fields: Any) -> LedgerEntry:
    kind = "review" if "reviewer" in run else "work"
    return LedgerEntry(
        run=run, time=NOW, kind=kind, program=program, outcome="finished", seconds=1.0, task="a", **fields
    )


def run_of(gate: str, outcome: GateOutcome, **fields: Any) -> GateRun:
    return GateRun(time=NOW, gate=gate, candidate=LANDED, subject="a", tasks=1, seconds=2.0, outcome=outcome, **fields)


def composed(given: TaskFacts) -> list[dict[str, Any]]:
    return [json.loads(line) for line in compose_task_note(task(), given)]


def test_unknown_facts_are_absent_and_counts_of_the_history_are_not() -> None:
    (statement,) = composed(facts())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"digest": {"gitCommit": LANDED}}]
    predicate = statement["predicate"]
    assert predicate.keys().isdisjoint({"tested", "cost", "retries", "gates", "logs", "assistedBy", "author"})
    assert (predicate["rejections"], predicate["failedMerges"]) == (1, 0)
    assert predicate["title"] == "Write it"


def test_authors_are_named_by_program_and_model_without_paths() -> None:
    sessions = (
        session("coder-1.1", "claude@opus:acp", models={"claude-opus-4-8": TokenUsage(input=5, output=1, cost=0.5)}),
        session("coder-1.2", "script:/home/ann/agent.sh"),
        session("code-reviewer-1.2", "codex@gpt-5"),
    )
    predicate = composed(facts(sessions=sessions, trailers=("other:m",), living=frozenset({"coder-1.2"})))[0][
        "predicate"
    ]
    assert predicate["assistedBy"] == ["claude:claude-opus-4-8", "script", "other:m"]
    assert predicate["reviews"][1]["assistedBy"] == "codex:gpt-5"
    assert "assistedBy" not in predicate["reviews"][0]
    cost = predicate["cost"]
    assert cost["sessions"] == ["code-reviewer-1.2", "coder-1.1", "coder-1.2"]
    assert (cost["unfinished"], cost["unpriced"]) == (["coder-1.2"], 3)
    assert "dollars" not in cost, "no session told a price"


def test_each_gate_has_a_result_and_remarks_are_warnings() -> None:
    runs = (
        run_of("tests", GateOutcome.RED, command="make test", log="e" * 64),
        run_of("tests", GateOutcome.GREEN, command="make test", log="f" * 64),
        run_of("lint", GateOutcome.GREEN, remarks=("a server listened",)),
        run_of("docs", GateOutcome.TIMEOUT),
    )
    verdict, *results = composed(facts(tested=LANDED, runs=runs))
    assert [(each["predicate"]["result"], len(each["predicate"]["configuration"])) for each in results] == [
        ("PASSED", 1),
        ("WARNED", 0),
        ("FAILED", 0),
    ]
    assert results[0]["predicate"]["configuration"][0]["annotations"] == {"command": "make test"}
    assert [each["predicate"].get("warnedTests") for each in results] == [None, ["lint"], None]
    assert verdict["predicate"]["retries"] == 1
    assert verdict["predicate"]["gates"][0]["log"]["digest"] == {"sha256": "f" * 64}


def test_results_of_a_batch_are_in_the_note_of_its_last_commit() -> None:
    runs = (run_of("tests", GateOutcome.GREEN),)
    (verdict,) = composed(facts(tested=TESTED, runs=runs))
    assert verdict["predicate"]["tested"] == {"digest": {"gitCommit": TESTED}}


def test_a_line_that_is_no_statement_is_none() -> None:
    for line in ("", "{", "[]", "null", '{"_type": "x"}', "[" * 10_000, '{"_type":"https://in-toto.io/Statement/v1"}'):
        assert decode_line(line) is None


def test_a_signature_counts_for_the_lines_that_its_commit_brought() -> None:
    history = (
        NotesCommit("1", SignatureState.GOOD, "ann", (), {LANDED: "x1"}),
        NotesCommit("2", SignatureState.UNSIGNED, "", ("1",), {LANDED: "x2", REVIEWED: "y1"}),
        NotesCommit("3", SignatureState.GOOD, "ann", ("2",), {REVIEWED: "y2"}),
    )
    texts = {"x1": ("a",), "x2": ("a", "b"), "y1": ("c",), "y2": ("d",)}
    notes, removed = trace_lines(history, texts, {LANDED: ("a", "b"), REVIEWED: ("d",)})
    assert [(line.line, line.signature, line.is_weaker) for line in notes[LANDED]] == [
        ("a", SignatureState.GOOD, False),
        ("b", SignatureState.UNSIGNED, True),
    ]
    assert removed == {REVIEWED: 1}
