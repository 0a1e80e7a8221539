"""start: make a task of one sentence. `liza up` does the rest."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import local_files
from liza.model.errors import Refused
from liza.model.model import Status
from liza.model.paths import branch_of
from liza.system import atomic
from liza.tasks import archived_tasks
from liza.tasks.rules import sentence_text
from liza.tasks.task import add


def add_sentence_task(crew: Crew, text: str) -> Result:
    """Add the task of a sentence, with its document below .liza/specs; or return the open task of the same sentence.

    The document is written before the task is added: a command that was killed in between can be repeated. Raises
    UsageError, Refused, GitFailed.
    """
    require_person(crew, planner=False)
    sentence = sentence_text.check_sentence(text)
    state = crew.board.read()
    existing = sentence_text.find_open_task(state, sentence)
    if existing is not None:
        result = make_result(state, state, existing.id, "liza status")
        return Result(result.result, existing.id, existing.status.value, result.next, message=f"{existing.id}: open")
    task_id = sentence_text.choose_task_id(sentence, _TakenIds(crew))
    path = crew.paths.root / sentence_text.sentence_spec_path(task_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write(path, sentence_text.compose_sentence_spec(sentence).encode(), 0o644)
    return add(crew, (sentence_text.sentence_fields(task_id, sentence),))


def refuse_new_copies(crew: Crew, names: Sequence[str]) -> None:
    """Raise Refused if a crew that exists does not copy these files yet. Its hint keeps the files that it copies.

    A command that is repeated names the same files again, and goes on.
    """
    copied = crew.board.read().config.sandbox_copy
    new = [name for name in dict.fromkeys(names) if name not in copied]
    if new:
        raise Refused(
            f"{crew.paths.root} has a crew already, which does not copy {', '.join(new)}: --copy is for a new crew",
            local_files.copy_command(copied, new),
        )


class _TakenIds:
    """The ids that a new task cannot have: of a task, of an archived one, of a branch, of a document."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._state = crew, crew.board.read()

    def __contains__(self, task_id: object) -> bool:
        name = str(task_id)
        outcomes: dict[str, Status] = archived_tasks.find_outcomes(self._crew.paths, self._state, (name,))
        return (
            self._state.task(name) is not None
            or name in outcomes
            or (self._crew.paths.root / sentence_text.sentence_spec_path(name)).exists()
            or self._crew.git.find_commit(f"refs/heads/{branch_of(name)}") is not None
        )
