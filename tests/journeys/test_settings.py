"""Settings that decide what "tested" means count as a person gave them, whatever stands on the board."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest

from tests.conftest import variant
from tests.journeys.crews import Crew

RED = "[ ! -e task-1.txt ] || exit 7"


@pytest.fixture
def red(crew: Crew) -> Crew:
    """A crew whose tests are red with the work of the task that waits to be merged."""
    crew.configure(integration_command=RED)
    there = crew.work_by_hand("task-1")
    crew.prepare("submit", cwd=there)
    crew.prepare("verdict", "approve", "good", "--task", "task-1")
    return crew


def type_in(crew: Crew, old: str, new: str) -> None:
    """What an editor, or an agent, does to the board under its lock."""
    words = ["flock", str(crew.paths.state_lock), "sed", "-i", f"s#{old}#{new}#", str(crew.paths.state)]
    subprocess.run(words, check=True)


def alerts(crew: Crew, kind: str = "unconfirmed_setting") -> list[dict[str, Any]]:
    return [one for one in crew.json("status")["alerts"] if one["kind"] == kind]


def test_a_test_command_changed_outside_of_liza_does_not_count(red: Crew) -> None:
    assert alerts(red) == []
    type_in(red, "integration_command: .*", 'integration_command: "true"')
    (alert,) = alerts(red)
    assert alert["message"] == (
        "config.integration_command was changed outside of liza to 'true'; "
        f"'{RED}' is used until a person confirms that"
    )
    assert alert["next"] == "liza doctor --accept integration_command"
    told = red.run("merge", "task-1")
    log = ".liza/logs/merge-task-1.log"
    assert (told.returncode, told.stdout.splitlines()) == (
        1,
        [
            f"task-1 to fix after a failed merge: {RED}: exit 7 on the merge with integration (log: {log})",
            f"next: less {log}",
        ],
    )
    assert red.status("task-1") == "INTEGRATION_FAILED"
    assert "exit 7" in str(red.task("task-1").history[-1].detail)


def test_a_person_confirms_a_setting_with_the_alarms_command(red: Crew) -> None:
    type_in(red, "integration_command: .*", 'integration_command: "true"')
    assert (
        "config.integration_command counts with its value on the board"
        in red.run(*alerts(red)[0]["next"].split()[1:]).stdout
    )
    assert alerts(red) == []
    red.liza("merge", "task-1")
    assert red.status("task-1") == "MERGED"


def test_liza_edit_confirms_only_what_a_person_changes_with_it(red: Crew) -> None:
    type_in(red, "^config:", r"config:\n  permissions: bypass")
    red.configure(integration_command="true", max_coder_iterations=3)
    assert [one["about"] for one in alerts(red)] == ["permissions"]
    red.liza("merge", "task-1")
    assert red.status("task-1") == "MERGED"


def test_a_supervisor_works_with_confirmed_settings_and_logs_others(crew: Crew) -> None:
    crew.configure(sandbox_setup="touch set-up")
    agent = crew.agent("coder-1", crew.script("coder", 'ls > "$NOTES/seen"; read line < "$NOTES/go"\n'))
    crew.wait_supervised("coder-1")
    type_in(crew, "sandbox_setup: .*", 'sandbox_setup: "touch planted"')
    crew.wait(
        lambda _: crew.paths.alerts.exists() and "config.sandbox_setup" in crew.paths.alerts.read_text(), "an alert"
    )
    crew.gate("go")
    crew.add("task-1")
    assert {"set-up", "planted"} & set(crew.wait_note("seen").split()) == {"set-up"}
    crew.open_gate("go")
    assert agent.process.poll() is None


def test_pins_without_their_settings_are_an_alarm(crew: Crew) -> None:
    words = json.loads(crew.paths.pins.read_text())
    del words["settings"]
    crew.paths.pins.write_text(json.dumps(words))
    (told,) = alerts(crew)
    assert told["next"] == "liza doctor --accept settings"
    crew.run(*told["next"].split()[1:])
    assert alerts(crew) == []


@pytest.mark.parametrize("lost", ["all of .liza", variant("the pins")])
def test_losing_the_pins_confirms_no_changed_test_command(red: Crew, lost: str) -> None:
    type_in(red, "integration_command: .*", 'integration_command: "true"')
    (before,) = alerts(red)
    if lost == "the pins":
        red.paths.pins.unlink()
        assert [one["next"] for one in alerts(red, "pins_gone")] == ["liza doctor --fix"]
        told = red.run("doctor", "--fix").stdout
        assert alerts(red, "pins_gone") == []
    else:
        shutil.rmtree(red.paths.liza)
        told = red.liza("restore", "--last-good")
    assert f"the settings in effect: integration_command '{RED}'" in told
    assert before["message"] in told
    assert alerts(red) == [before]
    red.run("merge", "task-1")
    assert red.status("task-1") == "INTEGRATION_FAILED"


def test_settings_without_confirmation_in_the_history_are_an_alarm(crew: Crew) -> None:
    crew.configure(permissions="bypass")
    crew.git("update-ref", "-d", "refs/liza/blackboard")
    crew.paths.pins.unlink()
    assert "no setting was ever confirmed by a person" in crew.run("doctor", "--fix").stdout
    assert [one["next"] for one in alerts(crew)] == ["liza doctor --accept settings"]


def test_config_set_keeps_comments_and_confirms_only_its_setting(red: Crew) -> None:
    red.liza("edit", EDITOR=r"sed -i 's|^  integration_command: .*|  # the tests\n&  # slow|'")
    type_in(red, "^config:", r"config:\n  permissions: bypass")
    told = red.json("config", "set", "integration_command", "true")
    assert told["result"] == "changed"
    text = red.paths.state.read_text()
    assert "# the tests" in text
    assert "# slow" in text
    assert [one["about"] for one in alerts(red)] == ["permissions"]
    assert red.liza("config", "get", "integration_command") == "true\n"
    assert red.json("config", "get", "permissions")["on_board"] == "bypass"
    names = [row["name"] for row in red.json("config", "get")["settings"]]
    assert "queue.batch" in names
    assert red.json("config", "set", "integration_command", "true")["result"] == "unchanged"
    red.liza("config", "set", "permissions", "bypass")
    assert alerts(red) == []


def test_config_set_of_one_value_confirms_no_neighbouring_change(red: Crew) -> None:
    red.liza("config", "set", "queue.batch", "3")
    type_in(red, "batch: 3", "batch: 3\\n    retries: 9")
    assert "config.queue was changed outside" in red.run("config", "set", "queue.batch", "4").stderr
    red.liza("config", "set", "bach", "4", code=2)
    assert [one["about"] for one in alerts(red)] == ["queue"]


def test_the_goals_document_can_be_edited_but_must_exist(crew: Crew) -> None:
    before = crew.state().goal
    assert "unchanged" in crew.liza("edit", "--goal", EDITOR="true")
    missing = crew.liza("edit", "--goal", code=1, EDITOR="sed -i 's|^spec: .*|spec: docs/none.md|'")
    assert "the document docs/none.md is not committed on integration" in missing
    assert crew.state().goal == before
    former = crew.liza("edit", "--goal", EDITOR="sed -i 's|Every file|Any file|'")
    assert former == "changed; .liza/specs/goal.md has the former sentence\nnext: liza edit goal\n"
    crew.liza("edit", "--goal", EDITOR="sed -i -e 's|^spec: .*|spec: README.md|' -e 's|Any file|Each file|'")
    goal = crew.state().goal
    assert (goal.description, goal.spec_ref) == ("Each file is there", "README.md")
    assert crew.state().spec_changes[-1].spec == "README.md"
    _, note = goal.alignment_history
    assert note.event.startswith("human:")
    assert "; the goal is: Each file is there" in note.summary
    assert "the document is README.md, not .liza/specs/goal.md; the goal is: Each" in crew.liza("status")
    crew.liza("edit", "goal", "--goal", code=2, EDITOR="true")
