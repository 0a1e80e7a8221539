"""What the directory of a run proves about its session."""

from __future__ import annotations

from liza.programs import session
from liza.programs.rundir import RunDir


def over(run_dir: RunDir) -> bool:
    """Whether the session is proved over, or never was: nothing of that run can still say a word."""
    return isinstance(session.look(run_dir.path), session.Ended | session.Vanished | session.Never)


def living(run_dir: RunDir) -> bool:
    """Whether the session lives, or cannot be proved dead."""
    return not over(run_dir)
