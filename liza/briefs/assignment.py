"""``assignment.md``: the full text of everything that the block in the instructions file abbreviates. Pure."""

from __future__ import annotations

from liza.breaker.rules.board_reports import open_anomalies, open_discoveries
from liza.briefs.brief_context import (
    BriefContext,
    describe_agents,
    describe_anomaly,
    describe_discovery,
    describe_failed_check,
    describe_sprint,
    root_cause_demand,
)
from liza.model.derived import describe_lack, find_owner
from liza.model.model import SpecChange, Task
from liza.model.paths import Paths
from liza.model.statuses import WakeTrigger
from liza.tasks.rules.edits import describe_note
from liza.tasks.rules.reviews import format_comment
from liza.text.formats import format_time
from liza.text.quoting import quote_line, sanitize, truncate_text

MAX_REPORTS = 50  # open discoveries, and open anomalies, in an assignment
MAX_SPEC_CHANGES = 5  # the newest ones
MAX_DECISIONS = 20  # of planners, and edits of the goal; the newest ones
MAX_REPORT = 2000  # maximum bytes of one of them
_DOCUMENTS = {
    "planner": ("task-lifecycle.md", "circuit-breaker.md", "agent-initialization.md"),
    "coder": ("task-lifecycle.md", "worktree-management.md"),
    "code-reviewer": ("task-lifecycle.md", "worktree-management.md"),
}
_INSTRUCTIONS: dict[str, str] = {
    "coder": """\
Run `{liza} ready` first. Read the spec. Work in small commits on this branch, with tests that fail without your change.
Everything is committed before `{liza} submit`. Before a long command:
`{liza} heartbeat --extend 15m --reason "what takes so long"`.""",
    "code-reviewer": """\
Run `{liza} ready` first. Read the spec, then the diff. Show each clause of DONE WHEN true or false by running
something, and write what you ran and saw into the verdict. The verdict is yours alone, and it binds.""",
    WakeTrigger.INITIAL_PLANNING: """\
There are no tasks. Cut the goal into tasks that one coder finishes in one sitting.""",
    WakeTrigger.BLOCKED_TASKS: """\
Answer what you know from goal and spec; leave to the person what only a person can decide. A task that asks the wrong
question is edited or superseded.""",
    WakeTrigger.INTEGRATION_FAILED: """\
These merges may not be fixed any more. Find the root cause, and supersede with tasks that fit.""",
    WakeTrigger.HYPOTHESIS_EXHAUSTION: """\
Two coders failed here. Trying again is not a plan: the task, or what it assumes, is wrong. Supersede it, and state the
root cause.""",
    WakeTrigger.BREAKER_TRIPPED: """\
`{liza} breaker` shows what tripped, with the events. Find the root cause; it is rarely the last error. Change the plan
so that it goes away, then `{liza} breaker resolve "the root cause, and what you changed"`. A trip of the severity
checkpoint stops the crew until then. If only a person can remove the cause, say so and end.""",
    WakeTrigger.IMMEDIATE_DISCOVERY: """\
An agent reports something that cannot wait. Make it a task: `{liza} task add --from-discovery ID --id …`. Or say why it
can wait: `{liza} report resolve ID "why"`. Until one of the two is done, it is open.""",
    WakeTrigger.OPEN_DRAFTS: """\
These tasks lack something, so no coder can claim them. Complete them from the goal and its spec:
`{liza} task edit ID --done "…" --scope "…"`. Instead of a document that does not exist, name one that does, or leave
the task to the person who has to commit it. Drop what the goal does not need. What you leave waits for a person.""",
    WakeTrigger.SPRINT_COMPLETE: """\
Every task is settled. Compare what was merged with the goal and its spec. Add what is missing; ending with --done while
nothing is left to do completes the goal.""",
}
_DEFAULT_INSTRUCTIONS = (
    "Judge what woke you, change what has to change, and end. Changing nothing is an answer; say why."
)


def compose_assignment(context: BriefContext) -> str:
    """Compose the full assignment; it begins with the list of contracts to read."""
    if context.task is None:
        sections = _planner_sections(context)
    elif context.role == "code-reviewer":
        sections = _reviewer_sections(context, context.task)
    else:
        sections = _coder_sections(context, context.task)
    sections += [_field("NOTE FROM THE PERSON", note) for note in context.notes]
    return "\n\n".join([f"# {context.agent}, run {context.run}", _reading_list(context), *sections]) + "\n"


def _reading_list(context: BriefContext) -> str:
    paths = Paths(context.root)
    documents = ", ".join(str(paths.specs / "protocols" / name) for name in _DOCUMENTS[context.role])
    return "\n".join(
        (
            "Read, in this order:",
            f"1. {paths.contracts / 'CORE.md'}",
            f"2. {paths.contracts / 'MULTI_AGENT_MODE.md'}",
            f"3. {paths.specs / 'architecture' / 'roles.md'} (#{context.role})",
            f"4. as you need them: {documents}",
        )
    )


def _coder_sections(context: BriefContext, task: Task) -> list[str]:
    link = f" (a link to it: `liza path {task.id}`)"
    sections = ["=== ASSIGNED TASK ===", *_task_fields(context, task, link), _field("SCOPE", task.scope)]
    if context.state.goal.spec_ref:
        sections.append(_field("GOAL DOCUMENT", context.spec_path(context.state.goal.spec_ref)))
    if context.rejection is not None:
        sections.append(_field(f"REJECTED BY {context.rejection[0]}", context.rejection[1]))
        sections += _comment_fields(task)
    if context.repeated_rejections:
        earlier = "\n".join(f"- {quote_line(reason, 400)}" for reason in context.repeated_rejections)
        sections.append(_field("ROOT CAUSE FIRST", f"{root_cause_demand(context)}\n{earlier}"))
    sections += _failed_check_fields(context)
    sections += [_field("UNFINISHED", context.unfinished)] if context.unfinished else []
    handoff = context.state.handoff.get(task.id)
    if handoff is not None and handoff.summary:
        sections.append(_field("HANDED OVER", handoff.summary))
        sections.append(_field("NEXT ACTION", handoff.next_action))
        files = f"files: {', '.join(handoff.files_modified)}" if handoff.files_modified else ""
        more = (handoff.approach, handoff.blockers, *handoff.next_steps, files)
        sections += [_field("ALSO", "\n".join(text for text in more if text))] if any(more) else []
    sections += _answer_fields(task)
    sections += [_field("TRIED BEFORE", "\n".join(task.attempted))] if task.attempted else []
    return [
        *sections,
        _field("TESTS", context.test_command or "the project's own"),
        _field("INSTRUCTIONS", _instructions(context, "coder")),
    ]


def _answer_fields(task: Task) -> list[str]:
    return [_field("ANSWERED", f"{answer.question}\n→ {answer.answer}") for answer in task.answers]


def _failed_check_fields(context: BriefContext) -> list[str]:
    """Return the start-up check that the last session failed."""
    failed = context.failed_check
    return [_field("START-UP FAILED", describe_failed_check(failed))] if failed is not None else []


def _comment_fields(task: Task) -> list[str]:
    """Return the comments of the last rejection on lines, with the commit that has these lines."""
    if not task.review_comments:
        return []
    commit = task.review_comments[0].commit
    return [_field(f"COMMENTS ON LINES OF {commit}", "\n".join(map(format_comment, task.review_comments)))]


def _reviewer_sections(context: BriefContext, task: Task) -> list[str]:
    sections = ["=== REVIEW TASK ===", *_task_fields(context, task)]
    sections.append(_field("COMMIT TO REVIEW", task.review_commit or ""))
    sections += [_field("AUTHOR", find_owner(task) or "unknown"), _field("SCOPE", task.scope)]
    if context.rejection is not None:
        sections.append(_field(f"LAST TIME, BY {context.rejection[0]}", context.rejection[1]))
        sections += _comment_fields(task)
    sections += [*_answer_fields(task), *_failed_check_fields(context)]
    return [
        *sections,
        _field("TESTS", context.test_command or "the project's own"),
        _field("INSTRUCTIONS", _instructions(context, "code-reviewer")),
    ]


def _task_fields(context: BriefContext, task: Task, link: str = "") -> list[str]:
    return [
        _field("TASK ID", task.id),
        _field("WORKTREE", f"{context.worktree}{link}"),
        _field("DESCRIPTION", task.description),
        _field("DONE WHEN", task.done_when),
        _field("SPEC", context.spec_path(task.spec_ref)),
    ]


def _planner_sections(context: BriefContext) -> list[str]:
    sections = [
        "=== PLANNING CONTEXT ===",
        _field("WAKE TRIGGER", context.wake_trigger),
        _field("FACTS", context.wake_facts),
    ]
    sections += [_blocked_task(task) for task in map(context.state.task, context.wake_ids) if task is not None]
    discoveries, anomalies = open_discoveries(context.state), list(open_anomalies(context.state).items())
    sections += [_field("CIRCUIT BREAKER", "\n".join(context.open_trips))] if context.open_trips else []
    sections += [
        _field("DISCOVERED", truncate_text(describe_discovery(discovery), MAX_REPORT))
        for discovery in discoveries[:MAX_REPORTS]
    ]
    sections += [
        _field("ANOMALY", truncate_text(describe_anomaly(name, anomaly), MAX_REPORT))
        for name, anomaly in anomalies[-MAX_REPORTS:]
    ]
    sections += [
        _field("DECIDED BEFORE", truncate_text(describe_note(note), MAX_REPORT))
        for note in context.state.goal.alignment_history[-MAX_DECISIONS:]
    ]
    changes = context.state.spec_changes[-MAX_SPEC_CHANGES:]
    sections += [_field("SPEC CHANGED", truncate_text(_describe_spec_change(change), 500)) for change in changes]
    sections.append(_field("AGENTS", describe_agents(context).replace(", ", "\n") or "no others"))
    sections += [
        _field("GOAL", context.state.goal.description),
        _field("SPEC", context.spec_path(context.state.goal.spec_ref)),
    ]
    sections.append(
        _field(
            "SPRINT STATE", "\n".join((describe_sprint(context), *(_task_line(task) for task in context.state.tasks)))
        )
    )
    return [*sections, _field("INSTRUCTIONS", _instructions(context, context.wake_trigger))]


def _describe_spec_change(change: SpecChange) -> str:
    by = f" by {change.triggered_by}" if change.triggered_by else ""
    return f"{change.spec} at {format_time(change.timestamp)}{by}: {change.change}"


def _instructions(context: BriefContext, what: str) -> str:
    """Return the instructions for a role or a wake-up, with the command's full path."""
    return _INSTRUCTIONS.get(what, _DEFAULT_INSTRUCTIONS).replace("{liza}", context.liza_command)


def _blocked_task(task: Task) -> str:
    questions = "\n".join(f"asks: {question}" for question in task.blocked_questions)
    failed = f"failed: {', '.join(task.failed_by)}" if task.failed_by else ""
    lack = describe_lack(task)
    reason = f"lacks: {lack}" if lack else task.blocked_reason or ""
    body = "\n".join(text for text in (reason, questions, failed, task.description) if text)
    return _field(f"TASK {task.id}, {task.status}", body)


def _task_line(task: Task) -> str:
    needs = f", needs {', '.join(task.depends_on)}" if task.depends_on else ""
    return f"- {task.id} {task.status}{needs}: {task.description.strip().partition(chr(10))[0][:120]}"


def _field(name: str, text: str) -> str:
    """Format one field. Its text is indented, so that none of its lines can be mistaken for a field or a section."""
    body = sanitize(text).strip()
    return f"{name}:\n  " + body.replace("\n", "\n  ") if "\n" in body else f"{name}: {body}"
