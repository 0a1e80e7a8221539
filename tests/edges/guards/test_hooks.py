"""Hooks in real files: put into a run, answered from its directory, and taken out of the worktree without a trace."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from liza.api.hook import MOST_CALLS, Hook
from liza.briefs import inbox
from liza.briefs.rules.message_rules import Message
from liza.commands import hook as hook_command
from liza.model.paths import Paths
from liza.programs.hooks.hook_events import NO_REPLY, list_providers, load_template
from liza.programs.hooks.hook_install import InstalledHooks, blank_comments, install_hooks, remove_hooks
from liza.programs.presets import command_line
from liza.programs.presets.command_line import SidecarOrder
from liza.programs.presets.preset import AcpSettings, HookSettings, Preset
from liza.programs.session.run_directory import HOOK_CALLS_FILE, RunDir, RunRecord
from liza.text.brief_marks import strip_blocks
from liza.text.quoting import BLOCK_BEGIN, BLOCK_END
from liza.usage.meter import Meter
from tests.conftest import FakeClock

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LIZA = Path("/opt/my tools/bin/liza")
SETTINGS = ".gemini/settings.json"


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.tree = self.root / "tree"
        self.tree.mkdir()
        self.paths = Paths(self.root)
        self.run = self.started("coder-1.1")

    def started(self, run: str) -> RunDir:
        made = RunDir(self.paths, run)
        made.create(RunRecord(agent=made.agent, run=run, kind="work", started=NOW))
        block = f"{BLOCK_BEGIN.format(run=run)}\nthe brief\n{BLOCK_END.format(run=run)}\n"
        made.write_brief("all of it", {}, "where it lies", block)
        return made

    def install(self, provider: str, run: RunDir | None = None, **more: Any) -> InstalledHooks:
        preset = Preset(name=provider, hooks=HookSettings(provider=provider), **more)
        return install_hooks(preset, self.tree, run or self.run, LIZA)

    def files(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.tree)): path.read_bytes() for path in self.tree.rglob("*") if path.is_file()}

    def said(self, event: str, provider: str = "codex", run: str = "coder-1.1", **said: Any) -> Hook:
        environ = {"LIZA_RUN": run, "LIZA_ROOT": str(self.root)}
        return Hook(provider, event, json.dumps({"session_id": "s", **said}).encode(), environ)

    def settings(self, text: str) -> Path:
        path = self.tree / SETTINGS
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text.encode())
        return path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_an_earlier_sessions_hook_adds_nothing_to_acp_sessions(place: Place) -> None:
    command_line.write_order(
        place.run.path, SidecarOrder(program="codex", argv=("x",), cwd=str(place.tree), acp=AcpSettings())
    )
    inbox.queue_message(place.paths, "coder-1", "a note", "human", NOW)
    for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop"):
        hook = place.said(event, tool_name="Bash", tool_input={"command": "ls"}, prompt="a note")
        assert hook.reply() == NO_REPLY, event
        hook.acknowledge_delivered()
    assert place.run.read_turn() is None
    assert {path.name for path in place.run.path.iterdir()}.isdisjoint({"ready", HOOK_CALLS_FILE})
    assert [message.text for message in inbox.list_pending(place.paths, "coder-1")] == ["a note"]


@pytest.mark.campaign
def test_the_list_of_calls_is_trimmed_as_a_log(place: Place, clock: FakeClock) -> None:
    calls = place.run.path / HOOK_CALLS_FILE
    line = '{"call":"x","words":"Bash ls"}\n'
    calls.write_text(line * (MOST_CALLS // len(line) + 1))
    measured = Meter(Preset(name="x"), place.run, NOW, {}, clock.monotonic)
    before = measured.measure(10.0).progress.calls
    assert before > MOST_CALLS // len(line)
    place.said("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}).reply()
    assert calls.stat().st_size < MOST_CALLS // 2
    measured.measure(10.0)
    for _ in range(3):
        place.said("PreToolUse", tool_name="Bash", tool_input={"command": "ls"}).reply()
    assert measured.measure(10.0).progress.calls == before + 3


ONLY_THERE = {"gemini": SETTINGS, "cursor": ".cursor/hooks.json"}


@pytest.mark.parametrize("provider", sorted(list_providers()))
def test_hooks_need_no_worktree_file_where_programs_allow_that(place: Place, provider: str) -> None:
    got = place.install(provider)
    assert got.reason is None
    assert got.files == tuple(place.files()) == ((ONLY_THERE[provider],) if provider in ONLY_THERE else ())
    assert got.args or got.env or got.env_objects or got.files
    written = "".join(path.read_text() for path in place.run.path.rglob("hooks/**/*") if path.is_file())
    everything = json.dumps(
        [written, *got.args, *got.apply_to({}).values(), *map(bytes.decode, place.files().values())]
    )
    assert "my tools/bin/liza" in everything
    assert "{" + "dir}" not in everything
    assert "{" + "command}" not in everything
    assert remove_hooks(place.tree, place.run) == got.files
    assert place.files() == {}
    assert remove_hooks(place.tree, place.run) == ()


def test_hooks_are_written_in_the_form_the_program_reads(place: Place) -> None:
    for word in place.install("codex").args[1::2]:
        tomllib.loads(word)
    place.install("claude")
    said = json.loads((place.run.path / "hooks" / "settings.json").read_text())
    command = said["hooks"]["Stop"][0]["hooks"][0]["command"]
    assert command.endswith(" '/opt/my tools/bin/liza' hook claude Stop")
    place.install("vibe")
    rows = tomllib.loads((place.run.path / "hooks" / ".vibe" / "hooks.toml").read_text())["hooks"]
    assert [row["type"] for row in rows] == ["pre_tool", "post_tool", "post_agent"]


def test_a_program_trusts_only_the_hooks_of_this_session(
    place: Place,
) -> None:
    words = place.install("codex").args
    states = tomllib.loads(words[1])["hooks"]["state"]
    for word in words[3::2]:
        ((event, (group,)),) = tomllib.loads(word)["hooks"].items()
        (hook,) = group["hooks"]
        snake = {"SessionStart": "session_start", "SessionEnd": "session_end", "Stop": "stop"}.get(event)
        if snake is None:
            continue
        known = {"event_name": snake, "hooks": [{**hook, "async": False}]}
        digest = hashlib.sha256(json.dumps(known, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
        assert states.pop(f"/<session-flags>/config.toml:{snake}:0:0") == {"trusted_hash": f"sha256:{digest}"}
    assert len(states) == len(load_template("codex").events) - 3
    assert not any("bypass" in word for word in words)


def test_a_persons_value_of_the_hook_variable_stays_in_effect(place: Place) -> None:
    said = json.dumps({"plugin": ["mine"], "share": "disabled"})
    env = place.install("opencode").apply_to({"OPENCODE_CONFIG_CONTENT": said, "HOME": "/home/ann"})
    assert env["HOME"] == "/home/ann"
    got = json.loads(env["OPENCODE_CONFIG_CONTENT"])
    assert got["share"] == "disabled"
    assert got["plugin"] == ["mine", f"file://{place.run.path}/hooks/liza.js"]


def test_machine_settings_behind_ours_stay_in_effect(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = place.root / "system-defaults.json"
    theirs.write_text('{\n// all of us\n"ui": {"theme": "x"}, "hooks": {"Stop": [{"hooks": []}]}}')
    found = load_template("qwen")
    files = (replace(found.files[0], inherits=(str(place.root / "no-such-file"), str(theirs))),)
    monkeypatch.setattr("liza.programs.hooks.hook_install.load_template", lambda name: replace(found, files=files))
    got = json.loads(Path(place.install("qwen").env["QWEN_CODE_SYSTEM_DEFAULTS_PATH"]).read_text())
    assert got["ui"] == {"theme": "x"}
    assert got["hooks"]["Stop"][0] == {"hooks": []}
    assert len(got["hooks"]["Stop"]) == 2


def test_informational_hooks_and_those_without_a_template_are_none(place: Place) -> None:
    assert install_hooks(Preset(name="x"), place.tree, place.run, LIZA) == InstalledHooks()
    told = Preset(name="x", hooks=HookSettings(provider="gemini", informational=True))
    assert install_hooks(told, place.tree, place.run, LIZA) == InstalledHooks()
    assert place.files() == {}


PROJECTS = [
    '{\n  "hooks": {"BeforeTool": [{"hooks": [{"type": "command", "command": "./mine"}]}]},\n  "ui": {"a": "x"}\n}\n',
    '{\n  // why\n  "ui": {"theme": "a } b"}  /* } */\n}',
    '{\r\n  "a": 1\r\n}\r\n',
    "{\n}\n",
    '{\n "a": [1, 2]\n} // the end }\n',
    '{\n "hooks": {"x": "\\n// <!-- liza:end run=coder-1.1 -->\\n", "y": "<!-- liza:begin run=coder-1.1 -->"}\n}\n',
]


@pytest.mark.parametrize("project", PROJECTS)
def test_a_joined_settings_file_of_the_project_is_restored_exactly(place: Place, project: str) -> None:
    path = place.settings(project)
    path.chmod(0o640)
    assert place.install("gemini").reason is None
    before = json.loads(blank_comments(project))
    now = json.loads(blank_comments(path.read_text()))
    for event in load_template("gemini").events:
        theirs = before.get("hooks", {}).get(event, [])
        assert now["hooks"][event][: len(theirs)] == theirs
        assert f"hook gemini {event}" in now["hooks"][event][len(theirs)]["hooks"][0]["command"]
    assert {key: now[key] for key in before if key != "hooks"} == {k: v for k, v in before.items() if k != "hooks"}
    assert strip_blocks(path.read_bytes(), (place.run.block_key(),)) == project.encode()
    assert remove_hooks(place.tree, place.run) == (SETTINGS,)
    assert place.files() == {SETTINGS: project.encode()}
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    "project",
    [
        "no json",
        '{"a": 1}',
        "[]\n",
        "",
        '{\n "hooks": 3\n}\n',
        '{\n "hooks": {"BeforeTool": 1}\n}\n',
        "\xff{\n}",
        "[" * 200_000,
    ],
    ids=lambda text: text[:20],
)
def test_an_unmergeable_settings_file_stays_with_the_reason(place: Place, project: str) -> None:
    path = place.settings("")
    path.write_bytes(project.encode("latin-1"))
    got = place.install("gemini")
    assert got.reason is not None
    assert SETTINGS in got.reason
    assert not got.files
    assert path.read_bytes() == project.encode("latin-1")
    assert remove_hooks(place.tree, place.run) == ()


def test_project_hooks_of_unknown_form_are_left_alone(place: Place) -> None:
    (place.tree / ".cursor").mkdir()
    (place.tree / ".cursor" / "hooks.json").write_text("{}")
    assert place.install("cursor").reason == ".cursor/hooks.json belongs to the project, and is not changed"
    assert place.files() == {".cursor/hooks.json": b"{}"}


def test_no_link_is_followed_out_of_the_worktree(place: Place, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (place.tree / ".gemini").symlink_to(tmp_path / "home")
    assert place.install("gemini").reason == ".gemini is a link"
    assert not any((tmp_path / "home").iterdir())


def test_the_next_session_replaces_hooks_of_a_killed_session(place: Place) -> None:
    path = place.settings(PROJECTS[0])
    place.install("gemini")
    second = place.started("coder-1.2")
    place.install("gemini", second)
    assert b"run=coder-1.1" not in path.read_bytes()
    assert remove_hooks(place.tree, place.run) == ()
    assert remove_hooks(place.tree, second) == (SETTINGS,)
    assert path.read_text() == PROJECTS[0]


@pytest.mark.parametrize("step", ["hooks.noted", "hooks.laid"])
@pytest.mark.parametrize("project", [None, PROJECTS[0]])
def test_half_written_hooks_of_a_killed_supervisor_are_removed(
    place: Place, monkeypatch: pytest.MonkeyPatch, step: str, project: str | None
) -> None:
    class Killed(BaseException):
        pass

    def kill(name: str, detail: str = "") -> None:
        if f"{name}.{detail}" == step:
            raise Killed

    if project is not None:
        place.settings(project)
    before = place.files()
    monkeypatch.setattr("liza.system.crash_points.point", kill)
    with pytest.raises(Killed):
        place.install("gemini")
    monkeypatch.undo()
    remove_hooks(place.tree, RunDir(place.paths, place.run.run))
    assert place.files() == before
    assert (place.tree / ".gemini").exists() == (project is not None)


def test_gemini_is_asked_to_report_ordered_compactions_only(place: Place) -> None:
    place.install("gemini")
    hooks = json.loads(blank_comments((place.tree / SETTINGS).read_text()))["hooks"]
    assert {event: entries[0].get("matcher") for event, entries in hooks.items() if "matcher" in entries[0]} == {
        "PreCompress": "manual"
    }


def test_what_an_agent_wrote_into_the_joined_file_stays(place: Place) -> None:
    path = place.settings(PROJECTS[3])
    place.install("gemini")
    path.write_bytes(path.read_bytes().replace(b"{\n//", b'{\n"agent": 1\n//').replace(b'\n"hooks"', b'\n, "hooks"'))
    assert remove_hooks(place.tree, place.run) == (SETTINGS,)
    assert json.loads(path.read_text()) == {"agent": 1}


def test_a_hook_file_that_a_person_changed_stays(place: Place) -> None:
    place.install("cursor")
    (place.tree / ".cursor" / "hooks.json").write_text('{"version": 1}')
    assert remove_hooks(place.tree, place.run) == ()
    assert place.files() == {".cursor/hooks.json": b'{"version": 1}'}


def out(hook: Hook) -> Any:
    answer = hook.reply()
    assert answer.code == 0
    hook.acknowledge_delivered()
    return json.loads(answer.out) if answer.out else None


def out_text(hook: Hook) -> str:
    """Every text of an answer."""
    return "\n".join(_texts(out(hook)))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def test_the_first_event_is_the_sentinel_and_brings_the_brief(place: Place) -> None:
    got = out(place.said("SessionStart"))
    assert got["hookSpecificOutput"]["additionalContext"] == place.run.read_block()
    ready, turn = place.run.read_sentinel(), place.run.read_turn()
    assert ready is not None
    assert ready.evidence == "hook SessionStart"
    assert turn is not None
    assert (turn.phase, turn.session) == ("started", "s")


@pytest.mark.parametrize(
    ("provider", "event", "given"), [("claude", "SessionStart", {"source": "compact"}), ("pi", "session_compact", {})]
)
def test_a_compacted_conversation_gets_the_brief_again(
    place: Place, provider: str, event: str, given: dict[str, str]
) -> None:
    place.said("UserPromptSubmit").reply()
    assert place.run.read_block() in out_text(place.said(event, provider, **given))


def test_a_compaction_may_leave_the_brief_to_later_events(place: Place) -> None:
    out(place.said("BeforeAgent", "gemini"))
    assert out(place.said("PreCompress", "gemini", trigger="auto")) is None
    assert not place.run.is_compacted(), "it is sent before each request"
    assert out(place.said("PreCompress", "gemini", trigger="manual")) is None
    assert out(place.said("BeforeTool", "gemini", tool_name="read_file")) is None, "it can carry nothing"
    place.said("AfterTool", "gemini").reply()
    assert place.run.is_compacted(), "a reply that nobody printed is given again"
    assert place.run.read_block() in out_text(place.said("AfterTool", "gemini"))
    assert out(place.said("AfterTool", "gemini")) is None


def test_after_a_compaction_the_brief_comes_before_the_messages(place: Place) -> None:
    out(place.said("BeforeAgent", "gemini"))
    out(place.said("PreCompress", "gemini", trigger="manual"))
    inbox.queue_message(place.paths, "coder-1", "use the new address", "human:ann", NOW)
    assert out(place.said("AfterTool", "gemini"))["hookSpecificOutput"]["additionalContext"] == place.run.read_block()
    assert "use the new address" in out_text(place.said("AfterTool", "gemini"))
    assert inbox.list_pending(place.paths, "coder-1") == ()


def test_a_run_that_is_over_gets_no_compaction_brief(place: Place) -> None:
    out(place.said("BeforeAgent", "gemini"))
    out(place.said("PreCompress", "gemini"))
    place.run.set_closing_code("0")
    assert out(place.said("AfterTool", "gemini")) is None


def test_tools_are_noted_with_their_arguments_to_detect_loops(place: Place) -> None:
    for command in ("ls", "ls", "pwd"):
        place.said("PreToolUse", tool_name="Bash", tool_input={"command": command}).reply()
    found = [json.loads(line) for line in (place.run.path / HOOK_CALLS_FILE).read_text().splitlines()]
    assert [one["words"] for one in found] == ["Bash ls", "Bash ls", "Bash pwd"]
    assert found[0]["call"] == found[1]["call"] != found[2]["call"]


def test_a_message_comes_once_at_the_start_of_a_turn(place: Place) -> None:
    inbox.queue_message(place.paths, "coder-1", "use the new address", "human:ann", NOW)
    got = out(place.said("UserPromptSubmit"))
    assert "use the new address" in got["hookSpecificOutput"]["additionalContext"]
    assert out(place.said("UserPromptSubmit")) is None
    (done,) = inbox.list_done(place.paths, "coder-1")
    assert (done.run, done.by) == ("coder-1.1", "hook UserPromptSubmit")


def typed_into(place: Place, text: str, **more: Any) -> Message:
    """A message that was put into the terminal of the run."""
    message = inbox.queue_message(place.paths, "coder-1", text, "human:ann", NOW)
    assert inbox.claim_for_typing(place.paths, "coder-1", message.id, "coder-1.1", NOW)
    inbox.update_message(place.paths, "coder-1", replace(message, run="coder-1.1", typing=True, **more))
    return message


def test_a_typed_message_is_acknowledged_and_not_repeated(
    place: Place,
) -> None:
    message = typed_into(place, "use the\n  new address")
    assert out(place.said("UserPromptSubmit", prompt="something else")) is None, "it may come in a moment"
    assert inbox.list_pending(place.paths, "coder-1")
    assert out(place.said("UserPromptSubmit", prompt="MESSAGE from human:ann: use the new address")) is None
    (done,) = inbox.list_done(place.paths, "coder-1")
    assert (done.id, done.by) == (message.id, "typed, hook UserPromptSubmit")


def test_a_typed_message_is_not_delivered_again_without_prompts(
    place: Place,
) -> None:
    typed_into(place, "use the new address", carried=True)
    assert out(place.said("post_tool", "vibe")) is None
    (done,) = inbox.list_done(place.paths, "coder-1")
    assert done.by == "typed, hook post_tool"


def test_a_message_taken_by_a_hook_is_not_typed_too(place: Place) -> None:
    message = inbox.queue_message(place.paths, "coder-1", "read me", "human:ann", NOW)
    hook = place.said("UserPromptSubmit")
    assert "read me" in hook.reply().out
    assert not inbox.claim_for_typing(place.paths, "coder-1", message.id, "coder-1.1", datetime.now(UTC))
    assert inbox.claim_for_typing(
        place.paths, "coder-1", message.id, "coder-1.1", datetime.now(UTC) + timedelta(minutes=1)
    )


def test_a_message_that_could_not_be_printed_comes_once_more(place: Place) -> None:
    inbox.queue_message(place.paths, "coder-1", "read me", "human:ann", NOW)
    assert "read me" in place.said("UserPromptSubmit").reply().out
    assert "read me" in place.said("Stop").reply().out


def test_a_waiting_message_continues_the_program_after_its_turn(place: Place) -> None:
    out(place.said("UserPromptSubmit"))
    inbox.queue_message(place.paths, "coder-1", "one more thing", "human:ann", NOW)
    got = out(place.said("Stop"))
    assert got["decision"] == "block"
    assert "one more thing" in got["reason"]
    turn = place.run.read_turn()
    assert turn is not None
    assert (turn.phase, turn.pushes) == ("busy", 1)
    assert out(place.said("Stop")) is None
    turn = place.run.read_turn()
    assert turn is not None
    assert turn.phase == "idle"


def test_a_turn_gets_no_more_pushes_than_its_program_accepts(place: Place) -> None:
    for number in range(load_template("vibe").pushes + 1):
        inbox.queue_message(place.paths, "coder-1", f"number {number}", "human:ann", NOW)
        out(place.said("post_agent", "vibe"))
    assert [one.text for one in inbox.list_pending(place.paths, "coder-1")] == ["number 3"]


def test_a_low_message_prolongs_no_turn_and_comes_next(place: Place) -> None:
    out(place.said("UserPromptSubmit"))
    inbox.queue_message(place.paths, "coder-1", "when you have time", "human:ann", NOW, "low")
    assert out(place.said("PreToolUse", tool_name="Bash", tool_input={"command": "ls"})) is None
    assert out(place.said("Stop")) is None
    assert "when you have time" in out_text(place.said("UserPromptSubmit"))
    assert inbox.list_pending(place.paths, "coder-1") == ()


def test_a_push_is_read_only_once_a_prompt_contains_it(place: Place) -> None:
    out(place.said("chat.message", "opencode", session_id="s", prompt="begin"))
    inbox.queue_message(place.paths, "coder-1", "one more\nthing", "human:ann", NOW)
    push = out(place.said("text.complete", "opencode", session_id="s"))["push"]
    assert "one more" in push
    assert [message.text for message in inbox.list_pending(place.paths, "coder-1")] == ["one more\nthing"]
    assert out(place.said("chat.message", "opencode", session_id="s", prompt=push)) is None
    assert inbox.list_pending(place.paths, "coder-1") == ()
    (message,) = inbox.list_done(place.paths, "coder-1")
    assert message.by == "hook chat.message"


@pytest.mark.parametrize("provider", sorted(list_providers()))
def test_an_ended_run_gets_no_more_tools_or_messages(place: Place, provider: str) -> None:
    events = load_template(provider).events
    tool = next(name for name, event in events.items() if event.means == "tool")
    reads = load_template(provider).reads
    given = {reads.session: "s", reads.tool: "view", reads.input: {"path": "a.py"}}
    first = place.said(tool, provider, **given).reply()
    assert (first.code, first.out) == (0, "")
    place.run.set_closing_code("0")
    inbox.queue_message(place.paths, "coder-1", "too late", "human:ann", NOW)
    answer = place.said(tool, provider, sessionId="s").reply()
    assert "called its closing command" in answer.err + answer.out
    assert answer.code == (0 if events[tool].refuse is not None else 2)
    for name, event in events.items():
        if event.means not in ("tool", "started", "compaction"):
            assert place.said(name, provider, sessionId="s").reply().out == ""
    assert len(inbox.list_pending(place.paths, "coder-1")) == 1


def test_outside_a_session_a_hook_answers_nothing(place: Place) -> None:
    for environ in ({}, {"LIZA_RUN": "coder-1.1"}, {"LIZA_RUN": "../x", "LIZA_ROOT": str(place.root)}):
        assert Hook("codex", "SessionStart", b"{}", environ).reply().out == ""
    assert out(place.said("SessionStart", run="coder-1.9")) is None
    assert not place.paths.run("coder-1.9").exists()


@pytest.mark.parametrize("said", [b"", b"no json", b"[1]", b"\xff\xfe", b'{"session_id": {"a": 1}}'])
def test_a_wrong_hook_call_stops_only_its_tools(place: Place, said: bytes) -> None:
    environ = {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(place.root)}
    assert Hook("codex", "UserPromptSubmit", said, environ).reply().code == 0
    assert Hook("codex", "PreToolUse", said, environ).reply().code == 2
    place.run.set_closing_code("0")
    assert Hook("codex", "PreToolUse", said, environ).reply().code == 2


def test_an_unreadable_signal_stops_tools_with_that_reason(place: Place) -> None:
    (place.run.path / "word").write_text("maybe\n")
    reply = place.said("PreToolUse").reply()
    assert reply.code == 2
    assert "maybe" in reply.err


def test_calls_of_ended_runs_or_other_sessions_get_no_messages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    inbox.queue_message(place.paths, "coder-1", "for coder-1", "human:ann", NOW)
    place.said("UserPromptSubmit").reply()
    place.run.mark_concluded("finished: done")
    assert place.said("UserPromptSubmit").reply().out == ""
    newer = place.started("coder-1.2")
    code = (
        "import os, subprocess, sys\n"
        "own = {**os.environ, 'LIZA_RUN': sys.argv[1]}\n"
        "said = [sys.executable, '-m', 'liza', 'hook', 'codex', 'UserPromptSubmit']\n"
        "subprocess.run(said, stdin=subprocess.DEVNULL, env=own, check=True)"
    )

    def printed(within: str, named: str) -> str:
        environ = {**os.environ, "LIZA_RUN": within, "LIZA_ROOT": str(place.root)}
        words = [sys.executable, "-c", code, named]
        return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout

    assert printed("coder-2.1", newer.run) == ""
    assert len(inbox.list_pending(place.paths, "coder-1")) == 1
    assert "for coder-1" in printed(newer.run, newer.run)
    assert inbox.list_pending(place.paths, "coder-1") == ()


def test_words_that_make_no_sense_are_answered_with_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert [hook_command.run_hook(words) for words in ([], ["codex"], ["codex", "Stop", "more"], ["--json"])] == [
        0,
        0,
        0,
        0,
    ]
    assert capsys.readouterr().out == ""


def test_a_hook_refuses_a_tool_after_the_closing_command(place: Place) -> None:
    place.run.set_closing_code("0")
    environ = {**os.environ, "LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(place.root)}
    command = [sys.executable, "-m", "liza", "hook", "codex", "PreToolUse"]
    done = subprocess.run(command, input="{}", capture_output=True, text=True, env=environ, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "called its closing command" in done.stderr
