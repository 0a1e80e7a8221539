"""Compose what a program reads first: who it is, what to do, how to end. Pure.

The text consists of sections. A brief has all of them; the worker API gives the same ones to a runtime.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from liza.breaker.rules.board_reports import open_anomalies, open_discoveries
from liza.briefs import assignment
from liza.briefs.brief_context import (
    BriefContext,
    describe_agents,
    describe_anomaly,
    describe_discovery,
    describe_failed_check,
    describe_sprint,
    root_cause_demand,
)
from liza.briefs.rules.context_rules import SectionType, TextSection
from liza.briefs.rules.message_rules import Message
from liza.model.derived import describe_lack, find_owner
from liza.model.history_events import HistoryEvent
from liza.model.model import Task
from liza.model.paths import branch_of
from liza.model.session_ends import SessionOutcome
from liza.model.statuses import WakeTrigger
from liza.model.targets import target_branch
from liza.model.transitions import has_done
from liza.model.value_classes import Value, replace
from liza.tasks.rules.conversations import earlier_runs
from liza.tasks.rules.edits import describe_note
from liza.tasks.rules.picking import unmet_dependencies
from liza.tasks.rules.reviews import format_comment
from liza.text.formats import count_noun, format_time
from liza.text.quoting import BLOCK_BEGIN, BLOCK_END, NOTE_PREFIX, quote_line, quote_lines, quote_tail

LARGE, MIDDLE, SMALL = 4000, 1000, 500  # maximum bytes of one text in the block; assignment.md has the full text
MAX_COMMITS = 5
MAX_ANSWERS = 3
MAX_TRIPS = 3
MAX_DECISIONS = 3
MAX_NOTES = 3
MAX_DISCOVERIES = 4
MAX_ANOMALIES = 3
MAX_SHOWN_COMMENTS = 5


class Brief(Value):
    """The texts for a session: ``block`` for the instructions file, ``assignment`` for its own file, ``prompt`` for
    the command line. ``quoted`` are the ids of the messages in ``block``."""

    block: str
    assignment: str
    beacon: str
    prompt: str
    beacon_fields: dict[str, str]
    quoted: tuple[str, ...] = ()


def compose_brief(context: BriefContext) -> Brief:
    """Compose the brief for the run's role. Raises ValueError if the role needs a task, or a commit, and has none."""
    subject = context.task.id if context.task is not None else context.wake_trigger
    return _build_brief(context, f"{choose_topic(context)}:{subject}", compose_sections(context))


def compose_sections(context: BriefContext) -> tuple[TextSection, ...]:
    """Return the sections for the run's role, in the order in which the model reads them. Raises as
    ``compose_brief``."""
    compose = {"coder": _coder_sections, "code-reviewer": _reviewer_sections, "planner": _planner_sections}
    *sections, directive = compose[context.role](context)
    more = f"MORE  {context.full_text} has all of it{_RULES if context.assignment else ''}."
    return (*sections, replace(directive, lines=(*directive.lines, more)))


_RULES = ", and the paths of the rules"
_BY_HAND = "This work was claimed by hand: no supervisor watches it, and a person may answer questions here."


def _coder_sections(context: BriefContext) -> list[TextSection]:
    """A coder's sections: the task, earlier work, the directory, and the three ways to end."""
    task, config = context.required_task, context.state.config
    most = task.max_iterations or config.max_coder_iterations
    work = (
        f"TASK {task.id} (try {max(task.iteration, 1)} of {most})   {quote_lines(task.description, LARGE)}",
        f"DONE WHEN  {quote_lines(task.done_when, MIDDLE)}",
        f"SCOPE      {quote_line(task.scope, SMALL)}   Touch nothing else.",
        f"SPEC       {quote_line(context.spec_path(task.spec_ref), 300)}",
        *_goal_document(context),
    )
    directive = (
        f"WHERE  This directory, branch {branch_of(task.id)}. Stay in it. {_STAY[context.is_confined]}",
        *_moved_target(context, task),
        *_checkout(context),
        _tests(context),
        *(ends.replace("{liza}", context.liza_command) for ends in _CODER_ENDS),
    )
    return [
        _role_section(context, _BY_HAND if context.is_by_hand else "No person can answer questions here."),
        TextSection(SectionType.WORK, work),
        TextSection(SectionType.CHECKPOINT, tuple(_earlier_work(context))),
        TextSection(SectionType.MAIL, tuple(_notes(context))),
        TextSection(SectionType.DIRECTIVE, directive),
    ]


def _goal_document(context: BriefContext) -> list[str]:
    """Return where the goal is written down, in one line; none if it is the task's spec."""
    reference = context.state.goal.spec_ref
    if not reference or reference == context.required_task.spec_ref:
        return []
    return [f"GOAL       {quote_line(context.spec_path(reference), 150)}"]


def _checkout(context: BriefContext) -> list[str]:
    """Return a line for a sparse checkout: without it, an agent takes missing files for deleted ones."""
    if not context.sparse:
        return []
    included = quote_line(", ".join(context.sparse), 150)
    return [f"CHECKOUT   sparse, only {included}. For more: git sparse-checkout add DIR"]


def _earlier_work(context: BriefContext) -> list[str]:
    """Return what earlier tries left: commits, a rejection, a failed merge, a hand-over, answers."""
    task = context.required_task
    lines: list[str] = []
    if context.previous_end is not None:
        lines.append(f"BEFORE     A session of yours worked here: {quote_lines(context.previous_end, SMALL)}")
        lines.append("  Look at git log and git status first: what it committed is yours to go on with.")
    lines += _failed_check(context)
    lines += [f"UNFINISHED {quote_lines(context.unfinished, MIDDLE)}"] if context.unfinished else []
    if context.earlier_commits:
        lines.append("COMMITTED  on this branch by earlier tries, newest first:")
        lines += [f"  {quote_line(entry, 100)}" for entry in context.earlier_commits[:MAX_COMMITS]]
        lines.append("  Compare it with DONE WHEN first. If nothing is missing, submit it; do no part of it twice.")
    if context.rejection is not None:
        by, reason = context.rejection
        lines.append(f"REJECTED by {by}: {quote_lines(reason, MIDDLE)}\n  Fix that first.")
        lines += _line_comments(task)
    if context.repeated_rejections:
        lines.append(f"ROOT CAUSE FIRST: {root_cause_demand(context)}")
    if task.integration_fix:
        branch = target_branch(context.state, task)
        failed = [event.detail for event in task.history if event.event == HistoryEvent.MERGE_FAILED and event.detail]
        lines.append(f"MERGE FAILED: merge {branch} into this branch, fix what breaks, run the tests, submit again.")
        lines += [f"  Output: {quote_tail(failed[-1], MIDDLE)}"] if failed else []
    handoff = context.state.handoff.get(task.id)
    if handoff is not None and handoff.summary:
        lines.append(
            f"HANDED OVER: {quote_lines(handoff.summary, SMALL)} Next: {quote_lines(handoff.next_action, SMALL)}"
        )
    return [*lines, *_answers(task)]


def _answers(task: Task) -> list[str]:
    """Return the last answers to questions about the task, one line each."""
    return [
        f"ANSWERED: {quote_line(answer.question, 150)} → {quote_lines(answer.answer, 260)}"
        for answer in task.answers[-MAX_ANSWERS:]
    ]


def _failed_check(context: BriefContext) -> list[str]:
    """Return the start-up check that the last session failed, in one line."""
    failed = context.failed_check
    return [f"START-UP   {quote_lines(describe_failed_check(failed), SMALL)}"] if failed is not None else []


def _line_comments(task: Task) -> list[str]:
    """Return the comments of the last rejection on lines of the rejected commit."""
    shown = task.review_comments[:MAX_SHOWN_COMMENTS]
    more = len(task.review_comments) - len(shown)
    lines = [f"  AT {quote_lines(format_comment(comment), SMALL)}" for comment in shown]
    return [*lines, f"  and {count_noun(more, 'comment')} more: see MORE"] if more else lines


def _notes(context: BriefContext) -> list[str]:
    """Return the person's notes to this agent or about this task, and unread messages."""
    notes = context.notes[-MAX_NOTES:]
    return [
        *(f"{NOTE_PREFIX}{quote_lines(note, 250)}" for note in notes),
        *(
            f"MESSAGE from {quote_line(message.sender, 60)}: {quote_lines(message.text, SMALL)}"
            for message in _quoted_messages(context)
        ),
    ]


def _quoted_messages(context: BriefContext) -> tuple[Message, ...]:
    """Return the unread messages in the block: the first ones whose text is not a note in it."""
    notes = context.notes[-MAX_NOTES:]
    return tuple(message for message in context.messages if message.text not in notes)[:MAX_NOTES]


def _tests(context: BriefContext) -> str:
    setup = context.state.config.sandbox_setup
    if context.is_set_up:
        note = f"  (set-up has been run{_hidden(context.hidden)})"
    else:
        is_planner = context.role == "planner"
        first = "a plan needs no set-up; to run them, first: " if is_planner else "first run the set-up: "
        note = f"  ({first}{quote_line(setup, 300)})" if setup else ""
    if not context.test_command:
        return f"TESTS  No test command is configured; run the project's own tests, and say what you ran.{note}"
    return f"TESTS  {quote_line(context.test_command, 300)}{note}"


def _hidden(names: tuple[str, ...]) -> str:
    """Return a clause about the untracked names that git ignores only in this worktree."""
    if not names:
        return ""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"; git ignores here what it left: {quote_line(', '.join(names[:3]), 200)}{more}; never git add -f it"


_STAY = {
    # The stash of a slot belongs to all its worktrees; a box has one of its own.
    False: "No branch switching, no stash, no push, no hand edits under .liza/ but with liza lock -- CMD.",
    True: "No branch switching, no push, no hand edits under .liza/ but with liza lock -- CMD.",
}


def _moved_target(context: BriefContext, task: Task) -> tuple[str, ...]:
    """Return where a session in a box finds what was merged since it began: its branches are those of its start."""
    if not context.is_confined:
        return ()
    target = target_branch(context.state, task)
    return (f"MERGED SINCE  `git fetch liza` brings the work of others that is merged meanwhile: liza/{target}",)


_CODER_ENDS = (
    "END in exactly one of these ways, then stop and say nothing more:",
    "  done         commit everything, then   {liza} submit",
    '  cannot       {liza} block "why" --ask "a question that a person can answer"        (1 to 3 --ask)',
    '  out of room  commit, then              {liza} handoff "what is done" --next "the first thing to do"',
    "A refused command says what to do: do that once; refused again: {liza} block.",
    '"You no longer own this task": stop.',
    'Something wrong outside your scope: {liza} report discovery "…" --urgency immediate|deferred. Do not fix it.',
    "Never weaken, skip or delete a test to get it green. Never state a result that you did not see.",
    "You do not approve your own work.",
)


def _reviewer_sections(context: BriefContext) -> list[TextSection]:
    """A reviewer's sections: the commit, the criteria, and the two verdicts. Raises ValueError without a commit."""
    task, liza = context.required_task, context.liza_command
    branch = target_branch(context.state, task)
    if task.review_commit is None:
        raise ValueError(f"{task.id} has no commit to review")
    round_number = task.review_cycles_current + 1
    last_rejection = f"; last time: {quote_lines(context.rejection[1], MIDDLE)}" if context.rejection else ""
    tests = (
        f"Run the tests: {quote_line(context.test_command, 300)}."
        if context.test_command
        else "Run the project's tests."
    )
    work = (
        f"This directory is a read-only copy at {task.review_commit}; your changes here are discarded.",
        f"DIFF  git diff {_review_base(context, task, branch)}...{task.review_commit}",
        f"TASK {task.id}   {quote_lines(task.description, LARGE)}",
        f"DONE WHEN  {quote_lines(task.done_when, MIDDLE)}",
        f"SCOPE {quote_line(task.scope, SMALL)}   SPEC {quote_line(context.spec_path(task.spec_ref), 300)}   "
        f"ROUND {round_number} of {context.state.config.max_review_cycles}{last_rejection}",
    )
    directive = (
        f"{tests} Check each clause of DONE WHEN by an act, not by reading.",
        "Look for: scope left, tests weakened, errors swallowed, claims without evidence. Taste is not a reason.",
        "END in exactly one of these ways, then stop:",
        f'  {liza} verdict approve "what you ran and saw"',
        f'  {liza} verdict reject  "1. file:line what is wrong, how you saw it, what would satisfy you  2. …"'
        + ("   (say of each old point: resolved / still there / partly)" if round_number > 1 else ""),
        f'  {liza} handoff "what you saw so far" --next "what is left to check"   out of room: a fresh run goes on',
        "A refused command says what to do: do that once. You cannot ask anyone, and you fix nothing yourself.",
    )
    return [
        _role_section(context, f"The author is {find_owner(task) or 'unknown'}. Your verdict binds."),
        TextSection(SectionType.WORK, (*work, *_line_comments(task), *_answers(task), *_failed_check(context))),
        TextSection(SectionType.MAIL, tuple(_notes(context))),
        TextSection(SectionType.DIRECTIVE, directive),
    ]


def _review_base(context: BriefContext, task: Task, branch: str) -> str:
    """Return the revision from which a reviewer reads: the submitted work below this one, else the target."""
    is_stacked = task.submission is not None and any(unmet_dependencies(context.state, task))
    return task.base_commit if is_stacked and task.base_commit is not None else f"refs/heads/{branch}"


def _planner_sections(context: BriefContext) -> list[TextSection]:
    """A planner's sections: the goal, the reason of the wake-up, the state of the sprint, and the task verbs."""
    state, liza = context.state, context.liza_command
    work = (
        f"GOAL {quote_lines(state.goal.description, LARGE)}  SPEC {quote_line(state.goal.spec_ref, 300)}",
        f"Read the spec first: {context.spec_path(state.goal.spec_ref)}",
        f"WHY YOU WERE WOKEN  {context.wake_trigger}: {quote_lines(context.wake_facts, MIDDLE)}"
        + (f" ({quote_line(', '.join(context.wake_ids), 400)})" if context.wake_ids else ""),
        *_last_decisions(context),
        *_open_questions(context),
        *_open_reports(context),
        *_other_agents(context),
        *_open_trip_lines(context),
    )
    directive = (
        "GOOD TASK: one coder, one sitting, with its tests, files disjoint from its neighbours, and a DONE WHEN that a",
        "command can show false.",
        f"  {liza} task add --file - <<YAML",
        "    a list, all or none, of: id, description, done_when, scope, spec_ref, priority, depends_on",
        f'  {liza} task unblock ID --answer "…"  only if you know; else leave it to the person',
        f'  {liza} task supersede ID --file - --because "root cause"     after two coders failed, the only way',
        f'  {liza} task edit ID … · {liza} task drop ID "why"',
        *(
            [
                "A discovery becomes a task (from_discovery: ID in the list, or --from-discovery ID) or is dismissed:",
                f'  {liza} report resolve ID "why"     also for an anomaly that needs nothing more',
            ]
            if open_discoveries(state) or open_anomalies(state)
            else []
        ),
        *(
            ["ENDING with --done while every task is settled completes the goal."]
            if context.wake_trigger == WakeTrigger.SPRINT_COMPLETE
            else []
        ),
        f'  {liza} pause --checkpoint "why"     nothing new starts until the person has looked; then END',
        f'END: {liza} handoff "what you decided and why, what the goal still lacks" --done , then stop.',
        "Changing nothing is an answer; say why. The next planner and the person read it.",
        *([_tests(context)] if state.config.sandbox_setup and not context.is_set_up else []),
    )
    return [
        _role_section(context, "You write tasks, never code."),
        TextSection(SectionType.WORK, work),
        TextSection(SectionType.MAIL, tuple(_notes(context))),
        TextSection(SectionType.CHECKPOINT, (f"NOW  {describe_sprint(context)}",)),
        TextSection(SectionType.DIRECTIVE, directive),
    ]


def _last_decisions(context: BriefContext) -> list[str]:
    """Return the last decisions of planners and edits of the goal; the assignment has more."""
    notes = context.state.goal.alignment_history[-MAX_DECISIONS:]
    lines = [f"  {quote_line(describe_note(note), 250)}" for note in notes]
    return ["DECIDED BEFORE, the newest last:", *lines] if lines else []


def _open_trip_lines(context: BriefContext) -> list[str]:
    """Return the newest open trips of the circuit breaker, and the command that resolves them."""
    lines = [f"  {quote_line(trip, 300)}" for trip in context.open_trips[-MAX_TRIPS:]]
    if not lines:
        return []
    step = f'{context.liza_command} breaker resolve "root cause, and what you changed"'
    return ["CIRCUIT BREAKER  tripped; find the root cause, change the plan, then resolve it:", *lines, f"  {step}"]


def _open_questions(context: BriefContext) -> list[str]:
    """Return the questions, or what is missing, of the first three tasks that woke a planner, and who failed at them;
    the assignment has all."""
    lines = []
    for task in [task for task in map(context.state.task, context.wake_ids) if task is not None][:3]:
        questions = "; ".join(task.blocked_questions)
        failed = f"  FAILED {', '.join(task.failed_by)}" if task.failed_by else ""
        lack = describe_lack(task)
        reason = f"lacks {lack}" if lack else task.blocked_reason or ""
        lines.append(f"  {task.id} {task.status}: {quote_line(reason, 200)}{failed}")
        lines += [f"    asks: {quote_line(questions, 400)}"] if questions else []
    return lines


def _open_reports(context: BriefContext) -> list[str]:
    """Return the first open discoveries and the last open anomalies, one line each; the assignment has all."""
    discoveries, anomalies = open_discoveries(context.state), open_anomalies(context.state)
    lines = [f"  {quote_line(describe_discovery(entry), 250)}" for entry in discoveries[:MAX_DISCOVERIES]]
    first = f"DISCOVERIES that are open ({len(discoveries)}):"
    lines = [first, *lines] if discoveries else []
    newest = list(anomalies.items())[-MAX_ANOMALIES:]
    lines += [f"ANOMALIES that are open ({len(anomalies)}), the newest:"] if anomalies else []
    return [*lines, *(f"  {quote_line(describe_anomaly(name, entry), 200)}" for name, entry in newest)]


def _other_agents(context: BriefContext) -> list[str]:
    agents = describe_agents(context)
    return [f"AGENTS  {quote_line(agents, 400)}"] if agents else []


_READY_HELP = (
    "It prints this text in full and records that you have read it. Run it again if you lose the thread. Where any "
    "text says `liza`, type that path: your shell may not find the bare word."
)


def _role_section(context: BriefContext, what: str) -> TextSection:
    first = f"You are {context.agent}. {what} FIRST run:  {context.liza_command} ready"
    return TextSection(SectionType.ROLE, (first, _READY_HELP))


def _build_brief(context: BriefContext, topic: str, sections: tuple[TextSection, ...]) -> Brief:
    time = format_time(context.now)
    beacon = format_beacon(context.agent, "supervisor", context.now, topic, context.run)
    block = [BLOCK_BEGIN.format(run=context.run), beacon, *(line for section in sections for line in section.lines)]
    block += [BLOCK_END.format(run=context.run)]
    about = f"Task: {context.task.id}" if context.task else f"Wake-up: {context.wake_trigger}"
    first_act = f"First run: {context.liza_command} ready"
    prompt = f"{beacon}\nMode: Liza {context.role}\n{about}\n{first_act}\nAssignment: {context.full_text}"
    facts = {"beacon": beacon, "agent": context.agent, "run": context.run, "time": time, "topic": topic}
    quoted = tuple(message.id for message in _quoted_messages(context))
    return Brief("\n".join(block) + "\n", assignment.compose_assignment(context), beacon, prompt, facts, quoted)


_HANDED_OVER = (HistoryEvent.HANDOFF, HistoryEvent.CONTEXT_FULL, HistoryEvent.TOO_OLD)


class BeaconTopic(StrEnum):
    """Why a session exists, as its beacon names it before the task or the wake-up."""

    COLD_START = "cold-start"
    """There is nothing before it: the first planning, or a program that a person starts without a task."""
    WAKE = "wake"
    """A planner was woken."""
    ASSIGNED = "assigned"
    """A coder has claimed the task, also after a rejection or a failed merge."""
    REVIEW = "review"
    """A reviewer has claimed the review."""
    HAND_OFF = "hand-off"
    """The session before it handed over: its context or its time was used up, or it ended with 42."""
    RESUMED = "resumed"
    """It continues a conversation, or a task whose last session ended without a closing command."""


CONTINUED_TOPICS = (BeaconTopic.COLD_START, BeaconTopic.HAND_OFF, BeaconTopic.RESUMED)
"""Topics that a supervisor prints: no news of the task says them."""


def format_beacon(recipient: str, sender: str, time: datetime, topic: str, run: str) -> str:
    """Return the first line of a brief. ``topic`` is a BeaconTopic, a colon, and what it is about."""
    return f"[liza] {recipient} <- {sender} • {format_time(time)} • {topic} • run:{run}"


def choose_topic(context: BriefContext) -> BeaconTopic:
    """Return why the session of ``context`` exists."""
    if context.previous_outcome is SessionOutcome.HANDED_OFF and not _is_new_claim(context):
        return BeaconTopic.HAND_OFF
    if context.task is None:
        is_first = context.wake_trigger in ("", WakeTrigger.INITIAL_PLANNING)
        return BeaconTopic.COLD_START if is_first else BeaconTopic.WAKE
    if context.role == "code-reviewer":
        return BeaconTopic.REVIEW
    if context.continues is not None:
        return BeaconTopic.RESUMED
    if _is_new_claim(context):
        return BeaconTopic.ASSIGNED
    last = next(iter(earlier_runs(context.task, context.run)), None)
    if last is None:
        return BeaconTopic.ASSIGNED
    handed_over = any(has_done(context.task, event, last) for event in _HANDED_OVER)
    return BeaconTopic.HAND_OFF if handed_over else BeaconTopic.RESUMED


def _is_new_claim(context: BriefContext) -> bool:
    """Return whether a coder claimed the task with this run, instead of going on with an earlier claim."""
    return context.task is not None and has_done(context.task, HistoryEvent.CLAIM, context.run)
