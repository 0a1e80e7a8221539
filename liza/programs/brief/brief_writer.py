"""What a program reads first: who it is, what to do, how to end. The texts are pure; ``write`` lays the block down."""

from __future__ import annotations

from dataclasses import dataclass

from liza.programs.brief import assignment
from liza.programs.brief.brief_context import BriefContext, describe_sprint
from liza.programs.brief.quoting import BLOCK_BEGIN, BLOCK_END, quote_line, quote_lines, quote_tail
from liza.rules.paths import branch_of

LARGE, MIDDLE, SMALL = 4000, 1000, 500  # bytes that one text may take in the block; all of it is in assignment.md
MAX_COMMITS = 5
MAX_ANSWERS = 3
MAX_NOTES = 3


@dataclass(frozen=True)
class Brief:
    """``block`` goes into the instructions file, ``assignment`` beside it; ``prompt`` is for the command line."""

    block: str
    assignment: str
    beacon: str
    prompt: str
    beacon_fields: dict[str, str]


def compose_brief(at: BriefContext) -> Brief:
    """The brief of whatever role the run has."""
    return {"coder": coder_brief, "code-reviewer": reviewer_brief, "planner": planner_brief}[at.role](at)


def coder_brief(at: BriefContext) -> Brief:
    """A coder's: the task, what went before, where, and the three ways to end."""
    task, config = at.required_task, at.state.config
    most = task.max_iterations or config.max_coder_iterations
    said = [
        f"TASK {task.id} (try {max(task.iteration, 1)} of {most})   {quote_lines(task.description, LARGE)}",
        f"DONE WHEN  {quote_lines(task.done_when, MIDDLE)}",
        f"SCOPE      {quote_line(task.scope, SMALL)}   Touch nothing else.",
        f"SPEC       {quote_line(at.spec_path(task.spec_ref), 300)}",
        *_earlier_work(at),
        *_notes(at),
        f"WHERE  This directory, branch {branch_of(task.id)}. Stay in it. {_STAY}",
        _tests(at),
        *(ends.replace("{liza}", at.liza_command) for ends in _CODER_ENDS),
    ]
    return _build_brief(at, f"assigned:{task.id}", _first_line(at, "Nobody can answer questions here."), said)


def _earlier_work(at: BriefContext) -> list[str]:
    """What earlier tries left: a rejection, a hand-over, answers, a merge that failed."""
    task = at.required_task
    said: list[str] = []
    if at.previous_end is not None:
        said.append(f"BEFORE     A session of yours worked here: {quote_lines(at.previous_end, SMALL)}")
        said.append("  Look at git log and git status first: what it committed is yours to go on with.")
    if at.earlier_commits:
        said.append("COMMITTED  on this branch by earlier tries, newest first:")
        said += [f"  {quote_line(one, 100)}" for one in at.earlier_commits[:MAX_COMMITS]]
        said.append("  Hold it against DONE WHEN first. Where nothing is missing, submit it; do no part of it twice.")
    if at.rejection is not None:
        by, reason = at.rejection
        said.append(f"REJECTED by {by}: {quote_lines(reason, MIDDLE)}\n  Fix that first.")
    if task.integration_fix:
        branch = at.state.config.integration_branch
        failed = [event.detail for event in task.history if event.event == "merge failed" and event.detail]
        said.append(f"MERGE FAILED: merge {branch} into this branch, mend what breaks, run the tests, submit again.")
        said += [f"  It said: {quote_tail(failed[-1], MIDDLE)}"] if failed else []
    handed = at.state.handoff.get(task.id)
    if handed is not None and handed.summary:
        said.append(f"HANDED OVER: {quote_lines(handed.summary, SMALL)} Next: {quote_lines(handed.next_action, SMALL)}")
    for answer in task.answers[-MAX_ANSWERS:]:
        said.append(f"ANSWERED: {quote_line(answer.question, 150)} → {quote_lines(answer.answer, 300)}")
    return said


def _notes(at: BriefContext) -> list[str]:
    """What the person has to say to this agent, or about this task, and messages that it has not read."""
    notes = at.notes[-MAX_NOTES:]
    said = [f"NOTE from the person: {quote_lines(note, 250)}" for note in notes]
    fresh = [one for one in at.messages if one.text not in notes]
    return [
        *said,
        *(f"MESSAGE from {quote_line(one.sender, 60)}: {quote_lines(one.text, SMALL)}" for one in fresh[:MAX_NOTES]),
    ]


def _tests(at: BriefContext) -> str:
    if not at.test_command:
        return "TESTS  Nobody named a command for this project; run its own tests, and say what you ran."
    return f"TESTS  {quote_line(at.test_command, 300)}" + ("  (set-up has been run)" if at.is_set_up else "")


_STAY = "No branch switching, no stash, no push, no hand edits under .liza/."
_CODER_ENDS = (
    "END in exactly one of these ways, then stop and say nothing more:",
    "  done         commit everything, then   {liza} submit",
    '  cannot       {liza} block "why" --ask "a question that a person can answer"        (1 to 3 --ask)',
    '  out of room  commit, then              {liza} handoff "what is done" --next "the first thing to do"',
    "A refused command says what to do: do that once; refused again: {liza} block.",
    '"You no longer own this task": stop.',
    'Something wrong outside your scope: {liza} report KIND "…". Do not fix it.',
    "Never weaken, skip or delete a test to get it green. Never state a result that you did not see.",
    "You do not approve your own work.",
)


def reviewer_brief(at: BriefContext) -> Brief:
    """A reviewer's: the commit, what it has to be, and the two verdicts. Raises ValueError without a commit."""
    task, branch, liza = at.required_task, at.state.config.integration_branch, at.liza_command
    if task.review_commit is None:
        raise ValueError(f"{task.id} has no commit to review")
    round_ = task.review_cycles_current + 1
    last = f"; last time: {quote_lines(at.rejection[1], MIDDLE)}" if at.rejection else ""
    tests = f"Run the tests: {quote_line(at.test_command, 300)}." if at.test_command else "Run the project's tests."
    said = [
        f"This directory is a read-only copy at {task.review_commit}; what you change here is thrown away.",
        f"DIFF  git diff {branch}...{task.review_commit}",
        f"TASK {task.id}   {quote_lines(task.description, LARGE)}",
        f"DONE WHEN  {quote_lines(task.done_when, MIDDLE)}",
        f"SCOPE {quote_line(task.scope, SMALL)}   SPEC {quote_line(at.spec_path(task.spec_ref), 300)}   "
        f"ROUND {round_} of {at.state.config.max_review_cycles}{last}",
        *_notes(at),
        f"{tests} Check each clause of DONE WHEN by an act, not by reading.",
        "Look for: scope left, tests weakened, errors swallowed, claims without evidence. Taste is no ground.",
        "END in exactly one of these ways, then stop:",
        f'  {liza} verdict approve "what you ran and saw"',
        f'  {liza} verdict reject  "1. file:line what is wrong, how you saw it, what would satisfy you  2. …"'
        + ("   (say of each old point: resolved / still there / partly)" if round_ > 1 else ""),
        f'  {liza} handoff "what you saw so far" --next "what is left to check"   out of room: a fresh run goes on',
        "A refused command says what to do: do that once. You cannot ask anyone, and you mend nothing yourself.",
    ]
    author = task.assigned_to or "unknown"
    return _build_brief(at, f"review:{task.id}", _first_line(at, f"The author is {author}. Your verdict binds."), said)


def planner_brief(at: BriefContext) -> Brief:
    """A planner's: the goal, why it was woken, how things stand, and the verbs that shape tasks."""
    state, liza = at.state, at.liza_command
    said = [
        f"GOAL {quote_lines(state.goal.description, LARGE)}  SPEC {quote_line(state.goal.spec_ref, 300)}",
        f"Read the spec first: {at.spec_path(state.goal.spec_ref)}",
        f"WHY YOU WERE WOKEN  {at.wake_trigger}: {quote_lines(at.wake_facts, MIDDLE)}"
        + (f" ({quote_line(', '.join(at.wake_ids), 400)})" if at.wake_ids else ""),
        *_open_questions(at),
        *_notes(at),
        f"NOW  {describe_sprint(at)}",
        "GOOD TASK: one coder, one sitting, with its tests, files disjoint from its neighbours, and a DONE WHEN that a",
        "command can show false.",
        f"  {liza} task add --file - <<YAML",
        "    a list, all or none, of: id, description, done_when, scope, spec_ref, priority, depends_on",
        f'  {liza} task unblock ID --answer "…"  only if you know; else leave it to the person',
        f'  {liza} task supersede ID --file - --because "root cause"     after two coders failed, the only way',
        f'  {liza} task edit ID … · {liza} task drop ID "why"',
        *(
            ["ENDING with --done while every task is settled completes the goal."]
            if at.wake_trigger == "SPRINT_COMPLETE"
            else []
        ),
        f'END: {liza} handoff "what you decided and why" --done , then stop. Changing nothing is an answer; say why.',
    ]
    return _build_brief(at, f"wake:{at.wake_trigger}", _first_line(at, "You write tasks, never code."), said)


def _open_questions(at: BriefContext) -> list[str]:
    """What the tasks that woke a planner ask, and who has failed at them: a few; the assignment has them all."""
    said = []
    for task in [task for task in map(at.state.task, at.wake_ids) if task is not None][:3]:
        asks = "; ".join(task.blocked_questions)
        failed = f"  FAILED {', '.join(task.failed_by)}" if task.failed_by else ""
        said.append(f"  {task.id} {task.status}: {quote_line(task.blocked_reason or '', 200)}{failed}")
        said += [f"    asks: {quote_line(asks, 400)}"] if asks else []
    return said


_READY_HELP = (
    "It prints this text in full and shows that you have read it. Run it again whenever you lose the thread. Where any "
    "text says `liza`, type that path: your shell may not find the bare word."
)


def _first_line(at: BriefContext, what: str) -> str:
    return f"You are {at.agent}. {what} FIRST run:  {at.liza_command} ready"


def _build_brief(at: BriefContext, topic: str, first: str, said: list[str]) -> Brief:
    time = f"{at.now:%Y-%m-%dT%H:%M:%SZ}"
    beacon = f"[liza] {at.agent} <- supervisor • {time} • {topic} • run:{at.run}"
    block = [BLOCK_BEGIN.format(run=at.run), beacon, first, _READY_HELP, *said]
    block += [f"MORE  {at.assignment} has all of it, and where the rules stand.", BLOCK_END.format(run=at.run)]
    about = f"Task: {at.task.id}" if at.task else f"Wake-up: {at.wake_trigger}"
    prompt = f"{beacon}\nMode: Liza {at.role}\n{about}\nFirst run: {at.liza_command} ready\nAssignment: {at.assignment}"
    facts = {"beacon": beacon, "agent": at.agent, "run": at.run, "time": time, "topic": topic}
    return Brief("\n".join(block) + "\n", assignment.compose_assignment(at), beacon, prompt, facts)
