"""Decisions of the ACP sidecar."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.api.acp.rules import (
    CANCEL_LIMIT,
    MAX_CALLS,
    AcpFacts,
    AwaitNews,
    EndSession,
    FailSession,
    FailureSign,
    InterruptTurn,
    RepeatPrompt,
    SendPrompt,
    TellRefusals,
    ToolBook,
    ToolPaths,
    TurnContent,
    TurnEnd,
    TurnFacts,
    TurnFailure,
    TurnResult,
    UsageCounts,
    UsageScope,
    add_counts,
    choose_option,
    classify_error,
    compose_outcome,
    judge_answer,
    judge_error,
    next_session_step,
    share_of_turn,
)
from liza.model.session_ends import SilenceKind

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


def test_a_silent_or_uncancelled_turn_fails_the_session() -> None:
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
def test_no_prompt_is_sent_within_turns_or_after_closing(facts: AcpFacts) -> None:
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


def test_a_tool_calls_updates_and_request_form_one_call() -> None:
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
def test_shares_of_turns_sum_to_the_session_total(turns: list[tuple[int, int]]) -> None:
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


def failed(message: str) -> FailSession:
    return FailSession(SilenceKind.BROKEN, message)


@pytest.mark.parametrize(
    ("facts", "step"),
    [
        (AcpFacts(turn=TurnFacts(silent=299.5)), AwaitNews(0.5)),
        (AcpFacts(turn=TurnFacts(silent=300.0)), failed("no update of a running turn for 300 s")),
        (AcpFacts(turn=TurnFacts(silent=2.0), silence_limit=1.0), failed("no update of a running turn for 2 s")),
        (AcpFacts(turn=TurnFacts(cancelled=15.0)), failed("it did not end a cancelled turn within 15 s")),
        (AcpFacts(turn=TurnFacts(cancelled=14.5, silent=400.0)), AwaitNews(0.5)),
        (AcpFacts(turn=TurnFacts(), is_urgent=True), AwaitNews(300.0)),
        (AcpFacts(turn=TurnFacts(denials=3), is_closed=True), AwaitNews(300.0)),
        (AcpFacts(refusals=1, is_unread=True), TellRefusals()),
    ],
)
def test_a_turn_waits_only_as_long_as_its_limits(facts: AcpFacts, step: object) -> None:
    assert next_session_step(facts) == step


@pytest.mark.parametrize(
    ("option", "allowed", "chosen"),
    [
        ({"optionId": "a", "kind": "allow_once"}, True, "a"),
        ({"optionId": "a", "kind": "allow_once"}, False, None),
        ({"optionId": "a", "kind": "reject_once"}, False, "a"),
        ({"optionId": 1, "kind": "allow_once"}, True, None),
    ],
)
def test_an_option_counts_by_its_kind_and_a_textual_id(option: object, allowed: bool, chosen: str | None) -> None:
    assert choose_option([option], allowed=allowed) == chosen
    assert compose_outcome("a") == {"outcome": {"outcome": "selected", "optionId": "a"}}


def described(paths: ToolPaths, **call: object) -> tuple[str, dict]:
    book = ToolBook(paths)
    request = book.describe(book.add({"toolCallId": "a", **call}))
    return request.tool, request.input


@pytest.mark.parametrize(
    ("kind", "tool"),
    [
        ("execute", "shell"),
        ("edit", "write"),
        ("delete", "write"),
        ("move", "write"),
        ("read", "read"),
        ("search", "read"),
        ("fetch", "fetch"),
        ("think", "other"),
    ],
)
def test_each_kind_of_the_protocol_has_its_word(kind: str, tool: str) -> None:
    assert described(ToolPaths(), kind=kind)[0] == tool


def test_command_and_file_are_where_the_programs_row_has_them() -> None:
    usual = ToolPaths()
    assert described(usual, kind="execute", rawInput={"command": "ls", "path": "/a"}) == (
        "shell",
        {"command": "ls", "path": "/a"},
    )
    assert described(usual, kind="read", rawInput={"path": "/b"}, locations=[{"path": "/c"}])[1] == {"path": "/b"}
    assert described(usual, kind="edit", locations=[{"line": 1}, {"path": ""}, {"path": "/c"}])[1] == {"path": "/c"}
    assert described(usual, kind="edit", locations={"path": "/c"}) == ("write", {})
    assert described(usual, kind="edit", content=[{"path": "/d"}])[1] == {"path": "/d"}
    own = ToolPaths(command=("rawInput.cmd.0", "rawInput.line", "title"), file=("rawInput.target",))
    assert described(own, kind="execute", title="t", rawInput={"line": "make"})[1]["command"] == "make"
    assert described(own, kind="read", title="t", rawInput={"target": "/e"})[1]["path"] == "/e"
    assert described(own, kind="read", title="t") == ("read", {})


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["bash", "-c", "a | b"], "a | b"),
        (["bash", "-x", "a | b"], "bash -x 'a | b'"),
        (["bash", "-c", "a", "b c"], "bash -c a 'b c'"),
        (["ls"], "ls"),
        ([], None),
        (["ls", 1], None),
    ],
)
def test_words_of_a_command_are_one_line(words: list, command: str | None) -> None:
    tool, values = described(ToolPaths(), kind="execute", rawInput={"command": words})
    assert tool == "shell"
    assert values.get("command") == (words if command is None else command)


def test_a_call_has_its_newest_status_until_it_is_closed() -> None:
    book = ToolBook(ToolPaths())
    assert (book.has_open_call(), book.status("a"), book.output("a")) == (False, "", None)
    book.add({"toolCallId": "a", "status": "in_progress", "content": [1]})
    assert (book.has_open_call(), book.status("a"), book.output("a")) == (True, "in_progress", [1])
    book.add({"toolCallId": "a", "status": "failed", "rawOutput": 0})
    assert (book.status("a"), book.output("a")) == ("failed", 0)
    book.add({"toolCallId": "b"})
    book.close("a")
    assert (book.has_open_call(), book.status("a")) == (True, "")
    book.close("gone")
    book.close("b")
    assert not book.has_open_call()
    assert book.add({}) == ""


def test_as_many_calls_are_remembered_as_the_limit_allows() -> None:
    book = ToolBook(ToolPaths())
    for number in range(MAX_CALLS):
        book.add({"toolCallId": str(number), "kind": "read"})
    assert book.describe("0").tool == "read"
    book.add({"toolCallId": "one more", "kind": "read"})
    assert [book.describe(name).tool for name in ("0", "1", "one more")] == ["other", "read", "read"]
    assert MAX_CALLS == 512


SIGN = [FailureSign("server", r"^E: (?P<words>.*)"), FailureSign("login", r"^E: 401.*")]


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ({"code": -32000, "message": " log\nin ", "data": {"x": 1}}, SilenceKind.LOGIN, "log in"),
        ({"code": -32000, "message": "x" * 500}, SilenceKind.LOGIN, "x" * 400),
        ({"message": "a", "data": {"details": "b"}}, SilenceKind.BROKEN, "a: b"),
        ({"message": "a", "data": {"details": 3}}, SilenceKind.BROKEN, 'a: {"details": 3}'),
        ({"message": "a", "data": "b\nc"}, SilenceKind.BROKEN, "a: b c"),
        ({"message": "a", "data": {}}, SilenceKind.BROKEN, "a"),
        ({"message": "a", "data": ""}, SilenceKind.BROKEN, "a"),
        ({"code": 429, "message": "a"}, SilenceKind.QUOTA, "a"),
        ({"code": -429, "message": "a"}, SilenceKind.BROKEN, "a"),
        ({"code": "429", "message": "a"}, SilenceKind.BROKEN, "a"),
        ({"message": "x" * 500}, SilenceKind.BROKEN, "x" * 400),
        ({"message": "a\nE: wait  a bit\nmore"}, SilenceKind.SERVER, "wait a bit"),
        ({"message": "a\nE: 401 \n no"}, SilenceKind.LOGIN, "E: 401 no"),
        ("rate limit and 503", SilenceKind.QUOTA, "rate limit and 503"),
        ("log in, 503", SilenceKind.LOGIN, "log in, 503"),
        ("overloaded", SilenceKind.SERVER, "overloaded"),
        ("1401 5031", SilenceKind.BROKEN, "1401 5031"),
    ],
)
def test_an_error_message_is_one_line_of_the_programs_output(error: object, kind: SilenceKind, message: str) -> None:
    failure = classify_error(error, SIGN)
    assert (failure.kind, failure.message) == (kind, message)


@pytest.mark.parametrize(
    "text", ["Quota", "usage limit", "Too many requests", "rate-limit", "RATE LIMIT", "ratelimit", "HTTP 429"]
)
def test_a_usage_limit_is_recognised_in_each_form(text: str) -> None:
    assert classify_error(text).kind is SilenceKind.QUOTA


@pytest.mark.parametrize(
    "text",
    [
        "403",
        "not authenticated",
        "unauthorised",
        "Unauthorized",
        "bad api_key",
        "apikey",
        "please login",
        "credentials",
    ],
)
def test_a_refused_login_is_recognised_in_each_form(text: str) -> None:
    assert classify_error(text).kind is SilenceKind.LOGIN


@pytest.mark.parametrize("text", ["502", "Server error", "high demand", "Unavailable"])
def test_a_fault_of_the_server_is_recognised_in_each_form(text: str) -> None:
    assert classify_error(text).kind is SilenceKind.SERVER


def test_a_result_keeps_the_programs_reason_and_the_failed_part() -> None:
    empty = judge_answer("end_turn", TurnContent(), ())
    assert empty == TurnResult(
        TurnEnd.FAILED, "end_turn", TurnFailure(SilenceKind.BROKEN, "the turn ended without an answer")
    )
    assert judge_answer("max_tokens", TEXT, ()) == TurnResult(TurnEnd.OVER, "max_tokens")
    assert judge_answer("cancelled", TEXT, SIGNS) == TurnResult(TurnEnd.CANCELLED, "cancelled")
    assert judge_error("x", TEXT, ()) == TurnResult(TurnEnd.FAILED, failure=TurnFailure(SilenceKind.BROKEN, "x"))


def test_counts_are_added_and_unreported_prices_stay_unknown() -> None:
    assert add_counts(UsageCounts(1, 2, 3, 0.5), UsageCounts(10, 20, 30)) == UsageCounts(11, 22, 33, 0.5)
    assert add_counts(UsageCounts(), UsageCounts()).cost is None
    assert add_counts(UsageCounts(cost=0.5), UsageCounts(cost=0.25)).cost == 0.75
    assert [UsageCounts(*counts).is_empty for counts in ((0, 9, 0), (1,), (0, 0, 1), (0, 0, 0, 0.1))] == [
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("reported", "earlier", "share"),
    [
        (UsageCounts(10, 5, 4, 1.5), UsageCounts(6, 2, 1, 0.5), UsageCounts(4, 3, 3, 1.0)),
        (UsageCounts(10, 1, 4), UsageCounts(6, 2, 1, 0.5), UsageCounts(4, 0, 3)),
        (UsageCounts(10, 1, 4, 0.25), UsageCounts(10, 1, 4, 0.5), UsageCounts(0, 0, 0, 0.0)),
        (UsageCounts(10, 1, 4, 0.25), UsageCounts(10, 1, 4), UsageCounts(0, 0, 0, 0.25)),
        (UsageCounts(10, 1, 3), UsageCounts(9, 1, 4), UsageCounts(10, 1, 3)),
    ],
)
def test_the_share_of_a_turn_is_what_was_added(reported: UsageCounts, earlier: UsageCounts, share: UsageCounts) -> None:
    assert share_of_turn(reported, earlier, UsageScope.SESSION) == share
    assert share_of_turn(reported, earlier, UsageScope.CONVERSATION) == share
    assert share_of_turn(reported, earlier, UsageScope.REQUEST) == reported


def test_the_scopes_of_usage_figures_have_fixed_names() -> None:
    assert list(UsageScope) == ["turn", "session", "conversation", "request"]
