"""What sessions used, what their last words say of their model, and what their end means with that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from liza.model.configuration import Budget
from liza.model.model import ProcessIdentity
from liza.model.session_ends import STOP_RULES, SessionOutcome, SilenceKind, StopReason
from liza.model.spending import LedgerEntry, TokenUsage, over_budget_reason, seconds_left, sum_usage
from liza.model.value_classes import replace
from liza.programs import reported_figures
from liza.programs.liveness import EndedSession, VanishedSession
from liza.programs.presets.preset import FailurePattern, UsageFormat
from liza.programs.reported_figures import ReportedUsage
from liza.programs.session import log_file, outcomes
from liza.programs.session.failure_patterns import ModelFailure, ModelSigns, find_failure
from liza.programs.session.outcomes import SessionEnd
from liza.programs.session.run_directory import StopNote

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
TURNS = """not an event
{"type":"thread.started","thread_id":"t-1"}
{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":3}}
{"type":"item","usage":{"input_tokens":999}}
{ this is none
{"type":"turn.completed","usage":{"input_tokens":25,"cached_input_tokens":20,"output_tokens":7}}
"""


def printed(tmp_path: Path, text: str) -> Path:
    (tmp_path / "output.log").write_text(text)
    return tmp_path / "output.log"


@pytest.mark.parametrize(
    ("combine", "wanted"),
    [
        ("sum", TokenUsage(input=35, cached=24, output=10)),
        ("last", TokenUsage(input=25, cached=20, output=7)),
        ("most", TokenUsage(input=25, cached=20, output=7)),
    ],
)
def test_event_figures_are_combined_by_sum_last_or_largest(tmp_path: Path, combine: str, wanted: TokenUsage) -> None:
    form = UsageFormat(
        when={"type": "turn.completed"},
        combine=combine,  # type: ignore[arg-type]
        input=("usage.input_tokens",),
        cached=("usage.cached_input_tokens",),
        output=("usage.output_tokens",),
        session=("thread_id",),
    )
    assert reported_figures.read_usage(form, printed(tmp_path, TURNS)) == ReportedUsage(wanted)
    assert reported_figures.read_session_id(form, tmp_path / "output.log") == "t-1"


def test_a_document_or_figures_within_other_text_are_read(tmp_path: Path) -> None:
    form = UsageFormat(form="json", input=("stats.models.*.tokens.prompt",), output=("stats.models.*.tokens.out",))
    document = '{"stats": {"models": {"a": {"tokens": {"prompt": 5, "out": 1}}, "b": {"tokens": {"prompt": 7}}}}}'
    assert reported_figures.read_usage(form, printed(tmp_path, f"hello\n{document}\nbye\n")) == ReportedUsage(
        TokenUsage(input=12, output=1)
    )
    text = UsageFormat(
        form="text",
        pattern=r"Tokens: (?P<input>[\d.,k]+) sent, (?P<output>[\d.,k]+) received. Cost: \$(?P<cost>[\d.]+)",
    )
    said = "Tokens: 1.2k sent, 300 received. Cost: $0.01\nTokens: 2k sent, 1,000 received. Cost: $0.02\n"
    found = reported_figures.read_usage(text, printed(tmp_path, said))
    assert found is not None
    assert (found.used.input, found.used.output, round(found.used.cost or 0, 2)) == (3200, 1300, 0.03)


def test_documents_inside_a_document_are_not_documents_of_their_own(tmp_path: Path) -> None:
    form = UsageFormat(form="json", input=("used",), combine="sum")
    whole = '{"used": 5, "last":\n{"used": 3}\n}\n'
    assert reported_figures.read_usage(form, printed(tmp_path, f"{whole}[ cut off\n{whole}")) == ReportedUsage(
        TokenUsage(input=10)
    )


def test_an_unreported_value_is_none_and_not_zero(tmp_path: Path) -> None:
    form = UsageFormat(when={"type": "result"}, input=("usage.input_tokens",))
    assert reported_figures.read_usage(form, printed(tmp_path, TURNS)) is None
    assert reported_figures.read_usage(form, tmp_path / "nowhere") is None
    assert reported_figures.read_usage(UsageFormat(), printed(tmp_path, TURNS)) is None


def test_a_program_that_reports_in_a_file_is_read_there(tmp_path: Path) -> None:
    form = UsageFormat(file="export/export.json", form="json", input=("usage.in",), output=("usage.out",), cost="cost")
    output = printed(tmp_path, "nothing of that\n")
    assert reported_figures.read_usage(form, output) is None
    (output.parent / "export").mkdir()
    (output.parent / "export" / "export.json").write_text('{\n "usage": {"in": 7, "out": 2}, "cost": 0.5\n}\n')
    assert reported_figures.read_usage(form, output) == ReportedUsage(TokenUsage(input=7, output=2, cost=0.5))
    silent = LedgerEntry(run="coder-1.1", time=NOW, kind="work", program="p", outcome="finished", seconds=3)
    assert (sum_usage([silent]).silent, sum_usage([silent]).unpriced) == (1, 1)
    found = sum_usage(
        [silent, spent("coder-1.2", "a", TokenUsage(input=5)), spent("coder-1.3", "a", TokenUsage(cost=0.0))]
    )
    assert (found.sessions, found.silent, found.unpriced) == (3, 1, 2)


def spent(run: str, task: str, used: TokenUsage | None, seconds: float = 10) -> LedgerEntry:
    return LedgerEntry(
        run=run,
        time=NOW,
        kind="work",
        program="p",
        outcome="finished",
        seconds=seconds,
        task=task,
        sprint="s",
        used=used,
    )


@pytest.mark.parametrize(
    ("budget", "wanted"),
    [
        (Budget(), None),
        (Budget(money_per_sprint=3.0), "the sprint has used $3.00 of $3.00"),
        (Budget(money_per_task=2.0), "a has used $2.00 of $2.00"),
        (Budget(money_per_task=2.5), None),
        (Budget(tokens_per_sprint=40), "the sprint has used 40 of 40 tokens"),
        (Budget(tokens_per_task=41), None),
        (Budget(seconds_per_task=20), "a has used 20 of 20 seconds"),
        (Budget(seconds_per_sprint=31), None),
    ],
)
def test_a_budget_is_reached_by_reported_usage_and_by_time(budget: Budget, wanted: str | None) -> None:
    found = [
        spent("coder-1.1", "a", TokenUsage(input=10, output=10, cost=2.0)),
        spent("coder-1.2", "a", None),
        spent("coder-2.1", "b", TokenUsage(input=10, output=10, cost=1.0)),
    ]
    assert over_budget_reason(budget, found, "a", "s") == wanted
    assert over_budget_reason(budget, found, "a", "another") in (None, wanted)


@pytest.mark.parametrize(
    ("budget", "task", "wanted"),
    [
        (Budget(money_per_task=1.0, tokens_per_sprint=1), "a", None),
        (Budget(seconds_per_task=500), None, None),
        (Budget(seconds_per_task=500), "a", 500.0 - 2 * 10),
        (Budget(seconds_per_task=500, seconds_per_sprint=400), "a", 400.0 - 3 * 10),
        (Budget(seconds_per_task=500, seconds_per_sprint=1000), "b", 500.0 - 10),
        (Budget(seconds_per_task=1), "a", 0.0),
    ],
)
def test_the_remaining_time_is_that_of_the_nearest_limit(
    budget: Budget, task: str | None, wanted: float | None
) -> None:
    found = [spent("coder-1.1", "a", None), spent("coder-1.2", "a", None), spent("coder-2.1", "b", None)]
    assert seconds_left(budget, found, task, "s") == wanted


def test_no_stack_frame_or_partial_event_is_a_reason() -> None:
    printed = [
        ':{"input":0,"output":0}},"stopReason":"stop"}',
        "SyntaxError: no JSON",
        "    at JSON.parse (<anonymous>)",
        "    at async run (file:///x/cli.js:12:34)",
        "    at processTicksAndRejections (native:7:39)",
        "'data: {",
        "event: response.created",
        "}",
    ]
    assert list(log_file.extract_lines("\n".join(printed))) == ["SyntaxError: no JSON"]


def test_events_are_shown_as_text_and_other_lines_unchanged() -> None:
    printed = [
        '{"type":"turn.completed","usage":{"input_tokens":10}}',
        '{"type":"item","item":{"type":"agent_message","text":"I may not write here.\\nSorry."}}',
        '{"type":"result","message":{"content":[{"type":"text","text":"Done"}]}}',
        "plain words",
        "{ not json",
    ]
    said_lines = list(log_file.extract_lines("\n".join(printed)))
    assert said_lines == ["I may not write here.", "Sorry.", "Done", "plain words", "{ not json"]


QUOTA = FailurePattern(
    kind="quota",
    match=r'^\{"type":"failed".*limit'
    r"(?:.*?again in (?P<minutes>\d+)m|.*?resets (?P<time>\d+(?::\d+)?[ap]m)|.*?\|(?P<epoch>\d{10}))?",
)
AGAIN = FailurePattern(kind="server", match=r'^\{"type":"error","message":"Reconnecting', retried=True)
LOGIN = FailurePattern(kind="login", match=r'^\{"type":"failed".*401')
ROW = ModelSigns((QUOTA, AGAIN, LOGIN))


@pytest.mark.parametrize(
    ("said", "kind", "until"),
    [
        ('{"type":"failed","m":"limit, try again in 5m"}', "quota", NOW + timedelta(minutes=5)),
        ('{"type":"failed","m":"limit, resets 3pm"}', "quota", NOW.replace(hour=15)),
        ('{"type":"failed","m":"limit, resets 9:30am"}', "quota", NOW.replace(hour=9, minute=30) + timedelta(days=1)),
        (
            f'{{"type":"failed","m":"limit|{int((NOW + timedelta(hours=2)).timestamp())}"}}',
            "quota",
            NOW + timedelta(hours=2),
        ),
        ('{"type":"failed","m":"limit|9999999999"}', "quota", None),
        ('{"type":"failed","m":"limit"}', "quota", None),
        ('{"type":"failed","m":"401 Unauthorized"}', "login", None),
        ('{"type":"error","message":"Reconnecting 1/5"}', "server", None),
        ('{"type":"item","text":"the server said 401, limit"}', None, None),
        ('{"type":"error","message":"Reconnecting 1/5"}\n{"type":"item","text":"and on"}', None, None),
        ('{"type":"error","message":"Reconnecting 1/5"}\n  at fetch (x.js:1)\n}', "server", None),
        ('{"type":"error","message":"Reconnecting 5/5"}\n{"type":"failed","m":"401"}', "login", None),
    ],
)
def test_a_programs_last_output_gives_the_models_failure(said: str, kind: str | None, until: datetime | None) -> None:
    found = find_failure(ROW, f"words before\n{said}\n", NOW)
    assert (found and found.kind) == kind
    assert (found and found.until) == until


def test_a_time_of_day_is_in_the_persons_zone() -> None:
    here = NOW.astimezone(timezone(timedelta(hours=-8)))
    found = find_failure(ROW, '{"type":"failed","m":"limit, resets 3pm"}', here)
    assert found is not None
    assert found.until == datetime(2026, 1, 1, 23, tzinfo=UTC)


def ended(code: int) -> EndedSession:
    return EndedSession(time=NOW, code=code)


GONE = ProcessIdentity(host="h", boot="b", pid=1, start="1")
BROKEN = ModelFailure(SilenceKind.BROKEN, "cut")
SERVER, REFUSED, LIMIT = (
    ModelFailure(SilenceKind.SERVER, "500"),
    ModelFailure(SilenceKind.LOGIN, "401"),
    ModelFailure(SilenceKind.QUOTA, "429", NOW),
)

FINISHED = SessionEnd(SessionOutcome.FINISHED)
LIMITED = SessionEnd(SessionOutcome.QUOTA, "a usage limit is reached: 429", NOW)


def stopped_as(reason: StopReason) -> SessionEnd:
    """The end of a session that was ended for this reason, with the sentence of the reason."""
    return SessionEnd(STOP_RULES[reason].outcome, STOP_RULES[reason].sentence)


@pytest.mark.parametrize(
    ("code", "word", "moved", "stopped", "said", "wanted"),
    [
        (
            0,
            None,
            False,
            None,
            REFUSED,
            SessionEnd(
                SessionOutcome.UNUSABLE,
                "the model refuses the program's login: 401",
                needs_person=True,
                login_refused=True,
            ),
        ),
        (1, None, False, None, LIMIT, LIMITED),
        (0, None, False, None, SERVER, SessionEnd(SessionOutcome.UNANSWERED, "its model answers with errors: 500")),
        (1, None, True, None, BROKEN, SessionEnd(SessionOutcome.UNANSWERED, "its model's answers break off: cut")),
        (0, None, True, None, BROKEN, FINISHED),
        (0, None, True, None, LIMIT, FINISHED),
        (0, "0", False, None, REFUSED, FINISHED),
        (143, None, False, StopReason.STOP, LIMIT, SessionEnd(SessionOutcome.STOPPED, "stop")),
        (143, None, False, StopReason.HUNG, LIMIT, LIMITED),
        (143, None, False, StopReason.PERSON_NEEDED, LIMIT, LIMITED),
        (143, None, False, StopReason.NO_ANSWER, LIMIT, stopped_as(StopReason.NO_ANSWER)),
        (143, None, False, StopReason.USAGE_LIMIT, LIMIT, replace(stopped_as(StopReason.USAGE_LIMIT), retry_at=NOW)),
        (143, None, False, StopReason.USAGE_LIMIT, SERVER, stopped_as(StopReason.USAGE_LIMIT)),
        (143, None, False, StopReason.NO_PROGRESS, LIMIT, stopped_as(StopReason.NO_PROGRESS)),
        (
            143,
            None,
            False,
            StopReason.LOGIN_REFUSED,
            None,
            replace(stopped_as(StopReason.LOGIN_REFUSED), needs_person=True, login_refused=True),
        ),
        (
            143,
            None,
            False,
            StopReason.PERSON_NEEDED,
            None,
            replace(stopped_as(StopReason.PERSON_NEEDED), needs_person=True),
        ),
        (143, None, False, StopReason.HUNG, None, SessionEnd(SessionOutcome.CRASHED, "hung")),
        (143, None, False, StopReason.IDLE, LIMIT, FINISHED),
        (0, None, False, None, None, FINISHED),
    ],
)
def test_an_end_follows_the_runs_verb_then_output_then_code(
    code: int, word: str | None, moved: bool, stopped: StopReason | None, said: ModelFailure | None, wanted: SessionEnd
) -> None:
    note = None if stopped is None else StopNote(time=NOW, reason=STOP_RULES[stopped].sentence, kind=stopped)
    assert outcomes.classify_end(ended(code), word, {}, moved, note, said) == wanted


def test_a_limited_session_that_vanished_counts_as_limited() -> None:
    assert outcomes.classify_end(VanishedSession(shim=GONE, child=GONE), None, {}, False, None, LIMIT) == LIMITED


@pytest.mark.parametrize(
    "line",
    [
        '{"a":' * 3000,
        '{"type":"turn.completed","usage":{"input_tokens":Infinity,"output_tokens":NaN}}',
        '{"type":"turn.completed","usage":{"input_tokens":' + "9" * 400 + ',"output_tokens":-50}}',
        '{"type":"item","text":"half of it \\ud83d"}',
    ],
)
def test_no_output_prevents_the_conclusion_of_a_session(tmp_path: Path, line: str) -> None:
    form = UsageFormat(when={"type": "turn.completed"}, input=("usage.input_tokens",), output=("usage.output_tokens",))
    found = reported_figures.read_usage(form, printed(tmp_path, line))
    assert found is None or found.tokens >= 0
    assert isinstance("".join(log_file.extract_lines(line)).encode(), bytes)
    assert find_failure(ROW, f"{line}\n", NOW) is None


def test_an_unreadable_figure_in_text_counts_as_none(tmp_path: Path) -> None:
    form = UsageFormat(form="text", pattern=r"(?P<input>\S+) in, (?P<output>\S+) out, \$(?P<cost>\S+)")
    assert reported_figures.read_usage(form, printed(tmp_path, "1.2.3k in, 5 out, $x")) == ReportedUsage(
        TokenUsage(output=5)
    )
