"""Error classes, each with an exit code and a hint, the text of an error, and the findings of `liza doctor`.

Nothing here prints. Only ``cli/entry_points.py`` turns an error into a message and an exit status.
"""

from __future__ import annotations

from typing import ClassVar, Final

from liza.model.value_classes import Value


class LizaError(Exception):
    """An error that a person or an agent can act on.

    ``message`` is one sentence: the condition and the value found. ``hint`` is one command to run next, or empty.
    """

    exit_code: ClassVar[int] = 70
    code: ClassVar[str] = "bug"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Refused(LizaError):
    """A rule does not allow the request. Exit code 1."""

    exit_code = 1
    code = "refused"


class FailsInBox(Refused):
    """A command of the project fails in a box and passes without one. Exit code 1."""

    code = "fails-in-box"


class NotOwner(Refused):
    """The run does not own the task (its fencing token is out of date). Exit code 1."""

    code = "not-yours"


class TakenMeanwhile(Refused):
    """Other agents took the task since the board was read, and there is no other one. Exit code 1."""


class UnknownId(Refused):
    """The board has no task, agent or other entry with this id. Exit code 1."""

    code = "unknown-id"


class RunIsOver(Refused):
    """The run has ended, or a newer run of its agent has replaced it. Exit code 1."""

    code = "run-over"


class QueueFull(Refused):
    """The agent has too many prompts that it has not read. Exit code 1."""

    code = "queue-full"


class TokenRefused(Refused):
    """A token of a run is wrong, or was used before. Exit code 1."""

    code = "token-refused"


class UsageError(LizaError):
    """The command line is wrong: a malformed id, a missing option. Exit code 2."""

    exit_code = 2
    code = "usage"


class FutureTime(UsageError):
    """A runtime dated an event too far in the future. Exit code 2."""

    code = "future-time"


class GitFailed(LizaError):
    """A git command failed; the message has the end of its output. Exit code 3."""

    exit_code = 3
    code = "git-failed"


class GitTimeout(GitFailed):
    """A git command took too long and was killed. Exit code 3."""


class SharedPathBlocked(GitFailed):
    """A path that every task needs is occupied by something else. No task is at fault. Exit code 3."""


class MergeConflict(GitFailed):
    """Two changes touch the same lines of ``files``. Exit code 3.

    ``detail``: why the command that makes these files did not resolve it, if one ran.
    """

    code = "merge-conflict"

    def __init__(self, message: str, files: tuple[str, ...], hint: str = "", detail: str = "") -> None:
        super().__init__(message, hint)
        self.files, self.detail = files, detail


class BoardInconsistent(LizaError):
    """The board, or a change to it, breaks an invariant. Nothing was written. Exit code 4."""

    exit_code = 4
    code = "board-inconsistent"


class BoardUnreadable(BoardInconsistent):
    """The board does not parse; the message has file, line, column and reason. Exit code 4."""

    code = "board-unreadable"


class TaskNotWritable(BoardInconsistent):
    """The entry of one task cannot be changed on the board, not even to set the task aside. Exit code 4."""

    code = "task-not-writable"

    def __init__(self, task_id: str, reason: str) -> None:
        super().__init__(f"{task_id} cannot be changed on the board: {reason}", "liza edit")
        self.task_id = task_id


class BoardTooNew(BoardInconsistent):
    """The board was written by a newer Liza. Exit code 4."""

    code = "board-too-new"


class Missing(LizaError):
    """A requirement outside Liza is missing: a program, git, an identity, a crew. Exit code 5."""

    exit_code = 5
    code = "missing"


class ForgeSlow(Missing):
    """The program of a forge did not answer in time, or the forge limits its calls. Exit code 5."""


class LoginMissing(Missing):
    """The program of a forge is not logged in. Exit code 5."""


class ProgramMissing(Missing):
    """The agent's program is not installed or not executable. Exit code 5."""


class NoAccount(Missing):
    """No account of the program can be used now: each is limited, set aside or not readable. Exit code 5."""

    code = "no-account"


class NoCrew(Missing):
    """Neither the working directory nor one above it has ``.liza``. Exit code 5."""

    code = "no-crew"


class NotRegularFile(Missing):
    """The path is not a regular file (a pipe, a device, a directory), or the file is too large. Exit code 5."""


class WriteFailed(Missing):
    """A write failed: the disk is full or read-only, or the path is not a regular file. Exit code 5."""

    code = "disk-refused"


class SystemRefused(Missing):
    """The system refused a file, a permission or a process that a merge needs. Exit code 5."""

    code = "system-refused"


class BoardServerRefused(Missing):
    """The PostgreSQL server of the board cannot be used as it is: address, login, version, schema. Exit code 5."""

    code = "board-server"


class HostFenced(Refused):
    """This host's lease is over, or another host has its name: it may change nothing more. Exit code 1."""

    code = "host-fenced"


class SupervisedElsewhere(Refused):
    """The supervisor of the agent is on another host. Exit code 1."""


class BoardUnavailable(LizaError):
    """The PostgreSQL server of the board is gone, or did not answer in time. Exit code 75."""

    exit_code = 75
    code = "board-unavailable"


class LockTimeout(LizaError):
    """A lock was not acquired before the timeout; the message names its holder. Exit code 75."""

    exit_code = 75
    code = "lock-timeout"


class RemoteUnavailable(LizaError):
    """The git remote of the crew cannot be reached, is too slow or has no space. Nothing is lost. Exit code 75."""

    exit_code = 75
    code = "remote-unavailable"


EXIT_ONLY_PERSON: Final = 76
"""Exit code of `liza up --exit-when-done` and `liza start` if only a person can go on: no failure, and not done."""
HINT_LABEL = "  next: "
"""Start of a line with the next command."""


def format_error(program: str, message: str, hint: str) -> str:
    """Return an error as ``program`` prints it: the message, and a line with the next command if there is one."""
    return f"{program}: {message}" + (f"\n{HINT_LABEL}{hint}" if hint else "")


def read_last_message(program: str, output: str) -> tuple[str, str]:
    """Return the last line of a program's output, and the next command after it; empty texts without output.

    The inverse of ``format_error``: the line is without the name of the program.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    hint = lines.pop().removeprefix(HINT_LABEL) if len(lines) > 1 and lines[-1].startswith(HINT_LABEL) else ""
    return lines[-1].removeprefix(f"{program}: ") if lines else "", hint


class Finding(Value):
    """One line of the report. If ``ok`` is False the crew cannot work, and ``hint`` is a command."""

    about: str
    text: str
    ok: bool = True
    hint: str = ""
