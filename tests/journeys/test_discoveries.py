"""A coder reports what is wrong outside its task; a planner makes a task of it, or says why not."""

from __future__ import annotations

from tests.journeys.crews import APPROVE, WORK, Crew

REPORT = """\
if [ "$LIZA_TASK" = task-1 ]; then
    liza report discovery "the cart rounds down" --urgency immediate --recommend "round half up"
    liza report workaround "rounded by hand"
    if liza report resolve d-1 "not mine" 2> "$NOTES/refused"; then echo resolved >> "$NOTES/refused"; fi
fi
"""
PLAN = """\
case $LIZA_RUN in
planner-1.1)
    liza ready > "$NOTES/brief"
    liza task add --from-discovery d-1 --id cart --desc "Round half up" --done "cart.txt is there" \\
        --scope cart.txt --spec README.md
    liza report resolve a-1 "the task cart removes the reason"
    liza handoff "cart is a task of its own" --done ;;
*)
    liza handoff "nothing to add" --done ;;
esac
"""


def test_an_immediate_discovery_of_a_coder_becomes_a_merged_task(crew: Crew) -> None:
    crew.add("task-1")
    program = crew.script(
        "agent", f'case "$LIZA_RUN" in\nplanner-*)\n{PLAN};;\ncoder-*)\n{REPORT}{WORK};;\n*)\n{APPROVE};;\nesac\n'
    )
    for agent in ("planner-1", "coder-1", "code-reviewer-1"):
        crew.agent(agent, program)
    crew.wait_status("cart", "MERGED")
    state = crew.state()
    discovery, anomaly = state.discovered[0], state.anomalies[0]
    assert (discovery.id, discovery.by, discovery.during) == ("d-1", "coder-1", "task-1")
    assert (discovery.converted_to_task, discovery.recommendation) == ("cart", "round half up")
    assert anomaly.resolved is not None
    assert (anomaly.resolved.by, anomaly.resolved.why) == ("planner-1", "the task cart removes the reason")
    refused = (crew.notes / "refused").read_text()
    assert "this is for a person" in refused
    assert "resolved" not in refused
    brief = (crew.notes / "brief").read_text()
    assert "the cart rounds down Recommended: round half up" in brief


def test_a_person_reports_a_discovery_sees_it_and_resolves_it(crew: Crew) -> None:
    crew.liza("report", "discovery", "the cart rounds down", "--urgency", "immediate")
    assert "cannot wait: the cart rounds down" in crew.liza("status")
    open_reports = crew.json("status")["reports"]
    assert [entry["id"] for entry in open_reports["discoveries"]] == ["d-1"]
    assert open_reports["discoveries"][0]["by"].startswith("human:")
    crew.liza("report", "resolve", "d-1", "it is to round down")
    assert crew.json("status")["reports"] == {"discoveries": [], "anomalies": []}
    assert "resolved by human:" in crew.liza("report", "resolve", "d-1", "again", code=1)
    assert "expected" not in crew.liza("report", "discovery", "x", code=2)
