"""``liza answer``: answer the open questions of tasks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from liza.commands._declare import Heading, JsonOption, Position, Process, create_app, declare_command
from liza.crew.crew import Crew, find_crew
from liza.model.value_classes import asdict
from liza.printing import printing
from liza.printing.columns import shorten_line, strip_controls
from liza.tasks import task as verbs
from liza.tasks.questions import OpenQuestion, find_open_questions
from liza.text.formats import format_duration

app = create_app()


@declare_command(
    app,
    "answer",
    'liza answer\nliza answer invoice-mail "billing@shop.example"',
    process=Process.DIRECT_AT_TERMINAL,
    in_sessions=True,
    position=Position(Heading.STEER, 4),
)
def answer(
    task_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this task; default: all tasks with questions.")
    ] = None,
    answers: Annotated[list[str] | None, typer.Argument(metavar="[ANSWER]...", help="One answer per question.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Answer the open questions of tasks. At a terminal it asks them one by one; elsewhere it prints a list.

    An empty answer leaves a task unchanged.
    """
    crew = find_crew()
    if task_id is not None and answers:
        _send_answers(crew, task_id, answers, as_json)
        return
    open_questions = find_open_questions(crew, task_id)
    if as_json:
        printing.print_json({"questions": [asdict(open_question) for open_question in open_questions]})
    elif not open_questions:
        printing.print_text("no task has an open question")
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _ask_each_question(crew, open_questions)
    else:
        printing.print_wrapped("\n".join(_format_question(open_question) for open_question in open_questions))


def _ask_each_question(crew: Crew, open_questions: Sequence[OpenQuestion]) -> None:
    for number, open_question in enumerate(open_questions, 1):
        printing.print_wrapped(f"{_question_heading(open_question)}   {number} of {len(open_questions)}")
        texts: list[str] = []
        for question in open_question.questions:
            printing.print_wrapped(f"  {strip_controls(question)}")
            texts.append(typer.prompt("  >", default="", show_default=False, prompt_suffix=" "))
            if not texts[-1].strip():
                break
        if all(text.strip() for text in texts):
            _send_answers(crew, open_question.task, texts, as_json=False)
        else:
            printing.print_text(f"  unchanged; answer later: {open_question.next}")


def _send_answers(crew: Crew, task_id: str, answers: Sequence[str], as_json: bool) -> None:
    printing.print_result(verbs.unblock(crew, task_id, answers), as_json)


def _question_heading(open_question: OpenQuestion) -> str:
    since = f" (for {format_duration(open_question.seconds)})" if open_question.seconds is not None else ""
    return f"{open_question.task}{since}: {shorten_line(open_question.reason or open_question.description, 160)}"


def _format_question(open_question: OpenQuestion) -> str:
    return "\n".join(
        [
            _question_heading(open_question),
            *(f"  {question}" for question in open_question.questions),
            f"    {open_question.next}",
        ]
    )
