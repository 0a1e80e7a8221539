"""Let commands that only look show the last copy of a board whose server is gone."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from liza.board.last_copy import find_age
from liza.board.opening import use_last_copy
from liza.crew.crew import Crew, find_crew
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
    return BoardUnavailable(text, error.hint)
