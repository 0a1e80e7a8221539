"""exit: set the closing code of a run, for an agent that is a script."""

from __future__ import annotations

from liza.crew.caller import identify_run
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.model.errors import Refused


def exit_run(crew: Crew, word: str) -> Result:
    """Set the closing code of this run: 0 (look for more), 1 (failed) or 42 (start again). Raises UsageError,
    Refused."""
    caller = identify_run(crew)
    directory = crew.run_dir(caller.run)
    if not directory.exists():
        raise Refused(f"{caller.run} has no session", "liza agents")
    directory.set_closing_code(word)
    return Result("changed", caller.task, None, "end the process now")
