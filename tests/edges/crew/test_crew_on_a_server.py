"""A directory whose board is on a server is a crew, too: it has the address of the board instead of the board."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.board.presence import find_board_path, has_board, has_board_or_intent
from liza.cli import completion_values
from liza.cli.completion_values import Typed
from liza.config import confirmed_settings
from liza.crew import layout
from liza.crew.crew import find_root
from liza.model.paths import Paths
from tests.unit.boards import board, with_config


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A clone that joined a crew, with its pins; no server is asked."""
    (tmp_path / ".git").mkdir()
    paths = Paths(tmp_path)
    paths.runs.mkdir(parents=True)
    paths.locks.mkdir()
    paths.board_address.write_text('url = "postgresql:///liza?crew=shop"\n')
    confirmed_settings.create_pins(paths)
    monkeypatch.chdir(tmp_path)
    return paths


def test_address_of_a_board_makes_a_crew(paths: Paths) -> None:
    below = paths.root / "src"
    below.mkdir()
    assert find_root(below) == paths.root
    assert has_board(paths)
    assert has_board_or_intent(paths)
    assert find_board_path(paths) == paths.board_address
    assert not layout.is_deleted(paths)


def test_settings_of_a_board_on_a_server_count(paths: Paths) -> None:
    written = with_config(board(), integration_command="make test")
    assert confirmed_settings.with_trusted_settings(paths, written) == written
    assert confirmed_settings.find_unconfirmed(paths, written) == ()
    confirmed_settings.confirm_settings(paths, {"integration_command": "make other"}, written.config)
    assert confirmed_settings.load_pins(paths.pins) == {}


def test_shell_completes_from_the_last_copy(paths: Paths) -> None:
    assert completion_values.read_state() is None
    example = Path(__file__).parents[3] / ".liza.example" / "state.yaml"
    paths.board_copy.write_bytes(example.read_bytes())
    assert "invoice-model" in [row.value for row in completion_values.tasks()(Typed("", []))]
