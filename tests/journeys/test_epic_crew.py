"""A crew with an epic: three tasks land as one commit, also when integration went on with a conflicting one."""

from __future__ import annotations

import subprocess

import pytest

from tests.journeys.crews import APPROVE, WORK, Crew

MENDS = f"""\
case "$LIZA_TASK" in
mend-*)
    cp "$LIZA_ROOT/.liza/specs/$LIZA_TASK.md" "$NOTES/mend.md"
    git merge -q --no-edit integration || true
    printf 'outside\\nshop-1\\n' > shared.txt ;;
shop-1|outside)
    echo "$LIZA_TASK" > shared.txt ;;
esac
{WORK}"""


@pytest.mark.campaign
def test_an_epic_of_three_lands_once_after_resolving_its_conflict(crew: Crew) -> None:
    crew.add("shop-1", "shop-2", epic="shop")
    crew.add("outside")
    crew.add("shop-3", epic="shop", depends_on="outside")
    crew.add("after", depends_on="shop-2")
    before = crew.git("rev-parse", "integration")
    work = crew.script("coder", MENDS)
    for agent in ("coder-1", "coder-2"):
        crew.agent(agent, work)
    crew.agent("code-reviewer-1", crew.script("reviewer", APPROVE, ready=False))
    crew.wait_status("after", "MERGED")

    subjects = crew.git("log", "--first-parent", "--reverse", "--format=%s", f"{before}..integration").splitlines()
    tasks = {task.id: task for task in crew.state().tasks}
    (mend,) = [name for name in tasks if name.startswith("mend-shop-")]
    assert [subject.partition(":")[0] for subject in subjects] == ["Merge outside", "Land the epic shop", "Merge after"]
    assert subjects[1].endswith(": 4 tasks")
    assert "shared.txt" in (crew.notes / "mend.md").read_text()
    landed = crew.git("rev-parse", "integration~1")
    assert {name: task.landed for name, task in tasks.items()} == {
        **dict.fromkeys(("shop-1", "shop-2", "shop-3", mend), landed),
        **dict.fromkeys(("outside", "after")),
    }
    assert crew.git("show", "integration:shared.txt") == "outside\nshop-1"
    assert "outside" in crew.git("show", f"{tasks['shop-3'].base_commit}:outside.txt")
    assert crew.git("for-each-ref", "refs/heads/epic/", "refs/liza/targets/") == ""
    (row,) = crew.json("epics")["epics"]
    assert (row["state"], row["landed"], row["open"]) == ("landed", [landed], [])
    done = subprocess.run(["git", "fsck"], cwd=crew.root, capture_output=True, text=True, check=True)
    assert "error" not in done.stdout + done.stderr
