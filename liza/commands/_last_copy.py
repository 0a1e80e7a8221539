"""Let commands that only look show the last copy of a board whose server is gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from liza.board.last_copy import WITHOUT_SERVER, find_age
from liza.board.opening import look_soon, use_last_copy
from liza.crew.crew import Crew, find_crew
from liza.hosts import lease_file
from liza.model.derived import find_current_work
from liza.model.errors import BoardUnavailable, Missing
from liza.printing.error_output import print_error
from liza.text.formats import format_duration

CommandFunction = TypeVar("CommandFunction", bound=Callable[..., Any])


def show_last_copy(function: CommandFunction) -> CommandFunction:
    """Return the command ``function`` that shows the last copy and exits with 5 if the server of the board is gone.

    First it says so, with the age of the copy. Without a copy the error stays.
    """

    @wraps(function)
    def show(*args: Any, **options: Any) -> Any:
        try:
            with look_soon():
                return function(*args, **options)
        except BoardUnavailable as error:
            with use_last_copy(error):
                print_error("liza", _describe(find_crew(), error), bool(options.get("as_json")))
                function(*args, **options)
            return Missing.exit_code

    return show  # type: ignore[return-value]


def _describe(crew: Crew, error: BoardUnavailable) -> BoardUnavailable:
    """Return the error with the age of what is shown. Raises ``error`` without a copy."""
    revision, age = crew.board.read().revision, find_age(crew.board)
    when = "" if age is None else f" {format_duration(age)} ago"
    text = f"{error.message}; this is the board as it was read here{when}, at revision {revision}"
    return BoardUnavailable(text + _describe_lease(crew), WITHOUT_SERVER)


def _describe_lease(crew: Crew) -> str:
    """Return what becomes of the work on this host; empty if it has none."""
    state, ends = crew.board.read(), lease_file.find_lease_ends(crew.paths)
    here = [name for name, agent in state.agents.items() if agent.host and agent.host == crew.host]
    tasks = [work.task for name in here if (work := find_current_work(state, name)) is not None and work.task]
    if not tasks or ends.sessions_end is None or ends.takeover_in is None:
        return ""
    sessions = f"end in {format_duration(ends.sessions_end)}" if ends.sessions_end else "have ended"
    takeover = f"in {format_duration(ends.takeover_in)}" if ends.takeover_in else "now"
    return f"; sessions here {sessions}, and other hosts may take over {', '.join(tasks)} {takeover}"
