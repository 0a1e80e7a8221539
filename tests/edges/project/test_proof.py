"""The proof that tests test the worktree they run in, with real interpreters; and the project as the doctor sees it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from liza.crew.crew import Crew, find_crew
from liza.crew.result import Result
from liza.git import slot_setup
from liza.git.runner import Git
from liza.landing.sync import sync
from liza.merging.merge import merge
from liza.merging.queue import show_queue
from liza.merging.rules import merge_queue, merge_rules
from liza.model.configuration import Config, Gate
from liza.model.errors import Finding, Missing, Refused
from liza.model.model import Status
from liza.project import detect
from liza.project.baseline import InitOptions
from liza.project.config_verb import set_setting
from liza.project.init import init
from liza.recovery.doctor import doctor
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.submit import submit
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from liza.view.status import status
from tests.conftest import commit_all, git, variant
from tests.edges.merging.test_merge_failures import needs_setpriv, unprivileged

PYTHON = Path(sys.executable)
UNITTEST = f"{PYTHON} -m unittest discover -s tests -q"
SUMS = "def add(a, b):\n    return a + b\n"
TEST = """\
import unittest
from invo.sums import add

class Sums(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)
"""


@pytest.fixture
def package(repo: Path) -> Path:
    """A Python project in src layout, committed."""
    (repo / "src" / "invo").mkdir(parents=True)
    (repo / "src" / "invo" / "__init__.py").write_text("")
    (repo / "src" / "invo" / "sums.py").write_text(SUMS)
    (repo / "tests").mkdir()
    (repo / "tests" / "test_sums.py").write_text(TEST)
    (repo / "pyproject.toml").write_text('[project]\nname = "invo"\nversion = "1"\n')
    (repo / ".gitignore").write_text("__pycache__/\n/.venv/\n")
    commit(repo)
    return repo


def commit(root: Path) -> None:
    commit_all(root, "files")


def begun(root: Path, test: str, **more: object) -> tuple[Result, dict[str, str]]:
    facts: dict[str, str] = {}
    options = InitOptions(goal="g", test=test, **more)  # type: ignore[arg-type]
    return init(root, options, lambda name, text: facts.__setitem__(name, text)), facts


def environment(place: Path, *lines: str) -> Path:
    """A virtual environment without pip; ``lines`` go into a ``.pth`` file, as an editable install writes it."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python3*/site-packages")
    (site / "__editable__.invo-1.pth").write_text("".join(f"{line}\n" for line in lines))
    return place


def proof(crew: Crew) -> tuple[str, str]:
    kept = crew.board.read().config.proof
    return kept.outcome, kept.why


def test_tests_that_fail_with_their_own_sources_are_proved(
    package: Path,
) -> None:
    before = git(package, "status", "--porcelain"), git(package, "for-each-ref", "refs/liza/salvage")
    _, facts = begun(package, f"PYTHONPATH=src {UNITTEST}")
    assert facts["proof"] == "the tests fail when the sources of their own worktree fail"
    crew = find_crew(package)
    assert proof(crew) == ("proved", "")
    assert status(crew).fields()["tests"]["not_proved"] is None
    assert not crew.worktrees.exists("proof")
    assert not crew.paths.slot("proof").exists()
    assert (git(package, "status", "--porcelain"), git(package, "for-each-ref", "refs/liza/salvage")) == before
    assert (package / "src" / "invo" / "sums.py").read_text() == SUMS


def test_a_command_that_only_prepares_a_test_is_untested(package: Path) -> None:
    _, facts = begun(package, "cd src && true")
    assert facts["proof"] == "untested: `true` stays green when all sources fail"
    assert facts["untested"].endswith("liza config set unproved_commands true")
    assert find_crew(package).board.read().config.proof.green_parts == ("true",)


def test_tests_without_sources_run_once_and_stay_unproved(repo: Path, tmp_path: Path) -> None:
    begun(repo, f"echo run >> {tmp_path}/runs")
    assert (tmp_path / "runs").read_text() == "run\n"
    assert proof(find_crew(repo)) == ("unproved", "the repository has no source of a kind that can be made to fail")


def test_tests_that_import_the_persons_checkout_are_refused_by_name(package: Path) -> None:
    venv = environment(package / ".venv", f"{package}/src")
    with pytest.raises(Refused) as refused:
        begun(package, f"{venv}/bin/python -m unittest discover -s tests -q")
    assert f"uses {venv}: __editable__.invo-1.pth leads to {package}/src" in refused.value.message
    setup = "python3 -m venv .venv && .venv/bin/pip install -q -e ."
    wanted = f'liza init g --setup "{setup}" --test ".venv/bin/python -m unittest discover -s tests -q"'
    assert refused.value.hint == f"{wanted}; or go without: --no-proof"
    assert not (package / ".liza").exists()


def test_red_tests_using_the_persons_checkout_prove_nothing(package: Path) -> None:
    (package / "here").mkdir()
    (package / "here" / "__init__.py").write_text("")
    (package / "tests" / "test_here.py").write_text("import here\n")
    commit(package)
    venv = environment(package / ".venv", f"{package}/src")
    with pytest.raises(Refused, match=r"__editable__.invo-1.pth leads to .*/src"):
        begun(package, f"{venv}/bin/python -m unittest discover -s tests -q")


def test_tests_that_import_an_installed_copy_are_refused(package: Path, tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv")
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "invo").mkdir()
    (site / "invo" / "__init__.py").write_text("")
    (site / "invo" / "sums.py").write_text(SUMS)
    with pytest.raises(Refused, match=r"uses the installed .*/site-packages/invo/__init__\.py"):
        begun(package, f"{venv}/bin/python -m unittest discover -s tests -q")


def with_a_part_that_fails(package: Path) -> str:
    """The beginning of a test command that is red as soon as sources fail, whatever the rest of it uses."""
    (package / "tool.sh").write_text("exit 0\n")
    (package / "tests" / "cli.sh").write_text("sh tool.sh\n")
    commit(package)
    return "sh tests/cli.sh && "


def copied(source: Path, *parts: Path | str) -> Path:
    """Where a package is copied to, without the notes that an installer leaves."""
    place = Path(*parts)
    place.mkdir(parents=True)
    for path in source.glob("*.py"):
        (place / path.name).write_text(path.read_text())
    return place


@pytest.mark.campaign
def test_an_installed_copy_counts_despite_other_red_tests(package: Path, tmp_path: Path) -> None:
    part = with_a_part_that_fails(package)
    venv = environment(tmp_path / "venv")
    (site,) = venv.glob("lib/python3*/site-packages")
    copied(package / "src" / "invo", site, "invo")
    with pytest.raises(Refused, match=r"uses the installed .*/site-packages/invo/__init__\.py"):
        begun(package, f"{part}{venv}/bin/python -m unittest discover -s tests -q", setup="true")


def test_an_installed_copy_is_made_for_each_candidate(package: Path) -> None:
    setup = f"{PYTHON} -m venv --without-pip .venv && cp -r src/invo .venv/lib/python3*/site-packages/"
    test = f"{with_a_part_that_fails(package)}.venv/bin/python -m unittest discover -s tests -q"
    _, facts = begun(package, test, setup=setup)
    assert facts["proof"] == "the tests fail when the sources of their own worktree fail"
    assert find_crew(package).board.read().config.proof.setup_builds


@pytest.mark.campaign
def test_tests_that_rebuild_a_copy_of_their_worktree_are_proved(package: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    _, facts = begun(package, f"rm -rf {place} && cp -r src {place} && PYTHONPATH={place} {UNITTEST}")
    assert facts["proof"] == "the tests fail when the sources of their own worktree fail"


@pytest.mark.campaign
@pytest.mark.parametrize("way", ["{venv} -I", "env -i {venv}"], ids=["isolated", "emptied"])
def test_an_environment_of_the_checkout_counts_however_python_is_started(
    package: Path, tmp_path: Path, way: str
) -> None:
    venv = environment(tmp_path / "venv", f"{package}/src")
    python = way.format(venv=venv / "bin" / "python")
    with pytest.raises(Refused, match=r"__editable__.invo-1.pth leads to .*/src"):
        begun(package, f"{with_a_part_that_fails(package)}{python} -m unittest discover -s tests -q")


@pytest.mark.campaign
def test_an_environment_of_the_checkout_is_ignored_beside_own_sources(package: Path, tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv", f"{package}/src")
    begun(package, f"PYTHONPATH=src {venv}/bin/python -m unittest discover -s tests -q")
    assert proof(find_crew(package)) == ("proved", "")


@pytest.mark.campaign
@pytest.mark.needs("node")
def test_node_modules_above_that_lead_to_the_checkout_are_refused(package: Path) -> None:
    (package / "add.mjs").write_text("export const add = (a, b) => a + b;\n")
    (package / "tests" / "add.mjs").write_text('import { add } from "invo/add.mjs";\nif (add(1, 2) !== 3) throw 1;\n')
    command = f"{with_a_part_that_fails(package)}node tests/add.mjs"
    above = package.parent / "node_modules"
    above.mkdir()
    (above / "invo").symlink_to(package)
    with pytest.raises(Refused, match=f"uses {above}/invo leads to {package}"):
        begun(package, command)


@pytest.mark.campaign
def test_another_distribution_named_like_a_module_is_no_project_copy(package: Path, tmp_path: Path) -> None:
    (package / "six").mkdir()
    (package / "six" / "__init__.py").write_text("PY3 = True\n")
    (package / "tests" / "six_is_there.py").write_text("import six\n")
    commit(package)
    venv = environment(tmp_path / "venv")
    (site,) = venv.glob("lib/python3*/site-packages")
    there = copied(package / "six", site, "six") / "__init__.py"
    there.write_text("PY3 = 3\n")
    begun(package, f"{venv}/bin/python tests/six_is_there.py")
    outcome, reason = proof(find_crew(package))
    assert outcome == "unproved"
    assert reason.endswith("stays green when all sources fail")

    there.write_text((package / "six" / "__init__.py").read_text())
    doctor(package, tests=True)
    assert proof(find_crew(package))[0] == "elsewhere"


def test_a_path_in_documentation_names_no_checkout(repo: Path) -> None:
    (repo / "tool.py").write_text("pass\n")
    (repo / "README.md").write_text(f"cd {repo}\n")
    (repo / "check.sh").write_text(f"# {repo}-data\n: {repo}.worktrees /mnt{repo}\n")
    commit(repo)
    begun(repo, "sh check.sh")
    why = "`sh check.sh` stays green when all sources fail"
    assert proof(find_crew(repo)) == ("unproved", why)


def test_tests_naming_the_persons_checkout_are_refused_in_any_language(repo: Path) -> None:
    (repo / "tool").write_text("#!/bin/sh\nexit 0\n")
    (repo / "tool").chmod(0o755)
    (repo / "check.sh").write_text(f"#!/bin/sh\nexec {repo}/tool\n")
    commit(repo)
    with pytest.raises(Refused, match=r"which is named in check.sh:2"):
        begun(repo, "sh check.sh")


def test_tests_without_a_proof_are_accepted_and_shown_in_status(package: Path) -> None:
    venv = environment(package / ".venv", f"{package}/src")
    begun(package, f"{venv}/bin/python -m unittest discover -s tests -q", no_proof=True)
    assert status(find_crew(package)).fields()["tests"]["not_proved"] == "the proof was turned off (--no-proof)"


@pytest.mark.campaign
def test_source_is_never_replaced_through_a_link_of_the_tests(package: Path) -> None:
    command = f"rm -rf src && ln -s {package}/src src && PYTHONPATH=src {UNITTEST}"
    begun(package, command, no_proof=True, accept_red=True)
    crew = find_crew(package)
    report = doctor(package, tests=True)
    assert (package / "src" / "invo" / "sums.py").read_text() == SUMS
    assert git(package, "status", "--porcelain") == ""
    assert next(one for one in report.findings if one.about == "proof").text.startswith("the tests do not test")
    assert proof(crew)[0] == "elsewhere"


@pytest.mark.campaign
@needs_setpriv
def test_files_left_by_tests_make_no_proof_and_are_removed(package: Path) -> None:
    test = "mkdir -p mod/x && touch mod/x/f && chmod -R a-w mod"
    done = unprivileged(package, "init", "g", "--test", test)
    assert (done.returncode, "untested: `" in done.stdout) == (0, True), done.stderr
    crew = find_crew(package)
    assert not crew.paths.slot("proof").exists()


@pytest.mark.campaign
def test_a_missing_test_runner_does_not_count_as_red(package: Path) -> None:
    with pytest.raises(Missing, match="the tests do not start: no-such-runner is missing"):
        begun(package, "no-such-runner -q", accept_red=True)
    with pytest.raises(Missing, match="the set-up does not start: no-such-tool is missing"):
        begun(package, "true", setup="no-such-tool sync")


@pytest.mark.campaign
def test_an_environment_with_dependencies_only_stays_in_use(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv = environment(package / ".venv", str(tmp_path))
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    monkeypatch.setenv("PATH", f"{venv}/bin", prepend=":")
    test = '[ "$(command -v python3)" = "%s/bin/python3" ] && PYTHONPATH=src python3 -m unittest discover -s tests -q'
    _, facts = begun(package, test % venv)
    assert "holds dependencies only" in facts["python"]
    assert find_crew(package).board.read().config.environment == str(venv)

    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "__editable__.invo-1.pth").write_text(f"{package}/src\n")
    assert [link.text for link in detect.find_checkout_links(venv, package)] == [
        f"__editable__.invo-1.pth leads to {package}/src"
    ]
    found = about(package, "python")
    assert (found.ok, "has this checkout installed" in found.text) == (False, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("__editable___invo_1_finder.py", "import sys\nMAPPING: dict[str, str] = {{'invo': '{root}/src/invo'}}\n"),
        ("invo.egg-link", "{root}/src\n../\n"),
        ("invo-1.dist-info/direct_url.json", '{{"url": "file://{root}", "dir_info": {{"editable": true}}}}'),
    ],
    ids=["finder", "egg-link", "url"],
)
def test_each_way_to_install_a_checkout_is_found(package: Path, tmp_path: Path, name: str, text: str) -> None:
    venv = environment(tmp_path / "venv")
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_text(text.format(root=package))
    found = detect.find_checkout_links(venv, package)
    assert [link.text.startswith(f"{name} leads to {package}") for link in found] == [True]
    assert detect.find_checkout_links(venv, tmp_path / "other") == ()


def about(root: Path, name: str) -> Finding:
    (found,) = [one for one in doctor(root).findings if one.about == name]
    return found


@pytest.mark.campaign
def test_doctor_names_commands_that_cannot_start_and_files_worktrees_lack(repo: Path) -> None:
    (repo / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (repo / "poetry.lock").write_text("")
    (repo / "package.json").write_text("{}\n")
    (repo / ".pre-commit-config.yaml").write_text("repos: []\n")
    (repo / ".gitattributes").write_text("*.psd filter=lfs diff=lfs\n")
    (repo.parent / "node_modules").mkdir()
    commit(repo)
    assert about(repo, "tests").text == "poetry run pytest -q (pyproject.toml): it does not start: poetry is missing"
    assert about(repo, "set-up").hint == 'liza init "…" --setup "make deps"'
    assert "not installed: no commits are checked" in about(repo, "hooks").text
    (repo / "node_modules").mkdir()  # the worktrees will lie beside the repository, and do not find it
    assert f" {repo.parent}/node_modules " in about(repo, "node").text
    command, _, directory = about(repo, "node").hint.rpartition(" ")
    assert command == 'liza init "…" --worktrees'
    assert not [above for above in Path(directory).parents if (above / "node_modules").exists()]
    assert not about(repo, "lfs").ok


@pytest.mark.needs("git-lfs")
def test_doctor_does_not_ask_for_an_installed_git_lfs(repo: Path) -> None:
    (repo / ".gitattributes").write_text("*.psd filter=lfs diff=lfs\n")
    assert [finding for finding in doctor(repo).findings if finding.about == "lfs"] == []


def test_before_init_the_doctor_judges_by_what_init_will_choose(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (repo / ".gitmodules").write_text('[submodule "lib"]\n\tpath = lib\n\turl = ../lib\n')
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{git(repo, 'rev-parse', 'HEAD')},lib")
    git(repo, "add", ".gitmodules")
    git(repo, "commit", "-qm", "a submodule")
    found = doctor(repo).findings
    assert [one.text for one in found if one.about == "set-up"] == [
        "git submodule update --init --recursive (.gitmodules, lib)"
    ]
    assert [one for one in found if one.about == "submodules"] == []
    (program,) = [one for one in found if one.about == "claude"]
    assert program.ok
    assert program.hint.startswith("npm install")

    git(repo, "rm", "-q", "--cached", "lib")
    git(repo, "rm", "-qf", ".gitmodules")
    venv = environment(repo / ".venv", f"{repo}/src")
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    monkeypatch.setenv("PATH", f"{venv}/bin:{os.environ['PATH']}")
    (python,) = [one for one in doctor(repo).findings if one.about == "python"]
    assert "it has this checkout installed" in python.text
    assert python.text.endswith("init will need --setup and --test")
    assert python.hint.startswith('liza init "…" --test "your tests" --setup "make deps"')


def test_the_doctor_shows_the_disk_that_worktrees_use(package: Path) -> None:
    begun(package, "true")
    crew = find_crew(package)
    crew.worktrees.detach("planner-1", "integration", "planner-1.1")
    (crew.paths.slot("planner-1") / "big").write_bytes(b"x" * 3_000_000)
    assert about(package, "disk").text.startswith("3 MB in 1 worktree below ")


def test_a_submodule_that_moves_makes_the_set_up_due_again(repo: Path, tmp_path: Path) -> None:
    sub = tmp_path / "sub"
    subprocess.run(["git", "init", "-q", sub], check=True)
    for number in (1, 2):
        (sub / "file").write_text(str(number))
        commit(sub)
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(sub), "vendor/sub")
    commit(repo)
    config = Config(sandbox_setup="fetch", sandbox_setup_files=(".gitmodules", "vendor/sub"))
    slot_setup.mark_setup_done(repo, Git(repo), config)
    assert not slot_setup.is_setup_due(repo, Git(repo), config)
    git(repo / "vendor" / "sub", "checkout", "-q", "HEAD~1")
    commit(repo)
    assert slot_setup.is_setup_due(repo, Git(repo), config)


def approved(crew: Crew, task: str, files: Mapping[str, str] = MappingProxyType({})) -> None:
    """A task whose work is a file of its own, and ``files``, ready to be merged."""
    add(crew, [TaskFields(task, "Write", "it is there", f"{task}.txt", "README.md")])
    run = str(claim(crew, "coder-1", task).details["run"])
    there = crew.paths.slot(str(crew.board.read().task(task).worktree))  # type: ignore[union-attr]
    for name, text in {f"{task}.txt": run, **files}.items():
        (there / name).write_text(text)
    commit(there)
    with chdir(there):
        submit(find_crew(crew.paths.root))
    verdict(crew, "approve", "seen", task_id=task)


def configured(crew: Crew, **settings: object) -> None:
    """As by a person with `liza edit`."""
    with crew.change("human:test", "edit") as tx:
        tx.state = replace(tx.state, config=replace(tx.state.config, **settings))


@pytest.mark.campaign
def test_a_changed_test_command_must_be_proved_before_it_counts(
    package: Path,
) -> None:
    begun(package, f"PYTHONPATH=src {UNITTEST}")
    crew = find_crew(package)
    approved(crew, "a")
    before = git(package, "rev-parse", "integration")
    configured(crew, integration_command=f"PYTHONPATH={package}/src {UNITTEST}")
    with pytest.raises(Refused, match=r"does not test the worktree it runs in, it uses .*named in `PYTHONPATH="):
        merge(crew, "a")
    state = crew.board.read()
    assert (proof(crew)[0], git(package, "rev-parse", "integration")) == ("elsewhere", before)
    assert merge_rules.next_to_merge(state, crew.clock.now()) is None
    assert state.task("a").status is Status.APPROVED  # type: ignore[union-attr]
    (alarm,) = [one for one in status(crew).fields()["alerts"] if one["kind"] == "tests_elsewhere"]
    assert alarm["message"].startswith("nothing is merged: ")
    assert alarm["message"].endswith("change config.integration_command or config.sandbox_setup")

    # What a person brings in may be the cure: it comes in, and not as tested.
    (package / "new").write_text("x\n")
    commit(package)
    assert sync(crew).details["tested"] is False

    configured(crew, integration_command=f"PYTHONPATH=./src {UNITTEST}")
    # What the merger of an agent saw counts, though no person confirms it.
    assert merge(crew, "a", supervisor="coder-1").details["tested"] is True
    assert proof(crew) == ("proved", "")
    assert not [one for one in status(crew).fields()["alerts"] if "config.proof" in one["message"]]
    assert about(package, "proof").text == "the tests fail when the sources of their own worktree fail"


@pytest.fixture
def scripts(repo: Path) -> Path:
    """A project of shell scripts in two directories, each with a test, committed: its tests take no time."""
    for name in ("a", "b"):
        (repo / name).mkdir()
        (repo / name / "lib.sh").write_text(f"echo {name}\n")
        (repo / "tests").mkdir(exist_ok=True)
        (repo / "tests" / f"{name}.sh").write_text(f'[ "$(sh {name}/lib.sh)" = {name} ]\n')
    (repo / ".gitignore").write_text("built/\nkept/\nlog\n")
    commit(repo)
    return repo


def write(root: Path, name: str, text: str) -> None:
    (root / name).write_text(text)
    (root / name).chmod(0o755)
    commit(root)


A, B = "sh tests/a.sh", "sh tests/b.sh"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("command", "green"),
    [
        (f"{A} && {B}", ()),
        (f"set -e\ncd tests\ncd ..\n{A}\n{B}\necho ok", ()),
        variant(f"{A} && python3 -c pass", ("python3 -c pass",)),
        variant(f"{A} | tee log", (f"{A} | tee log",)),
        variant(f"{A} || true", (f"{A} || true",)),
        variant(f"{A}; echo done", (A,)),
        variant(f"{A} && {B}; true", (A, B)),
        variant(f"{A} &", (f"{A} &",)),
        variant(f"{A}; s=$?; {B}; exit $s", ()),
        variant("for t in a b; do sh tests/$t.sh || exit 1; done; echo ok", ()),
    ],
)  # fmt: skip
def test_each_part_of_a_command_must_fail_without_sources(scripts: Path, command: str, green: tuple[str, ...]) -> None:
    begun(scripts, command)
    kept = find_crew(scripts).board.read().config.proof
    assert (kept.green_parts, kept.outcome) == (green, "unproved" if green else "proved")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "command", "shape"),
    [
        ("#!/bin/sh\n[ -n \"$(git diff --name-only HEAD)\" ] || exit 0\nsh tests/a.sh\n", "./t",
         "it tests uncommitted changes only: `git diff --name-only HEAD`, and a candidate is committed"),
        ("#!/bin/sh\n[ -d kept ] && { echo cache hit; exit 0; }\nsh tests/a.sh && mkdir kept\n", "./t",
         "it shows a cached result: cache hit"),
        variant("#!/bin/sh\necho '3 skipped in 0.01s'\nsh tests/a.sh\n", "./t", "all were skipped or deselected"),
        pytest.param(
            "test:\n\t-sh tests/a.sh\n", "make -f t test", "make ignores the error: `-` before a recipe",
            marks=pytest.mark.needs("make"),
        ),
        pytest.param(
            "tests:\n\tsh tests/a.sh\n", "make -f t tests",
            "a file or directory has the name of the make target tests", marks=pytest.mark.needs("make"),
        ),
        variant("#!/bin/sh\nsh tests/a.sh || echo No tests found\n", "./t", "it ran no test: No tests found"),
    ],
    ids=["uncommitted", "cached", "skipped", "ignored", "up-to-date", "none"],
)  # fmt: skip
def test_a_green_part_is_untested_and_its_cause_is_named(scripts: Path, text: str, command: str, shape: str) -> None:
    write(scripts, "t", text)
    _, facts = begun(scripts, command)
    assert facts["proof"].startswith(f"untested: `{command}` ")
    assert facts["proof"].endswith(shape)
    assert facts["untested"].endswith(accepting(command))


def accepting(part: str) -> str:
    return f"liza config set unproved_commands {shlex.quote(part)}"


@pytest.mark.campaign
def test_merges_wait_for_a_person_while_a_part_is_untested(scripts: Path) -> None:
    begun(scripts, f"{A} && python3 -c pass")
    crew = find_crew(scripts)
    for task in ("a", "b", "c"):
        approved(crew, task)
    reason = "`python3 -c pass` stays green when all sources fail"
    with pytest.raises(Refused, match=f"nothing is merged: {re.escape(reason)}"):
        merge(crew, "a")
    assert merge_rules.next_to_merge(crew.board.read(), crew.clock.now()) is None
    (alarm,) = [one for one in status(crew).fields()["alerts"] if one["kind"] == "tests_green"]
    assert (reason in alarm["message"], alarm["next"]) == (True, accepting("python3 -c pass"))
    assert about(scripts, "proof").hint == accepting("python3 -c pass")

    merge(crew, "a", untested=True)
    task = crew.board.read().task("a")
    assert task is not None
    assert (task.status, task.tested, task.remarks) == (Status.MERGED, False, ())

    set_setting(crew, "unproved_commands", "python3 -c pass")
    merge(crew, "b")
    task = crew.board.read().task("b")
    assert task is not None
    assert (task.status, task.tested, task.remarks) == (Status.MERGED, False, (reason,))
    assert not [one for one in status(crew).fields()["alerts"] if one["kind"] == "tests_green"]


@pytest.mark.campaign
def test_a_gate_that_notices_no_failing_source_is_untested(scripts: Path) -> None:
    begun(scripts, A)
    crew = find_crew(scripts)
    configured(crew, gates=(Gate(name="style", command="python3 -c pass"), Gate(name="b", command=B, paths=("b/*",))))
    approved(crew, "a")
    with pytest.raises(Refused, match="`python3 -c pass` stays green"):
        merge(crew, "a")
    assert crew.board.read().config.proof.green_parts == ("python3 -c pass",)


LAST = """\
#!/bin/sh
for d in $(git log --name-only --format= {base}..HEAD | sed -n 's,/lib.sh,,p'); do sh tests/$d.sh || exit 1; done
"""


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("base", "is_last"),
    [("HEAD~1", True), variant("$(git rev-list -n 2 HEAD | tail -n 1)", True), variant("$LIZA_BASE", False)],
    ids=["named", "hidden", "base"],
)
def test_tests_of_the_last_commit_are_detected_and_candidates_unbatched(
    scripts: Path, base: str, is_last: bool
) -> None:
    write(scripts, "t", LAST.format(base=base))
    _, facts = begun(scripts, "./t")
    assert ("candidates are tested one by one" in facts.get("range", "")) is is_last
    crew = find_crew(scripts)
    for task in ("a", "b"):
        approved(crew, task)
    state = crew.board.read()
    batch = merge_queue.choose_batch(state, state.tasks[0], crew.clock.now())
    assert len(batch) == (1 if is_last else 2)
    assert {row.batch for row in show_queue(crew).queue} == ({1, 2} if is_last else {1})


def test_sources_that_no_test_examines_are_named(scripts: Path) -> None:
    _, facts = begun(scripts, B)
    assert facts["range"] == "not examined: a: the tests stay green when only these sources fail"
    assert about(scripts, "proof").text.endswith("; not examined: a")


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("setup", "builds"),
    [
        ("rm -rf built && mkdir built && cp a/lib.sh built/", True),
        variant("mkdir -p node_modules && date > node_modules/x", False),
    ],
    ids=["builds", "installs"],
)
def test_a_set_up_that_builds_runs_for_each_candidate(scripts: Path, tmp_path: Path, setup: str, builds: bool) -> None:
    (scripts / "tests" / "a.sh").write_text('[ "$(sh built/lib.sh)" = a ]\n' if builds else "sh a/lib.sh\n")
    (scripts / ".gitignore").write_text("built/\nnode_modules/\n")
    commit(scripts)
    _, facts = begun(scripts, A, setup=f"{setup} && echo run >> {tmp_path}/runs")
    assert facts["proof"] == "the tests fail when the sources of their own worktree fail"
    crew = find_crew(scripts)
    assert crew.board.read().config.proof.setup_builds is builds
    for task in ("a", "b"):
        approved(crew, task)
    (tmp_path / "runs").unlink()
    merge(crew, "a")
    merge(crew, "b")
    assert (tmp_path / "runs").read_text().count("run") == (2 if builds else 1)


@pytest.mark.campaign
def test_a_merge_that_changes_the_tests_outdates_the_proof(scripts: Path) -> None:
    write(scripts, "t", "#!/bin/sh\nsh tests/a.sh\n")
    begun(scripts, "./t")
    crew = find_crew(scripts)
    assert status(crew).fields()["tests"]["outdated"] is None
    approved(crew, "a", {"t": "#!/bin/sh\nsh tests/a.sh || true\n"})
    merge(crew, "a")
    assert status(crew).fields()["tests"]["outdated"] == "the proof is of before t changed"
    approved(crew, "b")
    merge(crew, "b")  # a merge does not wait for the proof
    assert status(crew).fields()["tests"]["outdated"] == "the proof is of before t changed"
    doctor(scripts, tests=True)
    assert status(crew).fields()["tests"]["outdated"] is None
    assert crew.board.read().config.proof.green_parts == ("./t",)
