"""Where the files of a crew are: another version of Liza, and people, look for them there."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.model import errors
from liza.model.errors import UsageError
from liza.model.paths import (
    agent_of,
    check_task_id,
    parse_agent_id,
    sort_agents,
    state_directory,
)


@pytest.mark.parametrize(
    ("environ", "directory"),
    [({}, "/home/a/.local/state/liza"), ({"XDG_STATE_HOME": "/x"}, "/x/liza"), ({"XDG_STATE_HOME": "x"}, None)],
)
def test_a_users_state_directory_follows_the_system_settings(environ: dict[str, str], directory: str | None) -> None:
    assert state_directory(environ, Path("/home/a")) == Path(directory or "/home/a/.local/state/liza")


def test_agents_are_sorted_by_role_and_number() -> None:
    names = ["zed", "coder-10", "code-reviewer-1", "coder-x", "coder-2", "planner-1", "abc-3"]
    assert sort_agents(names) == ["planner-1", "coder-x", "coder-2", "coder-10", "code-reviewer-1", "zed", "abc-3"]


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
def test_a_wrong_id_is_refused_with_the_command_listing_ids(check: object, text: str, hint: str) -> None:
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
def test_each_error_has_an_exit_code_and_a_program_code(
    error: type[errors.LizaError], exit_code: int, code: str
) -> None:
    assert (error.exit_code, error.code) == (exit_code, code)
