"""Read what a screen shows, by calling verbs. A part that fails is ``Unread``; the others are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from liza.crew.crew import Crew
from liza.merging.queue import show_queue
from liza.model.errors import LizaError
from liza.text.redaction import redact
from liza.ui.rules.snapshot import ScreenName, Snapshot, Unread, Wanted
from liza.view import history
from liza.view.metrics import metrics
from liza.view.status import look

Part = TypeVar("Part")
MAX_NEWS = 500
"""Events of the screen History."""


def gather(crew: Crew, wanted: Wanted, feed: str = "") -> Snapshot:
    """Return the crew as it is now, with the parts that are wanted."""
    is_shown = wanted.screen.__eq__
    return Snapshot(
        time=crew.clock.now(),
        wanted=wanted,
        picture=_read(lambda: look(crew)),
        latest=_read(lambda: history.recall_events(crew, None, MAX_NEWS)) if is_shown(ScreenName.HISTORY) else None,
        queue=_read(lambda: show_queue(crew)) if is_shown(ScreenName.QUEUE) else None,
        costs=_read(lambda: metrics(crew)) if is_shown(ScreenName.COSTS) else None,
        feed=feed,
    )


def _read(verb: Callable[[], Part]) -> Part | Unread:
    """Return the result of a verb. A fault of a verb must not take the rest of the picture away."""
    try:
        return verb()
    except LizaError as error:
        return Unread(redact(error.message), error.hint)
    except OSError as error:
        return Unread(redact(str(error)), "liza doctor")
    except Exception as error:  # noqa: BLE001
        return Unread(redact(f"{type(error).__name__}: {error}"), "liza bug-report")
