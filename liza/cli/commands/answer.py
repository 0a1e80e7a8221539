"""`answer`: the questions of tasks, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from liza.cli.declare import JsonOption, create_app, declare_command
from liza.cli.render import printing
from liza.cli.render.columns import strip_controls
from liza.cli.render.text_formats import shorten_line
from liza.crew.crew import Crew, find_crew
from liza.rules.durations import format_duration
from liza.verbs.answer import OpenQuestion, find_open_questions

app = create_app()


@declare_command(app, "answer", 'liza answer\nliza answer invoice-mail "billing@shop.example"')
def answer(
    task_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this task; default: all that ask.")
    ] = None,
    answers: Annotated[
        list[str] | None, typer.Argument(metavar="[ANSWER]...", help="An answer to each of its questions.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer what tasks ask: at a terminal one question after the other, elsewhere a list of them.

    An empty answer leaves a task as it is.
    """
    crew = find_crew()
    if task_id is not None and answers:
        _send_answers(crew, task_id, answers, as_json)
        return
    found = find_open_questions(crew, task_id)
    if as_json:
        printing.print_json({"questions": [asdict(one) for one in found]})
    elif not found:
        printing.print_text("nothing waits for an answer")
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _ask_each_question(crew, found)
    else:
        printing.print_wrapped("\n".join(_format_question(one) for one in found))


def _ask_each_question(crew: Crew, found: Sequence[OpenQuestion]) -> None:
    for number, one in enumerate(found, 1):
        printing.print_wrapped(f"{_question_heading(one)}   {number} of {len(found)}")
        given: list[str] = []
        for question in one.questions:
            printing.print_wrapped(f"  {strip_controls(question)}")
            given.append(typer.prompt("  >", default="", show_default=False, prompt_suffix=" "))
            if not given[-1].strip():
                break
        if all(text.strip() for text in given):
            _send_answers(crew, one.task, given, as_json=False)
        else:
            printing.print_text(f"  left as it is; later: {one.next}")


def _send_answers(crew: Crew, task_id: str, answers: Sequence[str], as_json: bool) -> None:
    from liza.verbs import task as verbs

    printing.print_result(verbs.unblock(crew, task_id, answers), as_json)


def _question_heading(one: OpenQuestion) -> str:
    since = f" (for {format_duration(one.seconds)})" if one.seconds is not None else ""
    return f"{one.task}{since}: {shorten_line(one.reason or one.description, 160)}"


def _format_question(one: OpenQuestion) -> str:
    return "\n".join([_question_heading(one), *(f"  {question}" for question in one.questions), f"    {one.next}"])
