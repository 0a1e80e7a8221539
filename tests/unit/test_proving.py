"""The proof that tests test the checkout they run in: which sources are made to fail, and what a run shows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.rules.model import Config, TestProof
from liza.rules.project import test_proof
from liza.rules.project.breakage import BREAKAGE_MARK, broken_source
from liza.rules.project.test_proof import (
    NotProved,
    ProofObservation,
    ProofOutcome,
    Proved,
    is_proof_due,
    judge_proof,
    to_test_proof,
    unproved_reason,
)

SOURCES = ("src/invo/__init__.py", "src/invo/sums.py")
SEEN = ProofObservation(exit_status=0, broken=SOURCES)


@pytest.mark.parametrize(
    "name",
    [
        "src/invo/sums.py",
        "lib/a.mjs",
        "web/App.tsx",
        "bin/deploy.sh",
        "cmd/x/main.go",
        "src/lib.rs",
        "a.c",
        "latest.py",
    ],
)
def test_a_source_is_replaced_by_one_that_fails(name: str) -> None:
    assert BREAKAGE_MARK in str(broken_source(name, ""))


@pytest.mark.parametrize(
    "name",
    [
        "tests/helpers.py", "src/invo/test_sums.py", "conftest.py", "web/App.test.tsx", "x/__tests__/a.js", "a_test.go",
        "setup.py", "jest.config.js", "types/x.d.ts", ".github/x.py", "test.js", "README.md", "data.yaml", "LICENSE",
    ],
)  # fmt: skip
def test_tests_settings_of_tools_and_texts_stay_as_they_are(name: str) -> None:
    assert broken_source(name, "") is None


def test_a_script_is_known_by_its_first_line_and_keeps_it() -> None:
    assert broken_source("bin/tool", "#!/usr/bin/env -S python3.11 -u") == (
        f'#!/usr/bin/env -S python3.11 -u\nraise RuntimeError("{BREAKAGE_MARK}")\n'
    )
    assert str(broken_source("bin/tool", "#! /bin/sh")).endswith("exit 97\n")
    assert broken_source("bin/tool", "ELF") is None


def test_a_script_that_starts_the_tests_is_a_part_of_them_and_a_compiled_source_is_not() -> None:
    assert broken_source("check.sh", "#!/bin/sh", "./check.sh --all") is None
    assert broken_source("ci/check.sh", "#!/bin/sh", "sh check.sh") is not None
    assert broken_source("main.c", "", "cc main.c && ./a.out") is not None


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (ProofObservation(exit_status=1, broken=SOURCES), Proved()),
        (ProofObservation(exit_status=1, broken=SOURCES, lines_with_path=("Makefile:3",)), Proved()),
        (
            ProofObservation(exit_status=1, broken=SOURCES, copies=("/site/invo/__init__.py",)),
            test_proof.TestsAnotherCheckout(("the installed /site/invo/__init__.py",), "cure"),
        ),
        (
            ProofObservation(
                exit_status=1, broken=SOURCES, untraced=("loads of Python were not noted, and x.pth leads to /me/invo",)
            ),
            NotProved("loads of Python were not noted, and x.pth leads to /me/invo"),
        ),
        (ProofObservation(exit_status=0), NotProved("the repository has no source of a kind that can be made to fail")),
        (
            SEEN,
            NotProved("2 source files were made to fail and the tests stayed green: they do not run them"),
        ),
        (
            ProofObservation(exit_status=None, broken=SOURCES),
            NotProved("the tests did not end in time when the sources were made to fail"),
        ),
        (
            ProofObservation(exit_status=1, broken=SOURCES, checkout=SOURCES[:1], programs=("/v/bin/python",)),
            test_proof.TestsAnotherCheckout(
                ("src/invo/__init__.py in your checkout /me/invo (by /v/bin/python)",), "cure"
            ),
        ),
        (
            ProofObservation(exit_status=0, broken=SOURCES, copies=("/site/invo/__init__.py",)),
            test_proof.TestsAnotherCheckout(("the installed /site/invo/__init__.py",), "cure"),
        ),
        (
            ProofObservation(exit_status=0, broken=SOURCES, lines_with_path=("Makefile:3",)),
            test_proof.TestsAnotherCheckout(("/me/invo, which is named in Makefile:3",), "cure"),
        ),
    ],
)
def test_only_positive_evidence_says_that_another_checkout_is_tested(
    seen: ProofObservation, outcome: ProofOutcome
) -> None:
    assert judge_proof(seen, "/me/invo", "cure") == outcome


def test_a_proof_holds_for_one_command_and_set_up_and_a_person_who_wants_none_is_not_asked_again() -> None:
    config = Config(integration_command="pytest", sandbox_setup="uv sync")
    assert is_proof_due(config)
    assert unproved_reason(config) == "the proof has not run for this command"
    proved = replace(config, proof=to_test_proof(Proved(), "pytest", "uv sync"))
    assert (is_proof_due(proved), unproved_reason(proved), test_proof.tested_instead(proved)) == (False, None, None)
    assert is_proof_due(replace(proved, integration_command="tox"))
    assert is_proof_due(replace(proved, sandbox_setup=None))
    skipped = replace(config, proof=TestProof(outcome="skipped"))
    assert (is_proof_due(skipped), unproved_reason(skipped)) == (False, "the proof was turned off (--no-proof)")
    wrong = replace(
        config, proof=to_test_proof(test_proof.TestsAnotherCheckout(("/me/invo",), "cure"), "pytest", "uv sync")
    )
    assert (is_proof_due(wrong), test_proof.tested_instead(wrong)) == (False, "/me/invo")
    assert test_proof.tested_instead(replace(wrong, integration_command="uv run pytest")) is None
    assert (is_proof_due(Config()), unproved_reason(Config())) == (False, None)


def test_a_package_is_known_by_how_its_files_end_where_it_is_installed() -> None:
    sources = ("src/invo/a.py", "top/b.py", "one.py", "api/src/app/c.py", "web/d.py", "vendor/six/e.py")
    assert test_proof.installed_suffixes(sources, (*sources, "api/pyproject.toml")) == {
        "invo/a.py", "top/b.py", "app/c.py", "web/d.py", "api/src/app/c.py",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("exec /me/invo/tool", True), ('ROOT="/me/invo"', True), ("cc -I/me/invo/include", True),
        ("url = file:///me/invo", True), ("in /me/invo.", True), ("cd /me/invo-data", False),
        ("/me/invo.worktrees/x", False), ("/mnt/me/invo", False), ("/me/invoice", False),
    ],
)  # fmt: skip
def test_a_path_is_named_by_whole_components_only(line: str, named: bool) -> None:
    assert test_proof.contains_path(line, "/me/invo") is named


@pytest.mark.parametrize(
    ("command", "nothing"),
    [
        (".venv/bin/python -I t.py", True), ("python3.12 -u -E -m pytest", True), ("python -sI t.py", True),
        ("env -i PATH=/bin sh t.sh", True), ("python -m pytest -I", False), ("env A=b python t.py", False),
        ("python t.py -E", False),
    ],
)  # fmt: skip
def test_python_that_is_isolated_notes_nothing(command: str, nothing: bool) -> None:
    assert test_proof.is_untraced_command(command) is nothing


def test_documentation_is_read_by_no_test() -> None:
    assert [name for name in ("README.md", "doc/a.rst", "LICENSE", "a.txt", "Makefile", "x.sh", "requirements.txt")
            if test_proof.is_documentation(name)] == ["README.md", "doc/a.rst", "LICENSE", "a.txt"]  # fmt: skip


def test_a_project_is_known_by_the_names_in_its_build_files() -> None:
    files = {
        "pyproject.toml": '[project]\nname = "My_Invo.x"\n[tool.poetry]\nname = "other"\n',
        "api/setup.cfg": "[metadata]\nname = api\n",
        "b/setup.py": "setup(name='b-c', version='1')\n",
        "c/pyproject.toml": "[tool.x]\nname = 1\n",
    }
    assert test_proof.distribution_names(files) == {"my-invo-x", "other", "api", "b-c"}


@pytest.mark.parametrize(
    ("proof", "command"),
    [
        (TestProof(), "liza doctor --tests"),
        (TestProof(outcome="skipped", command="t"), "liza doctor --tests"),
        (TestProof(outcome="unproved", command="old", why="red (see .liza/logs/a.log)"), "liza doctor --tests"),
        (TestProof(outcome="unproved", command="t", why="red (see .liza/logs/a.log)"), "less .liza/logs/a.log"),
        (TestProof(outcome="unproved", command="t", why="stayed green"), "liza edit && liza doctor --tests"),
        (TestProof(outcome="unproved", command="t", why=test_proof.NO_SOURCE), ""),
        (TestProof(outcome="proved", command="t"), ""),
    ],
)
def test_a_proof_that_has_run_and_proved_nothing_does_not_advise_to_run_it_again(
    proof: TestProof, command: str
) -> None:
    assert test_proof.unproved_command(Config(integration_command="t", proof=proof)) == command
