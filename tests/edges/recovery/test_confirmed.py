"""Pins that were damaged: every board can still be read, and the hint brings back what a person had confirmed."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from liza.config import confirmed_settings
from liza.crew.crew import find_crew
from liza.model.errors import Missing
from liza.recovery.doctor import accept_drift, doctor
from liza.view.status import status
from tests.edges.git.test_slots_place import begun


def setting(key: str, value: Any) -> Callable[[dict[str, Any]], object]:
    return lambda words: words["settings"].__setitem__(key, value)


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "a setting of another kind": setting("integration_command", 5),
    "a mapping that is none": setting("budget", 3),
    "settings that are a list": lambda words: words.__setitem__("settings", [1]),
}


@pytest.mark.campaign
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_pins_stop_no_reader_and_can_be_restored(
    repo: Path, damage: Callable[[dict[str, Any]], object]
) -> None:
    crew = begun(repo, permissions="bypass")
    words = json.loads(crew.paths.pins.read_text())
    damage(words)
    crew.paths.pins.write_text(json.dumps(words))
    shown = status(find_crew(repo))
    assert shown.picture.goal == "It is there"
    told = [(alarm.kind, alarm.next) for alarm in shown.facts.alarms if alarm.about != "config"]
    assert told == [("pins_damaged", "liza doctor --fix")]
    assert not [one for one in doctor(repo).findings if "no setting was ever confirmed" in one.text]
    with pytest.raises(Missing, match="cannot be read") as wrong:
        confirmed_settings.load_pins(crew.paths.pins)
    with pytest.raises(Missing):
        accept_drift(find_crew(repo), ["permissions"])
    assert wrong.value.hint == "liza doctor --fix"
    doctor(repo, fix=True)
    found = find_crew(repo)
    assert confirmed_settings.find_unconfirmed(found.paths, found.board.read_as_written()) == ()
    assert found.board.read().config.permissions == "bypass"


def test_invalid_settings_in_the_history_are_not_confirmed_again(repo: Path) -> None:
    crew = begun(repo, permissions="bypass")
    crew.paths.pins.write_text(json.dumps({}))
    config = crew.board.read_as_written().config
    confirmed_settings.restore_confirmed(crew.paths, b'{"integration_command": 5}', config)
    assert confirmed_settings.load_pins(crew.paths.pins)["settings"] is not None
    assert confirmed_settings.find_unconfirmed(crew.paths, crew.board.read_as_written()) == ()


def test_simultaneous_confirmations_all_count(repo: Path) -> None:
    crew = begun(repo)
    config = crew.board.read_as_written().config
    keys = [f"unknown_{number}" for number in range(60)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda key: confirmed_settings.confirm_settings(crew.paths, {key: 1}, config), keys))
    assert set(keys) <= json.loads(crew.paths.pins.read_text())["settings"].keys()
