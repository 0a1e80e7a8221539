"""A task that consists of one sentence: its id, its fields and its document. Pure."""

from __future__ import annotations

import re
from collections.abc import Container
from itertools import count
from typing import Final

from liza.model.errors import UsageError
from liza.model.model import FINAL_STATUSES, State, Task
from liza.tasks.rules.backlog import LIZA_SPECS, TaskFields
from liza.text.ascii_form import to_ascii

MAX_SENTENCE: Final = 2000  # characters
_MAX_ID: Final = 32
_DEFAULT_ID: Final = "task"


def check_sentence(text: str) -> str:
    """Return the sentence with single spaces. Raises UsageError if it is empty or too long."""
    sentence = " ".join(text.split())
    if not sentence or len(sentence) > MAX_SENTENCE:
        actual = f"{len(sentence)} characters" if sentence else "empty"
        raise UsageError(f"the sentence is {actual}; it can have 1 to {MAX_SENTENCE}", "liza task add --help")
    return sentence


def choose_task_id(sentence: str, taken: Container[str]) -> str:
    """Return an id of the first words of the sentence that is not ``taken``."""
    slug = ""
    for word in re.findall(r"[a-z0-9]+", to_ascii(sentence)):
        longer = f"{slug}-{word}" if slug else word[:_MAX_ID]
        if len(longer) > _MAX_ID:
            break
        slug = longer
    name = slug or _DEFAULT_ID
    return next(task_id for number in count(1) if (task_id := name if number == 1 else f"{name}-{number}") not in taken)


def find_open_task(state: State, sentence: str) -> Task | None:
    """Return the open task that was made of the same sentence, or None: a repeated command adds no second one."""
    return next(
        (task for task in state.tasks if task.description == sentence and task.status not in FINAL_STATUSES), None
    )


def sentence_fields(task_id: str, sentence: str) -> TaskFields:
    """Return the fields of the task. Its condition tells the coder and the reviewer that there is only a sentence."""
    return TaskFields(
        task_id,
        description=sentence,
        done_when=f"A test or another command shows that this holds: {sentence}\n"
        "The task comes from one sentence of a person. Judge the work by the sentence, and what it leaves open by the "
        "conventions of the project.",
        scope="what the sentence needs, and its tests",
        spec_ref=sentence_spec_path(task_id),
    )


def sentence_spec_path(task_id: str) -> str:
    """Return the path of the document, relative to the root of the crew."""
    return f"{LIZA_SPECS}{task_id}.md"


def compose_sentence_spec(sentence: str) -> str:
    """Return the document of the task."""
    return (
        f"# {sentence}\n\n"
        "A person asked for this in one sentence; there is no other document. What it leaves open follows from the "
        "code and the conventions of the project. If it can mean two different things, ask.\n"
    )
