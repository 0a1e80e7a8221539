"""`liza history -p`: the changes of revisions, recorded in git or not yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.crew.crew import Crew
from liza.crew.recorder import record_history
from liza.model.model import HumanNote
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.system.locks import Lock
from liza.view import history
from tests.conftest import FakeClock


@pytest.fixture
def crew(repo: Path, clock: FakeClock) -> Crew:
    init(repo, InitOptions(goal="x", no_test=True, program="script:/bin/true"))
    crew = Crew(Paths(repo), clock)
    record_history(crew)
    return crew


def write_note(crew: Crew, text: str) -> None:
    with crew.change("human:ann", "note") as tx:
        note = HumanNote(message=text, timestamp=crew.clock.now())
        tx.state = replace(tx.state, human_notes=(*tx.state.human_notes, note))


def test_new_revisions_have_patches_before_and_after_recording(crew: Crew) -> None:
    shown = history.history(crew, None, 50, patch=True)
    rows = history.follow_history(crew, None, shown, patch=True)
    assert [next(rows).revision for _ in shown] == [row.revision for row in reversed(shown)]
    write_note(crew, "from the journal")
    first = next(rows)
    assert (first.commit, "+" in (first.patch or ""), "from the journal" in (first.patch or "")) == (None, True, True)
    write_note(crew, "from git")
    write_note(crew, "from git, too")
    assert record_history(crew) == 3
    for text in ("from git", "from git, too"):
        row = next(rows)
        added = [line for line in (row.patch or "").splitlines() if line.startswith("+") and text in line]
        assert (row.revision, len(added)) == (first.revision + (1 if text == "from git" else 2), 1)
    rows.close()


def test_unrecorded_revisions_have_a_patch_only_on_request(crew: Crew) -> None:
    write_note(crew, "look here")
    recording = Lock(crew.paths.recorder_lock)
    assert recording.try_acquire()
    with_patch, without = (history.history(crew, None, 1, patch=wanted)[0] for wanted in (True, False))
    recording.release()
    assert (with_patch.commit, "look here" in (with_patch.patch or ""), without.patch) == (None, True, None)
