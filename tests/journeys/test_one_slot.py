"""One coder does three tasks in one slot, the first of them an issue; a kill between two steps loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edges.forge_stand_in import ForgeStandIn
from tests.journeys.crews import APPROVE, WORK, started

CODER = f"""\
if [ "$LIZA_TASK" = second ] && [ ! -e "$NOTES/stopped" ]; then
    echo half > second.txt
    echo "$LIZA_RUN" > "$NOTES/stopped"
    read line < "$NOTES/gate"
fi
pwd >> "$NOTES/slots"
mkdir -p node_modules
echo "$LIZA_TASK" >> node_modules/used
cp node_modules/used "$NOTES/used"
cat "$LIZA_ROOT/.liza/specs/$LIZA_TASK.md" > "$NOTES/spec-$LIZA_TASK" 2> "$NOTES/no-spec" || true
{WORK}"""


@pytest.mark.campaign
def test_three_tasks_can_share_one_slot_even_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gh = ForgeStandIn(tmp_path / "bin", monkeypatch)
    url = "https://github.com/acme/shop/issues/7"
    gh.add_issue(
        number=7, title="Wrong total", body="It is off by one.", url=url, state="OPEN", author={"login": "ann"}
    )
    with started(tmp_path, sandbox_keep=["node_modules"]) as crew:
        crew.git("remote", "add", "origin", "https://github.com/acme/shop.git")
        (crew.root / ".git" / "info" / "exclude").open("a").write("node_modules/\n")
        crew.gate("gate")
        crew.liza("task", "add", "--from", "gh:7", "--done", "it is right", "--scope", "total.py", "--priority", "1")
        crew.add("second", depends_on="gh-7")
        crew.add("third", depends_on="second")  # a task has its slot until it is merged
        coder = crew.agent("coder-1", crew.script("coder", CODER))
        crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE, ready=False))
        run = crew.wait_note("stopped").strip()
        coder.kill()
        crew.kill_session(run)
        crew.agent("coder-1", crew.script("coder", CODER))
        for task in ("gh-7", "second", "third"):
            crew.wait_status(task, "MERGED")

        slots = (crew.notes / "slots").read_text().split()
        assert (len(slots), len(set(slots))) == (3, 1)
        assert (crew.notes / "used").read_text().split() == ["gh-7", "second", "third"]
        assert "> It is off by one." in (crew.notes / "spec-gh-7").read_text()
        assert crew.git("show", "integration:second.txt").startswith("half\n")
        assert [row["name"] for row in crew.json("slots")["slots"] if row["name"].startswith("s")] == ["s1"]
