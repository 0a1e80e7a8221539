"""Tables: what carries what, what an end means, and how far a session has come."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.model.errors import UsageError
from liza.model.model import ProcessIdentity
from liza.model.session_ends import STOP_RULES, SessionOutcome, StopReason
from liza.programs.liveness import EndedSession, NoSession, RunningSession, VanishedSession
from liza.programs.presets import command_line
from liza.programs.presets.preset import Dialog, HookSettings, LaunchMode, Permissions, Preset
from liza.programs.session import outcomes
from liza.programs.session.outcomes import SessionEnd
from liza.programs.session.run_directory import Sentinel, StopNote
from liza.programs.terminal import readiness
from liza.programs.terminal.readiness import IdleSign, NotReady, NotReadyReason, ReadinessFacts, Ready, StillStarting
from liza.programs.terminal.screens import Screen
from tests.unit.grounds import ground

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WHO = ProcessIdentity(host="here", boot="b", pid=7, start="1")
GONE = VanishedSession(shim=WHO, child=WHO)
LIVING = RunningSession(shim=WHO, child=WHO, time=NOW)


def code(number: int) -> EndedSession:
    return EndedSession(time=NOW, code=number)


def failed(reason: str) -> SessionEnd:
    """The end of a session that says itself that it failed."""
    return SessionEnd(SessionOutcome.CRASHED, reason, is_own_failure=True)


FINISHED, HANDED_OFF = SessionEnd(SessionOutcome.FINISHED), SessionEnd(SessionOutcome.HANDED_OFF)
ENDS = [
    # end                          word  codes        moved  stopped   what it means
    (code(0), None, {}, True, None, FINISHED),
    (code(0), None, {}, False, None, FINISHED),
    (code(42), None, {}, True, None, HANDED_OFF),
    (code(42), None, {}, False, None, HANDED_OFF),
    (code(1), None, {}, True, None, failed("exit 1")),
    (code(130), None, {}, True, None, failed("exit 130")),
    (EndedSession(time=NOW, signal=9), None, {}, True, None, SessionEnd(SessionOutcome.CRASHED, "ended by SIGKILL")),
    (EndedSession(time=NOW, signal=64), None, {}, True, None, SessionEnd(SessionOutcome.CRASHED, "ended by SIGRTMAX")),
    (code(1), "0", {}, False, None, FINISHED),
    (code(0), "42", {}, False, None, HANDED_OFF),
    (code(0), "1", {}, True, None, failed("closing code 1")),
    (EndedSession(time=NOW, signal=15), "0", {}, False, None, FINISHED),
    (EndedSession(time=NOW, signal=15), "42", {}, False, StopReason.OVER, HANDED_OFF),
    (EndedSession(time=NOW, signal=15), None, {}, False, StopReason.HUNG, SessionEnd(SessionOutcome.CRASHED, "hung")),
    (code(0), None, {}, True, StopReason.STOP, SessionEnd(SessionOutcome.STOPPED, "stop")),
    (code(42), None, {"42": "1"}, True, None, failed("exit 42")),
    (code(55), None, {"55": "0"}, True, None, FINISHED),
    (
        EndedSession(time=NOW, error="x: No such file"),
        None,
        {},
        False,
        None,
        SessionEnd(SessionOutcome.UNUSABLE, "x: No such file"),
    ),
    (
        EndedSession(time=NOW, error="x: No such file"),
        "0",
        {},
        False,
        StopReason.STOP,
        SessionEnd(SessionOutcome.UNUSABLE, "x: No such file"),
    ),
    (GONE, "0", {}, False, None, FINISHED),
    (GONE, None, {}, False, StopReason.STOP, SessionEnd(SessionOutcome.STOPPED, "stop")),
]


@pytest.mark.parametrize(("end", "word", "codes", "moved", "stopped", "meaning"), ENDS)
def test_the_word_outranks_the_purpose_outranks_the_code(end, word, codes, moved, stopped, meaning) -> None:
    note = None if stopped is None else StopNote(time=NOW, reason=STOP_RULES[stopped].sentence, kind=stopped)
    assert outcomes.classify_end(end, word, codes, moved, note) == meaning


def test_a_session_that_vanished_is_a_crash_with_a_reason() -> None:
    came = outcomes.classify_end(GONE, None, {}, True)
    assert came.outcome is SessionOutcome.CRASHED
    assert "vanished" in came.reason


def seen(**more: object) -> ReadinessFacts:
    return ReadinessFacts(**{"state": LIVING, "since_start": 3.0, "timeout": 60.0, **more})


DIALOG = (Dialog(kind="trust", match="Do you trust"),)
READINESS = [
    (seen(sentinel=Sentinel(time=NOW, evidence="liza ready")), Ready("liza ready")),
    (seen(sentinel=Sentinel(time=NOW, evidence="verb"), state=code(1)), Ready("verb")),
    (seen(), StillStarting("no sign of readiness yet")),
    (seen(state=NoSession()), StillStarting("no session yet")),
    (seen(state=NoSession(), since_start=61.0), NotReady(NotReadyReason.NEVER_STARTED, "no session after 61 s")),
    (seen(state=EndedSession(time=NOW, error="x: not found")), NotReady(NotReadyReason.NEVER_STARTED, "x: not found")),
    (seen(state=code(3), tail="a\nboom\n"), NotReady(NotReadyReason.DEAD, "exit 3 before it had read its brief: boom")),
    (seen(state=GONE), NotReady(NotReadyReason.DEAD, "vanished without an end record before it had read its brief")),
    (
        seen(state=code(1), tail="error: 401 Unauthorized", login_signs=("401",)),
        NotReady(NotReadyReason.LOGIN, "the program is not logged in ('401'); exit 1"),
    ),
    (
        seen(tail="x\nDo you trust this?", dialogs=DIALOG),
        NotReady(NotReadyReason.DIALOG, "the program shows its trust dialog: 'Do you trust'"),
    ),
    (
        seen(screen=Screen(("Do you trust this?",), seconds_since_change=0.1), dialogs=DIALOG),
        StillStarting("the program shows its trust dialog: 'Do you trust'"),
    ),
    (
        seen(screen=Screen(("Do you trust this?",), seconds_since_change=1.0), dialogs=DIALOG),
        NotReady(NotReadyReason.DIALOG, "the program shows its trust dialog: 'Do you trust'"),
    ),
    (
        seen(screen=Screen(("Do you trust this?",), seconds_since_change=0.1), dialogs=DIALOG, since_start=61.0),
        NotReady(NotReadyReason.DIALOG, "the program shows its trust dialog: 'Do you trust'"),
    ),
    (seen(tail="hello\n> \n", ready_prompt="> "), Ready("ready prompt")),
    (seen(tail="> \nworking\n", ready_prompt="> "), StillStarting("no sign of readiness yet")),
    (
        seen(since_start=61.0),
        NotReady(NotReadyReason.SILENT, "its process is running and has printed and reported nothing after 61 s"),
    ),
    (
        seen(since_start=61.0, tail="thinking\n"),
        NotReady(NotReadyReason.BUSY, "it prints output and has not read its brief after 61 s: thinking"),
    ),
    (seen(since_start=61.0, tail="thinking\n", has_asked=True), Ready("has asked its model")),
    (
        seen(since_start=61.0, tail="401", login_signs=("401",)),
        NotReady(NotReadyReason.LOGIN, "the program is not logged in ('401') after 61 s"),
    ),
    (seen(tail="401", login_signs=("401",)), StillStarting("no sign of readiness yet")),
    (seen(idle_signs=(IdleSign("process", 0.95, 0.0),)), Ready("waits for input (process, 95%)")),
    (
        seen(idle_signs=(IdleSign("silence", 0.65, 0.0), IdleSign("ending", 0.6, 0.0))),
        Ready("waits for input (silence, ending, 75%)"),
    ),
    (seen(idle_signs=(IdleSign("silence", 0.65, 0.0),)), StillStarting("no sign of readiness yet")),
    (seen(idle_signs=(IdleSign("process", 0.95, 0.0),), now=3.1), StillStarting("no sign of readiness yet")),
    (
        seen(idle_signs=(IdleSign("process", 0.95, 0.0), IdleSign("silence", 0.75, 3.0)), now=3.1),
        Ready("waits for input (silence, 75%)"),
    ),
]


@pytest.mark.parametrize(("facts", "verdict"), READINESS)
def test_the_first_evidence_answers(facts: ReadinessFacts, verdict: Ready | StillStarting | NotReady) -> None:
    assert readiness.classify_readiness(facts) == verdict


def test_no_signs_are_no_confidence_and_many_at_most_certainty() -> None:
    assert readiness.combine_confidence((), 0.0) == 0.0
    assert readiness.combine_confidence((IdleSign("a", 1.0, 0.0), IdleSign("b", 1.0, 0.0)), 0.0) == 1.0


@pytest.mark.parametrize("hooks", ["", "not-installed-by-this-release"])
@pytest.mark.parametrize(("prompt", "beacon"), [("arg", "prompt"), ("stdin", "stdin"), ("none", "file")])
def test_without_hooks_the_context_is_in_the_file(hooks, prompt, beacon) -> None:
    preset = Preset(name="x", headless=LaunchMode(prompt=prompt), hooks=HookSettings(provider=hooks))
    plan = command_line.choose_carriers(preset, interactive=False)
    assert (plan.beacon, plan.context) == (beacon, "file")


def test_the_startup_table_is_complete_for_contexts_and_prompts() -> None:
    assert set(command_line.CARRIER_PLANS) == {
        (hooks, prompt) for hooks in (True, False) for prompt in ("arg", "stdin", "none")
    }
    assert all(plan.context in ("file", "hook") for plan in command_line.CARRIER_PLANS.values())


def test_a_command_line_has_options_before_directories_before_the_prompt() -> None:
    preset = Preset(name="x", command="x", args=("--a",), add_dirs=("--add", "{dir}"))
    how = LaunchMode(args=("run",), before_prompt=("--",))
    made = command_line.build_command(
        preset, how, "-p rompt", ground("prompts", writable_dirs=[Path("/r/.liza"), Path("/r/.git")])
    )
    assert made.argv == ("x", "--a", "run", "--add", "/r/.liza", "--add", "/r/.git", "--", "-p rompt")
    assert made.stdin_text is None


def test_a_prompt_on_stdin_is_no_argument() -> None:
    for prompt, stdin in (("stdin", "hello"), ("none", None)):
        made = command_line.build_command(
            Preset(name="x", command="x"), LaunchMode(prompt=prompt), "hello", ground("bypass")
        )
        assert (made.argv, made.stdin_text) == (("x",), stdin)


def test_a_confined_program_may_run_the_projects_tests_if_any() -> None:
    preset = Preset(name="x", command="x", permissions=Permissions(prompts=("--allow", "{liza}", "({tests}:*)")))
    for tests, argv in (("npm test", ("x", "--allow", "/b/liza", "(npm test:*)")), ("", ("x", "--allow", "/b/liza"))):
        how = LaunchMode(prompt="none")
        assert command_line.build_command(preset, how, "p", ground("prompts", test_command=tests)).argv == argv


def test_ungranted_permissions_are_refused() -> None:
    with pytest.raises(UsageError, match=r"config\.permissions is .yolo., expected prompts or bypass"):
        command_line.build_command(Preset(name="x", command="x"), LaunchMode(), "p", ground("yolo"))


OUTSIDE = {
    "PATH": "/usr/bin", "HOME": "/home/p", "LC_ALL": "C", "AWS_SECRET_ACCESS_KEY": "s", "VENDOR_KEY": "k",
    "GIT_DIR": "/elsewhere/.git", "GIT_INDEX_FILE": "/x", "GIT_AUTHOR_NAME": "P", "LIZA_RUN": "coder-9.9",
    "LIZA_TASK": "other", "LIZA_AGENT_TIER": "cheap", "PYTHONPATH": "/x", "LD_PRELOAD": "/x.so", "https_proxy": "http://p",
    "SSH_AUTH_SOCK": "/s",
}  # fmt: skip


def test_an_environment_has_allowed_named_and_run_variables() -> None:
    preset = Preset(name="x", env={"MODE": "quiet"}, env_allow=("VENDOR_*", "LIZA_*"))
    env = command_line.compose_environment(
        preset, OUTSIDE, run="coder-1.7", task="task-3", root=Path("/r"), liza=Path("/opt/b/liza")
    )
    assert env["PATH"] == "/opt/b:/usr/bin"
    assert {name for name in env if name.startswith("LIZA_")} == {"LIZA_AGENT_ID", "LIZA_RUN", "LIZA_ROOT", "LIZA_TASK"}
    assert (env["LIZA_AGENT_ID"], env["LIZA_RUN"], env["LIZA_TASK"]) == ("coder-1", "coder-1.7", "task-3")
    assert (env["VENDOR_KEY"], env["MODE"], env["GIT_AUTHOR_NAME"]) == ("k", "quiet", "P")
    for name in ("AWS_SECRET_ACCESS_KEY", "GIT_DIR", "GIT_INDEX_FILE", "PYTHONPATH", "LD_PRELOAD", "SSH_AUTH_SOCK"):
        assert name not in env


def test_a_program_hiding_git_configuration_still_knows_who_commits() -> None:
    who = {"GIT_AUTHOR_NAME": "Configured", "GIT_COMMITTER_NAME": "Configured"}
    env = command_line.compose_environment(
        Preset(name="x"), OUTSIDE, run="coder-1.1", task=None, root=Path("/r"), liza=Path("/b/liza"), identity=who
    )
    assert (env["GIT_AUTHOR_NAME"], env["GIT_COMMITTER_NAME"]) == ("P", "Configured")


def test_a_planner_has_no_task_in_its_environment() -> None:
    env = command_line.compose_environment(
        Preset(name="x"), OUTSIDE, run="planner-1.1", task=None, root=Path("/r"), liza=Path("/b/liza")
    )
    assert "LIZA_TASK" not in env
