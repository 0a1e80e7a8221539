"""task add --from: an issue of the remote repository becomes a task, with the issue's text as its document."""

from __future__ import annotations

import shlex

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.result import Result
from liza.git.git_refs import current_branch
from liza.git.rules.remote_urls import Forge, find_forge_repository
from liza.git.runner import Git
from liza.landing.forge import read_rows
from liza.landing.remotes import find_project, find_remote
from liza.landing.rules import feedback_text
from liza.landing.rules.feedback_text import Issue
from liza.model.errors import Missing, Refused
from liza.model.paths import Paths, check_task_id
from liza.model.value_classes import replace
from liza.system import atomic, untrusted_files
from liza.tasks import archive
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from liza.text.quoting import sanitize


def add_from_issue(crew: Crew, source: str, given: TaskFields) -> Result:
    """Add the task of an issue, ``gh:123``. Without ``given.id`` it is named ``gh-123``.

    The document is written to ``.liza/specs`` before the task is added: a command that was killed in between can be
    repeated. Raises Refused, UsageError, Missing, GitFailed.
    """
    require_person(crew, planner=False)
    number = feedback_text.parse_issue_source(source)
    fields = replace(given, id=check_task_id(given.id or feedback_text.default_issue_task(number)))
    _refuse_existing(crew, fields.id)
    issue = _read_issue(crew.git, number)
    _write_document(crew.paths, fields.id, source, feedback_text.compose_issue_spec(issue))
    return add(crew, (feedback_text.complete_fields(fields, issue),))


def _refuse_existing(crew: Crew, task_id: str) -> None:
    """Raise Refused if there is such a task, also in the archive: its document is not touched."""
    state = crew.board.read()
    archive.refuse_archived(crew.board, state, [task_id])
    if state.task(task_id) is not None:
        raise Refused(f"there is a task {task_id} already", f"liza task show {task_id}")


def _read_issue(git: Git, number: int) -> Issue:
    branch = current_branch(git)
    project = find_project(find_remote(git, branch), branch)
    repository = find_forge_repository(project.urls)
    if repository is None or repository.forge is not Forge.GITHUB:
        raise Missing(f"{project.name} is not a repository of GitHub: it has no issue {number} for gh", "git remote -v")
    (issue,) = read_rows(repository, "issue", Issue, number=number)
    title, body = sanitize(issue.title), sanitize(issue.body)
    return replace(issue, repository=repository.full_name, title=title, body=body)


def _write_document(paths: Paths, task_id: str, source: str, text: str) -> None:
    """Write the document. Raises Refused if there is another one of that name: a person may have changed it."""
    path = paths.root / feedback_text.spec_path(task_id)
    existing = untrusted_files.read_if_exists(path)
    if existing is not None and existing != text.encode():
        name = feedback_text.spec_path(task_id)
        older = shlex.join(["mv", name, f"{name}.old"])
        raise Refused(f"{name} exists with another text", f"{older} && liza task add --from {source}")
    if existing is None:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic.write(path, text.encode(), 0o644)
