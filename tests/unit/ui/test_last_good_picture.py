"""The snapshot that is shown while the crew cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest

from liza.model.value_classes import replace
from liza.ui import follower
from liza.ui.facts import gather
from liza.ui.rules import drawing
from liza.ui.rules.drawing import draw
from liza.ui.rules.lines import Tone
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import ScreenName, Snapshot, Unread, Wanted, keep_last_good
from tests.pictures.example_crew import open_example

VIEW = PictureView(columns=80, rows=24)
FAULT = Unread("the board has no revision", "liza doctor")
LATER = datetime(2026, 11, 20, tzinfo=UTC) + timedelta(days=1)


def test_the_last_good_picture_stays_dimmed_with_reason_and_command(tmp_path: Path) -> None:
    with open_example(tmp_path / "shop") as crew:
        good = gather(crew, Wanted())
    unread = replace(good, time=LATER, picture=FAULT)
    kept = keep_last_good(keep_last_good(good, unread), unread)
    assert (kept.picture, kept.time, kept.fault) == (good.picture, good.time, FAULT)
    body = draw(kept, VIEW).body
    assert [FAULT.reason in body[0].text, FAULT.next in body[1].text] == [True, True]
    assert {span.tone for line in body[2:] for span in line.spans} == {Tone.DIM}
    assert keep_last_good(kept, good) == good


def test_without_a_good_picture_nothing_is_shown_as_zero(tmp_path: Path) -> None:
    with open_example(tmp_path / "shop") as crew:
        unread = replace(gather(crew, Wanted()), picture=FAULT)
    kept = keep_last_good(None, unread)
    assert kept.fault == FAULT
    assert "0" not in draw(kept, VIEW).body[0].text


def test_a_fault_in_a_screen_leaves_the_header_and_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("no rows")

    with open_example(tmp_path / "shop") as crew:
        good = gather(crew, Wanted())
    monkeypatch.setattr(drawing, "SCREENS", {ScreenName.NOW: fail})
    shown = draw(good, VIEW)
    assert "no rows" in shown.body[0].text
    assert "liza bug-report" in shown.body[1].text
    assert shown.header == drawing.header.draw(good, VIEW)
    assert "q leave" in shown.footer.text


def test_the_picture_is_read_on_after_any_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "PULSE_SECONDS", 0.01)
    read_again, snapshots = Event(), list[Snapshot]()

    def take(snapshot: Snapshot) -> None:
        snapshots.append(snapshot)
        if len(snapshots) < 3:
            raise ZeroDivisionError
        read_again.set()

    with open_example(tmp_path / "shop") as crew:
        follows = follower.Follower(crew, take)
        follows.start(Wanted())
        assert read_again.wait(20)
        follows.stop()
