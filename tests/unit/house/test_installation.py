"""The commands for packages fit the way in which Liza was installed."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from liza.system import installation

REQUIRES = [
    "msgspec>=0.19",
    "apprise>=1.9.3; extra == 'notify'",
    'sdk>=1.30 ; python_version > "3" and extra == "otel"',
]


def install(
    monkeypatch: pytest.MonkeyPatch, prefix: Path, left: str, tools: set[str], source: dict[str, object] | None = None
) -> None:
    """As if Liza ran from the environment ``prefix``, in which an installer left the file ``left``."""
    prefix.mkdir()
    (prefix / left).touch()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    monkeypatch.setattr(sys, "executable", "/ve/bin/python")
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if name in tools else None)
    monkeypatch.setattr(installation, "find_spec", lambda name: name in tools or None)
    text = None if source is None else json.dumps(source)
    distribution = SimpleNamespace(requires=REQUIRES, read_text=lambda name: text)
    monkeypatch.setattr(installation, "distribution", lambda name: distribution)


@pytest.mark.parametrize(
    ("left", "tools", "command"),
    [
        ("pipx_metadata.json", {"uv", "pip"}, "pipx inject liza 'apprise>=1.9.3'"),
        ("uv-receipt.toml", {"uv"}, "uv pip install --python /ve/bin/python 'apprise>=1.9.3'"),
        ("pyvenv.cfg", {"uv"}, "uv pip install --python /ve/bin/python 'apprise>=1.9.3'"),
        ("pyvenv.cfg", {"uv", "pip"}, "/ve/bin/python -m pip install 'apprise>=1.9.3'"),
        (
            "pyvenv.cfg",
            set(),
            "/ve/bin/python -m ensurepip && /ve/bin/python -m pip install 'apprise>=1.9.3'",
        ),
    ],
)
def test_an_extra_is_installed_where_liza_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: str, tools: set[str], command: str
) -> None:
    install(monkeypatch, tmp_path / "liza", left, tools)
    assert installation.extra_command("notify") == command


@pytest.mark.parametrize(
    ("left", "source", "upgrade", "again"),
    [
        (
            "pyvenv.cfg",
            {"url": "file:///src/liza", "dir_info": {"editable": True}},
            "git -C /src/liza pull",
            "/ve/bin/python -m pip install --force-reinstall -e /src/liza",
        ),
        ("pipx_metadata.json", {"url": "file:///src/liza"}, "pipx upgrade liza", "pipx reinstall liza"),
        (
            "uv-receipt.toml",
            None,
            "uv tool upgrade liza",
            "/ve/bin/python -m pip install --force-reinstall liza",
        ),
        (
            "pyvenv.cfg",
            {"url": "https://host.example/liza", "vcs_info": {"vcs": "git"}},
            "/ve/bin/python -m pip install --upgrade git+https://host.example/liza",
            "/ve/bin/python -m pip install --force-reinstall git+https://host.example/liza",
        ),
    ],
)
def test_liza_is_renewed_from_where_it_came(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, left: str, source: dict[str, object], upgrade: str, again: str
) -> None:
    install(monkeypatch, tmp_path / "liza", left, {"pip"}, source)
    assert (installation.upgrade_command(), installation.reinstall_command()) == (upgrade, again)


def test_this_installation_names_the_packages_of_its_extras() -> None:
    assert "'apprise>=" in installation.extra_command("notify")
    assert installation.distribution(installation.NAME).requires
    assert installation.find_spec("liza")
