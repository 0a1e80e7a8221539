"""Forms of the page as actions: what was drawn comes back with the form, and is compared with the crew."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Final

import msgspec

from liza.model.value_classes import Value
from liza.ui.act import ActionOutcome
from liza.ui.rules.offers import ActionName, Offer, ShownWork, TaskMark
from liza.ui.rules.picture_view import DraftComment

SHOW_TIME: Final = timedelta(minutes=15)
"""How long the result of an action is shown in its place."""
MAX_FORMS: Final = 500
"""Forms whose outcome is remembered: the same form sent again is answered from here."""


class DrawnOffer(Value):
    """What the page showed of an action's subject, in a hidden field of its form."""

    mark: TaskMark | None = None
    work: ShownWork | None = None
    signals: tuple[tuple[str, str | None], ...] = ()


class TakenAction(Value):
    """An action that was taken on the page, and what became of it."""

    time: datetime
    name: ActionName
    subject: str
    outcome: ActionOutcome


class PageWork:
    """What a person did on the page: results, and comments that are not sent yet. One person: all browsers share it."""

    def __init__(self) -> None:
        self.comments: tuple[DraftComment, ...] = ()
        self.seen: datetime | None = None
        """When the person looked last, on an earlier visit."""
        self._taken: OrderedDict[str, TakenAction] = OrderedDict()

    def list_taken(self, now: datetime, subject: str | None = None) -> tuple[TakenAction, ...]:
        """Return the actions that were taken lately, the newest first; those on one subject, or all."""
        rows = reversed(self._taken.values())
        return tuple(row for row in rows if now - row.time < SHOW_TIME and subject in (None, row.subject))


def slug_of(name: ActionName) -> str:
    """Return the name of an action in addresses and forms."""
    return name.name.lower()


def encode_drawn(offer: Offer) -> str:
    """Return the hidden field with what was drawn."""
    return msgspec.json.encode(DrawnOffer(offer.mark, offer.work, offer.signals)).decode()


def new_form_id() -> str:
    """Return an id for a form: the same form sent twice is one action."""
    return secrets.token_urlsafe(9)
