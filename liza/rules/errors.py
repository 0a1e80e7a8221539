"""Errors, named after the situation, each with an exit code and a hint that is a command.

Nothing here prints. ``cli/entry_points.py`` is the one place that turns an error into a message and an exit code.
"""

from __future__ import annotations

from typing import ClassVar


class LizaError(Exception):
    """A situation that a person or an agent can do something about.

    ``message`` says what is wrong in one sentence: the condition, and the value that was found.
    ``hint`` is one next command, or the empty string where there is none.
    """

    exit_code: ClassVar[int] = 70
    code: ClassVar[str] = "bug"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Refused(LizaError):
    """The request is understood, and a rule says no. Exit code 1."""

    exit_code = 1
    code = "refused"


class NotOwner(Refused):
    """A verb from a run that the task does not name: the fence. Exit code 1."""

    code = "not-yours"


class UnknownId(Refused):
    """A task, an agent or another entry that the board does not have. Exit code 1."""

    code = "unknown-id"


class UsageError(LizaError):
    """The words of the command are wrong: a malformed id, a missing option. Exit code 2."""

    exit_code = 2
    code = "usage"


class GitFailed(LizaError):
    """git said no; the message keeps its last words. Exit code 3."""

    exit_code = 3
    code = "git-failed"


class SharedPathBlocked(GitFailed):
    """Something stands where Liza, or git, keeps what every task needs: no task is at fault. Exit code 3."""


class MergeConflict(GitFailed):
    """Two changes touch the same lines; ``files`` names where. Exit code 3."""

    code = "merge-conflict"

    def __init__(self, message: str, files: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint)
        self.files = files


class BoardInconsistent(LizaError):
    """The board, or a change to it, breaks an invariant. Nothing was written. Exit code 4."""

    exit_code = 4
    code = "board-inconsistent"


class BoardUnreadable(BoardInconsistent):
    """The board does not parse; the message has file, line, column and reason. Exit code 4."""

    code = "board-unreadable"


class BoardTooNew(BoardInconsistent):
    """The board was written by a newer Liza. Exit code 4."""

    code = "board-too-new"


class Missing(LizaError):
    """Something outside Liza is not there: a program, git, an identity, a crew. Exit code 5."""

    exit_code = 5
    code = "missing"


class ProgramMissing(Missing):
    """The program that an agent is to run is not installed, or not executable. Exit code 5."""


class NoCrew(Missing):
    """There is no ``.liza`` here or above. Exit code 5."""

    code = "no-crew"


class NotRegularFile(Missing):
    """A pipe, a device, a directory or far too much stands where a file is to be read. Exit code 5."""


class WriteFailed(Missing):
    """The disk did not take a change: it is full or read-only, or no file stands where one must. Exit code 5."""

    code = "disk-refused"


class SystemRefused(Missing):
    """The system refused what a merge needs: a file, a permission, a process. Exit code 5."""

    code = "system-refused"


class LockTimeout(LizaError):
    """A lock was not had in time; the message names its holder. Exit code 75."""

    exit_code = 75
    code = "lock-timeout"
