"""Decide from a run's directory whether its session is over."""

from __future__ import annotations

from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir


def is_session_over(run_dir: RunDir) -> bool:
    """Whether the session is proved over or never existed: no process of the run can still call a command."""
    return isinstance(
        session_process.read_state(run_dir.path),
        session_process.EndedSession | session_process.VanishedSession | session_process.NoSession,
    )


def is_session_living(run_dir: RunDir) -> bool:
    """Whether the session lives, or cannot be proved dead."""
    return not is_session_over(run_dir)
