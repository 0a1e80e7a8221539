"""Work of agents lands, and a person proves in another clone what was reviewed and tested."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.crews import APPROVE, Crew

ROOT = Path(__file__).parents[2]
NOTES = "refs/notes/liza"
WORK = """\
echo "$LIZA_TASK by $LIZA_RUN" >> "$LIZA_TASK.txt"
git add -A
git commit -q -m "$LIZA_TASK: work" -m "Assisted-by: helper:tiny-1"
liza submit
"""
TWICE = f"""\
if [ -e "$NOTES/rejected" ]; then
    {APPROVE.strip()}
else
    touch "$NOTES/rejected"
    liza verdict reject "say who you are"
fi
"""


@pytest.mark.campaign
def test_another_clone_verifies_what_agents_landed(crew: Crew, tmp_path: Path) -> None:
    crew.configure(integration_command="test -e task-1.txt")
    crew.add("task-1")
    crew.agent("coder-1", crew.script("coder", WORK))
    crew.agent("code-reviewer-1", crew.script("reviewer", TWICE))
    task = crew.wait_status("task-1", "MERGED")
    crew.prepare("land", "--merge")
    notes = crew.git("notes", "--ref", "liza", "show", str(task.merge_commit)).splitlines()
    (verdict,) = [
        line["predicate"] for line in map(json.loads, notes) if line["predicateType"] == "urn:liza:verdict:v1"
    ]
    assert (verdict["rejections"], [review["verdict"] for review in verdict["reviews"]]) == (1, ["reject", "approve"])
    assert "helper:tiny-1" in verdict["assistedBy"]
    assert verdict["reviews"][1]["by"].startswith("code-reviewer-1.")

    clone = tmp_path / "clone"
    crew.git("clone", "-q", str(crew.root), str(clone), cwd=tmp_path)
    assert f"{NOTES} is not in this clone" in crew.run("land", "--verify", cwd=clone).stdout
    crew.git("fetch", "-q", "origin", f"{NOTES}:{NOTES}", cwd=clone)
    assert crew.liza("land", "--verify", cwd=clone).splitlines()[0].endswith("1 landed commit: 1 unsigned")
    assert "| `task-1` | Write task-1 |" in crew.liza("land", "--sheet", cwd=clone)
    script = [sys.executable, "-I", str(ROOT / "examples" / "verify_evidence.py"), "main"]
    done = subprocess.run(script, cwd=clone, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1 landed, 0 with faults"), done.stderr

    forged = notes[0].replace(str(task.review_commit), str(crew.git("rev-parse", "main~1").strip()))
    crew.git("notes", "--ref", "liza", "add", "-f", "-m", forged, str(task.merge_commit), cwd=clone)
    report = json.loads(crew.run("land", "--verify", "--json", cwd=clone).stdout)
    assert any("was rewritten" in fault for fault in report["faults"])
    crew.liza("land", "--verify", code=1, cwd=clone)
    assert subprocess.run(script, cwd=clone, capture_output=True, check=False).returncode == 1


@pytest.mark.campaign
def test_a_sheet_before_a_landing_shows_what_it_would_bring(crew: Crew) -> None:
    crew.liza("submit", cwd=crew.work_by_hand("task-1"))
    crew.prepare("verdict", "approve", "fine", "--task", "task-1")
    crew.prepare("merge", "task-1")
    assert "| `task-1` |" in crew.liza("land", "--sheet")
    assert "choose one" in crew.liza("land", "--sheet", "--verify", code=2)
    crew.prepare("land", "--merge")
    assert "| `task-1` |" in crew.json("land", "--sheet")["sheet"]
    assert crew.json("land", "--verify")["faults"] == []
