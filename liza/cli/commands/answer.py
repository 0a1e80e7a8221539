"""`answer`: the questions of tasks, one after the other."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from liza.cli.declare import Json, new, say
from liza.cli.render import tell
from liza.cli.render.columns import harmless
from liza.cli.render.phrases import one_line
from liza.crew.crew import Crew, find_crew
from liza.rules.durations import spelled
from liza.verbs.answer import OpenQuestion, open_questions

app = new()


@say(app, "answer", 'liza answer\nliza answer invoice-mail "billing@shop.example"')
def answer(
    task_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this task; default: all that ask.")
    ] = None,
    answers: Annotated[
        list[str] | None, typer.Argument(metavar="[ANSWER]...", help="An answer to each of its questions.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer what tasks ask: at a terminal one question after the other, elsewhere a list of them.

    An empty answer leaves a task as it is.
    """
    crew = find_crew()
    if task_id is not None and answers:
        _reply(crew, task_id, answers, as_json)
        return
    found = open_questions(crew, task_id)
    if as_json:
        tell.json({"questions": [asdict(one) for one in found]})
    elif not found:
        tell.out("nothing waits for an answer")
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _walk(crew, found)
    else:
        tell.text("\n".join(_listed(one) for one in found))


def _walk(crew: Crew, found: Sequence[OpenQuestion]) -> None:
    for number, one in enumerate(found, 1):
        tell.text(f"{_head(one)}   {number} of {len(found)}")
        given: list[str] = []
        for question in one.questions:
            tell.text(f"  {harmless(question)}")
            given.append(typer.prompt("  >", default="", show_default=False, prompt_suffix=" "))
            if not given[-1].strip():
                break
        if all(text.strip() for text in given):
            _reply(crew, one.task, given, as_json=False)
        else:
            tell.out(f"  left as it is; later: {one.next}")


def _reply(crew: Crew, task_id: str, answers: Sequence[str], as_json: bool) -> None:
    from liza.verbs import task as verbs

    tell.answer(verbs.unblock(crew, task_id, answers), as_json)


def _head(one: OpenQuestion) -> str:
    since = f" (for {spelled(one.seconds)})" if one.seconds is not None else ""
    return f"{one.task}{since}: {one_line(one.reason or one.description, 160)}"


def _listed(one: OpenQuestion) -> str:
    return "\n".join([_head(one), *(f"  {question}" for question in one.questions), f"    {one.next}"])
