"""Where the files of a crew are: another version of Liza, and people, look for them there."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.model import errors
from liza.model.errors import UsageError
from liza.model.paths import (
    Paths,
    agent_of,
    branch_of,
    check_task_id,
    is_person,
    parse_agent_id,
    person_id,
    role_of,
    run_id,
    run_number,
    sort_agents,
    state_directory,
)

PATHS = Paths(Path("/shop"))
FILES = {
    "liza": ".liza",
    "state": ".liza/state.yaml",
    "state_lock": ".liza/state.yaml.lock",
    "journal": ".liza/log.yaml",
    "tx": ".liza/tx",
    "creation": ".liza/made.json",
    "history_conflict": ".liza/tx/history-conflict",
    "archive": ".liza/archive",
    "archive_intent": ".liza/tx/archive",
    "archive_index": ".liza/tx/archive.index",
    "archive_recorded": ".liza/tx/archive.stamps",
    "archive_compared": ".liza/tx/archive.compared",
    "archive_failed": ".liza/tx/archive.failed",
    "write_intent": ".liza/tx/seal",
    "request_sync": ".liza/tx/request-sync",
    "notices": ".liza/notices",
    "spool": ".liza/tx/spool",
    "locks": ".liza/locks",
    "merge_lock": ".liza/merge.lock",
    "merge_turn": ".liza/locks/merge-turn.lock",
    "keeper_lock": ".liza/locks/keeper.lock",
    "keeper_mark": ".liza/locks/keeper.started",
    "push_turn": ".liza/locks/push-turn.lock",
    "push_lock": ".liza/locks/push.lock",
    "push_failure": ".liza/run/push-failure.json",
    "recorder_lock": ".liza/locks/recorder.lock",
    "pins_lock": ".liza/locks/pins.lock",
    "unwritable_tasks": ".liza/tx/unwritable",
    "worktree_lock": ".liza/locks/worktree-add.lock",
    "runs": ".liza/run",
    "usage": ".liza/usage.jsonl",
    "down_lock": ".liza/locks/down.lock",
    "server_lock": ".liza/locks/server.lock",
    "server_start_lock": ".liza/locks/server-start.lock",
    "server_failure": ".liza/run/server-failure.json",
    "unconfined": ".liza/run/unconfined.json",
    "api_socket": ".liza/run/api.sock",
    "api_port": ".liza/run/api.port",
    "records": ".liza/records",
    "gates": ".liza/gates.jsonl",
    "alerts": ".liza/alerts.log",
    "pins": ".liza/pins.json",
    "contracts": ".liza/contracts",
    "specs": ".liza/specs",
    "logs": ".liza/logs",
    "slots": ".worktrees/.slots",
    "task_links": ".worktrees/.slots/tasks",
    "slots_record": ".liza/worktrees.json",
}


def test_each_file_of_a_crew_has_its_place() -> None:
    properties = {name for name, value in vars(Paths).items() if isinstance(value, property)}
    assert {name: str(getattr(PATHS, name).relative_to("/shop")) for name in properties} == FILES


def test_files_of_agents_tasks_and_runs_have_their_names() -> None:
    places = {
        PATHS.supervisor_lock("coder-1"): ".liza/locks/supervisor-coder-1.lock",
        PATHS.task_lock("a"): ".liza/locks/task-a.lock",
        PATHS.worker_port("coder-1.7"): ".liza/run/worker-coder-1.7.port",
        PATHS.run("coder-1.7"): ".liza/run/coder-1/coder-1.7",
        PATHS.signal("PAUSE"): ".liza/PAUSE",
        PATHS.slot("s1"): ".worktrees/.slots/s1",
        PATHS.task_link("a"): ".worktrees/.slots/tasks/a",
    }
    assert {path: str(path.relative_to("/shop")) for path in places} == places
    chosen = Paths(Path("/shop"), Path("/disk"))
    assert (chosen.slot("s1"), chosen.task_link("a")) == (Path("/disk/s1"), Path("/disk/tasks/a"))


@pytest.mark.parametrize(
    ("environ", "directory"),
    [({}, "/home/a/.local/state/liza"), ({"XDG_STATE_HOME": "/x"}, "/x/liza"), ({"XDG_STATE_HOME": "x"}, None)],
)
def test_the_state_of_a_user_is_where_the_system_wants_it(environ: dict[str, str], directory: str | None) -> None:
    assert state_directory(environ, Path("/home/a")) == Path(directory or "/home/a/.local/state/liza")


def test_agents_are_sorted_by_role_and_number() -> None:
    names = ["zed", "coder-10", "code-reviewer-1", "coder-x", "coder-2", "planner-1", "abc-3"]
    assert sort_agents(names) == ["planner-1", "coder-x", "coder-2", "coder-10", "code-reviewer-1", "zed", "abc-3"]


def test_names_of_agents_runs_and_persons() -> None:
    assert [parse_agent_id(name) for name in ("reviewer-1", "code_reviewer-2", "coder-3")] == [
        "code-reviewer-1",
        "code-reviewer-2",
        "coder-3",
    ]
    assert (role_of("code-reviewer-1"), agent_of("coder-1.7"), run_id("coder-1", 7)) == (
        "code-reviewer",
        "coder-1",
        "coder-1.7",
    )
    assert [run_number(run, "coder-1") for run in ("coder-1.7", "coder-2.7", "coder-1", "coder-1.x")] == [
        7,
        None,
        None,
        None,
    ]
    assert (person_id("ann"), is_person("human:ann"), is_person("coder-1"), branch_of("a")) == (
        "human:ann",
        True,
        False,
        "task/a",
    )


@pytest.mark.parametrize(
    ("check", "text", "hint"),
    [
        (parse_agent_id, "tester-1", "liza agents"),
        (parse_agent_id, "coder-1234567890", "liza agents"),
        (agent_of, "coder-1", "liza agents"),
        (check_task_id, "x" * 65, "liza task list"),
        (check_task_id, "-x", "liza task list"),
    ],
)
def test_a_wrong_id_is_refused_with_the_command_that_lists_them(check: object, text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(text)  # type: ignore[operator]
    assert repr(text) in str(refused.value)
    assert refused.value.hint == hint
    assert check_task_id("x" * 64) == "x" * 64


@pytest.mark.parametrize(
    ("error", "exit_code", "code"),
    [
        (errors.LizaError, 70, "bug"),
        (errors.Refused, 1, "refused"),
        (errors.NotOwner, 1, "not-yours"),
        (errors.TakenMeanwhile, 1, "refused"),
        (errors.UnknownId, 1, "unknown-id"),
        (errors.RunIsOver, 1, "run-over"),
        (errors.QueueFull, 1, "queue-full"),
        (errors.TokenRefused, 1, "token-refused"),
        (errors.UsageError, 2, "usage"),
        (errors.FutureTime, 2, "future-time"),
        (errors.GitFailed, 3, "git-failed"),
        (errors.SharedPathBlocked, 3, "git-failed"),
        (errors.MergeConflict, 3, "merge-conflict"),
        (errors.BoardInconsistent, 4, "board-inconsistent"),
        (errors.BoardUnreadable, 4, "board-unreadable"),
        (errors.BoardTooNew, 4, "board-too-new"),
        (errors.Missing, 5, "missing"),
        (errors.ForgeSlow, 5, "missing"),
        (errors.LoginMissing, 5, "missing"),
        (errors.ProgramMissing, 5, "missing"),
        (errors.NoAccount, 5, "no-account"),
        (errors.NoCrew, 5, "no-crew"),
        (errors.NotRegularFile, 5, "missing"),
        (errors.WriteFailed, 5, "disk-refused"),
        (errors.SystemRefused, 5, "system-refused"),
        (errors.LockTimeout, 75, "lock-timeout"),
    ],
)
def test_each_error_has_its_exit_code_and_its_code_for_programs(
    error: type[errors.LizaError], exit_code: int, code: str
) -> None:
    assert (error.exit_code, error.code) == (exit_code, code)


def test_an_error_keeps_its_message_hint_and_files() -> None:
    plain = errors.Refused("no")
    assert (str(plain), plain.message, plain.hint) == ("no", "no", "")
    conflict = errors.MergeConflict("m", ("a", "b"), "h")
    assert (conflict.message, conflict.files, conflict.hint) == ("m", ("a", "b"), "h")
    assert errors.format_error("liza", "m", "h") == "liza: m\n  next: h"
