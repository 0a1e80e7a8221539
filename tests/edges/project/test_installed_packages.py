"""The packages that tests use are as they were installed, and no slot shares their files with another environment."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from liza.git.runner import Git
from liza.project import commands, installed_packages
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.project.rules.package_records import packages_digest
from liza.tasks.verdict import verdict
from tests.edges.merge_crew import Merges, prepared

SITE = "lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a crew, made once and copied for each test."""
    with prepared(tmp_path_factory, ignored=".venv/\n") as root:
        return root


def digest(text: str) -> str:
    value = hashlib.sha256(text.encode()).digest()
    return f"sha256={base64.urlsafe_b64encode(value).rstrip(b'=').decode()}"


def install(environment: Path, name: str, files: dict[str, str], version: str = "1.0", installer: str = "pip") -> Path:
    """An environment with a package, as installers write it; the directory of the modules."""
    site = environment / SITE
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (environment / "pyvenv.cfg").touch()
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    (info / "INSTALLER").write_text(f"{installer}\n")
    lines = [f'"{path}",{digest(text)},{len(text)}' for path, text in files.items()]
    (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,", "dep/__pycache__/x.pyc,sha256=a,1", ""]))
    return site


def changed(root: Path, environment: Path | None = None) -> list[str]:
    return [file.name for file in installed_packages.find_changed_files(Git(root), environment and str(environment))]


def copy_as_set_up(crew: Merges, source: Path) -> None:
    """A set-up that copies an environment; ``set-ups`` counts its runs."""
    crew.configure(sandbox_setup=f"cp -R {source} .venv && echo ran >> {crew.check.parent}/set-ups")


def test_a_dependency_edited_in_the_merge_slot_is_installed_again(crew: Merges, tmp_path: Path) -> None:
    install(tmp_path / "made", "dep", {"dep.py": "GOOD = 1\n"})
    copy_as_set_up(crew, tmp_path / "made")
    module = crew.crew.paths.slot("merge") / ".venv" / SITE / "dep.py"
    crew.tests(f'cat .venv/{SITE}/dep.py >> "{tmp_path}/seen"')
    crew.approved("a")
    assert crew.merge() == ""
    module.write_text("PATCHED = 1\n")
    crew.approved("b")
    assert crew.merge() == ""
    assert (crew.task("b").status, crew.task("b").tested, crew.task("b").remarks) == ("MERGED", True, ())
    assert set((tmp_path / "seen").read_text().splitlines()) == {"GOOD = 1"}
    assert module.read_text() == "GOOD = 1\n"


@pytest.mark.campaign
def test_a_dependency_modified_by_the_set_up_waits_for_permission(crew: Merges, tmp_path: Path) -> None:
    """As from a cache in which somebody edited a file, or by a set-up that patches."""
    site = install(tmp_path / "made", "dep", {"dep/core.py": "GOOD = 1\n"}, installer="uv")
    (site / "dep/core.py").write_text("PATCHED = 1\n")
    copy_as_set_up(crew, tmp_path / "made")
    crew.approved("a")
    assert "untested: dep/core.py (dep 1.0 in .venv) is not as installed" in crew.merge()
    waiting = crew.task("a").set_aside
    assert waiting is not None
    assert (crew.status("a"), waiting.kind, waiting.hint) == ("APPROVED", "untested", "uv cache clean dep")
    crew.configure(installed_changes=("dep/*",))
    assert crew.merge("a") == ""
    assert crew.task("a").tested is False
    assert crew.task("a").remarks == ("dep/core.py (dep 1.0 in .venv) is not as installed",)


def test_an_edit_in_the_activated_environment_blames_no_task(crew: Merges, tmp_path: Path) -> None:
    site = install(tmp_path / "ve", "dep", {"dep.py": "GOOD = 1\n"})
    crew.configure(environment=str(tmp_path / "ve"))
    crew.approved("a")
    (site / "dep.py").write_text("PATCHED = 1\n")
    assert f"dep.py (dep 1.0 in {tmp_path}/ve) is not as installed" in crew.merge()
    waiting = crew.task("a").set_aside
    assert waiting is not None
    assert waiting.hint == f"{tmp_path}/ve/bin/python -m pip install --force-reinstall --no-deps dep==1.0"
    assert crew.task("a").iteration == 1
    (site / "dep.py").write_text("GOOD = 1\n")
    assert crew.merge("a") == ""
    assert crew.task("a").tested is True


@pytest.mark.campaign
def test_new_packages_in_the_activated_environment_are_reported_and_proved(crew: Merges, tmp_path: Path) -> None:
    install(tmp_path / "ve", "dep", {"dep.py": "GOOD = 1\n"})
    crew.configure(environment=str(tmp_path / "ve"))
    crew.approved("a")
    assert crew.merge() == ""
    before = crew.crew.board.read().config.proof.environment
    assert before == packages_digest(installed_packages.list_packages(str(tmp_path / "ve")))
    assert "packages_changed" not in crew.alerts()
    install(tmp_path / "ve", "other", {"other.py": "\n"}, "2.4.0")
    crew.approved("b")
    assert crew.merge() == ""
    assert f"packages of {tmp_path}/ve changed since the last proof;" in crew.alerts()
    assert crew.crew.board.read().config.proof.environment not in ("", before)


def test_init_names_patched_dependencies_and_how_to_allow_them(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install(tmp_path / "ve", "dep", {"dep.py": "GOOD = 1\n"})
    (site / "dep.py").write_text("PATCHED = 1\n")
    (tmp_path / "ve" / "bin").mkdir()
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "ve"))
    monkeypatch.setenv("PATH", f"{tmp_path}/ve/bin:{os.environ['PATH']}")
    facts: dict[str, str] = {}
    init(repo, InitOptions(goal="g", test="true"), lambda name, text: facts.__setitem__(name, text))
    assert "dep.py (dep 1.0 in" in facts["packages"]
    assert facts["packages"].endswith("merges wait until you allow it: liza config set installed_changes dep.py")


@pytest.mark.campaign
def test_ordinary_environments_are_as_installed(repo: Path, tmp_path: Path) -> None:
    """The environment of these tests, which pip made; and what other installers leave."""
    assert changed(repo, Path(sys.prefix)) == []
    site = install(repo / ".tox" / "py311", "one", {"shared.py": "1\n", "../../../bin/run": "#!x\n", "a,b.py": ""})
    install(repo / ".tox" / "py311", "two", {"shared.py": "2\n"})
    assert changed(repo) == []
    install(repo / ".tox" / "py311", "built", {"built.py": "/prefix\n"}, installer="conda")
    (site / "built.py").write_text("/here\n")
    (site / "plain-1.dist-info").mkdir()
    (site / "egg-1.egg-info").mkdir()
    assert changed(repo) == []


def test_changed_scripts_and_missing_files_are_found(repo: Path) -> None:
    site = install(
        repo / "venv", "dep", {"dep.py": "1\n", "../../../bin/run": "#!x\n", "dep/gone.py": "", "pipe.py": ""}
    )
    (repo / "venv" / "bin" / "run").write_text("#!y\n")
    (site / "dep/gone.py").unlink()
    (site / "pipe.py").unlink()
    os.mkfifo(site / "pipe.py")
    assert changed(repo) == ["bin/run", "dep/gone.py", "pipe.py"]


def test_set_up_and_tests_of_each_slot_copy_packages(crew: Merges, tmp_path: Path) -> None:
    crew.configure(sandbox_setup=f"env > {tmp_path}/set-up")
    crew.tests(f"env > {tmp_path}/tests")
    crew.approved("a")
    assert crew.merge() == ""
    wanted = {"UV_LINK_MODE=copy", "npm_config_package_import_method=copy", "pnpm_config_package_import_method=copy"}
    for name in ("set-up", "tests"):
        assert wanted <= set((tmp_path / name).read_text().splitlines())


@pytest.mark.campaign
@pytest.mark.needs("uv")
def test_an_edit_in_an_agents_environment_reaches_no_other(crew: Merges, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    python = Path(sys.base_prefix) / "bin" / "python3"
    install = f"uv pip install -q --offline --no-index --find-links {tmp_path}/wheels dep"
    set_up = f"uv venv -q --python {python} .venv && {install}"
    subprocess.run(["sh", "-c", set_up], cwd=crew.root, check=True)
    (persons,) = (crew.root / ".venv").glob("lib/python3*/site-packages/dep.py")
    assert persons.stat().st_nlink > 1  # as uv links its cache by default
    crew.configure(sandbox_setup=set_up)
    crew.tests("! grep -q PATCHED .venv/lib/python3*/site-packages/dep.py")
    there = crew.claimed("a")
    slot = crew.crew.paths.slot(there.name)
    assert commands.run_command(set_up, slot, tmp_path / "log", 60, crew.root).passed
    (own,) = (slot / ".venv").glob("lib/python3*/site-packages/dep.py")
    with own.open("a") as file:
        file.write("PATCHED = 1\n")
    crew.submitted(there)
    verdict(crew.crew, "approve", "fine", task_id="a")
    assert crew.merge() == ""
    assert crew.task("a").tested is True
    assert "PATCHED" not in persons.read_text()


def wheel(directory: Path) -> None:
    directory.mkdir()
    files = {
        "dep.py": "GOOD = 1\n",
        "dep-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: dep\nVersion: 1.0\n",
        "dep-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(directory / "dep-1.0-py3-none-any.whl", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        lines = [f"{name},{digest(text)},{len(text)}" for name, text in files.items()]
        archive.writestr("dep-1.0.dist-info/RECORD", "\n".join([*lines, "dep-1.0.dist-info/RECORD,,", ""]))
