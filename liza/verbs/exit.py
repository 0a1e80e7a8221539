"""exit: the closing word of a script that is an agent."""

from __future__ import annotations

from liza.rules.errors import Refused
from liza.verbs.answer import Answer
from liza.verbs.caller import run_caller
from liza.verbs.crew import Crew


def leave(crew: Crew, word: str) -> Answer:
    """Leave 0 (look for more), 1 (failed) or 42 (start again) as the word of this run. Raises Usage, Refused."""
    caller = run_caller(crew)
    directory = crew.run_dir(caller.run)
    if not directory.exists():
        raise Refused(f"{caller.run} has no session that could end", "liza agents")
    directory.say(word)
    return Answer("changed", caller.task, None, "end the process now")
