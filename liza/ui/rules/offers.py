"""What a person can do with a task, an agent or the crew, each with the command of Liza that does the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final

from liza.model.alarm_table import AlarmKind, AlarmRow
from liza.model.model import FINAL_STATUSES, Status, Task
from liza.model.statuses import AgentWord, describe_task
from liza.model.value_classes import Value
from liza.text.formats import count_noun
from liza.ui.rules.lines import Target, TargetKind
from liza.ui.rules.picture_view import DraftComment
from liza.ui.rules.task_lines import alarm_target
from liza.view.rules.structs import AgentLine, Picture


class ActionClass(StrEnum):
    """How an action is confirmed: SAY by sending its form, STEER by `y`, END by the name of what ends, and then `y`."""

    SAY = "say"
    STEER = "steer"
    END = "end"


class ActionName(StrEnum):
    """An action, by the words of the menu."""

    ANSWER = "answer its question"
    APPROVE = "approve its commit"
    REJECT = "reject its commit"
    COMMENT = "comment on a line of its diff"
    NOTE = "leave a note for the next brief"
    SEND = "send a note into the running session"
    ATTACH = "attach to its terminal"
    MOVE = "move in the merge queue"
    HOLD = "hold: do not merge it"
    UNHOLD = "end the hold"
    RETRY = "try its merge again"
    RELEASE = "take it from its agent"
    DROP = "drop the task"
    STOP = "stop the agent"
    PAUSE = "pause the crew"
    RESUME = "let the crew continue"
    RESOLVE = "resolve the trip of the circuit breaker"
    ADD = "add a task"
    COMPLETE = "complete the draft"
    EDIT = "edit the board in $EDITOR"
    RUN = "run its command"
    COMMAND = "any command of liza"


_CLASSES: Final = {
    **dict.fromkeys(ActionName, ActionClass.STEER),
    **dict.fromkeys(
        (
            *(ActionName.ANSWER, ActionName.COMMENT, ActionName.NOTE, ActionName.SEND),
            *(ActionName.ADD, ActionName.COMPLETE, ActionName.COMMAND),
        ),
        ActionClass.SAY,
    ),
    **dict.fromkeys((ActionName.RELEASE, ActionName.DROP, ActionName.STOP), ActionClass.END),
}
OUTSIDE: Final = frozenset({ActionName.ATTACH, ActionName.EDIT, ActionName.RUN, ActionName.COMMAND})
"""Actions that have the terminal for themselves: the picture leaves it, and comes back afterwards."""
UNASKED: Final = frozenset({ActionName.ATTACH, ActionName.EDIT})
"""Actions that begin at once: the person decides in the terminal or in the editor."""
_BOUND: Final = frozenset({ActionName.ANSWER, ActionName.APPROVE, ActionName.REJECT, ActionName.COMMENT})
"""Actions whose text says something about what was drawn, and nothing about what is there later."""


def class_of(name: ActionName) -> ActionClass:
    """Return how an action is confirmed."""
    return _CLASSES[name]


class Blank(Value):
    """What a person types for an action. ``is_optional``: it may stay empty. ``is_word``: it has one line."""

    label: str
    is_optional: bool = False
    text: str = ""
    is_word: bool = False


class TaskMark(Value):
    """What the picture showed of a task. If any of it has changed, an action on the task is refused."""

    status: Status
    tries: int
    commit: str | None
    questions: tuple[str, ...]


class ShownWork(Value):
    """The agent that has a task, and its session; None if it has none."""

    agent: str
    run: str | None


def find_work(task: Task) -> ShownWork:
    """Return who works on a task now: its reviewer, or its coder."""
    return ShownWork(task.reviewing_by or task.assigned_to or "", task.review_run or task.run)


class Offer(Value):
    """An action on ``subject``, a task or an agent; empty for the crew. ``effect``: what will happen.

    ``intro``: texts that have to be read first. ``mark``: the task as it was drawn. ``words``: the command of RUN.
    ``work``: the agent and the session that it ends or reaches. ``signals``: those that it clears, with the reason of
    each, or None if an alarm says it.
    """

    name: ActionName
    subject: str = ""
    effect: str = ""
    blanks: tuple[Blank, ...] = ()
    intro: tuple[str, ...] = ()
    mark: TaskMark | None = None
    comments: tuple[DraftComment, ...] = ()
    words: tuple[str, ...] = ()
    work: ShownWork | None = None
    signals: tuple[tuple[str, str | None], ...] = ()

    @property
    def action_class(self) -> ActionClass:
        """How it is confirmed."""
        return class_of(self.name)

    @property
    def draft_key(self) -> tuple[object, ...]:
        """What a text that is not sent yet belongs to: an answer to its questions, a verdict to its commit."""
        return (self.name, self.subject, self.words, self.mark if self.name in _BOUND else None)


def mark_task(task: Task) -> TaskMark:
    """Return what an action on a task depends on."""
    return TaskMark(task.status, task.iteration, task.review_commit, task.blocked_questions)


def describe_change(before: TaskMark, now: Task | None, task_id: str) -> str | None:
    """Return what has changed of a task since it was drawn; None if nothing has."""
    if now is None:
        return f"{task_id} is not on the board any more"
    after = mark_task(now)
    if after.status is not before.status:
        return f"{describe_task(task_id, after.status)} now: it changed while you looked"
    if after.tries != before.tries:
        return f"{task_id} changed while you looked: it is in try {after.tries}, and was in try {before.tries}"
    if after.commit != before.commit:
        return f"{task_id} changed while you looked: it has another commit"
    return f"{task_id} changed while you looked: it asks something else" if after != before else None


def command_of(offer: Offer, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the words of the command that does the same, for these texts of the blanks."""
    return ("liza", *_words_of(offer, texts))


def _words_of(offer: Offer, texts: Sequence[str]) -> tuple[str, ...]:
    subject, name = offer.subject, offer.name
    commit = offer.mark.commit if offer.mark is not None else None
    verdict = ("--task", subject, *(("--commit", commit[:12]) if commit else ()))
    match name:
        case ActionName.ANSWER:
            return ("answer", subject, *texts)
        case ActionName.APPROVE:
            return ("verdict", "approve", *texts, *verdict)
        case ActionName.REJECT:
            comments = [word for row in offer.comments for word in ("--comment", row.location, row.text)]
            return ("verdict", "reject", *texts, *verdict, *comments)
        case ActionName.COMMENT:
            return ("verdict", "reject", "…", "--task", subject, "--comment", *offer.words, *texts)
        case ActionName.NOTE | ActionName.SEND:
            recipient = ("--to", subject) if subject else ()
            return ("note", *recipient, *(("--now",) if name is ActionName.SEND else ()), *texts)
        case ActionName.ADD:
            return ("task", "add", *_options(_ADD_OPTIONS, texts))
        case ActionName.COMPLETE:
            return ("task", "edit", subject, *_options(_ADD_OPTIONS[1:], texts))
        case ActionName.RUN:
            return offer.words
        case ActionName.COMMAND:
            words = split_command(texts[0]) if texts else ()
            return words[1:] if words[:1] == ("liza",) else words
    start = _STARTS[name]
    return (*start, *((subject,) if subject else ()), *(text for text in texts if text.strip()))


def _options(names: Sequence[str], texts: Sequence[str]) -> Iterator[str]:
    for name, text in zip(names, texts, strict=False):
        if text.strip():
            yield from (f"--{name}", text)


_ADD_OPTIONS: Final = ("id", "desc", "done", "scope", "spec")
_ADD_BLANKS: Final = (
    Blank("id (letters, digits, - and _)", is_word=True),
    Blank("what is to be done", is_optional=True),
    Blank("done when (a command must be able to disprove it)", is_optional=True),
    Blank("files that it may change", is_optional=True),
    Blank("document that specifies it", is_optional=True),
)
_STARTS: Final = {
    ActionName.ATTACH: ("attach",),
    ActionName.MOVE: ("queue", "move"),
    ActionName.HOLD: ("queue", "hold"),
    ActionName.UNHOLD: ("queue", "release"),
    ActionName.RETRY: ("queue", "retry"),
    ActionName.RELEASE: ("task", "release"),
    ActionName.DROP: ("task", "drop"),
    ActionName.STOP: ("down",),
    ActionName.PAUSE: ("pause",),
    ActionName.RESUME: ("resume",),
    ActionName.RESOLVE: ("resume",),
    ActionName.EDIT: ("edit",),
}


def split_command(text: str) -> tuple[str, ...]:
    """Return the words of a command as a shell splits them; an unclosed quote is a part of its word."""
    try:
        return tuple(shlex.split(text))
    except ValueError:
        return tuple(text.split())


def offer_actions(picture: Picture, target: Target | None, comments: Sequence[DraftComment] = ()) -> tuple[Offer, ...]:
    """Return what a person can do with a target, first the command of its alarm, last what is for the crew."""
    own: list[Offer] = []
    if target is not None and target.kind is TargetKind.TASK:
        task = find_task(picture, target.name)
        own += offer_for_task(task, comments) if task is not None else ()
    elif target is not None and target.kind is TargetKind.AGENT:
        line = next((line for line in picture.agents if line.row.id == target.name), None)
        own += _offer_for_agent(line) if line is not None else ()
    alarm = find_alarm(picture, target)
    step = _offer_for_alarm(alarm) if alarm is not None else ()
    return (*step, *own, *offer_for_crew(picture))


def find_task(picture: Picture, task_id: str) -> Task | None:
    """Return a task of the picture."""
    return next((row.task for row in picture.tasks if row.task.id == task_id), None)


def find_alarm(picture: Picture, target: Target | None) -> AlarmRow | None:
    """Return what waits for a person about a target."""
    return next((alarm for alarm in picture.waits if alarm_target(alarm, picture) == target), None)


def offer_for_task(task: Task, comments: Sequence[DraftComment] = ()) -> Iterator[Offer]:
    """Yield what the status of a task allows."""
    mark = mark_task(task)
    if task.status is Status.BLOCKED:
        questions = task.blocked_questions or (task.blocked_reason or "",)
        blanks = tuple(map(Blank, questions))
        why = (f"blocked: {task.blocked_reason}",) if task.blocked_questions and task.blocked_reason else ()
        yield Offer(ActionName.ANSWER, task.id, f"{task.id} continues with your answer", blanks, why, mark)
    if task.status is Status.READY_FOR_REVIEW:
        yield from _offer_verdicts(task, mark, comments)
    if task.status is Status.APPROVED:
        yield from _offer_for_queue(task, mark)
    if task.status is Status.DRAFT:
        texts = (task.description, task.done_when, task.scope, task.spec_ref)
        blanks = tuple(Blank(blank.label, True, text) for blank, text in zip(_ADD_BLANKS[1:], texts, strict=True))
        effect = "with all of these, coders can claim it"
        yield Offer(ActionName.COMPLETE, task.id, effect, blanks, mark=mark)
    if task.status not in FINAL_STATUSES:
        yield Offer(ActionName.NOTE, task.id, "its next brief has the note", (Blank("note"),), mark=mark)
    if task.status is Status.CLAIMED or task.reviewing_by is not None:
        agent = task.reviewing_by or task.assigned_to
        effect = f"the session of {agent} ends, its work is saved, and another agent can take {task.id}"
        yield Offer(ActionName.RELEASE, task.id, effect, mark=mark, work=find_work(task))
    if task.status not in FINAL_STATUSES:
        effect = f"{task.id} is given up; what was done for it is saved, and is not merged"
        why_blank = Blank("why", is_optional=True)
        yield Offer(ActionName.DROP, task.id, effect, (why_blank,), mark=mark, work=find_work(task))


def _offer_verdicts(task: Task, mark: TaskMark, comments: Sequence[DraftComment]) -> Iterator[Offer]:
    commit = (task.review_commit or "")[:10]
    goal = (f"done when: {task.done_when}",) if task.done_when else ()
    effect = f"commit {commit} of {task.id} is merged in its turn, after its tests"
    yield Offer(ActionName.APPROVE, task.id, effect, (Blank("what you ran and saw"),), goal, mark)
    own = tuple(row for row in comments if (row.task, row.commit) == (task.id, task.review_commit))
    intro = (*goal, *(f"{row.location}: {row.text}" for row in own))
    effect = f"{task.id} goes back to its coder with your reason"
    effect += f" and {count_noun(len(own), 'comment')} on lines" if own else ""
    yield Offer(ActionName.REJECT, task.id, effect, (Blank("what is wrong"),), intro, mark, own)


def _offer_for_queue(task: Task, mark: TaskMark) -> Iterator[Offer]:
    effect = f"{task.id} is merged earlier or later; its position counts before priorities and waiting times"
    yield Offer(ActionName.MOVE, task.id, effect, (Blank("position", text="1", is_word=True),), mark=mark)
    if task.merge_hold is None:
        effect = f"{task.id} is not merged until you end the hold; others are"
        yield Offer(ActionName.HOLD, task.id, effect, (Blank("why"),), mark=mark)
    else:
        yield Offer(ActionName.UNHOLD, task.id, f"{task.id} is merged in its turn", mark=mark)
    if task.set_aside is not None:
        yield Offer(ActionName.RETRY, task.id, f"the merge of {task.id} is tried again now", mark=mark)


def _offer_for_agent(line: AgentLine) -> Iterator[Offer]:
    agent = line.row.id
    if line.row.run is not None and line.word is not AgentWord.OFF:
        effect = f"{line.row.run} gets the note if its program takes any while it runs; else its next brief has it"
        yield Offer(ActionName.SEND, agent, effect, (Blank("note"),), work=ShownWork(agent, line.row.run))
        yield Offer(ActionName.ATTACH, agent, "C-b d comes back to the picture; the session goes on")
    yield Offer(ActionName.NOTE, agent, "its next brief has the note", (Blank("note"),))
    if line.word is not AgentWord.OFF:
        effect = f"{agent} stops, and starts again only with `liza up`; the others go on"
        yield Offer(ActionName.STOP, agent, effect, work=ShownWork(agent, line.row.run))


_NOT_RUN: Final = (("answer",), ("attach",), ("down",), ("resume",), ("verdict",))
_SHELL_SIGNS: Final = "&|;$`<>"


def _offer_for_alarm(alarm: AlarmRow) -> Iterator[Offer]:
    """Yield the command of an alarm, unless an action of the table does the same.

    One that ends sessions, and several in a row, are copied and typed by the person: no key runs them.
    """
    words = split_command(alarm.next)
    is_action = words[1:2] in _NOT_RUN or words[1:3] == ("task", "edit")
    if words[:1] != ("liza",) or is_action or any(sign in alarm.next for sign in _SHELL_SIGNS):
        return
    if "…" in alarm.next:
        yield Offer(ActionName.COMMAND, alarm.about, "", (Blank("command", text=alarm.next),))
    else:
        yield Offer(ActionName.RUN, alarm.about, intro=(alarm.message,), words=words[1:])


def offer_for_crew(picture: Picture) -> Iterator[Offer]:
    """Yield what is done with the whole crew."""
    trips = tuple(alarm.message for alarm in picture.waits if alarm.kind == AlarmKind.BREAKER_TRIPPED)
    signals = (*((alarm.about, None) for alarm in picture.waits), *picture.signals.items())
    # The reason of some signals is said by an alarm instead.
    stops = {alarm.about: alarm.message for alarm in picture.waits if alarm.next == "liza resume"} | dict(
        picture.signals
    )
    if trips:
        blank = Blank("its root cause, and what was changed")
        effect = "the trip is resolved, and the crew continues"
        yield Offer(ActionName.RESOLVE, "", effect, (blank,), trips, signals=signals)
    elif stops:
        reasons = tuple(f"{name}: {reason}" if reason else name for name, reason in stops.items())
        names = ", ".join(name for name in stops if name.isupper())
        effect = f"{names} is cleared, and the crew continues" if names else "the crew continues"
        yield Offer(ActionName.RESUME, "", effect, (), reasons, signals=signals)
    else:
        effect = "sessions go on to their end, and nothing new is started"
        yield Offer(ActionName.PAUSE, "", effect, (Blank("why", is_optional=True),))
    yield Offer(ActionName.ADD, "", "without all of these, the task becomes a draft", _ADD_BLANKS)
    yield Offer(ActionName.NOTE, "", "all briefs have the note", (Blank("note"),))
    yield Offer(ActionName.EDIT, "", "the copy is checked, and merged entry by entry")


def find_offer(offers: Sequence[Offer], *names: ActionName) -> Offer | None:
    """Return the first of the offers with one of these names."""
    return next((offer for offer in offers if offer.name in names), None)


def find_copy(picture: Picture, target: Target | None) -> str | None:
    """Return the command that `y` copies for a target: that of its alarm, or the one that shows it."""
    alarm = find_alarm(picture, target)
    if alarm is not None and alarm.next:
        return alarm.next
    if target is None or target.kind not in (TargetKind.TASK, TargetKind.AGENT):
        return None
    return f"liza {'task show' if target.kind is TargetKind.TASK else 'logs'} {target.name}"
