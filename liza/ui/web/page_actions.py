"""Forms of the page as actions: what was drawn comes back with the form, and is compared with the crew."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

import msgspec

from liza.crew.crew import Crew
from liza.model.value_classes import Value, decodable, replace
from liza.printing.columns import escape_json
from liza.tasks.diff import TaskDiff
from liza.ui.act import ActionOutcome, act
from liza.ui.facts import gather
from liza.ui.rules import task_screen
from liza.ui.rules.lines import Target, TargetKind
from liza.ui.rules.offers import (
    OUTSIDE,
    ActionClass,
    ActionName,
    Offer,
    ShownWork,
    TaskMark,
    class_of,
    describe_change,
    find_offer,
    find_task,
    offer_actions,
    offer_for_task,
)
from liza.ui.rules.picture_view import DraftComment
from liza.ui.rules.snapshot import ScreenName, Snapshot, TaskPage, Unread, Wanted
from liza.view.rules.structs import Picture

SHOW_TIME: Final = timedelta(minutes=15)
"""How long the result of an action is shown in its place."""
MAX_FORMS: Final = 500
"""Forms whose outcome is remembered: the same form sent again is answered from here."""
MAX_DRAFTS: Final = 50
"""Refused texts that are kept in their forms."""
_STAMP: Final = "\x01"
"""Stands in a drawn page for the id of its forms. No text has it: control characters are replaced in all of them."""
_NAMES: Final[Mapping[str, ActionName]] = {name.name.lower(): name for name in ActionName if name not in OUTSIDE}
_UNDONE_BY: Final[Mapping[ActionName, ActionName]] = {
    ActionName.RESUME: ActionName.PAUSE,
    ActionName.RESOLVE: ActionName.PAUSE,
    ActionName.UNHOLD: ActionName.HOLD,
}
_REPEATABLE: Final = (ActionName.NOTE, ActionName.SEND)
"""Actions that nothing on the board keeps from being done twice."""
_RESTARTED: Final = "liza web was started again since: look whether it was done, and send it again if not"
_RELOAD: Final = "the form is not complete: load the page again"


class FormIncomplete(Exception):
    """A form lacks a field, or has one that the page never writes."""


class DrawnOffer(Value, omit_defaults=True):
    """What the page showed of an action's subject, in a hidden field of its form.

    ``trips``: trips of the circuit breaker that RESOLVE is about. Long texts are digests, so that a form stays small:
    ``questions`` of the mark, which has none itself; ``comments`` that REJECT sends; the ``diff`` above APPROVE.
    """

    mark: TaskMark | None = None
    questions: str = ""
    work: ShownWork | None = None
    signals: tuple[tuple[str, str | None], ...] = ()
    trips: tuple[str, ...] = ()
    comments: str = ""
    diff: str = ""


class SentForm(Value, kw_only=True):
    """A form that a browser sent. ``typed_name``: what has to be the subject of an action that ends something.

    ``is_acknowledged``: the person says that they know the files that the diff does not show.
    """

    id: str
    action: ActionName
    subject: str
    drawn: DrawnOffer
    texts: tuple[str, ...]
    typed_name: str = ""
    is_acknowledged: bool = False
    back: str = "/"

    @property
    def retry_path(self) -> str:
        """Where the person tries again: an action that ends something has a page of its own."""
        is_end = class_of(self.action) is ActionClass.END
        return f"/do/{slug_of(self.action)}/{quote(self.subject)}" if is_end else self.back

    @property
    def key(self) -> tuple[str, ActionName, str, str]:
        """What makes it the same form: with another text it is another action."""
        return (self.id, self.action, self.subject, _digest(self.texts))


class TakenAction(Value):
    """An action that was taken on the page, and what became of it. ``lost``: texts that no form of the page keeps."""

    time: datetime
    name: ActionName
    subject: str
    outcome: ActionOutcome
    lost: tuple[str, ...] = ()


class PageWork:
    """What a person did on the page: results, and texts that are not sent yet. One person: all browsers share it.

    Several threads read it; only the event loop takes actions.
    """

    def __init__(self) -> None:
        self.comments: tuple[DraftComment, ...] = ()
        self.seen: datetime | None = None
        """When the person looked last, on an earlier visit."""
        self._lock = threading.Lock()
        self._taken: OrderedDict[tuple[object, ...], TakenAction] = OrderedDict()
        self._running: dict[tuple[object, ...], asyncio.Future[TakenAction]] = {}
        self._server = secrets.token_urlsafe(6)
        self._numbers: Counter[tuple[ActionName, str]] = Counter()
        self._drafts: OrderedDict[tuple[object, ...], tuple[str, ...]] = OrderedDict()

    def list_taken(self, now: datetime) -> tuple[TakenAction, ...]:
        """Return the actions that were taken lately, the newest first.

        Of the same action, and of those that undo each other, only the newest. A comment is shown at its line instead.
        """
        newest: dict[tuple[ActionName, str], TakenAction] = {}
        with self._lock:
            for row in reversed(self._taken.values()):
                newest.setdefault((_UNDONE_BY.get(row.name, row.name), row.subject), row)
        rows = [row for row in newest.values() if row.name is not ActionName.COMMENT or not row.outcome.is_done]
        return tuple(row for row in rows if now - row.time < SHOW_TIME)

    async def take(self, form: SentForm, carry_out: Callable[[], Awaitable[TakenAction]]) -> TakenAction:
        """Return what became of a form. It is carried out once, whatever number of times it is sent.

        A refused form changed nothing, and is tried again.
        """
        with self._lock:
            before = self._taken.get(form.key)
        if before is not None and before.outcome.is_done:
            return before
        running = self._running.get(form.key)
        if running is None:
            running = self._running[form.key] = asyncio.ensure_future(carry_out())
            running.add_done_callback(lambda _: self._running.pop(form.key, None))
        return await asyncio.shield(running)  # A browser that leaves does not end the action.

    def remember(self, form: SentForm, taken: TakenAction) -> None:
        """Keep the outcome of a form. An earlier refusal of the same action is over."""
        subject = (taken.name, taken.subject)
        with self._lock:
            rows = self._taken.items()
            for key in [key for key, row in rows if (row.name, row.subject) == subject and not row.outcome.is_done]:
                del self._taken[key]
            self._taken[form.key] = taken
            self._numbers[subject] += taken.outcome.is_done
            while len(self._taken) > MAX_FORMS:
                self._taken.popitem(last=False)

    def form_id(self, offer: Offer) -> str:
        """Return the id of a form, to be stamped for each browser. It is another one after the action was taken."""
        return f"{self._server}.{_STAMP}.{self._numbers[offer.name, offer.subject]}"

    def has_drawn(self, form: SentForm) -> bool:
        """Return whether this server drew a form: only of its own it knows whether they were sent before."""
        return form.id.startswith(f"{self._server}.")

    def put_comment(self, task: str, location: str, comment: DraftComment | None) -> None:
        """Keep a comment in place of the one at this location; None removes that."""
        with self._lock:
            others = tuple(row for row in self.comments if (row.task, row.location) != (task, location))
            self.comments = others if comment is None else (*others, comment)

    def draft_of(self, offer: Offer) -> tuple[str, ...]:
        """Return the texts with which an action was refused last; empty if it was not."""
        with self._lock:
            return self._drafts.get(offer.draft_key, ())

    def keep_draft(self, offer: Offer, texts: tuple[str, ...]) -> None:
        """Show the texts in the form of the offer again; no texts end that."""
        with self._lock:
            self._drafts.pop(offer.draft_key, None)
            if any(texts):
                self._drafts[offer.draft_key] = texts
            while len(self._drafts) > MAX_DRAFTS:
                self._drafts.popitem(last=False)


def slug_of(name: ActionName) -> str:
    """Return the name of an action in addresses and forms."""
    return name.name.lower()


def encode_drawn(offer: Offer, diff: str = "") -> str:
    """Return the hidden field with what was drawn. ``diff``: digest of the diff that is above the form."""
    trips = offer.intro if offer.name is ActionName.RESOLVE else ()
    mark = None if offer.mark is None else replace(offer.mark, questions=())
    questions = () if offer.mark is None else offer.mark.questions
    drawn = DrawnOffer(mark, _digest(questions), offer.work, offer.signals, trips, digest_comments(offer), diff)
    return escape_json(msgspec.json.encode(drawn).decode())


def digest_comments(offer: Offer) -> str:
    """Return what tells whether an offer has other comments than the one that was drawn."""
    return _digest([text for row in offer.comments for text in (row.location, row.text)]) if offer.comments else ""


def digest_diff(diff: TaskDiff) -> str:
    """Return what tells whether a diff is the one that was drawn: its base can move, too."""
    return _digest((diff.commit, diff.diff))


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def stamp_forms(html: str) -> str:
    """Return drawn HTML with an id in its forms: the same form sent twice is one action."""
    return html.replace(_STAMP, secrets.token_urlsafe(6)) if _STAMP in html else html


def read_sent(fields: Mapping[str, Sequence[str]]) -> SentForm:
    """Return a form of the page. Raises FormIncomplete."""

    def first(name: str) -> str:
        return fields.get(name, ("",))[0]

    action = _NAMES.get(first("action"))
    if action is None or not first("form"):
        raise FormIncomplete(_RELOAD)
    try:
        drawn = msgspec.json.decode(first("drawn"), type=decodable(DrawnOffer))
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise FormIncomplete(_RELOAD) from error
    return SentForm(
        id=first("form"),
        action=action,
        subject=first("subject"),
        drawn=drawn,
        texts=tuple(text.replace("\r\n", "\n").strip() for text in fields.get("text", ())),
        typed_name=first("name").strip(),
        is_acknowledged=first("known") == "yes",
        back=first("back") or "/",
    )


def carry_out(crew: Crew, work: PageWork, form: SentForm) -> TakenAction:
    """Carry out a form, or say in one sentence why not. Call it in a thread."""
    needs_diff = form.action in (ActionName.APPROVE, ActionName.COMMENT)
    wanted = Wanted(ScreenName.TASK, form.subject) if needs_diff else Wanted(ScreenName.BOARD)
    snapshot = gather(replace(crew), wanted)
    picture = snapshot.picture
    if isinstance(picture, Unread):
        return _refuse(snapshot, form, picture.reason, picture.next)
    name = ActionName.REJECT if form.action is ActionName.COMMENT else form.action
    offer = find_offer(list_sent_offers(picture, form, work.comments), name)
    change = _describe_change(picture, form)
    if offer is None:
        gone = f"{form.subject or 'the crew'} changed while you looked: this is not possible now"
        return _refuse(snapshot, form, change or gone, "")
    is_unknown = form.action in _REPEATABLE and not work.has_drawn(form)
    refused = change or (_RESTARTED if is_unknown else next(_find_problems(snapshot, form, offer), None))
    if refused is not None:
        outcome = ActionOutcome(False, refused)
    elif form.action is ActionName.COMMENT:
        outcome = _keep_comment(work, form, _read_diff(snapshot))
    else:
        outcome = act(crew, _bind(offer, form), form.texts)
    if outcome.is_done:
        _forget_sent(work, form, offer)
        return TakenAction(snapshot.time, form.action, form.subject, outcome)
    renewed = offer if outcome.task is None else find_offer(tuple(offer_for_task(outcome.task)), form.action)
    is_kept = renewed is not None and len(renewed.blanks) == len(form.texts) and form.action is not ActionName.COMMENT
    if renewed is not None and is_kept:
        work.keep_draft(renewed, form.texts)
    return TakenAction(snapshot.time, form.action, form.subject, outcome, () if is_kept else _texts_of(form))


def list_sent_offers(picture: Picture, form: SentForm, comments: Sequence[DraftComment]) -> tuple[Offer, ...]:
    """Return what can be done now with the subject of a form."""
    kind = TargetKind.TASK if form.drawn.mark is not None else TargetKind.AGENT
    offers = offer_actions(picture, Target(kind, form.subject) if form.subject else None, comments)
    return tuple(offer for offer in offers if offer.subject == form.subject)


def _refuse(snapshot: Snapshot, form: SentForm, text: str, step: str) -> TakenAction:
    outcome = ActionOutcome(False, text, step)
    return TakenAction(snapshot.time, form.action, form.subject, outcome, _texts_of(form))


def _texts_of(form: SentForm) -> tuple[str, ...]:
    """Return what the person typed: of a comment, without its lines."""
    return tuple(filter(None, form.texts[2:] if form.action is ActionName.COMMENT else form.texts))


def _describe_change(picture: Picture, form: SentForm) -> str | None:
    """Return what has changed of a task since the form was drawn."""
    if form.drawn.mark is None:
        return None
    task = find_task(picture, form.subject)
    mark = _restore_mark(form.drawn, task.blocked_questions if task is not None else ())
    return None if mark is None else describe_change(mark, task, form.subject)


def _restore_mark(drawn: DrawnOffer, questions: tuple[str, ...]) -> TaskMark | None:
    """Return the mark as it was drawn: with the questions of now, if they are the same."""
    is_same = drawn.questions == _digest(questions)
    return None if drawn.mark is None else replace(drawn.mark, questions=questions if is_same else ("",))


def _find_problems(snapshot: Snapshot, form: SentForm, offer: Offer) -> Iterator[str]:
    """Yield why a form is not sent, beside what the verb says."""
    drawn = form.drawn
    if (drawn.mark is None, drawn.work is None) != (offer.mark is None, offer.work is None):
        yield _RELOAD
    if offer.action_class is ActionClass.END and form.typed_name != form.subject:
        yield f"nothing was done: type {form.subject} to go on"
    if form.action in (ActionName.APPROVE, ActionName.COMMENT):
        yield from _find_problems_of_diff(snapshot, form)
    if form.action is ActionName.COMMENT:
        return
    if len(form.texts) != len(offer.blanks):
        yield _RELOAD
    for blank, text in zip(offer.blanks, form.texts, strict=False):
        if not (text or blank.is_optional):
            yield f"nothing was typed for: {blank.label}"
    if drawn.comments != digest_comments(offer):
        yield "the comments on its lines changed while you looked"


def _find_problems_of_diff(snapshot: Snapshot, form: SentForm) -> Iterator[str]:
    page = snapshot.task
    diff = page.diff if isinstance(page, TaskPage) else page
    if not isinstance(diff, TaskDiff):
        yield diff.reason if diff is not None else _RELOAD
        return
    if form.drawn.mark is not None and form.drawn.mark.commit != diff.commit:
        yield f"{form.subject} changed while you looked: it has another commit"
    if form.drawn.diff != digest_diff(diff):
        yield f"the diff of {form.subject} changed while you looked"
    if form.action is ActionName.APPROVE and task_screen.find_not_shown(diff.diff) and not form.is_acknowledged:
        yield "some files are not shown as text: say that you know what they are"


def _read_diff(snapshot: Snapshot) -> TaskDiff:
    """Return the diff. Only where ``_find_problems_of_diff`` has none."""
    assert isinstance(snapshot.task, TaskPage)
    assert isinstance(snapshot.task.diff, TaskDiff)
    return snapshot.task.diff


def _bind(offer: Offer, form: SentForm) -> Offer:
    """Return the offer for what was drawn: if that has changed, the action is refused."""
    drawn = form.drawn
    intro = drawn.trips if offer.name is ActionName.RESOLVE else offer.intro
    mark = _restore_mark(drawn, offer.mark.questions if offer.mark is not None else ())
    return replace(offer, mark=mark, work=drawn.work, signals=drawn.signals, intro=intro)


def _forget_sent(work: PageWork, form: SentForm, offer: Offer) -> None:
    """Forget the texts that were sent."""
    work.keep_draft(offer, ())
    if form.action is ActionName.REJECT:
        for row in offer.comments:
            work.put_comment(row.task, row.location, None)


def _keep_comment(work: PageWork, form: SentForm, diff: TaskDiff) -> ActionOutcome:
    """Keep a comment for the rejection: its first line, its last one, its text; or remove that at a location."""
    if len(form.texts) == 1:
        location = form.texts[0]
        comment = None
    else:
        spot = _find_spot(diff, form.texts)
        if spot is None:
            return ActionOutcome(False, "the commit has no such lines")
        location, text = spot.location, form.texts[2]
        kept = DraftComment(diff.task, diff.commit, location, spot.prefix + text.removeprefix(spot.prefix))
        comment = kept if text else None
    work.put_comment(diff.task, location, comment)
    return ActionOutcome(True, "the comment is removed" if comment is None else "the comment is sent with a rejection")


def _find_spot(diff: TaskDiff, texts: Sequence[str]) -> task_screen.Spot | None:
    """Return the lines that a comment is for, by the numbers of their rows."""
    rows = len(task_screen.split_diff(diff.diff))
    numbers = [int(text) for text in texts[:2] if text.isascii() and text.isdigit() and len(text) < 6]
    if len(texts) != 3 or not numbers or max(numbers) >= rows:
        return None
    return task_screen.describe_lines(diff, range(min(numbers), max(numbers) + 1))
