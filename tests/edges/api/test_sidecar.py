"""The ACP sidecar with a real program that speaks ACP and has the traps of real ones: `tests/acp/agent.py`."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from liza.api.acp.agent_process import MAX_LINE, AgentProcess, parse_message
from liza.api.acp.turns import AGAIN, PromptQueue
from liza.briefs import inbox
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry, TokenUsage
from liza.model.value_classes import replace
from liza.system import proc_stat
from liza.usage import ledger
from tests.acp.rig import BRIEF, CLOSE, Rig, now
from tests.conftest import until, variant

STEPS = [
    "acp.spawned",
    "acp.initialized",
    "acp.session",
    "acp.mode",
    "acp.prompted",
    "acp.permission",
    "acp.turn-over",
    "acp.taken",
    "acp.prompted#2",
    "acp.acknowledged",
    "acp.cancelled",
    "acp.stopping",
]
USUAL_STEPS = {"acp.session", "acp.prompted", "acp.taken", "acp.acknowledged", "acp.cancelled"}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path / "project")
    yield made
    made.clean()


def test_a_session_begins_with_its_brief_and_ends_after_closing(rig: Rig) -> None:
    rig.script([{"say": "I work.\n"}, CLOSE, {"say": "Done."}])
    rig.start()
    assert rig.end() == 0
    assert rig.prompts() == [BRIEF]
    assert [line["type"] for line in rig.lines()] == [
        "session",
        "prompt",
        "text",
        "tool_call",
        "permission",
        "tool_result",
        "text",
        "turn",
    ]
    assert rig.living() == []
    assert all(message["jsonrpc"] == "2.0" for message in rig.received())
    assert rig.received("initialize")[0]["clientCapabilities"] == {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }
    turn = rig.run_dir.read_turn()
    assert turn is not None
    assert turn.session == rig.lines("session")[0]["session_id"]
    assert rig.run_dir.is_ready()


@pytest.mark.campaign
def test_mode_options_and_model_are_set_before_the_first_prompt(rig: Rig) -> None:
    rig.script([CLOSE])
    rig.start(mode="ask", options={"effort": "high"}, model="m")
    assert rig.end() == 0
    methods = [message["method"] for message in rig.received() if "method" in message]
    assert methods == [
        "initialize",
        "session/new",
        "session/set_mode",
        "session/set_config_option",
        "session/set_model",
        "session/prompt",
    ]
    assert rig.received("session/set_mode")[0]["modeId"] == "ask"


def test_an_idle_session_gets_and_acknowledges_each_message_separately(rig: Rig) -> None:
    rig.script([{"say": "Hm."}], [{"wait": "gate"}, {"say": "One."}], [CLOSE])
    rig.start()
    until(lambda: rig.lines("turn"), "the first turn is over")
    rig.note("first")
    rig.wait_prompts(2)
    rig.note("second")
    assert rig.pending() == ["first", "second"]
    (rig.home / "gate").touch()
    assert rig.end() == 0
    assert [prompt.strip() for prompt in rig.prompts()] == [
        BRIEF,
        "MESSAGE from person: first",
        "MESSAGE from person: second",
    ]
    assert rig.pending() == []
    assert [done.by for done in inbox.list_done(Paths(rig.root), "coder-1")] == ["acp prompt", "acp prompt"]


@pytest.mark.campaign
def test_messages_that_the_brief_quotes_are_not_sent_again(rig: Rig) -> None:
    rig.script([{"say": "I read it."}, CLOSE])
    rig.note("use tabs\nnot blanks")
    quoted = inbox.format_messages(inbox.list_pending(Paths(rig.root), "coder-1"))
    rig.start(brief=f"{BRIEF}\n{quoted}")
    assert rig.end() == 0
    assert len(rig.prompts()) == 1
    assert rig.pending() == []


QUOTED = [
    ("NOTE from the person: use tabs\n  not blanks\nTESTS  none", True),
    ("MESSAGE from person: use tabs\n  not blanks", True),
    ("NOTE from the person: use tabs\n  not blanks\n  but for Python", False),
    ("NOTE from the person: use tabs\n  not blanks at all", False),
    ("NOTE from the person: use tabs […] (cut: see MORE)", False),
]


@pytest.mark.parametrize(("brief", "is_quoted"), QUOTED)
def test_only_a_message_quoted_in_full_counts_as_read(rig: Rig, brief: str, is_quoted: bool) -> None:
    name = rig.note("use tabs\nnot blanks")
    queue = PromptQueue(rig.run_dir)
    assert queue.take_quoted(f"{BRIEF}\n{brief}\n") == ((name,) if is_quoted else ())
    assert len(queue.next_messages()) == (not is_quoted)


@pytest.mark.sample(1)
@pytest.mark.parametrize("switches", [{}, {"cancel_is_error": True}])
def test_an_urgent_message_cancels_the_turn_and_comes_next(rig: Rig, switches: dict) -> None:
    rig.script([{"say": "I wait."}, {"wait": "never"}], [CLOSE], **switches)
    rig.start()
    until(lambda: rig.lines("text"), "the turn runs")
    rig.note("stop that", "urgent")
    assert rig.end() == 0
    assert len(rig.received("session/cancel")) == 1
    assert rig.prompts()[1].strip() == "MESSAGE from person: stop that"
    assert [line["end"] for line in rig.lines("turn")] == ["cancelled", "over"]


@pytest.mark.campaign
def test_a_message_interrupted_before_any_answer_is_given_again(rig: Rig) -> None:
    rig.script([{"say": "Hm."}], [{"wait": "never"}], [{"say": "I stop."}, {"wait": "gate"}], [{"say": "Tabs."}, CLOSE])
    rig.start()
    until(lambda: rig.lines("turn"), "the first turn is over")
    rig.note("use tabs")
    rig.wait_prompts(2)
    rig.note("stop that", "urgent")
    rig.wait_prompts(3)
    until(lambda: "stop that" not in rig.pending(), "the urgent one is read")
    assert rig.pending() == ["use tabs"]
    (rig.home / "gate").touch()
    assert rig.end() == 0
    assert rig.prompts()[3] == f"{AGAIN}\nMESSAGE from person: use tabs\n"
    assert rig.pending() == []


@pytest.mark.campaign
def test_an_interrupted_unread_brief_is_in_the_next_prompt(rig: Rig) -> None:
    rig.script([{"wait": "never"}], [{"wait": "never"}], [{"say": "I read it."}, CLOSE])
    rig.start()
    rig.wait_prompts(1)
    rig.note("first", "urgent")
    rig.wait_prompts(2)
    rig.note("second", "urgent")
    assert rig.end() == 0
    assert len(rig.prompts()) == 3
    first, second = "MESSAGE from person: first\n", "MESSAGE from person: second\n"
    assert rig.prompts()[1:] == [
        f"{first}\n{AGAIN}\n{BRIEF}",
        f"{AGAIN}\n{first}\n{second}\n{AGAIN}\n{BRIEF}",
    ]
    assert rig.pending() == []


def test_a_message_that_is_not_urgent_waits_for_the_turn(rig: Rig) -> None:
    rig.script([{"say": "I wait."}, {"wait": "gate"}], [CLOSE])
    rig.start()
    until(lambda: rig.lines("text"), "the turn runs")
    rig.note("later")
    rig.note("sooner, but no interruption", "system")
    (rig.home / "gate").touch()
    assert rig.end() == 0
    assert rig.received("session/cancel") == []
    assert rig.prompts()[1].strip() == "MESSAGE from person: sooner, but no interruption"


TRAPS = [{}, {"no_announcement": True}, {"bare_request": True}, {"reject_ends": True}]


@pytest.mark.sample(1)
@pytest.mark.parametrize("switches", TRAPS)
def test_a_refused_tool_does_not_run_and_gives_its_reason(rig: Rig, switches: dict) -> None:
    rig.script([{"shell": "touch $LIZA_ROOT/forbidden"}, {"say": "?"}], [{"say": "I see."}, CLOSE], **switches)
    rig.start(command_paths=("rawInput.command", "title"))
    assert rig.end() == 0
    assert not (rig.root / "forbidden").exists()
    assert "it is FORBIDDEN: write a note instead" in rig.prompts()[1]
    assert "touch $LIZA_ROOT/forbidden" in rig.prompts()[1]
    assert len(rig.prompts()) == 2
    first, second = rig.lines("permission")
    assert (first["tool"], first["allowed"], second["allowed"]) == ("shell", False, True)
    assert rig.lines("tool_result")[0]["status"] == "failed"


@pytest.mark.campaign
def test_turn_with_two_refused_tools_is_interrupted_with_the_reason(rig: Rig) -> None:
    tries = [{"shell": f"echo forbidden {number}"} for number in range(9)]
    rig.script([*tries, {"wait": "never"}], [CLOSE])
    rig.start()
    assert rig.end() == 0
    assert len(rig.received("session/cancel")) == 1
    assert rig.prompts()[1].count("FORBIDDEN") == len(rig.lines("permission")) - 1 >= 2


def test_a_tool_that_cannot_be_decided_is_refused(rig: Rig) -> None:
    rig.script([{"shell": "touch $LIZA_ROOT/undecidable"}, {"say": "?"}], [CLOSE])
    rig.start()
    assert rig.end() == 0
    assert not (rig.root / "undecidable").exists()
    assert "no parser" in rig.prompts()[1]


@pytest.mark.campaign
def test_a_cancelled_turn_answers_its_open_permission_request(rig: Rig) -> None:
    rig.script(
        [{"say": "I wait."}, {"wait": "cancelled-by-the-test"}],
        [CLOSE],
        waits_for_permission=True,
        asks_after_cancel=True,
    )
    rig.start()
    until(lambda: rig.lines("text"), "the turn runs")
    rig.note("stop that", "urgent")
    assert rig.end() == 0
    answers = [message["result"] for message in rig.received() if "result" in message]
    assert answers[0] == {"outcome": {"outcome": "cancelled"}}


@pytest.mark.campaign
def test_an_unsupported_request_gets_an_error_and_the_turn_continues(rig: Rig) -> None:
    rig.script([{"request": "fs/write_text_file"}, CLOSE])
    rig.start()
    assert rig.end() == 0
    assert json.loads((rig.home / "answer.json").read_text())["error"]["code"] == -32601


def test_unknown_updates_stop_reasons_and_lines_are_ignored(rig: Rig) -> None:
    unknown = {"update": {"sessionUpdate": "sings", "song": ["la"]}}
    noise = [{"line": "Warning: a new version"}, {"line": "[1, 2]"}, {"line": '{"jsonrpc": "2.0"}'}, {"line": "\udcff"}]
    rig.script([unknown, *noise[:3], {"say": "I go on."}, {"stop": "rested"}], [CLOSE])
    rig.start()
    until(lambda: rig.lines("turn"), "the first turn is over")
    assert rig.lines("turn")[0]["stop_reason"] == "rested"
    rig.note("go on")
    assert rig.end() == 0


def test_a_closing_code_that_cannot_be_read_is_read_again(rig: Rig) -> None:
    rig.script([{"shell": CLOSE["shell"].replace("echo 0", "echo nonsense")}, {"say": "?"}], [CLOSE])
    rig.start()
    until(lambda: rig.lines("notice"), "a notice")
    rig.note("go on")
    (rig.run_dir.path / "word").unlink()
    assert rig.end() == 0
    assert "nonsense" in rig.lines("notice")[0]["text"]


@pytest.mark.campaign
def test_a_huge_line_and_a_full_stderr_stop_nothing(rig: Rig) -> None:
    rig.script([{"big": 20 << 20}, {"stderr": 5 << 20}, CLOSE])
    rig.start()
    assert rig.end() == 0
    assert sum(len(line["text"]) for line in rig.lines("text")) == 20 << 20
    assert (rig.run_dir.path / "acp-stderr.log").stat().st_size < 5 << 20


def test_an_endless_line_ends_the_session_before_memory_fills(rig: Rig) -> None:
    rig.start(argv=(sys.executable, "-c", f"print('x' * {MAX_LINE + 1}, flush=True); input()"))
    assert rig.end() == 1
    (failure,) = rig.lines("failure")
    assert failure["kind"] == "broken"
    assert "a line of more than 32 MiB" in failure["message"]


@pytest.mark.parametrize("name", ['"' + "9" * 5000 + '"', "9" * 5000, "true", '"²"', "null", "[1]"])
def test_an_answer_with_an_unknown_id_is_ignored(name: str) -> None:
    assert parse_message(f'{{"id":{name},"result":1}}'.encode()) is None


@pytest.mark.campaign
def test_an_inbox_error_ends_the_program_and_loses_no_message(rig: Rig) -> None:
    rig.script([{"say": "Hm."}], [{"say": "never sent"}])
    rig.start()
    until(lambda: rig.lines("turn"), "the first turn is over")
    (rig.run_dir.path.parent / "inbox" / ".lock").symlink_to(".lock")
    rig.note("do not lose me")
    assert rig.end() == 1
    assert rig.living() == []
    assert rig.pending() == ["do not lose me"]
    turn = rig.run_dir.read_turn()
    assert turn is not None
    assert turn.phase == "stopped"


FAILURES = [
    ({"code": -32000, "message": "Authentication required"}, "login"),
    ({"code": 401, "message": "no"}, "login"),
    ({"code": -32603, "message": "Internal error", "data": {"details": "429 too many"}}, "quota"),
    ({"code": -32603, "message": "status 503"}, "server"),
    ({"code": -32603, "message": "what?"}, "broken"),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("error", "kind"), FAILURES)
def test_a_turn_error_counts_as_a_failure_of_the_model(rig: Rig, error: dict, kind: str) -> None:
    rig.script([{"error": error}])
    rig.start()
    assert rig.end() == 1
    (failure,) = rig.lines("failure")
    assert failure["kind"] == kind
    assert rig.living() == []


@pytest.mark.campaign
def test_turn_with_an_error_text_or_nothing_is_a_failure(rig: Rig) -> None:
    rig.script([{"say": "Error: Authentication failed, 401"}])
    rig.start(failures=({"kind": "login", "match": "^Error: (?P<words>Authentication failed.*)"},))
    assert rig.end() == 1
    assert rig.lines("failure")[0]["message"] == "Authentication failed, 401"
    rig.script([{"say": "Error: Authentication failed"}, CLOSE])
    rig.start(failures=({"kind": "login", "match": "^Error: (?P<words>Authentication failed.*)"},))
    assert rig.end() == 0, "a text before a tool call is no failure"
    rig.script([])
    rig.start()
    assert rig.end() == 1
    assert rig.lines("failure")[0]["kind"] == "broken"


def test_a_message_in_a_failed_turn_waits_for_another_session(rig: Rig) -> None:
    rig.script([{"say": "Hm."}], [{"error": {"code": 500, "message": "down"}}])
    rig.start()
    until(lambda: rig.lines("turn"), "the first turn is over")
    rig.note("do not lose me")
    assert rig.end() == 1
    assert rig.pending() == ["do not lose me"]


@pytest.mark.campaign
def test_a_silent_turn_is_interrupted_but_no_silent_tool(rig: Rig) -> None:
    rig.script([{"shell": "sleep 2"}, {"say": "It slept."}, {"wait": "never"}])
    rig.start(silence_limit=1.0)
    assert rig.end() == 1
    assert rig.lines("tool_result")[0]["status"] == "completed"
    assert "no update of a running turn" in rig.lines("failure")[0]["message"]


def test_a_program_that_cannot_log_in_or_start_is_reported(rig: Rig) -> None:
    rig.script([], login=True)
    rig.start()
    assert rig.end() == 1
    assert rig.lines("failure")[0] == {
        "type": "failure",
        "kind": "login",
        "message": "session/new: Authentication required",
    }
    rig.start(argv=("/nowhere/program",))
    assert rig.end() == 1
    assert "/nowhere/program" in rig.lines("notice")[0]["text"]


def test_a_program_that_dies_is_reported_with_its_last_words(rig: Rig) -> None:
    rig.script([{"line": "no longer maintained"}, {"stderr": 10}, {"die": 3}])
    rig.start()
    assert rig.end() == 1
    assert rig.lines("exit") == [{"type": "exit", "code": 3}]
    assert {"last words", "no longer maintained"} <= {line["text"] for line in rig.lines("notice")}


def test_the_last_errors_of_a_program_are_its_unread_ones(tmp_path: Path) -> None:
    program = AgentProcess(("sh", "-c", "sleep 0.2; echo words >&2"), str(tmp_path), dict(os.environ), tmp_path)
    assert program.read_last_errors() == ("words",)
    assert program.end(1.0) == 0


COUNTS = [("turn", [(110, 20), (220, 40)]), ("session", [(110, 20), (110, 20)])]


@pytest.mark.sample(1)
@pytest.mark.parametrize(("counts", "wanted"), COUNTS)
def test_the_usage_of_each_turn_is_counted_once(rig: Rig, counts: str, wanted: list) -> None:
    first = {"usage": {"inputTokens": 100, "cachedReadTokens": 10, "outputTokens": 20}}
    second = {"usage": {"inputTokens": 200, "cachedReadTokens": 20, "outputTokens": 40}}
    cost = [{"update": {"sessionUpdate": "usage_update", "used": 5, "size": 50, "cost": {"amount": n}}} for n in (1, 3)]
    rig.script([{"say": "a"}, cost[0], {"usage": first}], [{"say": "b"}, cost[1], {"usage": second}, CLOSE])
    rig.start(
        usage={
            "counts": counts,
            "input": ("usage.inputTokens", "usage.cachedReadTokens"),
            "cached": ("usage.cachedReadTokens",),
            "output": ("usage.outputTokens",),
            "cost": "cost.amount",
        }
    )
    until(lambda: rig.lines("turn"), "the first turn is over")
    rig.note("go on")
    assert rig.end() == 0
    assert [(line["input_tokens"], line["output_tokens"]) for line in rig.lines("usage")] == wanted
    assert [line["cost_usd"] for line in rig.lines("usage")] == [1, 2]
    assert rig.lines("context") == [{"type": "context", "used": 5, "size": 50}]


def test_the_next_session_loads_the_conversation_and_ignores_its_replay(rig: Rig) -> None:
    rig.script([{"say": "Hm."}], [CLOSE])
    rig.start()
    until(lambda: rig.lines("turn"), "the first turn is over")
    session = rig.lines("session")[0]["session_id"]
    rig.process.terminate()
    assert rig.end() == -signal.SIGTERM
    rig.start(conversation=session)
    assert rig.end() == 0
    assert rig.lines("session")[0] == {"type": "session", "session_id": session, "loaded": True, "program": "scripted"}
    assert "REPLAYED" not in rig.told()
    assert json.loads((rig.home / "sessions" / f"{session}.json").read_text()) == [BRIEF, BRIEF]


@pytest.mark.campaign
def test_a_loaded_conversation_is_counted_from_its_earlier_end(rig: Rig) -> None:
    total = {"usage": {"inputTokens": 300, "outputTokens": 60}}
    cost = {"update": {"sessionUpdate": "usage_update", "used": 5, "size": 50, "cost": {"amount": 5}}}
    rig.script([{"say": "Hm."}], [cost, {"usage": total}, CLOSE], load_cost=3)
    usage = {
        "counts": "conversation",
        "input": ("usage.inputTokens",),
        "output": ("usage.outputTokens",),
        "cost": "cost.amount",
    }
    rig.start(usage=usage)
    until(lambda: rig.lines("turn"), "the first turn is over")
    session, run = rig.lines("session")[0]["session_id"], rig.run_dir.run
    rig.process.terminate()
    assert rig.end() == -signal.SIGTERM
    used = TokenUsage(input=100, output=20, cost=3)
    entry = LedgerEntry(run=run, time=now(), kind="work", program="p", outcome="stopped", seconds=1, used=used)
    ledger.append_entry(Paths(rig.root), replace(entry, conversation=session))
    rig.start(conversation=session, usage=usage)
    assert rig.end() == 0
    lines = rig.lines("usage")
    assert [(line["input_tokens"], line["output_tokens"], line["cost_usd"]) for line in lines] == [(200, 40, 2)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("switches", [{"load_errors": 1}, {"no_load": True}])
def test_a_conversation_that_cannot_be_loaded_starts_anew(rig: Rig, switches: dict) -> None:
    rig.script([{"say": "Hm."}])
    rig.start()
    until(lambda: rig.lines("turn"), "the first turn is over")
    session = rig.lines("session")[0]["session_id"]
    rig.process.kill()
    rig.process.wait()
    rig.script([CLOSE], [CLOSE], **switches)
    rig.start(conversation=session)
    assert rig.end() == 0
    assert not rig.lines("session")[0]["loaded"]
    assert rig.lines("session")[0]["session_id"] != session
    assert rig.prompts() == [BRIEF, BRIEF]


@pytest.mark.parametrize("switches", [{}, variant({"ignore_end": True, "deaf_to_cancel": True})])
def test_sigterm_cancels_the_turn_closes_stdin_and_leaves_no_program(rig: Rig, switches: dict) -> None:
    rig.script([{"say": "I wait."}, {"wait": "never"}], **switches)
    rig.start(drain=0.3)
    until(lambda: rig.lines("text"), "the turn runs")
    rig.process.terminate()
    assert rig.end() == -signal.SIGTERM
    assert len(rig.received("session/cancel")) == 1
    assert rig.living() == []
    turn = rig.run_dir.read_turn()
    assert turn is not None
    assert turn.phase == "stopped"


@pytest.mark.campaign
def test_the_late_usage_of_a_cancelled_turn_is_counted(rig: Rig) -> None:
    usage = {"usage": {"inputTokens": 100, "cachedReadTokens": 10, "outputTokens": 20}}
    rig.script([{"usage": usage}, {"say": "I wait."}, {"wait": "never"}], late_end=1.5)
    rig.start(usage={"counts": "turn", "input": ("usage.inputTokens",), "output": ("usage.outputTokens",)})
    until(lambda: rig.lines("text"), "the turn runs")
    rig.process.terminate()
    assert rig.end() == -signal.SIGTERM
    assert [(line["input_tokens"], line["output_tokens"]) for line in rig.lines("usage")] == [(100, 20)]


def test_a_tool_that_survives_cancellation_ends_with_its_turn(rig: Rig) -> None:
    rig.script([{"shell": "echo $$ > $LIZA_ROOT/pid; exec sleep 600"}], [CLOSE], orphans_tools=True)
    rig.start(orphans_tools=True)
    pid = rig.root / "pid"
    until(lambda: pid.exists() and pid.read_text().strip(), "the tool runs")
    rig.note("stop that", "urgent")
    assert rig.end() == 0
    until(lambda: (stat := proc_stat.read_stat(pid.read_text().strip())) is None or proc_stat.is_ended(stat), "its end")


@pytest.mark.sample(1)
@pytest.mark.parametrize("step", [step if step in USUAL_STEPS else variant(step) for step in STEPS])
def test_a_sidecar_killed_at_any_step_loses_no_message(rig: Rig, step: str) -> None:
    work = [{"shell": "touch $LIZA_ROOT/first"}, {"say": "Hm."}]
    rig.script(work, [{"say": "I read it."}], [{"say": "I wait."}, {"wait": "never"}])
    rig.start(fault=step)
    if step not in STEPS[:6]:
        until(lambda: rig.lines("turn") or rig.process.poll() is not None, "the first turn is over")
        rig.note("read me")
    if step in ("acp.cancelled", "acp.stopping"):
        until(lambda: len(rig.lines("turn")) == 2, "the second turn is over")
        rig.note("wait")
        until(lambda: len(rig.prompts()) == 3 and len(rig.lines("text")) == 3, "the third turn runs")
        rig.process.terminate() if step == "acp.stopping" else rig.note("stop that", "urgent")
    assert rig.process.wait(30) == -signal.SIGKILL
    for pid in rig.living():
        os.kill(pid, signal.SIGKILL)  # The shim does this: the program is below it.
    session = rig.lines("session")[0]["session_id"] if rig.lines("session") else None
    unread = rig.pending()
    rig.script(*[[{"say": "Hm."}]] * 9, [CLOSE])
    if step != "acp.acknowledged":
        assert unread == [] or "read me" in unread or step in ("acp.cancelled", "acp.stopping")
    rig.start(conversation=session)
    until(lambda: rig.lines("turn") and not rig.pending(), f"all are read\n{rig.told()}")
    texts = "".join(rig.prompts())
    assert ("read me" in texts) or step in STEPS[:7]
    assert rig.lines("session")[0]["loaded"] is (session is not None)
