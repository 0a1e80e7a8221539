"""What the directory of a run proves about its session."""

from __future__ import annotations

from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir


def is_session_over(run_dir: RunDir) -> bool:
    """Whether the session is proved over, or never was: nothing of that run can still say a word."""
    return isinstance(
        session_process.read_state(run_dir.path),
        session_process.EndedSession | session_process.VanishedSession | session_process.NoSession,
    )


def is_session_living(run_dir: RunDir) -> bool:
    """Whether the session lives, or cannot be proved dead."""
    return not is_session_over(run_dir)
