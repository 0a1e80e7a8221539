"""Which variables of the caller's environment tests, set-up and sessions get."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.programs.presets import session_environment
from liza.programs.presets.preset import Preset
from liza.rules.project.clean_environment import active_environment, clean_variables

ROOT = "/home/me/shop"


def test_variables_that_select_where_modules_are_found_are_removed_and_reported() -> None:
    names = ("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_PREFIX_1", "PYTHONPATH", "PYTHONHOME", "NODE_PATH")
    clean = clean_variables({"HOME": "/home/me", **dict.fromkeys(names, "/x")}, ROOT)
    assert clean.variables == {"HOME": "/home/me"}
    assert {one.name for one in clean.removed} == {*names}


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("/usr/bin:/bin", "/usr/bin:/bin"),
        (f"{ROOT}/.venv/bin:/usr/bin", "/usr/bin"),
        (f"/usr/bin:{ROOT}/node_modules/.bin:/bin", "/usr/bin:/bin"),
        (f"/usr/bin:/home/../home/me/./shop:{ROOT}-other/bin", f"/usr/bin:{ROOT}-other/bin"),
        (".:/usr/bin::bin", "/usr/bin"),
        ("", "/usr/local/bin:/usr/bin:/bin"),
        (ROOT, "/usr/local/bin:/usr/bin:/bin"),
        ("/home/me/link:/usr/bin", "/usr/bin"),
    ],
)
def test_no_entry_of_the_path_is_relative_or_leads_into_the_checkout(path: str, left: str) -> None:
    links = {"/home/me/link": f"{ROOT}/bin"}
    clean = clean_variables({"PATH": path}, ROOT, resolve=lambda place: links.get(place, place))
    assert clean.variables["PATH"] == left
    assert bool(clean.removed) == (path != left)


def test_other_search_paths_lose_only_what_lies_in_the_checkout() -> None:
    clean = clean_variables({"GOPATH": f"/home/me/go:{ROOT}/go", "GOWORK": f"{ROOT}/go.work", "CLASSPATH": "."}, ROOT)
    assert clean.variables == {"GOPATH": "/home/me/go", "CLASSPATH": "."}


@pytest.mark.parametrize("place", ["/home/me/envs/shop", f"{ROOT}/.venv"])
def test_an_activated_environment_leaves_the_path_unless_the_board_names_it(place: str) -> None:
    outside = {"VIRTUAL_ENV": place, "PATH": f"/opt/tools:{place}/bin:/usr/bin"}
    assert active_environment(outside) == place
    assert clean_variables(outside, ROOT).variables == {"PATH": "/opt/tools:/usr/bin"}
    kept = {"PATH": f"{place}/bin:/opt/tools:/usr/bin"}
    assert clean_variables(outside, ROOT, place).variables == kept
    # The same in a terminal in which it is not activated.
    assert clean_variables({"PATH": "/opt/tools:/usr/bin"}, ROOT, place).variables == kept


def test_an_environment_that_is_the_machine_itself_takes_no_programs_away() -> None:
    clean = clean_variables({"VIRTUAL_ENV": "/usr/local", "PATH": "/usr/local/bin:/usr/bin"}, ROOT)
    assert clean.variables == {"PATH": "/usr/local/bin:/usr/bin"}


def test_a_session_gets_the_clean_environment_and_the_directory_of_liza_first() -> None:
    row = Preset(name="x", env_allow=("VIRTUAL_*",))
    outside = {"PATH": f"{ROOT}/.venv/bin:/usr/bin", "VIRTUAL_ENV": f"{ROOT}/.venv"}
    env = session_environment.compose_environment(
        row, outside, run="coder-1.1", task=None, root=Path(ROOT), liza=Path("/opt/liza/bin/liza")
    )
    assert env["PATH"] == "/opt/liza/bin:/usr/bin"
    assert "VIRTUAL_ENV" not in env
