"""The keys that act: dialogs, the calls of verbs in threads, and commands that have the terminal for themselves."""

from __future__ import annotations

import os
import shlex
import sys
import termios
import time
import tty
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from textual import events
from textual.app import SuspendNotSupported

from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.model.value_classes import Value, replace
from liza.printing import printing
from liza.system.installation import liza_argv
from liza.system.program_path import run_command
from liza.tasks.diff import TaskDiff
from liza.ui.act import ActionOutcome, act, check_attach, find_losses
from liza.ui.follower import Follower
from liza.ui.rules import task_screen
from liza.ui.rules.lines import Line, Span, Target, TargetKind, Tone, clean
from liza.ui.rules.offers import (
    OUTSIDE,
    UNASKED,
    ActionClass,
    ActionName,
    Blank,
    Offer,
    command_of,
    find_alarm,
    find_copy,
    find_offer,
    find_task,
    mark_task,
    offer_actions,
    offer_for_task,
)
from liza.ui.rules.picture_view import DraftComment, PictureView
from liza.ui.rules.snapshot import ScreenName, Snapshot, TaskPage, Wanted
from liza.ui.rules.task_lines import alarm_target
from liza.ui.terminal.dialogs import BURST_KEYS, BURST_SECONDS, ConfirmDialog, Form, FormDialog, MenuDialog
from liza.ui.terminal.filter_line import FilterLine
from liza.ui.terminal.paced_app import PacedApp
from liza.ui.terminal.row_list import RowList
from liza.view.rules.structs import Picture


class DiffVersion(Value):
    """A diff as it is drawn: rows of another one, or of another width, are other rows."""

    task: str
    base: str
    commit: str
    diff: str
    columns: int


class ActionApp(PacedApp):
    """The part of the picture that changes the crew. Texts that were not sent are kept until they are taken."""

    crew: Crew
    view: PictureView
    snapshot: Snapshot | None
    follower: Follower
    notice: Line | None = None

    def __init__(self) -> None:
        super().__init__()
        self._drafts: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._acting = 0
        self._is_leaving = self._is_asked_to_stay = False
        self.unshown: list[ActionOutcome] = []
        """Outcomes of actions that ended after the person had left."""
        self._seen: frozenset[str] = frozenset()
        self._seen_of: DiffVersion | None = None
        self._is_covered = False
        self._held: list[Callable[[], None]] = []
        self._burst_until = 0.0

    @property
    def body(self) -> RowList:
        """The list."""
        return self.query_one("#body", RowList)

    @abstractmethod
    def show_picture(self) -> None:
        """Draw what is known."""

    @abstractmethod
    def open(self, wanted: Wanted) -> None:
        """Show another screen."""

    @abstractmethod
    def press_back(self) -> None:
        """Close the dialog; without one, end what is shown now."""

    # Pasted text is not taken as keys.

    def hold_key(self, press: Callable[[], None]) -> None:
        """Do what a key does after a moment, unless so many keys come with it that they were pasted."""
        if time.monotonic() < self._burst_until:
            self._burst_until = time.monotonic() + BURST_SECONDS
            return
        self._held.append(press)
        if len(self._held) == 1:
            self.set_timer(BURST_SECONDS, self._press_held)

    @property
    def holds_keys(self) -> bool:
        """Whether keys wait until it is clear that they were typed."""
        return bool(self._held) or time.monotonic() < self._burst_until

    def _press_held(self) -> None:
        held, self._held = self._held, []
        if len(held) > BURST_KEYS:
            self._burst_until = time.monotonic() + BURST_SECONDS
            self.say("that looked like pasted text: no key was taken", Tone.YELLOW)
            return
        for press in held:
            if len(self.screen_stack) == 1 or press == self.press_back:
                press()

    def on_paste(self, event: events.Paste) -> None:
        """Take no pasted text outside of a field."""
        event.stop()

    def say(self, text: str, tone: Tone = Tone.PLAIN) -> None:
        """Show a sentence in place of the keys, until the next key."""
        self.notice = Line((Span(f"  {clean(text)}", tone),))
        self.show_picture()

    # What the keys act on.

    def find_subject(self) -> Target | None:
        """Return the task or agent that is chosen, or that the screen is about."""
        subject = self.view.wanted.subject
        if self.view.screen is ScreenName.TASK:
            return Target(TargetKind.TASK, subject)
        if self.view.screen is ScreenName.SESSION:
            return Target(TargetKind.AGENT, subject.partition(".")[0])
        return self.body.chosen

    @property
    def _picture(self) -> Picture | None:
        picture = self.snapshot.picture if self.snapshot is not None else None
        return picture if isinstance(picture, Picture) else None

    def list_offers(self) -> tuple[Offer, ...]:
        """Return what can be done now; nothing if the crew cannot be read."""
        if self._picture is None or self.snapshot is None or self.snapshot.fault is not None:
            return ()
        return offer_actions(self._picture, self.find_subject(), self.view.comments)

    def _begin_first(self, *names: ActionName, instead: str) -> None:
        offer = find_offer(self.list_offers(), *names)
        if offer is None:
            self.say(instead, Tone.YELLOW)
        else:
            self.begin(offer)

    def press_answer(self) -> None:
        """Answer what the chosen line asks, or do what it waits for."""
        offers, subject = self.list_offers(), self.find_subject()
        verdicts = [offer for offer in offers if offer.name in (ActionName.APPROVE, ActionName.REJECT)]
        alarm = find_alarm(self._picture, subject) if self._picture is not None else None
        names = [ActionName.ANSWER, ActionName.COMPLETE, ActionName.RUN, ActionName.COMMAND]
        names += [ActionName.RESOLVE, ActionName.RESUME] * (alarm is not None and alarm.next.startswith("liza resume"))
        asked = find_offer(offers, *names)
        is_judged = bool(verdicts) and (alarm is not None or self.view.screen is ScreenName.TASK)
        if is_judged and (asked is None or asked.name is not ActionName.ANSWER):
            self._open_menu(f"verdict on {verdicts[0].subject}", verdicts)
        elif asked is not None:
            self.begin(asked)
        else:
            step = f"y copies {alarm.next}" if alarm is not None and alarm.next else "n goes to what waits for you"
            self._begin_first(ActionName.ATTACH, instead=f"nothing is asked here: {step}, x shows what can be done")

    def press_note(self) -> None:
        """Leave a note for the chosen task or agent, or for the crew."""
        self._begin_first(ActionName.SEND, ActionName.NOTE, instead="no note can be left here")

    def press_attach(self) -> None:
        """Give the terminal to the program of the chosen agent."""
        agent = self._find_agent()
        if agent is None:
            self.say("no agent is chosen", Tone.YELLOW)
        else:
            self.begin(Offer(ActionName.ATTACH, agent))

    def press_add(self) -> None:
        """Add a task."""
        self._begin_first(ActionName.ADD, instead="the crew cannot be read")

    def press_edit(self) -> None:
        """Edit the board."""
        self.begin(Offer(ActionName.EDIT))

    def press_pause(self) -> None:
        """Pause the crew, or let it continue."""
        names = (ActionName.RESOLVE, ActionName.RESUME, ActionName.PAUSE)
        self._begin_first(*names, instead="the crew cannot be read")

    def press_menu(self) -> None:
        """Show all that can be done."""
        subject = self.find_subject()
        self._open_menu(subject.name if subject is not None else "the crew", self.list_offers())

    def press_command(self) -> None:
        """Run any command of Liza."""
        self.begin(Offer(ActionName.COMMAND, blanks=(Blank("command of liza, such as: status"),)))

    def press_copy(self) -> None:
        """Copy the command that the chosen line needs, or the one that shows it."""
        command = find_copy(self._picture, self.find_subject()) if self._picture is not None else None
        if command is not None:
            self._copy(command)

    def _copy(self, command: str) -> None:
        self.copy_to_clipboard(command)
        self.say(f"nothing was run, only copied: {command}")

    def press_log(self) -> None:
        """Show the session of the chosen agent or task."""
        agent = self._find_agent()
        if agent is None:
            self.say("no agent has it", Tone.YELLOW)
        else:
            self.open(Wanted(ScreenName.SESSION, agent))

    def _find_agent(self) -> str | None:
        """Return the chosen agent, or the one that works on the chosen task or worked on it last."""
        target = self.find_subject()
        if target is None or target.kind is TargetKind.AGENT:
            return None if target is None else target.name
        task = find_task(self._picture, target.name) if self._picture is not None else None
        return None if task is None else task.reviewing_by or task.assigned_to

    def press_diff(self) -> None:
        """Show the diff of the chosen task."""
        target = self.find_subject()
        if self.view.screen is ScreenName.TASK:
            self.body.choose(Target(TargetKind.TEXT, "diff"), at_top=True)
        elif target is not None and target.kind is TargetKind.TASK:
            self.open(Wanted(ScreenName.TASK, target.name))

    def press_next_wait(self) -> None:
        """Go to the next line that waits for a person."""
        self._go_to_wait(1)

    def press_previous_wait(self) -> None:
        """Go to the line before that waits for a person."""
        self._go_to_wait(-1)

    def _go_to_wait(self, steps: int) -> None:
        picture = self._picture
        targets = list(dict.fromkeys(alarm_target(alarm, picture) for alarm in picture.waits)) if picture else []
        if not targets:
            self.say("nothing waits for you")
            return
        subject = self.find_subject()
        number = targets.index(subject) + steps if subject in targets else min(steps, 0)
        target = targets[number % len(targets)]
        if self.view.screen is ScreenName.TASK and target.kind is TargetKind.TASK:
            self.open(Wanted(ScreenName.TASK, target.name))
            return
        if self.view.screen is not ScreenName.NOW:
            self.open(Wanted())
            self.show_picture()
        self.body.choose(target)

    # Comments on lines of a diff.

    def press_mark(self) -> None:
        """Mark the line for a comment, or unmark it."""
        chosen = self.body.chosen
        if self._find_diff() is not None and chosen is not None and chosen.kind is TargetKind.DIFF_LINE:
            self.view = replace(self.view, marked=self.view.marked ^ {task_screen.row_number(chosen)})
            self.show_picture()
            self.body.move(1)

    def press_comment(self) -> None:
        """Comment on the marked lines, or on the chosen one."""
        page, chosen = self._find_diff(), self.body.chosen
        if page is None:
            return
        if chosen is None or chosen.kind is not TargetKind.DIFF_LINE:
            self.say("choose a line of the diff", Tone.YELLOW)
            return
        diff = page.diff
        assert isinstance(diff, TaskDiff)
        numbers = sorted(self.view.marked) or [task_screen.row_number(chosen)]
        spot = task_screen.describe_lines(diff, numbers)
        if spot is None:
            self.say("the commit has no line there", Tone.YELLOW)
            return
        before = next((row.text for row in self.view.comments if row.location == spot.location), "")
        blank = Blank("comment; it is sent with your rejection, and an empty one is removed", True, before)
        mark, words = mark_task(page.task), (spot.location,)
        offer = Offer(ActionName.COMMENT, page.task.id, "", (blank,), spot.quoted, mark=mark, words=words)
        form = Form(offer, self._drafts.get(offer.draft_key, (before,)))
        self.push_screen(FormDialog(form), partial(self._keep_comment, diff, spot, offer))

    def _keep_comment(self, diff: TaskDiff, spot: task_screen.Spot, offer: Offer, result: object) -> None:
        if not isinstance(result, tuple):
            return
        is_sent, texts = result
        if not is_sent:
            self._drafts[offer.draft_key] = texts
            return
        self._drafts.pop(offer.draft_key, None)
        text = texts[0].strip()
        others = tuple(row for row in self.view.comments if row.location != spot.location)
        comment = DraftComment(diff.task, diff.commit, spot.location, spot.prefix + text.removeprefix(spot.prefix))
        self.view = replace(self.view, comments=(*others, comment) if text else others, marked=frozenset())
        self.show_picture()

    def _find_diff(self) -> TaskPage | None:
        page = self.snapshot.task if self.snapshot is not None else None
        is_shown = self.view.screen is ScreenName.TASK and isinstance(page, TaskPage)
        return page if is_shown and isinstance(page, TaskPage) and isinstance(page.diff, TaskDiff) else None

    # Which rows of a diff the terminal has shown: a commit is approved only after all of them.

    @property
    def diff_version(self) -> DiffVersion | None:
        """The diff on the screen, as it is drawn; None without one."""
        page = self._find_diff()
        diff = page.diff if page is not None else None
        if not isinstance(diff, TaskDiff):
            return None
        return DiffVersion(diff.task, diff.base, diff.commit, diff.diff, self.view.list_columns)

    def prepare_shown(self) -> Callable[[], None] | None:
        """Return the function that notes the rows of a diff in this picture, when the terminal has shown them."""
        was_covered, self._is_covered = self._is_covered, len(self.screen_stack) != 1
        version = None if self._is_covered or not self.query(RowList) else self.body.version
        if not isinstance(version, DiffVersion):
            return None
        if was_covered:
            # Rows that were below the dialog may come only with the next picture.
            self.call_later(self.screen.refresh)
            return None
        return partial(self._note_seen, version, task_screen.name_rows(self.body.painted))

    def _note_seen(self, version: DiffVersion, rows: frozenset[str]) -> None:
        self._seen = rows | (self._seen if version == self._seen_of else frozenset())
        self._seen_of = version

    def count_unseen(self, offer: Offer) -> int | None:
        """Return how many rows of the diff were not shown; None if the diff is not that of the commit."""
        page = self._find_diff()
        diff = page.diff if page is not None else None
        if not isinstance(diff, TaskDiff) or self.snapshot is None or offer.mark is None:
            return None
        if (diff.task, diff.commit) != (offer.subject, offer.mark.commit):
            return None
        seen = self._seen if self._seen_of == self.diff_version else frozenset()
        return task_screen.find_unseen(self.body.lines, seen, diff)

    # From an offer to its outcome.

    def _open_menu(self, title: str, offers: Sequence[Offer]) -> None:
        if offers:
            self.push_screen(MenuDialog(title, offers), self._take_choice)
        else:
            self.say("nothing can be done: the crew cannot be read", Tone.YELLOW)

    def _take_choice(self, choice: object) -> None:
        if isinstance(choice, Offer):
            self.begin(choice)
        elif isinstance(choice, str):
            self._copy(choice)

    def begin(self, offer: Offer, refusal: str = "") -> None:
        """Open the form of an action, or its confirmation if nothing is typed for it."""
        if offer.name is ActionName.APPROVE:
            if not self._may_approve(offer):
                return
            offer = self._add_not_shown(offer)
        texts = self._drafts.get(offer.draft_key, ())
        is_end = offer.action_class is ActionClass.END
        if is_end:
            self._in_thread(partial(self._find_losses, Form(offer, texts, refusal)))
        elif offer.name is ActionName.ATTACH:
            self._in_thread(partial(self._check_attach, Form(offer)))
        elif offer.blanks:
            self._show_form(Form(offer, texts, refusal))
        elif offer.name in UNASKED:
            self._leave_terminal(Form(offer))
        else:
            self._confirm(Form(offer))

    def _may_approve(self, offer: Offer) -> bool:
        unseen = self.count_unseen(offer)
        if unseen is None:
            self.press_diff()
            self.say("its diff was not read yet: read it here to its end, then a", Tone.YELLOW)
        elif unseen:
            self.say(f"{unseen} lines of the diff were not on the screen yet: d, then PgDn to its end", Tone.YELLOW)
        return unseen == 0

    def _add_not_shown(self, offer: Offer) -> Offer:
        """Return the offer with the files of which the diff shows no text."""
        version = self.diff_version
        files = task_screen.find_not_shown(version.diff) if version is not None else ()
        return replace(offer, intro=(*offer.intro, *(f"not shown as text: {line}" for line in files)))

    def _find_losses(self, form: Form) -> None:
        shown = replace(form, losses=find_losses(self.crew, form.offer))
        self.call_from_thread(self._go_on, self._show_form, shown)

    def _check_attach(self, form: Form) -> None:
        refused = check_attach(self.crew, form.offer.subject)
        if refused is None:
            self.call_from_thread(self._go_on, self._leave_terminal, form)
        else:
            self.call_from_thread(self.say, f"{refused.text} ({refused.next})", Tone.YELLOW)

    def _go_on(self, step: Callable[[Form], None], form: Form) -> None:
        """Take the next step of an action that a thread has prepared, unless the person types something else now."""
        if len(self.screen_stack) > 1 or self.query_one(FilterLine).is_open:
            self.say(f"not begun while you type: {form.offer.name} {form.offer.subject}", Tone.YELLOW)
        else:
            step(form)

    def _in_thread(self, work: Callable[[], None]) -> None:
        self.run_worker(work, thread=True, exit_on_error=False)

    def _show_form(self, form: Form) -> None:
        self.push_screen(FormDialog(form), partial(self._take_form, form))

    def _take_form(self, form: Form, result: object) -> None:
        if not isinstance(result, tuple):
            return
        is_sent, texts = result
        self._drafts[form.offer.draft_key] = texts
        if not is_sent:
            return
        sent = replace(form, texts=texts)
        if form.offer.action_class is ActionClass.SAY:
            self._do(sent)
        else:
            self._confirm(sent)

    def _confirm(self, form: Form) -> None:
        def take(is_confirmed: object) -> None:
            if is_confirmed:
                self._do(form)
            else:
                self.say(f"nothing was done{': your text is kept' if form.texts else ''}")

        self.push_screen(ConfirmDialog(form), take)

    def _do(self, form: Form) -> None:
        if form.offer.name in OUTSIDE:
            self._leave_terminal(form)
            return
        self.say("…")
        self._drafts.pop(form.offer.draft_key, None)
        self._acting += 1
        self._in_thread(partial(self._act, form))

    def _act(self, form: Form) -> None:
        outcome = act(self.crew, form.offer, form.texts)
        self.unshown.append(outcome)
        if not self._is_leaving:
            self.call_from_thread(self._take_outcome, form, outcome)

    def press_leave(self) -> None:
        """Leave; the crew goes on. While an action runs, only at the second press: its outcome is printed then."""
        if self._acting and not self._is_asked_to_stay:
            self._is_asked_to_stay = True
            self.say("an action is not done yet: q again leaves, and prints what became of it", Tone.YELLOW)
            return
        self._is_leaving = True
        self.exit()

    def _take_outcome(self, form: Form, outcome: ActionOutcome) -> None:
        offer = form.offer
        self._acting -= 1
        self._is_asked_to_stay = False
        if not self._is_leaving:
            self.unshown.remove(outcome)
        self.follower.refresh()
        if outcome.is_done:
            if offer.name is ActionName.REJECT:
                rest = tuple(row for row in self.view.comments if row not in offer.comments)
                self.view = replace(self.view, comments=rest)
            self.say(f"{outcome.text}   {outcome.next}", Tone.GREEN)
            return
        hint = f" ({outcome.next})" if outcome.next else ""
        if form.texts:
            self._drafts.setdefault(offer.draft_key, form.texts)
        self.say(f"refused: {outcome.text}{hint}", Tone.RED)
        # What compares the session of an agent or signals is offered anew from the next picture.
        is_renewed = offer.mark is not None or not (offer.work or offer.signals)
        if offer.blanks and len(self.screen_stack) == 1 and is_renewed and offer.name is not ActionName.APPROVE:
            fresh = self._renew(offer, outcome)
            self._show_form(Form(fresh, form.texts, f"refused: {outcome.text}{hint}", form.losses))

    def _renew(self, offer: Offer, outcome: ActionOutcome) -> Offer:
        """Return the offer for the task as it is now, so that the person can send the text again knowingly."""
        if outcome.task is None:
            return offer
        offers = tuple(offer_for_task(outcome.task, self.view.comments))
        return find_offer(offers, offer.name) or offer

    def _leave_terminal(self, form: Form) -> None:
        """Give the terminal to a command, and come back when it has ended."""
        words = command_of(form.offer, form.texts)[1:]
        try:
            with self.suspend():
                status = self.run_outside(words)
                if form.offer.name is not ActionName.ATTACH or status:
                    _wait_for_key()
        except SuspendNotSupported:
            self.say(f"type it in another terminal: {shlex.join(('liza', *words))}", Tone.YELLOW)
            return
        if not status:
            self._drafts.pop(form.offer.draft_key, None)
        self.follower.refresh()
        self.say(f"back from {shlex.join(('liza', *words))}" + (f", exit code {status}" if status else ""))

    def run_outside(self, words: Sequence[str]) -> int:
        """Run a command of Liza in the terminal; return its exit code."""
        printing.print_now(f"\n$ {shlex.join(('liza', *words))}\n")
        try:
            return run_command((*liza_argv(), *words))
        except LizaError as error:
            printing.print_now(f"{error.message}\n")
            return 1


def _wait_for_key() -> None:
    """Wait until the person has read what a command printed."""
    printing.print_now("\n-- a key comes back to the picture --")
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        with suppress(KeyboardInterrupt):
            os.read(descriptor, 1)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
