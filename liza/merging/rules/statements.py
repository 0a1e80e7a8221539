"""Statements about landed commits, in the form of in-toto: what was reviewed and tested, by whom, the verdict. Pure.

A note is a bundle: one Statement v1 per line, in the order of the lines' text, so that git's own union of two notes
gives the same note. specs/decisions/050-evidence-is-a-bundle-in-a-git-note.md has the reasons. What is not known is
absent, never zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from liza.model import spending
from liza.model.gates import SET_UP_RUN, GateOutcome, GateRun
from liza.model.history_events import HistoryEvent
from liza.model.model import Event, Task
from liza.model.spending import LedgerEntry
from liza.model.statuses import WorkKind
from liza.model.tested import describe_tested
from liza.model.value_classes import Value, decodable
from liza.text.redaction import redact

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
TEST_RESULT: Final = "https://in-toto.io/attestation/test-result/v0.1"
VERDICT: Final = "urn:liza:verdict:v1"
LANDING: Final = "urn:liza:landing:v1"
COMMIT_DIGEST: Final = "gitCommit"
MAX_TEXT: Final = 2000  # characters of a verdict's text
_TITLE = 72


KindT = TypeVar("KindT")


class _Stated(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base class of the parts of a statement: a field that has its default value is absent."""


class Resource(_Stated, frozen=True):
    """A ResourceDescriptor of in-toto: what is meant, by its digest."""

    digest: dict[str, str]
    name: str = ""
    annotations: dict[str, str] = {}

    @property
    def commit(self) -> str:
        """The id of the commit; empty for a resource that is not a commit."""
        return self.digest.get(COMMIT_DIGEST, "")


def commit_resource(commit: str, name: str = "") -> Resource:
    """Return the descriptor of a commit."""
    return Resource(digest={COMMIT_DIGEST: commit}, name=name)


class GateResult(StrEnum):
    """The result of a gate, as the predicate test-result spells it. WARNED: tested, but…"""

    PASSED = "PASSED"
    WARNED = "WARNED"
    FAILED = "FAILED"


class GateStatement(_Stated, frozen=True):
    """The predicate test-result v0.1. ``configuration``: the command of the gate, by its digest."""

    __test__ = False  # pytest takes it for a test
    result: GateResult
    configuration: tuple[Resource, ...]
    passed_tests: tuple[str, ...] = ()
    warned_tests: tuple[str, ...] = ()
    failed_tests: tuple[str, ...] = ()


class StatedReview(_Stated, frozen=True):
    """A verdict of a review: ``approve`` or ``reject``, by an agent or a person, on a commit."""

    verdict: str
    by: str
    time: datetime
    commit: Resource | None = None
    assisted_by: str = ""
    text: str = ""


class StatedGate(_Stated, frozen=True):
    """The last run of a gate on the tested commit. ``runs``: how many there were. ``log``: what it printed."""

    __test__ = False  # pytest takes it for a test
    name: str
    result: GateResult
    time: datetime
    seconds: float
    runs: int
    log: Resource | None = None


class StatedCost(_Stated, frozen=True):
    """What the sessions of a task used, as far as they reported it. ``sessions``: the runs that are counted;
    ``unfinished``: those of them that had not ended. ``unpriced``: how many of them reported no price."""

    sessions: tuple[str, ...]
    unfinished: tuple[str, ...] = ()
    unpriced: int = 0
    dollars: float | None = None
    tokens: int | None = None
    estimated_tokens: int = 0


class StatedTimes(_Stated, frozen=True):
    """When the task was added, claimed first, submitted last, approved last, and merged."""

    added: datetime | None = None
    claimed: datetime | None = None
    submitted: datetime | None = None
    approved: datetime | None = None
    merged: datetime | None = None


class StatedVerdict(_Stated, frozen=True):
    """The predicate for a merged task. The subject is the commit that landed; ``reviewed`` and ``tested`` are others.

    ``assisted_by``: each author as PROGRAM or PROGRAM:MODEL, and the trailers `Assisted-by:` of the commits.
    ``author``, ``request``, ``foreign``: of a submission, as ``Submission`` has them. ``retries``: runs of gates on the
    tested commit after the first one. ``logs``: outputs of sessions.
    """

    task: str
    branch: str
    reviewed: Resource
    how_tested: str
    rejections: int
    failed_merges: int
    writer: str
    title: str = ""
    tested: Resource | None = None
    reviews: tuple[StatedReview, ...] = ()
    assisted_by: tuple[str, ...] = ()
    author: str = ""
    request: int = 0
    foreign: bool = False
    times: StatedTimes = StatedTimes()
    retries: int | None = None
    gates: tuple[StatedGate, ...] = ()
    cost: StatedCost | None = None
    logs: tuple[Resource, ...] = ()


class StatedLanding(_Stated, frozen=True):
    """The predicate for a commit that brought earlier ones to a branch: a landing, an epic, a sync or an undo.

    ``brought``: the commits that have statements of their own. ``reverts``: the merge that the commit takes back.
    """

    branch: str
    writer: str
    brought: tuple[Resource, ...] = ()
    reverts: Resource | None = None
    how_tested: str = ""


class InTotoStatement(_Stated, frozen=True):
    """A Statement v1 of in-toto."""

    statement_type: str = msgspec.field(name="_type")
    subject: tuple[Resource, ...]
    predicate_type: str
    predicate: msgspec.Raw

    def read_verdict(self) -> StatedVerdict | None:
        """Return the verdict; None for another predicate. Raises msgspec.DecodeError."""
        return self._read(VERDICT, StatedVerdict)

    def read_landing(self) -> StatedLanding | None:
        """Return the landing; None for another predicate. Raises msgspec.DecodeError."""
        return self._read(LANDING, StatedLanding)

    def read_test_result(self) -> GateStatement | None:
        """Return the result of a gate; None for another predicate. Raises msgspec.DecodeError."""
        return self._read(TEST_RESULT, GateStatement)

    def _read(self, predicate_type: str, kind: type[KindT]) -> KindT | None:
        if self.predicate_type != predicate_type:
            return None
        return msgspec.json.decode(self.predicate, type=decodable(kind))


class TaskFacts(Value):
    """What is known about a merged task beside the board.

    ``tested``: the commit that was tested, with the runs of its gates; None if that was not recorded. ``sessions``: the
    sessions of the task; ``living``: the runs of those that have not ended. ``trailers``: the values of `Assisted-by:`
    in its commits. ``logs``: SHA-256 digests of outputs of its sessions, by run.
    """

    branch: str
    tested: str | None
    runs: tuple[GateRun, ...]
    sessions: tuple[LedgerEntry, ...]
    living: frozenset[str]
    trailers: tuple[str, ...]
    logs: Mapping[str, str]
    writer: str


def encode_line(commit: str, predicate_type: str, predicate: GateStatement | StatedVerdict | StatedLanding) -> str:
    """Return the line of a note with the statement about a commit."""
    raw = msgspec.Raw(msgspec.json.encode(predicate))
    subject = (commit_resource(commit),)
    statement = InTotoStatement(
        statement_type=STATEMENT_TYPE, subject=subject, predicate_type=predicate_type, predicate=raw
    )
    return msgspec.json.encode(statement).decode()


def decode_line(line: str) -> InTotoStatement | None:
    """Return the statement of a line of a note; None for any other line: anyone can add lines."""
    try:
        statement = msgspec.json.decode(line, type=decodable(InTotoStatement))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return statement if statement.statement_type == STATEMENT_TYPE else None


def compose_task_note(task: Task, facts: TaskFacts) -> tuple[str, ...]:
    """Return the lines about the merge commit of a task: its verdict, and the results of the gates on it."""
    commit = str(task.merge_commit)
    gates = state_gates(facts.runs)
    authors = [entry for entry in facts.sessions if entry.kind == WorkKind.WORK]
    submission = task.submission
    names = [name_author(entry) for entry in authors] + ([submission.program] if submission else [])
    verdict = StatedVerdict(
        task=task.id,
        title=_shorten(next(iter(task.description.strip().splitlines()), ""), _TITLE),
        branch=facts.branch,
        reviewed=commit_resource(str(task.review_commit)),
        tested=None if facts.tested is None else commit_resource(facts.tested),
        how_tested=_shorten(describe_tested(task.tested, task.remarks)),
        reviews=tuple(_describe_review(event, facts.sessions) for event in _find_reviews(task)),
        assisted_by=tuple(dict.fromkeys(filter(None, (*names, *map(_shorten, facts.trailers))))),
        author=submission.author if submission else "",
        request=submission.request if submission else 0,
        foreign=submission is not None and submission.is_foreign,
        times=_find_times(task),
        rejections=_count(task, HistoryEvent.REJECT),
        failed_merges=_count(task, HistoryEvent.MERGE_FAILED),
        retries=sum(gate.runs - 1 for gate in gates) if gates else None,
        gates=gates,
        cost=_sum_cost(facts),
        logs=tuple(Resource(name=run, digest={"sha256": digest}) for run, digest in sorted(facts.logs.items())),
        writer=facts.writer,
    )
    own = compose_test_results(commit, facts.runs) if facts.tested == commit else ()
    return (encode_line(commit, VERDICT, verdict), *own)


def compose_landing_note(commit: str, record: StatedLanding, runs: Sequence[GateRun]) -> tuple[str, ...]:
    """Return the lines about a commit that brought others to a branch, with the results of the gates on it."""
    return (encode_line(commit, LANDING, record), *compose_test_results(commit, runs))


def compose_test_results(commit: str, runs: Sequence[GateRun]) -> tuple[str, ...]:
    """Return a line for each gate that ran on the commit."""
    lines = []
    for run in _last_runs(runs):
        result, names = judge_gate(run), (run.gate,)
        predicate = GateStatement(
            result=result,
            configuration=_describe_command(run),
            passed_tests=names if result is GateResult.PASSED else (),
            warned_tests=names if result is GateResult.WARNED else (),
            failed_tests=names if result is GateResult.FAILED else (),
        )
        lines.append(encode_line(commit, TEST_RESULT, predicate))
    return tuple(lines)


def judge_gate(run: GateRun) -> GateResult:
    """Return the result of a run. A green one is WARNED if a person allowed something about the commit."""
    if run.outcome is not GateOutcome.GREEN:
        return GateResult.FAILED
    return GateResult.WARNED if run.remarks else GateResult.PASSED


def state_gates(runs: Sequence[GateRun]) -> tuple[StatedGate, ...]:
    """Return the last run of each gate, with the number of its runs that ended."""
    ended = [run.gate for run in runs if run.outcome is not GateOutcome.RUNNING]
    return tuple(
        StatedGate(
            name=run.gate,
            result=judge_gate(run),
            time=run.time,
            seconds=run.seconds,
            runs=ended.count(run.gate),
            log=Resource(digest={"sha256": run.log}) if run.log else None,
        )
        for run in _last_runs(runs)
    )


def _last_runs(runs: Iterable[GateRun]) -> tuple[GateRun, ...]:
    """Return the last run of each gate that came to its end."""
    ended = (run for run in runs if run.gate != SET_UP_RUN and run.outcome is not GateOutcome.RUNNING)
    return tuple({run.gate: run for run in ended}.values())


def _describe_command(run: GateRun) -> tuple[Resource, ...]:
    """Return the command of a run by its digest; nothing for a run of an earlier version, which recorded none."""
    if not run.command:
        return ()
    digest = hashlib.sha256(run.command.encode("utf-8", "surrogateescape")).hexdigest()
    return (Resource(name=run.gate, digest={"sha256": digest}, annotations={"command": _shorten(run.command)}),)


def name_author(entry: LedgerEntry) -> str:
    """Return who a session was as PROGRAM or PROGRAM:MODEL, as the trailer `Assisted-by:` has it.

    What a person wrote after the name of the program, such as a path, is left out.
    """
    name, at, rest = entry.program.partition(":")[0].partition("@")
    models = ",".join(sorted(entry.models)) or entry.model or (rest if at else "")
    return f"{name}:{models}" if models else name


def _find_reviews(task: Task) -> tuple[Event, ...]:
    return tuple(event for event in task.history if event.event in (HistoryEvent.APPROVE, HistoryEvent.REJECT))


def _describe_review(event: Event, sessions: Iterable[LedgerEntry]) -> StatedReview:
    session = next((entry for entry in sessions if event.run is not None and entry.run == event.run), None)
    return StatedReview(
        verdict=event.event,
        by=event.run or event.agent or "",
        time=event.time,
        commit=None if event.commit is None else commit_resource(event.commit),
        assisted_by="" if session is None else name_author(session),
        text=_shorten(event.detail or ""),
    )


def _find_times(task: Task) -> StatedTimes:
    def first(*names: HistoryEvent) -> datetime | None:
        return next((event.time for event in task.history if event.event in names), None)

    def last(*names: HistoryEvent) -> datetime | None:
        return next((event.time for event in reversed(task.history) if event.event in names), None)

    return StatedTimes(
        added=task.created or first(HistoryEvent.ADD),
        claimed=first(HistoryEvent.CLAIM),
        submitted=last(HistoryEvent.SUBMIT, HistoryEvent.SUBMIT_AGAIN, HistoryEvent.SUBMIT_WORK),
        approved=last(HistoryEvent.APPROVE),
        merged=last(HistoryEvent.MERGE),
    )


def _count(task: Task, name: HistoryEvent) -> int:
    return sum(event.event == name for event in task.history)


def _sum_cost(facts: TaskFacts) -> StatedCost | None:
    if not facts.sessions:
        return None
    total = spending.sum_usage(facts.sessions)
    runs = tuple(sorted({entry.run for entry in facts.sessions}))
    return StatedCost(
        sessions=runs,
        unfinished=tuple(run for run in runs if run in facts.living),
        unpriced=total.unpriced,
        dollars=None if total.used.cost is None else round(total.used.cost, 6),
        tokens=total.used.tokens if total.sessions > total.silent else None,
        estimated_tokens=total.used.estimated,
    )


def _shorten(text: str, limit: int = MAX_TEXT) -> str:
    clean = redact(text).encode("utf-8", "replace").decode()
    return clean if len(clean) <= limit else f"{clean[: limit - 1]}…"
