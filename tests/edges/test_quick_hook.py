"""The short way of a hook records what the usual way records, and leaves everything else to it."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from liza.programs.guards import guard_files
from liza.programs.hooks import hook_events
from liza.programs.hooks.hook_templates import HookMeaning, list_providers, load_template
from liza.programs.hooks.turn_phase import TurnPhase
from liza.programs.messages import inbox
from liza.programs.session.run_directory import HOOK_CALLS_FILE, RunDir, RunRecord, Turn, TurnSource
from liza.rules.errors import UsageError
from liza.rules.guards.guard_paths import DENIALS_FILE, GUARDS_FILE
from liza.rules.paths import Paths, agent_of
from liza.rules.sessions.session_ends import StopReason
from liza.system.flock import lock_path
from liza.verbs import quick_hook
from liza.verbs.hook import Hook
from liza.worker.api_requests import LifecycleEvent, LifecycleRequest
from liza.worker.lifecycle import TURN_LOCK, report_lifecycle

NOW = datetime.now(UTC).replace(microsecond=0)
TODAY = f"{NOW:%Y-%m-%d}"
LOOK = {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "ls"}}
TEXTS = st.text(st.characters(codec="utf-8"))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run whose session is in a turn."""
    directory = RunDir(Paths(tmp_path.resolve()), "coder-1.1")
    directory.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW))
    directory.mark_ready(NOW, "hook SessionStart")
    morning = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    directory.write_turn(Turn(time=morning, phase="busy", session="s", tools=2))
    install(directory)
    return directory


def install(run: RunDir) -> None:
    """Write the guards of the session, for the hooks of every program."""
    forms: dict[str, Any] = {}
    for provider in list_providers():
        forms |= hook_events.list_refusals(provider, load_template(provider))
    home = run.paths.root
    guard_files.install_guards(run, guard_files.load_guards(run.paths, home), home, None, "deny", forms)


def environ(run: RunDir) -> dict[str, str]:
    return {"LIZA_RUN": run.run, "LIZA_ROOT": str(run.paths.root)}


def record(run: RunDir, payload: Any = None, provider: str = "codex", event: str = "PreToolUse") -> bool:
    """Record an event the short way; return whether it was recorded."""
    usual = quick_hook.find_event(provider, event, environ(run))
    data = payload if isinstance(payload, bytes) else json.dumps(payload or LOOK).encode()
    return usual is not None and usual.record(data)


def files(run: RunDir) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.path.iterdir() if path.is_file()}


@pytest.mark.parametrize("provider", sorted(list_providers()))
def test_an_event_has_the_meaning_and_the_keys_of_its_template(provider: str) -> None:
    template = load_template(provider)
    reads = {name: getattr(template.reads, name) for name in ("session", "tool", "input", "nested", "directory")}
    for name, event in template.events.items():
        is_usual = event.means in (HookMeaning.TOOL, HookMeaning.BUSY) and not event.instead
        fields = quick_hook.read_event(provider, name)
        assert (fields is not None) == is_usual, name
        if fields is not None:
            assert fields[0] == event.means
            assert {key: fields[1][key] for key in reads} == reads
    assert quick_hook.read_event(provider, "NoEvent") is None


TURNS = st.builds(
    Turn,
    time=st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1)).map(
        lambda time: time.replace(microsecond=0, tzinfo=UTC)
    ),
    phase=st.one_of(TEXTS, st.sampled_from([phase.value for phase in TurnPhase])),
    tools=st.integers(0, 1 << 20),
    session=st.none() | TEXTS,
    pushes=st.integers(0, 9),
)


@pytest.mark.campaign
@settings(max_examples=40)
@given(TURNS)
@example(Turn(time=datetime(2024, 2, 29, 23, 59, 59, tzinfo=UTC), phase="busy", session='\x7f\x1f\u2028"\\/é😀'))
def test_a_turn_is_read_and_written_as_by_the_other_way(turn: Turn) -> None:
    data = msgspec.json.encode(turn) + b"\n"
    fields = quick_hook.parse_turn(data, f"{turn.time:%Y-%m-%d}")
    assert fields is not None
    assert quick_hook.format_turn(fields) == data
    assert (fields["phase"], fields["tools"], fields["session"], fields["pushes"]) == (
        turn.phase,
        turn.tools,
        turn.session,
        turn.pushes,
    )


def reads_of(provider: str) -> list[tuple[str, str]]:
    template = load_template(provider)
    return [(provider, name) for name in template.events if quick_hook.read_event(provider, name) is not None]


EVENTS = [pair for provider in sorted(list_providers()) for pair in reads_of(provider)]
SESSIONS = st.sampled_from([None, "", "s", "t", 5, {}])


@given(
    st.sampled_from(EVENTS),
    st.builds(
        Turn,
        time=st.just(NOW),
        phase=st.sampled_from([phase.value for phase in TurnPhase]),
        tools=st.integers(0, 9),
        session=st.sampled_from([None, "s", "t"]),
        pushes=st.integers(0, 9),
        source=st.sampled_from(TurnSource),
        exit_code=st.sampled_from([None, 1]),
    ),
    SESSIONS,
    st.booleans(),
)
def test_both_ways_decide_on_the_same_turn_after_an_event(
    words: tuple[str, str], before: Turn, session: object, is_nested: bool
) -> None:
    """The short way decides alike, or leaves the event to the other way. In a busy turn of hooks it decides."""
    template, usual = load_template(words[0]), quick_hook.read_event(*words)
    assert usual is not None
    meaning, reads = usual
    data = {reads["session"]: session, reads["tool"]: "x"}
    if is_nested and reads["nested"]:
        data[reads["nested"]] = "agent-1"
    event = hook_events.parse_event(template, words[1], data)
    assert event is not None
    now = NOW + timedelta(seconds=5)
    turn = hook_events.next_turn(before, event, now)
    fields = quick_hook.parse_turn(msgspec.json.encode(before) + b"\n", TODAY)
    decided = fields and quick_hook.next_turn(
        fields, meaning == quick_hook.TOOL, reads, data, f"{now:%Y-%m-%dT%H:%M:%SZ}"
    )
    if decided:
        assert quick_hook.format_turn(decided) == msgspec.json.encode(turn) + b"\n"
    else:
        is_usual = not before.is_reported and before.exit_code is None and before.phase == "busy"
        assert not is_usual or turn is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "time": st.one_of(
                st.builds(
                    "{}T{:02}:{:02}:{:02}{}".format,
                    st.sampled_from([TODAY, "2024-02-30"]),
                    *(st.integers(0, 30), st.integers(0, 70), st.integers(0, 70)),
                    st.sampled_from(["Z", "", "+01:00"]),
                ),
                JSON,
            ),
            "phase": st.one_of(st.just("busy"), JSON),
            "tools": st.one_of(st.integers(), JSON),
            "session": JSON,
            "pushes": JSON,
            "other": JSON,
        },
    )
)  # fmt: skip
@example({"time": f"{TODAY}T24:00:00Z", "phase": "busy"})
@example({"time": f"{TODAY}T٠٠:00:00Z", "phase": "busy"})
@example({"time": f"{TODAY}T12:00:00Z", "phase": "busy", "session": "\ud800"})
def test_a_record_that_the_other_way_refuses_is_never_read(record: dict[str, Any]) -> None:
    data = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass") + b"\n"
    try:
        fields = quick_hook.parse_turn(data, TODAY)
    except ValueError:
        return
    if fields is not None:
        assert (
            msgspec.json.encode(msgspec.json.decode(data, type=Turn)) + b"\n" == data == quick_hook.format_turn(fields)
        )


@given(JSON, st.booleans(), st.none() | st.tuples(st.integers(0, 99), st.binary(max_size=3)))
@example({"a": "\ud800"}, True, None)
@example({"a": float("inf")}, True, None)
@example(None, True, (0, b'{"a": 1e999, "a": "\\uD83D\\uDE00"}'))
@example(None, True, (0, b'\xef\xbb\xbf{"a": 1}'))
@example(None, True, (0, b'{"a": "\xff"}'))
def test_a_payload_is_decoded_as_by_the_other_way_or_left_to_it(
    value: Any, ascii_only: bool, cut: tuple[int, bytes] | None
) -> None:
    data = json.dumps({"a": value}, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    if cut is not None:
        data = data[: cut[0]] + cut[1] + (data[cut[0] + 1 :] if cut[0] else b"")
    try:
        payload = quick_hook.parse_payload(data)
    except ValueError:
        return
    assert payload == msgspec.json.decode(data)


@given(
    st.one_of(st.text(), st.from_regex(r"(coder|planner|code-reviewer|x)-[0-9]{1,11}\.[0-9]{1,11}\n?", fullmatch=True))
)
@example("coder-1.٣")
@example("../coder-1.1")
def test_a_run_is_one_for_both_ways(run: str) -> None:
    try:
        agent = agent_of(run)
    except UsageError:
        agent = None
    assert quick_hook.parse_run(run) == agent


@pytest.mark.parametrize(
    ("provider", "event", "payload"),
    [
        (
            "claude",
            "PreToolUse",
            {"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "ls é\n", "b": [1.5]}},
        ),
        ("codex", "PreToolUse", {"tool_name": "Bash", "tool_input": "ls " * 99}),
        ("copilot", "preToolUse", {"sessionId": "s", "toolName": "view", "toolArgs": {"x": True}}),
        ("copilot", "postToolUse", {"sessionId": "s"}),
        ("cursor", "preToolUse", {"conversation_id": "", "tool_name": "Read"}),
    ],
)
def test_both_ways_leave_the_same_files(tmp_path: Path, run: RunDir, provider: str, event: str, payload: Any) -> None:
    before = files(run)
    assert record(run, payload, provider, event)
    short = files(run)
    for name in short.keys() - before.keys():
        (run.path / name).unlink()
    (run.path / "turn.json").write_bytes(before["turn.json"])
    Hook(provider, event, json.dumps(payload).encode(), environ(run)).reply()
    usual = files(run)
    times = [json.loads(found["turn.json"])["time"] for found in (short, usual)]
    short["turn.json"] = short["turn.json"].replace(times[0].encode(), times[1].encode())
    assert short == usual != before


@pytest.mark.parametrize("provider", sorted(list_providers()))
@pytest.mark.parametrize("command", ['git push "é"', "echo '", "ls"], ids=["denied", "cannot be judged", "allowed"])
def test_both_ways_give_the_same_reply_to_a_tool(run: RunDir, provider: str, command: str) -> None:
    template = load_template(provider)
    event = next(name for name, event in template.events.items() if event.means is HookMeaning.TOOL)
    reads = template.reads
    payload = {reads.session: "s", reads.tool: "bash", reads.input: {"command": command}}
    usual = quick_hook.find_event(provider, event, environ(run))
    assert usual is not None
    assert usual.record(json.dumps(payload).encode())
    reply = Hook(provider, event, json.dumps(payload).encode(), environ(run)).reply()
    assert usual.reply == (reply.out, reply.err, reply.code)
    assert (run.path / DENIALS_FILE).exists() == (command != "ls")


@pytest.mark.parametrize("content", [None, b"{", b"[]", b'{"rules": []}'])
def test_guards_that_cannot_be_read_are_left_to_the_other_way(run: RunDir, content: bytes | None) -> None:
    (run.path / GUARDS_FILE).unlink()
    if content is not None:
        (run.path / GUARDS_FILE).write_bytes(content)
    before = files(run)
    assert not record(run)
    assert files(run) == before


def _stop(run: RunDir) -> None:
    run.write_stop(NOW, next(iter(StopReason)))


def _message(run: RunDir) -> None:
    inbox.queue_message(run.paths, run.agent, "look", "human:ann", NOW, "system")


def _phase(run: RunDir) -> None:
    run.write_turn(Turn(time=datetime.now(UTC).replace(microsecond=0), phase="idle", session="s"))


def _reported(run: RunDir) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    run.write_turn(Turn(time=now, phase="busy", session="s", source=TurnSource.ACP))


def _old_turn(run: RunDir) -> None:
    run.write_turn(Turn(time=datetime(2024, 2, 29, tzinfo=UTC), phase="busy", session="s"))


def _long_list(run: RunDir) -> None:
    with (run.path / HOOK_CALLS_FILE).open("wb") as file:
        file.truncate(quick_hook.MOST_CALLS + 1)


def _link(run: RunDir) -> None:
    (run.path / "turn.json").rename(run.path / "x")
    (run.path / "turn.json").symlink_to("x")


UNUSUAL: dict[str, Callable[[RunDir], object]] = {
    "stopped": _stop,
    "closed": lambda run: run.set_closing_code("0"),
    "message": _message,
    "compacted": lambda run: run.mark_compacted(),
    "reported": _reported,
    "not ready": lambda run: (run.path / "ready").unlink(),
    "idle": _phase,
    "other day": _old_turn,
    "no turn": lambda run: (run.path / "turn.json").unlink(),
    "damaged turn": lambda run: (run.path / "turn.json").write_text("{"),
    "pipe as a turn": lambda run: ((run.path / "turn.json").unlink(), os.mkfifo(run.path / "turn.json")),
    "link as a turn": _link,
    "link as a list": lambda run: (run.path / HOOK_CALLS_FILE).symlink_to(run.paths.root / "mine"),
    "long list": _long_list,
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_left_to_the_other_way_and_nothing_is_recorded(run: RunDir, name: str) -> None:
    assert record(run)
    (run.path / HOOK_CALLS_FILE).unlink()
    UNUSUAL[name](run)
    before = {path.name: path.lstat() for path in run.path.iterdir()}
    assert not record(run)
    after = {path.name: path.lstat() for path in run.path.iterdir()}
    new = after.pop(HOOK_CALLS_FILE, None) if HOOK_CALLS_FILE not in before else None
    assert new is None or new.st_size == 0
    assert {name: row.st_mtime_ns for name, row in after.items()} == {
        name: row.st_mtime_ns for name, row in before.items()
    }


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{",
        b'{"session_id": "other"}',
        b'{"tool_input": "\\ud800"}',
        b'{"tool_input": NaN}',
        b"[" * 5000 + b"]" * 5000,
    ],
)
def test_an_unusual_payload_is_left_to_the_other_way(run: RunDir, payload: bytes) -> None:
    before = files(run)
    assert not record(run, payload)
    assert files(run) == before


def test_another_provider_event_run_or_root_is_left_to_the_other_way(run: RunDir) -> None:
    right = environ(run)
    assert quick_hook.find_event("codex", "PreToolUse", right) is not None
    for words in (("codex", "Stop"), ("codex", "SessionStart"), ("codex", ""), ("../codex", "PreToolUse"), ("x", "y")):
        assert quick_hook.find_event(*words, right) is None
    root = right["LIZA_ROOT"]
    for wrong in ({}, {"LIZA_RUN": "x"}, {"LIZA_ROOT": "."}, {"LIZA_ROOT": f"{root}/"}, {"LIZA_ROOT": f"/{root}"}):
        assert quick_hook.find_event("codex", "PreToolUse", {**right, **wrong} if wrong else {}) is None


def run_command(run: RunDir, event: str, payload: str, check: str = "") -> subprocess.CompletedProcess[str]:
    """Run ``liza hook`` in a process that prints the modules it loaded, of those that are slow to load."""
    slow = {"msgspec", "typing", "pathlib", "datetime", "hashlib", "liza.verbs.hook"}
    code = (
        f"import atexit, sys; sys.argv = ['liza', 'hook', 'codex', {event!r}]\n"
        f"{check}\n"
        "from liza.cli.console_script import liza\n"
        f"atexit.register(lambda: print(sorted({slow!r} & set(sys.modules))))\n"
        "liza()\n"
    )
    return subprocess.run(
        [sys.executable, "-S", "-c", code], input=payload, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, **environ(run), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip


def test_the_command_records_a_tool_call_without_a_module_that_is_slow_to_load(run: RunDir) -> None:
    done = run_command(run, "PreToolUse", json.dumps(LOOK))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")
    turn = run.read_turn()
    assert turn is not None
    assert (turn.tools, turn.phase) == (3, "busy")


def test_the_command_refuses_a_tool_without_a_module_that_is_slow_to_load(run: RunDir) -> None:
    done = run_command(run, "PreToolUse", json.dumps({**LOOK, "tool_input": {"command": "cd x; git push"}}))
    assert (done.returncode, done.stdout) == (2, "[]\n")
    assert "liza submit" in done.stderr
    assert (run.path / DENIALS_FILE).exists()


def test_the_command_gives_an_unusual_event_to_the_other_way_with_its_payload(run: RunDir) -> None:
    _message(run)
    done = run_command(run, "PreToolUse", json.dumps(LOOK))
    assert done.returncode == 0
    assert "look" in json.loads(done.stdout.splitlines()[0])["hookSpecificOutput"]["additionalContext"]
    assert inbox.list_pending(run.paths, run.agent) == ()
    turn = run.read_turn()
    assert turn is not None
    assert (turn.tools, turn.session) == (3, "s")


def _hold_turn(path: Path, taken: Event, released: Event) -> None:
    with lock_path(path / TURN_LOCK, 5, 0o600):
        taken.set()
        released.wait(60)


def test_the_command_waits_for_the_lock_of_a_report_in_another_process(run: RunDir) -> None:
    context = multiprocessing.get_context("spawn")
    taken, released = context.Event(), context.Event()
    holder = context.Process(target=_hold_turn, args=(run.path, taken, released))
    holder.start()
    try:
        assert taken.wait(60)
        before = files(run)
        assert not record(run), "left to the other way, which waits"
        assert files(run) == before
        done = list[subprocess.CompletedProcess[str]]()
        thread = threading.Thread(target=lambda: done.append(run_command(run, "PreToolUse", json.dumps(LOOK))))
        thread.start()
        while not (run.path / HOOK_CALLS_FILE).exists():  # it then waits to write the turn
            assert thread.is_alive()
            time.sleep(0.01)
        assert files(run)["turn.json"] == before["turn.json"]
        released.set()
        thread.join(60)
    finally:
        released.set()
        holder.join(60)
    turn = run.read_turn()
    assert done[0].returncode == 0
    assert turn is not None
    assert turn.tools == 3


def _report_often(root: Path, times: int) -> None:
    run, now = RunDir(Paths(root), "coder-1.1"), datetime.now(UTC)
    for number in range(times):
        name = LifecycleEvent.BUSY if number % 2 else LifecycleEvent.IDLE
        assert report_lifecycle(run, LifecycleRequest(event=name, run_id=run.run, timestamp=now), now).applied


def _hook_often(root: Path, times: int) -> None:
    run = RunDir(Paths(root), "coder-1.1")
    for _ in range(times):
        if not record(run):
            Hook("codex", "PreToolUse", json.dumps(LOOK).encode(), environ(run)).reply()


@pytest.mark.campaign
def test_no_hook_and_no_report_of_several_processes_is_lost(run: RunDir) -> None:
    context = multiprocessing.get_context("spawn")
    hooks = [context.Process(target=_hook_often, args=(run.paths.root, 20)) for _ in range(2)]
    reports = context.Process(target=_report_often, args=(run.paths.root, 41))
    for process in (*hooks, reports):
        process.start()
    for process in (*hooks, reports):
        process.join(120)
        assert process.exitcode == 0
    turn = run.read_turn()
    assert turn is not None
    assert (turn.phase, turn.tools, turn.source) == ("idle", 42, TurnSource.API)


def test_a_turn_that_cannot_be_written_is_logged_and_the_call_is_counted_once(run: RunDir) -> None:
    full = "import os; os.environ['LIZA_FAULT'] = 'synced.turn.json:full'"
    done = run_command(run, "PreToolUse", json.dumps(LOOK), full)
    assert (done.returncode, done.stderr) == (0, "")
    assert "No space left" in (run.path / "hooks.log").read_text()
    assert len((run.path / HOOK_CALLS_FILE).read_text().splitlines()) == 1


def test_a_turn_of_yesterday_is_read_by_the_other_way_and_the_next_one_is_usual(run: RunDir) -> None:
    _old_turn(run)
    assert not record(run)
    assert run_command(run, "PreToolUse", json.dumps(LOOK)).returncode == 0
    turn = run.read_turn()
    assert turn is not None
    assert (turn.tools, turn.time.year) == (1, time.gmtime().tm_year)
