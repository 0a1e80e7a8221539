"""What the directory of a run proves about its session."""

from __future__ import annotations

from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir


def over(run_dir: RunDir) -> bool:
    """Whether the session is proved over, or never was: nothing of that run can still say a word."""
    return isinstance(
        session_process.look(run_dir.path), session_process.Ended | session_process.Vanished | session_process.Never
    )


def living(run_dir: RunDir) -> bool:
    """Whether the session lives, or cannot be proved dead."""
    return not over(run_dir)
