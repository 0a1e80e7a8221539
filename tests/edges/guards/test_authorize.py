"""Authorize: what a run may do with its tools, with real files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from liza.api.hook import Hook
from liza.guards import guard_files
from liza.guards.rules.guard_rules import DENIALS_FILE, GUARDS_FILE
from liza.guards.session_guards import AuthorizeAnswer, AuthorizeRequest, GuardsCache, ToolContext, judge_request
from liza.model.errors import UsageError
from liza.model.paths import Paths
from liza.model.session_ends import StopReason
from liza.model.value_classes import replace
from liza.programs.hooks.hook_events import HookMeaning, list_providers, load_template
from liza.programs.presets import preset_table
from liza.programs.session.run_directory import RunDir, RunRecord

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
PUSH = {"command": "cd src && git push"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    return directory


@pytest.fixture
def run(tmp_path: Path, home: Path) -> RunDir:
    worktree = tmp_path / "slots" / "one"
    worktree.mkdir(parents=True)
    (tmp_path / "shop" / ".liza").mkdir(parents=True)
    directory = RunDir(Paths(tmp_path / "shop", tmp_path / "slots"), "coder-1.1")
    directory.create(
        RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW, task="cart", worktree=str(worktree))
    )
    return directory


def install(run: RunDir, home: Path, tests: str | None = None, on_error: str = "deny") -> None:
    guard_files.install_guards(run, guard_files.load_guards(run.paths, home), home, tests, on_error)


def ask(run: RunDir, tool: str, given: dict[str, Any], **context: str) -> AuthorizeAnswer:
    return judge_request(run, AuthorizeRequest(run_id=run.run, tool=tool, input=given, context=ToolContext(**context)))


def denials(run: RunDir) -> list[dict[str, str]]:
    path = run.path / DENIALS_FILE
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("is_installed", [True, False], ids=["installed", "of an earlier version"])
def test_a_push_is_denied_and_recorded_unlike_a_commit(run: RunDir, home: Path, is_installed: bool) -> None:
    if is_installed:
        install(run, home)
    answer = ask(run, "Bash", PUSH)
    assert (answer.allowed, answer.rule) == (False, "no-push")
    assert "liza submit" in (answer.reason or "")
    assert ask(run, "Bash", {"command": "git commit -am x"}).allowed
    assert [line["rule"] for line in denials(run)] == ["no-push"]


def test_lizas_state_is_protected_wherever_a_person_keeps_it(
    run: RunDir, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "disk" / "liza").mkdir(parents=True)
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    install(run, home)
    monkeypatch.delenv("XDG_STATE_HOME")  # a session does not get it
    for path in (tmp_path / "state", tmp_path / "disk", home / ".local" / "state"):
        answer = ask(run, "Write", {"file_path": str(path / "liza" / "accounts.json"), "content": "{}"})
        assert (answer.allowed, answer.rule) == (False, "no-write-in-home-settings"), path
    assert ask(run, "Write", {"file_path": str(tmp_path / "state" / "other"), "content": "{}"}).allowed


def test_writes_are_judged_by_the_path(run: RunDir, home: Path) -> None:
    install(run, home)
    worktree = run.read_record().worktree  # type: ignore[union-attr]
    (Path(worktree) / "link").symlink_to(run.paths.liza)
    for path, allowed in {
        "a.py": True,
        f"{worktree}/src/a.py": True,
        "/tmp/x": True,
        f"{worktree}/.git": False,
        f"{run.paths.root}/a.py": False,
        f"{run.paths.liza}/state.yaml": False,
        "link/state.yaml": False,
        "../two/a.py": False,
        "~/.ssh/config": False,
    }.items():
        assert ask(run, "Write", {"file_path": path, "content": "x"}).allowed == allowed, path
        assert ask(run, "Read", {"file_path": path}).allowed


def test_a_reviewer_reads_and_does_not_write(run: RunDir, home: Path) -> None:
    reviewer = RunDir(run.paths, "code-reviewer-1.1")
    record = run.read_record()
    assert record is not None
    reviewer.create(
        RunRecord(
            agent="code-reviewer-1", run=reviewer.run, kind="review", started=NOW, task="cart", worktree=record.worktree
        )
    )
    install(reviewer, home, "make test > report")
    assert not ask(reviewer, "Edit", {"file_path": "a.py", "new_string": "x"}).allowed
    assert ask(reviewer, "Write", {"file_path": "/tmp/notes", "content": "x"}).allowed
    assert ask(reviewer, "Bash", {"command": "make test > report"}).allowed


@pytest.mark.parametrize("end", ["0", "42", "stopped"])
def test_a_run_that_is_over_gets_no_more_tools(run: RunDir, home: Path, end: str) -> None:
    install(run, home, on_error="allow")
    assert ask(run, "Read", {"file_path": "a.py"}).allowed
    if end == "stopped":
        run.write_stop(NOW, StopReason.STOP)
    else:
        run.set_closing_code(end)
    answer = ask(run, "Read", {"file_path": "a.py"})
    assert (answer.allowed, answer.rule) == (False, "session-over")


def test_sessions_sharing_rules_are_judged_by_their_own_paths(run: RunDir, home: Path) -> None:
    second, third = RunDir(run.paths, "coder-2.1"), RunDir(run.paths, "coder-3.1")
    other = run.paths.root.parent / "slots" / "two"
    other.mkdir()
    for session, worktree in ((second, other), (third, other)):
        record = RunRecord(agent=session.agent, run=session.run, kind="work", started=NOW, task="x")
        session.create(replace(record, worktree=str(worktree)))
    install(run, home)
    install(second, home)
    install(third, home, tests="git push --dry-run")
    cache = GuardsCache()
    rules = [cache.read(session).rules for session in (run, second, third)]
    assert rules[0] is rules[1]
    assert rules[0] is not rules[2]

    def allowed(session: RunDir, tool: str, given: dict[str, Any]) -> bool:
        return judge_request(session, AuthorizeRequest(run_id=session.run, tool=tool, input=given), cache=cache).allowed

    file = {"file_path": str(other / "a.py")}
    assert [allowed(session, "Write", file) for session in (run, second, third)] == [False, True, True]
    dry = {"command": "git push --dry-run"}
    assert [allowed(session, "Bash", dry) for session in (run, second, third)] == [False, False, True]


@pytest.mark.parametrize("is_installed", [True, False], ids=["installed", "of an earlier version"])
def test_rules_about_shared_git_do_not_concern_boxed_sessions(run: RunDir, home: Path, is_installed: bool) -> None:
    boxed = RunDir(run.paths, "coder-2.1")
    record = run.read_record()
    assert record is not None
    boxed.create(replace(record, agent="coder-2", run=boxed.run, is_confined=True))
    if is_installed:
        install(run, home)
        install(boxed, home)
    for command in ("git stash", "git tag v1", "git config a.b c"):
        assert not ask(run, "Bash", {"command": command}).allowed
        assert ask(boxed, "Bash", {"command": command}).allowed
    assert ask(boxed, "Bash", PUSH).rule == "no-push"


def test_a_context_that_contradicts_the_run_is_denied(run: RunDir, home: Path) -> None:
    install(run, home)
    assert ask(run, "Read", {}, role="coder", task_id="cart", repository=str(run.paths.root)).allowed
    for context in ({"role": "planner"}, {"task_id": "other"}, {"repository": "/elsewhere"}):
        assert ask(run, "Read", {}, **context).rule == "context"


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("", {}),
        ("Bash", {}),
        ("Bash", {"command": 7}),
        ("Bash", {"command": "echo 'x"}),
        ("Bash", {"command": "a\0b"}),
        ("Bash", {"command": "echo \ud800'"}),
        ("Bash", {"command": ["bash", "-c", "if"]}),
    ],
)
def test_undecidable_calls_are_denied_unless_the_crew_allows_them(
    run: RunDir, home: Path, tool: str, given: dict[str, Any]
) -> None:
    install(run, home)
    answer = ask(run, tool, given)
    assert (answer.allowed, answer.rule) == (False, "cannot-be-judged")
    assert answer.reason
    install(run, home, on_error="allow")
    assert ask(run, tool, given).allowed
    assert not ask(run, "Bash", PUSH).allowed


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"rules": 7}', b'{"rules": [{}]}', b"\xff", b"[" * 100_000])
def test_guards_that_cannot_be_read_deny_everything(run: RunDir, home: Path, content: bytes) -> None:
    (run.path / GUARDS_FILE).write_bytes(content)
    answer = ask(run, "Read", {"file_path": "a.py"})
    assert (answer.allowed, answer.rule) == (False, "cannot-be-judged")


def test_guards_that_are_a_pipe_deny_and_do_not_wait(run: RunDir, home: Path) -> None:
    import os

    os.mkfifo(run.path / GUARDS_FILE)
    assert not ask(run, "Read", {"file_path": "a.py"}).allowed


OWN_RULES = """
[[rule]]
name = "no-push"
allow = true
roles = ["coder"]
commands = ["git push origin <branch> $"]

[[rule]]
name = "no-network"
tools = ["fetch", "mcp:browser/*"]
reason = "There is no network: read docs/."
"""


def test_allowing_rules_of_a_project_count_once_trusted(run: RunDir, home: Path) -> None:
    file = run.paths.liza / "guards.toml"
    file.write_text(OWN_RULES)
    install(run, home)
    assert not ask(run, "Bash", {"command": "git push origin task/cart"}).allowed
    assert "no-push" in guard_files.load_guards(run.paths, home).notices[0]
    assert ask(run, "WebFetch", {"url": "https://x.y"}).rule == "no-network"
    assert ask(run, "mcp__browser__open", {"url": "https://x.y"}).rule == "no-network"
    preset_table.trust_file(file, home)
    install(run, home)
    assert guard_files.load_guards(run.paths, home).notices == ()
    assert ask(run, "Bash", {"command": "git push origin task/cart"}).allowed
    file.write_text(OWN_RULES.replace("$", ""))
    install(run, home)
    assert not ask(run, "Bash", {"command": "git push origin task/cart"}).allowed


def test_a_session_keeps_the_rules_with_which_it_was_started(run: RunDir, home: Path) -> None:
    install(run, home)
    (run.paths.liza / "guards.toml").write_text('[[rule]]\nname = "x"\ntools = ["read"]\nreason = "No."\n')
    assert ask(run, "Read", {"file_path": "a.py"}).allowed


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[[rule]", ("guards.toml",)),
        ("x = 1", ("x",)),
        ("rule = 7", ("rule",)),
        ('[[rule]]\ntools = ["shell"]\nreason = "x"', ("rule 1", "name")),
        ('[[rule]]\nname = "a"\nreason = "x"\ntools = ["shel"]', ("'a'", "tools", "'shel'")),
        ('[tools]\nx = "write"', ("tools.x",)),
        ('[tools]\nx = { is = "writ" }', ("tools.x", "is", "'writ'")),
        ('[tools]\nX = { is = "write" }', ("tools.X", "small")),
        ("a = " + "[" * 5000, ("guards.toml",)),
    ],
)
def test_an_error_names_the_file_the_rule_and_the_field(
    run: RunDir, home: Path, text: str, parts: tuple[str, ...]
) -> None:
    file = run.paths.liza / "guards.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        guard_files.load_guards(run.paths, home)
    assert str(file) in caught.value.message
    assert all(part in caught.value.message for part in parts), caught.value.message


def test_an_expression_that_would_be_catastrophic_elsewhere_is_judged(run: RunDir, home: Path) -> None:
    stars = "*a" * 400 + "b"
    (run.paths.liza / "guards.toml").write_text(
        f'[[rule]]\nname = "x"\nreason = "No."\ncommands = ["echo {stars}", "(a+)+$ x"]\n'
        f'[[rule]]\nname = "y"\nreason = "No."\ntools = ["write"]\npaths = ["/{stars}", "/tmp/{stars}"]\n'
    )
    install(run, home)
    assert ask(run, "Bash", {"command": "echo " + "a" * 4000}).allowed
    assert ask(run, "Bash", {"command": "echo " + "a" * 4000 + "b > /tmp/" + "a" * 4000}).rule == "x"


def tool_event(provider: str) -> str:
    return next(name for name, event in load_template(provider).events.items() if event.means is HookMeaning.TOOL)


@pytest.mark.parametrize("provider", sorted(list_providers()))
def test_every_programs_hook_refuses_a_push_with_the_reason(run: RunDir, home: Path, provider: str) -> None:
    install(run, home)
    reads = load_template(provider).reads
    payload = {reads.session: "s", reads.tool: "bash", reads.input: PUSH}
    environ = {"LIZA_RUN": run.run, "LIZA_ROOT": str(run.paths.root)}
    reply = Hook(provider, tool_event(provider), json.dumps(payload).encode(), environ).reply()
    assert "liza submit" in reply.out + reply.err
    payload[reads.input] = json.dumps(PUSH)
    reply = Hook(provider, tool_event(provider), json.dumps(payload).encode(), environ).reply()
    assert "liza submit" in reply.out + reply.err
    assert len(denials(run)) == 2


@pytest.mark.parametrize("payload", [b"", b"{", b"[]", b"7", b'{"tool_input": {"command": "ls"}}', b"[" * 200_000])
def test_a_hook_without_a_readable_tool_refuses_it(run: RunDir, home: Path, payload: bytes) -> None:
    install(run, home)
    environ = {"LIZA_RUN": run.run, "LIZA_ROOT": str(run.paths.root)}
    reply = Hook("claude", "PreToolUse", payload, environ).reply()
    assert reply.code == 2
    assert "[liza] not run" in reply.err
