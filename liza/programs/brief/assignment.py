"""``assignment.md``: everything that the block in the instructions file has no room for. Pure."""

from __future__ import annotations

from liza.programs.brief.brief_context import BriefContext, describe_sprint
from liza.programs.brief.quoting import sanitize
from liza.rules.model import Task
from liza.rules.paths import Paths

_DOCUMENTS = {
    "planner": ("task-lifecycle.md", "agent-initialization.md"),
    "coder": ("task-lifecycle.md", "worktree-management.md"),
    "code-reviewer": ("task-lifecycle.md", "worktree-management.md"),
}
_INSTRUCTIONS = {
    "coder": """\
Run `{liza} ready` first. Read the spec. Work in small commits on this branch, with tests that fail without your change.
Everything is committed before `{liza} submit`. Before a long command:
`{liza} heartbeat --extend 15m`.""",
    "code-reviewer": """\
Run `{liza} ready` first. Read the spec, then the diff. Show each clause of DONE WHEN true or false by running
something, and write what you ran and saw into the verdict. The verdict is yours alone, and it binds.""",
    "INITIAL_PLANNING": """\
There are no tasks. Cut the goal into tasks that one coder finishes in one sitting.""",
    "BLOCKED_TASKS": """\
Answer what you know from goal and spec; leave to the person what only a person can decide. A task that asks the wrong
question is edited or superseded.""",
    "INTEGRATION_FAILED": """\
Nobody may mend these merges any more. Find the root cause, and supersede with tasks that fit.""",
    "HYPOTHESIS_EXHAUSTION": """\
Two coders failed here. Trying again is no plan: the task, or what it assumes, is wrong. Supersede it, and say the root
cause.""",
    "IMMEDIATE_DISCOVERY": """\
Somebody found something that cannot wait. Make it a task, or say why it can.""",
    "SPRINT_COMPLETE": """\
Every task is settled. Compare what was merged with the goal and its spec. Add what is missing; ending with --done while
nothing is left to do completes the goal.""",
}
_DEFAULT_INSTRUCTIONS = (
    "Judge what woke you, change what has to change, and end. Changing nothing is an answer; say why."
)


def compose_assignment(at: BriefContext) -> str:
    """The whole assignment, with the contract chain at its head."""
    if at.task is None:
        sections = _planner_sections(at)
    elif at.role == "code-reviewer":
        sections = _reviewer_sections(at, at.task)
    else:
        sections = _coder_sections(at, at.task)
    sections += [_field("NOTE FROM THE PERSON", note) for note in at.notes]
    return "\n\n".join([f"# {at.agent}, run {at.run}", _reading_list(at), *sections]) + "\n"


def _reading_list(at: BriefContext) -> str:
    paths = Paths(at.root)
    documents = ", ".join(str(paths.specs / "protocols" / name) for name in _DOCUMENTS[at.role])
    return "\n".join(
        (
            "Read, in this order:",
            f"1. {paths.contracts / 'CORE.md'}",
            f"2. {paths.contracts / 'MULTI_AGENT_MODE.md'}",
            f"3. {paths.specs / 'architecture' / 'roles.md'} (#{at.role})",
            f"4. as you need them: {documents}",
        )
    )


def _coder_sections(at: BriefContext, task: Task) -> list[str]:
    sections = ["=== ASSIGNED TASK ===", *_task_fields(at, task), _field("SCOPE", task.scope)]
    if at.rejection is not None:
        sections.append(_field(f"REJECTED BY {at.rejection[0]}", at.rejection[1]))
    handed = at.state.handoff.get(task.id)
    if handed is not None:
        sections.append(_field("HANDED OVER", handed.summary))
        sections.append(_field("NEXT ACTION", handed.next_action))
        more = (handed.approach, handed.blockers, *handed.next_steps)
        sections += [_field("ALSO", "\n".join(text for text in more if text))] if any(more) else []
    sections += [_field("ANSWERED", f"{said.question}\n→ {said.answer}") for said in task.answers]
    sections += [_field("TRIED BEFORE", "\n".join(task.attempted))] if task.attempted else []
    return [
        *sections,
        _field("TESTS", at.test_command or "the project's own"),
        _field("INSTRUCTIONS", _instructions(at, "coder")),
    ]


def _reviewer_sections(at: BriefContext, task: Task) -> list[str]:
    sections = ["=== REVIEW TASK ===", *_task_fields(at, task)]
    sections.append(_field("COMMIT TO REVIEW", task.review_commit or ""))
    sections += [_field("AUTHOR", task.assigned_to or "unknown"), _field("SCOPE", task.scope)]
    if at.rejection is not None:
        sections.append(_field(f"LAST TIME, BY {at.rejection[0]}", at.rejection[1]))
    return [
        *sections,
        _field("TESTS", at.test_command or "the project's own"),
        _field("INSTRUCTIONS", _instructions(at, "code-reviewer")),
    ]


def _task_fields(at: BriefContext, task: Task) -> list[str]:
    return [
        _field("TASK ID", task.id),
        _field("WORKTREE", str(at.worktree)),
        _field("DESCRIPTION", task.description),
        _field("DONE WHEN", task.done_when),
        _field("SPEC", at.spec_path(task.spec_ref)),
    ]


def _planner_sections(at: BriefContext) -> list[str]:
    sections = ["=== PLANNING CONTEXT ===", _field("WAKE TRIGGER", at.wake_trigger), _field("FACTS", at.wake_facts)]
    sections += [_blocked_task(task) for task in map(at.state.task, at.wake_ids) if task is not None]
    found = [one for one in at.state.discovered if one.converted_to_task is None]
    sections += [
        _field(f"DISCOVERED {one.id}, {one.severity}", f"{one.description}\n{one.recommendation}") for one in found
    ]
    sections += [_field("GOAL", at.state.goal.description), _field("SPEC", at.spec_path(at.state.goal.spec_ref))]
    sections.append(
        _field("SPRINT STATE", "\n".join((describe_sprint(at), *(_task_line(task) for task in at.state.tasks))))
    )
    return [*sections, _field("INSTRUCTIONS", _instructions(at, at.wake_trigger))]


def _instructions(at: BriefContext, what: str) -> str:
    """The instructions for a role or a wake-up, with commands that any shell finds."""
    return _INSTRUCTIONS.get(what, _DEFAULT_INSTRUCTIONS).replace("{liza}", at.liza_command)


def _both(one: str, other: str) -> str:
    return f"{one}\n{other}" if other else one


def _blocked_task(task: Task) -> str:
    asked = "\n".join(f"asks: {question}" for question in task.blocked_questions)
    failed = f"failed: {', '.join(task.failed_by)}" if task.failed_by else ""
    told = "\n".join(text for text in (task.blocked_reason or "", asked, failed, task.description) if text)
    return _field(f"TASK {task.id}, {task.status}", told)


def _task_line(task: Task) -> str:
    needs = f", needs {', '.join(task.depends_on)}" if task.depends_on else ""
    return f"- {task.id} {task.status}{needs}: {task.description.strip().partition(chr(10))[0][:120]}"


def _field(name: str, text: str) -> str:
    """One field. Its text is indented, so that no line of it can pass for a field or a section."""
    body = sanitize(text).strip()
    return f"{name}:\n  " + body.replace("\n", "\n  ") if "\n" in body else f"{name}: {body}"
