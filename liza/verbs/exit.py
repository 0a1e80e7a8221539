"""exit: the closing word of a script that is an agent."""

from __future__ import annotations

from liza.crew.caller import identify_run
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.rules.errors import Refused


def exit_run(crew: Crew, word: str) -> Result:
    """Leave 0 (look for more), 1 (failed) or 42 (start again) as the word of this run. Raises Usage, Refused."""
    caller = identify_run(crew)
    directory = crew.run_dir(caller.run)
    if not directory.exists():
        raise Refused(f"{caller.run} has no session that could end", "liza agents")
    directory.set_closing_code(word)
    return Result("changed", caller.task, None, "end the process now")
