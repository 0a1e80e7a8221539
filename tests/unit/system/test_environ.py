"""Which variables of the caller's environment tests, set-up and sessions get."""

from __future__ import annotations

from pathlib import Path

import pytest

from liza.model.clean_environment import active_environment, clean_variables
from liza.programs.presets import command_line
from liza.programs.presets.preset import Preset

ROOT = "/home/me/shop"


def test_variables_that_change_module_search_are_removed_and_reported() -> None:
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
def test_no_entry_of_the_path_is_relative_or_inside_checkouts(path: str, left: str) -> None:
    links = {"/home/me/link": f"{ROOT}/bin"}
    clean = clean_variables({"PATH": path}, ROOT, resolve=lambda place: links.get(place, place))
    assert clean.variables["PATH"] == left
    assert bool(clean.removed) == (path != left)


def test_other_search_paths_lose_only_entries_in_the_checkout() -> None:
    clean = clean_variables({"GOPATH": f"/home/me/go:{ROOT}/go", "GOWORK": f"{ROOT}/go.work", "CLASSPATH": "."}, ROOT)
    assert clean.variables == {"GOPATH": "/home/me/go", "CLASSPATH": "."}


@pytest.mark.parametrize("place", ["/home/me/envs/shop", f"{ROOT}/.venv"])
def test_an_activated_environment_leaves_the_path_unless_the_board_decides(place: str) -> None:
    outside = {"VIRTUAL_ENV": place, "PATH": f"/opt/tools:{place}/bin:/usr/bin"}
    assert active_environment(outside) == place
    assert clean_variables(outside, ROOT).variables == {"PATH": "/opt/tools:/usr/bin"}
    kept = {"PATH": f"{place}/bin:/opt/tools:/usr/bin"}
    assert clean_variables(outside, ROOT, place).variables == kept
    # The same in a terminal in which it is not activated.
    assert clean_variables({"PATH": "/opt/tools:/usr/bin"}, ROOT, place).variables == kept


def test_a_virtual_environment_equal_to_the_system_keeps_its_programs() -> None:
    clean = clean_variables({"VIRTUAL_ENV": "/usr/local", "PATH": "/usr/local/bin:/usr/bin"}, ROOT)
    assert clean.variables == {"PATH": "/usr/local/bin:/usr/bin"}


def test_a_session_gets_a_clean_environment_with_liza_first() -> None:
    row = Preset(name="x", env_allow=("VIRTUAL_*",))
    outside = {"PATH": f"{ROOT}/.venv/bin:/usr/bin", "VIRTUAL_ENV": f"{ROOT}/.venv"}
    env = command_line.compose_environment(
        row, outside, run="coder-1.1", task=None, root=Path(ROOT), liza=Path("/opt/liza/bin/liza")
    )
    assert env["PATH"] == "/opt/liza/bin:/usr/bin"
    assert "VIRTUAL_ENV" not in env


def test_a_session_inherits_variables_that_its_row_or_settings_name() -> None:
    outside = {"SSH_AUTH_SOCK": "/s", "ROW_KEY": "1", "TEAM_KEY": "2", "OTHER": "3", "LIZA_X": "4"}
    row = Preset(name="x", env_allow=("ROW_*",))
    env = command_line.compose_environment(
        row,
        outside,
        run="coder-1.1",
        task=None,
        root=Path(ROOT),
        liza=Path("/opt/liza"),
        allowed=("SSH_*", "TEAM_KEY", "LIZA_X"),
    )
    assert {name: env.get(name) for name in outside} == {**outside, "OTHER": None, "LIZA_X": None}


def test_removed_variables_are_reported_with_value_and_reason() -> None:
    place = "/envs/shop"
    outside = {
        "PATH": f"bin:{ROOT}/bin:{place}/bin:/usr/bin",
        "VIRTUAL_ENV": place,
        "PYTHONPATH": "",
        "CONDA_PREFIX_2": "/c",
        "LD_LIBRARY_PATH": f"{ROOT}/lib",
        "PERL5LIB": f"/p:{ROOT}/perl",
    }
    clean = clean_variables(outside, ROOT)
    selects, inside = "it selects where modules are found", "it is inside your checkout"
    assert [(one.name, one.value, one.why) for one in clean.removed] == [
        ("VIRTUAL_ENV", place, selects),
        ("CONDA_PREFIX_2", "/c", selects),
        ("LD_LIBRARY_PATH", f"{ROOT}/lib", inside),
        ("PERL5LIB", f"{ROOT}/perl", inside),
        ("PATH", "bin", "it is relative: in a worktree it leads to files of an agent"),
        ("PATH", f"{ROOT}/bin", inside),
        ("PATH", f"{place}/bin", "it belongs to the activated environment"),
    ]
    assert clean.variables == {"PATH": "/usr/bin", "PERL5LIB": "/p"}


@pytest.mark.parametrize(
    "name",
    [
        "VIRTUAL_ENV_PROMPT", "CONDA_DEFAULT_ENV", "CONDA_PROMPT_MODIFIER", "CONDA_SHLVL", "UV_PROJECT_ENVIRONMENT",
        "POETRY_ACTIVE", "PIPENV_ACTIVE",
    ],
)  # fmt: skip
def test_each_variable_that_selects_an_environment_is_removed(name: str) -> None:
    assert clean_variables({name: "x", "OTHER": "y"}, ROOT).variables == {"OTHER": "y"}


@pytest.mark.parametrize(
    "name",
    [
        "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "PKG_CONFIG_PATH", "CMAKE_PREFIX_PATH",
        "PERL5LIB", "RUBYLIB", "CLASSPATH", "GOPATH", "GOWORK", "CARGO_TARGET_DIR", "BUNDLE_GEMFILE",
    ],
)  # fmt: skip
def test_each_search_path_loses_its_entries_in_the_checkout(name: str) -> None:
    assert clean_variables({name: f"/x:{ROOT}"}, ROOT).variables == {name: "/x"}


@pytest.mark.parametrize("directory", ["/usr/local", "/usr", "/"])
def test_programs_of_the_system_stay_on_the_path(directory: str) -> None:
    path = f"{directory.rstrip('/')}/bin:{directory.rstrip('/')}/sbin"
    assert clean_variables({"VIRTUAL_ENV": directory, "PATH": path}, ROOT).variables == {"PATH": path}


def test_an_environment_is_active_only_with_its_programs_on_path() -> None:
    assert active_environment({"VIRTUAL_ENV": "/e/", "PATH": "/x:/e/./bin"}) == "/e"
    assert active_environment({"CONDA_PREFIX": "/c", "VIRTUAL_ENV": "/e", "PATH": "/c/bin"}) == "/c"
    assert active_environment({"VIRTUAL_ENV": "e", "PATH": "e/bin"}) is None
    assert active_environment({"VIRTUAL_ENV": "/e", "PATH": "/x"}) is None
    assert active_environment({"VIRTUAL_ENV": "/e"}) is None


def test_an_empty_path_begins_with_the_boards_environment() -> None:
    assert clean_variables({}, ROOT, "/e").variables == {"PATH": "/e/bin:/usr/local/bin:/usr/bin:/bin"}
    assert clean_variables({}, ROOT).variables == {}
