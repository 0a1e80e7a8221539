"""Decisions of the ACP sidecar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.rules.acp.permission_options import choose_option, compose_outcome
from liza.rules.acp.session_steps import (
    CANCEL_LIMIT,
    AcpFacts,
    AwaitNews,
    EndSession,
    FailSession,
    InterruptTurn,
    RepeatPrompt,
    SendPrompt,
    TellRefusals,
    TurnFacts,
    next_session_step,
)
from liza.rules.acp.stream_text import format_stream_line
from liza.rules.acp.tool_requests import MAX_CALLS, ToolBook, ToolPaths
from liza.rules.acp.turn_results import FailureSign, TurnContent, TurnEnd, classify_error, judge_answer, judge_error
from liza.rules.acp.usage_counts import UsageCounts, UsageScope, share_of_turn
from liza.rules.sessions.session_ends import SilenceKind

STEPS = [
    (AcpFacts(), AwaitNews()),
    (AcpFacts(waiting=True), SendPrompt()),
    (AcpFacts(is_unread=True), RepeatPrompt()),
    (AcpFacts(waiting=True, is_unread=True), SendPrompt()),
    (AcpFacts(is_unread=True, is_closed=True), EndSession()),
    (AcpFacts(waiting=True, refusals=1), TellRefusals()),
    (AcpFacts(waiting=True, refusals=1, is_closed=True), EndSession()),
    (AcpFacts(turn=TurnFacts(), waiting=True), AwaitNews(300.0)),
    (AcpFacts(turn=TurnFacts(), waiting=True, is_urgent=True), InterruptTurn()),
    (AcpFacts(turn=TurnFacts(), waiting=True, is_urgent=True, is_closed=True), AwaitNews(300.0)),
    (AcpFacts(turn=TurnFacts(cancelled=1.0), waiting=True, is_urgent=True), AwaitNews(CANCEL_LIMIT - 1)),
    (AcpFacts(turn=TurnFacts(denials=1)), AwaitNews(300.0)),
    (AcpFacts(turn=TurnFacts(denials=2)), InterruptTurn()),
    (AcpFacts(turn=TurnFacts(denials=2, cancelled=1.0)), AwaitNews(CANCEL_LIMIT - 1)),
    (AcpFacts(turn=TurnFacts(silent=400.0, has_open_tool=True)), AwaitNews()),
    (AcpFacts(turn=TurnFacts(silent=10.0)), AwaitNews(290.0)),
]


@pytest.mark.parametrize(("facts", "step"), STEPS)
def test_the_next_step(facts: AcpFacts, step: object) -> None:
    assert next_session_step(facts) == step


def test_a_silent_turn_and_one_that_is_not_cancelled_fail_the_session() -> None:
    for turn in (TurnFacts(silent=301.0), TurnFacts(cancelled=CANCEL_LIMIT)):
        step = next_session_step(AcpFacts(turn=turn))
        assert isinstance(step, FailSession)
        assert step.kind is SilenceKind.BROKEN


@given(
    st.builds(
        AcpFacts,
        turn=st.one_of(
            st.none(), st.builds(TurnFacts, cancelled=st.one_of(st.none(), st.floats(0, 99)), denials=st.integers(0, 9))
        ),
        waiting=st.booleans(),
        is_urgent=st.booleans(),
        refusals=st.integers(0, 3),
        is_closed=st.booleans(),
    )
)
def test_no_prompt_is_sent_in_a_turn_or_after_the_closing_command(facts: AcpFacts) -> None:
    step = next_session_step(facts)
    if facts.turn is not None or facts.is_closed:
        assert not isinstance(step, SendPrompt | TellRefusals)
    if facts.turn is not None and facts.turn.cancelled is not None:
        assert not isinstance(step, InterruptTurn)


OPTIONS = [
    {"optionId": "1", "kind": "allow_always"},
    {"optionId": "2", "kind": "reject_always"},
    {"optionId": "3", "kind": "allow_once"},
    {"optionId": "4", "kind": "reject_once"},
]


def test_an_option_is_chosen_by_kind_and_only_for_once() -> None:
    assert choose_option(OPTIONS, allowed=True) == "3"
    assert choose_option(OPTIONS, allowed=False) == "4"
    for allowed in (True, False):
        assert choose_option([*OPTIONS[:2], "x", {"kind": "allow_once"}], allowed=allowed) is None
    assert compose_outcome(None) == {"outcome": {"outcome": "cancelled"}}


def test_updates_of_a_tool_call_and_its_request_are_one_call() -> None:
    book = ToolBook(ToolPaths())
    book.add({"toolCallId": "a", "title": "Run", "kind": "execute", "rawInput": {"command": "git push"}})
    assert book.add({"toolCallId": "a", "rawInput": {}, "title": None}) == "a"
    tool = book.describe("a")
    assert (tool.tool, tool.title, tool.input) == ("shell", "Run", {"command": "git push"})


TOOLS = [
    ({"kind": "execute", "rawInput": {"command": ["bash", "-lc", "a | b"]}}, "shell", {"command": "a | b"}),
    ({"kind": "execute", "rawInput": {"command": ["rm", "a b"]}}, "shell", {"command": "rm 'a b'"}),
    ({"kind": "execute", "title": "git push"}, "shell", {"command": "git push"}),
    ({"kind": "edit", "locations": [{"path": "/a"}]}, "write", {"path": "/a"}),
    ({"kind": "edit", "content": [{"type": "diff", "path": "/a", "newText": ""}]}, "write", {"path": "/a"}),
    ({"kind": "delete", "rawInput": {"path": "/a"}}, "write", {"path": "/a"}),
    ({"kind": "read", "rawInput": {"file_path": "/a"}}, "read", {"file_path": "/a", "path": "/a"}),
    ({"kind": "fetch", "rawInput": {"url": "u"}}, "fetch", {"url": "u"}),
    ({"kind": "other", "rawInput": {"command": "ls"}}, "shell", {"command": "ls"}),
    ({"kind": "sings"}, "other", {}),
    ({"kind": None, "rawInput": "text", "locations": "x"}, "other", {}),
]


@pytest.mark.parametrize(("call", "tool", "values"), TOOLS)
def test_a_tool_is_named_in_one_vocabulary(call: dict, tool: str, values: dict) -> None:
    book = ToolBook(ToolPaths(command=("rawInput.command", "title")))
    name = book.add({"toolCallId": "a", **call})
    described = book.describe(name)
    assert described.tool == tool
    assert {key: value for key, value in described.input.items() if key in values} == values
    if isinstance(call.get("rawInput"), dict):
        assert described.input.keys() >= call["rawInput"].keys()


def test_calls_without_an_end_are_forgotten_at_last() -> None:
    book = ToolBook(ToolPaths())
    for number in range(2 * MAX_CALLS):
        book.add({"toolCallId": str(number), "kind": "read"})
    assert book.describe("0").tool == "other"
    assert book.describe(str(2 * MAX_CALLS - 1)).tool == "read"


SIGNS = [FailureSign("quota", r"^Error: (?P<words>429.*)"), FailureSign("login", r"^Error: Auth.*")]
TEXT = TurnContent("It is done.", is_empty=False)
ANSWERS = [
    ("end_turn", TEXT, TurnEnd.OVER, None),
    ("rested", TEXT, TurnEnd.OVER, None),
    ("refusal", TurnContent(), TurnEnd.OVER, None),
    ("end_turn", TurnContent(), TurnEnd.FAILED, SilenceKind.BROKEN),
    ("end_turn", TurnContent("so\nError: 429 wait", is_empty=False), TurnEnd.FAILED, SilenceKind.QUOTA),
    ("end_turn", TurnContent("Error: Auth", is_empty=False), TurnEnd.FAILED, SilenceKind.LOGIN),
    ("end_turn", TurnContent("Error: Auth", is_empty=False, is_cancelled=True), TurnEnd.CANCELLED, None),
    ("cancelled", TurnContent(), TurnEnd.CANCELLED, None),
]


@pytest.mark.parametrize(("reason", "content", "end", "kind"), ANSWERS)
def test_how_a_turn_ended(reason: str, content: TurnContent, end: TurnEnd, kind: SilenceKind | None) -> None:
    result = judge_answer(reason, content, SIGNS)
    assert result.end is end
    assert (result.failure.kind if result.failure else None) is kind


ERRORS = [
    ({"code": -32000, "message": "x"}, SilenceKind.LOGIN),
    ({"code": 400, "message": "bad request"}, SilenceKind.BROKEN),
    ({"code": -32603, "message": "Internal error", "data": {"details": "401 nope"}}, SilenceKind.LOGIN),
    ({"code": -32603, "message": "Internal error", "data": {"a": ["429"]}}, SilenceKind.QUOTA),
    ({"code": 500, "message": "x"}, SilenceKind.SERVER),
    ({"code": -31002, "message": "Invalid API key"}, SilenceKind.LOGIN),
    ({"message": "Error: 429 soon"}, SilenceKind.QUOTA),
    ("text", SilenceKind.BROKEN),
    (None, SilenceKind.BROKEN),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_what_an_error_means(error: object, kind: SilenceKind) -> None:
    assert classify_error(error, SIGNS).kind is kind
    assert judge_error(error, TEXT, SIGNS).end is TurnEnd.FAILED
    assert judge_error(error, TurnContent(is_cancelled=True), SIGNS).end is TurnEnd.CANCELLED


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=20))
def test_shares_of_turns_add_up_to_the_sum_of_the_session(turns: list[tuple[int, int]]) -> None:
    total, shares = UsageCounts(), []
    for taken, given_out in turns:
        after = UsageCounts(total.input + taken, 0, total.output + given_out)
        shares.append(share_of_turn(after, total, UsageScope.SESSION))
        total = after
    assert sum(share.input for share in shares) == total.input
    assert sum(share.output for share in shares) == total.output
    assert share_of_turn(UsageCounts(5), total, UsageScope.TURN) == UsageCounts(5)


def test_a_count_that_began_again_is_the_turn_itself() -> None:
    assert share_of_turn(UsageCounts(5, 1, 2), UsageCounts(100, 1, 50), UsageScope.SESSION) == UsageCounts(5, 1, 2)


SHOWN = [
    ('{"type":"text","text":"Hello"}', "Hello"),
    ('{"type":"thought","text":"hm"}', "(hm)"),
    ('{"type":"prompt","source":"brief","text":"a\\nb"}', "\n> a …"),
    ('{"type":"prompt","source":"message 1","text":"a\\nb"}', "\n> a\n> b"),
    ('{"type":"tool_call","tool":"shell","title":"t","input":{"command":"ls"}}', "[shell] ls"),
    ('{"type":"tool_result","status":"failed","ms":2,"output":"no"}', "    failed, 2 ms\n    no"),
    ('{"type":"permission","allowed":true}', None),
    ('{"type":"permission","allowed":false,"reason":"no push"}', "    refused: no push"),
    ('{"type":"turn","end":"over"}', "── the turn is over ──"),
    ('{"type":"failure","kind":"quota","message":"429"}', "! quota: 429"),
    ('{"type":"usage"}', None),
    ("{broken", "{broken"),
    ("a plain line", "a plain line"),
    ("", None),
]


@pytest.mark.parametrize(("line", "shown"), SHOWN)
def test_a_line_of_the_sidecar_as_text(line: str, shown: str | None) -> None:
    assert format_stream_line(line) == shown
