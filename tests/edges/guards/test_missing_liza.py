"""Hooks without a Liza that answers: a tool is refused in the program's own way, and everything else goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from liza.api.hook import EXIT_UNKNOWN, Hook
from liza.guards import guard_files
from liza.model.paths import Paths
from liza.programs.hooks.hook_events import HookMeaning, list_providers, load_template
from liza.programs.hooks.hook_install import NO_VERDICT, UNJUDGED, blank_comments, install_hooks
from liza.programs.presets.preset import HookSettings, Preset
from liza.programs.session.run_directory import RunDir, RunRecord

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCRIPTED = {"opencode": "liza.js", "pi": "liza.mjs"}
BY_COMMAND = sorted(list_providers() - SCRIPTED.keys())
CALL = json.dumps({"session_id": "s", "tool_name": "Bash", "tool_input": {"command": "ls"}})


def installed(root: Path, provider: str, liza: Path) -> RunDir:
    """A run whose hooks call ``liza``."""
    run = RunDir(Paths(root), "coder-1.1")
    run.create(RunRecord(agent="coder-1", run=run.run, kind="work", started=NOW))
    guard_files.install_guards(run, guard_files.load_guards(run.paths, root), root, None, "deny")
    (root / "tree").mkdir()
    got = install_hooks(Preset(name=provider, hooks=HookSettings(provider=provider)), root / "tree", run, liza)
    assert got.reason is None
    (root / "args.json").write_text(json.dumps(got.args))
    return run


def commands_of(root: Path, provider: str, run: RunDir) -> dict[str, str]:
    """The shell commands that the program runs, by event."""
    if provider == "codex":
        words = [tomllib.loads(word)["hooks"] for word in json.loads((root / "args.json").read_text())[3::2]]
        return {event: rows[0]["hooks"][0]["command"] for hooks in words for event, rows in hooks.items()}
    files = [path for place in (root / "tree", run.path / "hooks") for path in place.rglob("*") if path.is_file()]
    text = next(path.read_text() for path in files if path.name != "plugin.json")
    if provider == "vibe":
        return {row["type"]: row["command"] for row in tomllib.loads(text)["hooks"]}
    hooks = json.loads(blank_comments(text))["hooks"]
    rows = {event: rows[0] for event, rows in hooks.items()}
    rows = {event: row["hooks"][0] if "hooks" in row else row for event, row in rows.items()}
    return {event: row.get("command") or row["bash"] for event, row in rows.items()}


def run_command(command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, input=CALL, capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "LIZA_RUN": "coder-1.1", **variables},
    )  # fmt: skip


def is_refusal(provider: str, done: subprocess.CompletedProcess[str]) -> bool:
    """Whether the program does not run the tool after this reply."""
    form = next(event.refuse for event in load_template(provider).events.values() if event.means is HookMeaning.TOOL)
    if form is None:
        return done.returncode == 2 and NO_VERDICT in done.stderr
    expected = {key: UNJUDGED if value == "{text}" else value for key, value in form.items()}
    return done.returncode == 0 and bool(done.stdout) and json.loads(done.stdout) == expected


def broken(root: Path, name: str) -> Path:
    """A ``liza`` that gives no verdict."""
    liza = root / "bin" / "liza"
    liza.parent.mkdir()
    texts = {
        "moved installation": "#!/no/such/python\n",
        "failed": "#!/bin/sh\necho half\nexit 1\n",
        "killed": "#!/bin/sh\nkill -9 $$\n",
        "no answer": "#!/bin/sh\nexec sleep 60\n",
        "no permission": "#!/bin/sh\n",
    }
    if name in texts:
        liza.write_text(texts[name])
        liza.chmod(0o644 if name == "no permission" else 0o755)
    return liza


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", ["missing", "moved installation", "failed", "killed", "no answer", "no permission"])
@pytest.mark.parametrize("provider", BY_COMMAND)
def test_a_tool_is_refused_without_a_liza_that_answers(tmp_path: Path, provider: str, name: str) -> None:
    fast = tmp_path / "fast"
    fast.mkdir()
    (fast / "timeout").write_text(f'#!/bin/sh\nshift 3\nexec {shutil.which("timeout")} 0.3 "$@"\n')
    (fast / "timeout").chmod(0o755)
    run = installed(tmp_path, provider, broken(tmp_path, name))
    template, path = load_template(provider), f"{fast}:{os.environ['PATH']}"
    for event, command in commands_of(tmp_path, provider, run).items():
        if template.events[event].means is HookMeaning.TOOL:
            assert is_refusal(provider, run_command(command, PATH=path)), event
        elif name != "no answer":
            done = run_command(command, PATH=path)
            assert (done.returncode, "decision" in done.stdout) == (0, False), event


@pytest.mark.parametrize("provider", BY_COMMAND)
def test_hooks_left_in_a_worktree_do_not_bother_a_person(tmp_path: Path, provider: str) -> None:
    run = installed(tmp_path, provider, tmp_path / "no-liza")
    for event, command in commands_of(tmp_path, provider, run).items():
        done = run_command(command, LIZA_RUN="")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), event


SCRIPT_OF = {
    "opencode": """
        import { Liza } from "./plugin.mjs";
        const hooks = await Liza({ client: {} });
        const output = { args: { command: "ls" }, parts: [{ text: "begin" }], system: [] };
        await hooks["chat.message"]({ sessionID: "s" }, output);
        await hooks["experimental.text.complete"]({ sessionID: "s" });
        await hooks["tool.execute.after"]({ sessionID: "s" }, output);
        const refused = (error) => error.message;
        const reason = await hooks["tool.execute.before"]({ sessionID: "s", tool: "bash" }, output).catch(refused);
        console.log(JSON.stringify(reason ?? null));
    """,
    "pi": """
        import start from "./plugin.mjs";
        const on = {};
        start({ on: (event, handler) => (on[event] = handler), sendMessage() {}, sendUserMessage() {} });
        on.session_start({}, {});
        on.before_agent_start({ prompt: "begin" }, {});
        on.tool_result({ content: [] }, {});
        on.turn_end({ message: { stopReason: "stop" } }, {});
        console.log(JSON.stringify(on.tool_call({ toolName: "bash", input: { command: "ls" } }, {})?.reason ?? null));
    """,
}


@pytest.mark.sample(3)
@pytest.mark.needs("node")
@pytest.mark.parametrize("name", ["missing", "moved installation", "failed", "killed", "no permission", "it allows"])
@pytest.mark.parametrize("provider", sorted(SCRIPTED))
def test_a_script_of_hooks_refuses_a_tool_without_verdict(tmp_path: Path, provider: str, name: str) -> None:
    liza = broken(tmp_path, name)
    if name == "it allows":
        liza.write_text("#!/bin/sh\n")
        liza.chmod(0o755)
    run = installed(tmp_path, provider, liza)
    shutil.copyfile(run.path / "hooks" / SCRIPTED[provider], tmp_path / "plugin.mjs")
    (tmp_path / "main.mjs").write_text(SCRIPT_OF[provider])
    done = subprocess.run(["node", "main.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == (None if name == "it allows" else UNJUDGED)


def reply(root: Path, event: str, provider: str = "claude") -> Any:
    return Hook(provider, event, CALL.encode(), {"LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(root)}).reply()


def test_without_its_run_directory_a_session_gets_no_tool(tmp_path: Path) -> None:
    run = installed(tmp_path, "claude", tmp_path / "liza")
    assert reply(tmp_path, "PreToolUse").code == 0
    run.path.rename(tmp_path / "away")
    answer = reply(tmp_path, "PreToolUse")
    assert (answer.code, "coder-1.1 are gone" in answer.err) == (2, True)
    assert json.loads(reply(tmp_path, "preToolUse", "copilot").out)["permissionDecision"] == "deny"
    for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd"):
        assert reply(tmp_path, event).code == 0, event


def test_an_event_of_another_version_is_no_verdict(tmp_path: Path) -> None:
    installed(tmp_path, "claude", tmp_path / "liza")
    assert reply(tmp_path, "BeforeAnyTool").code == EXIT_UNKNOWN
    assert reply(tmp_path, "PreToolUse", "gone").code == EXIT_UNKNOWN
    assert Hook("claude", "BeforeAnyTool", b"{}", {}).reply().code == 0, "a person's own session"
