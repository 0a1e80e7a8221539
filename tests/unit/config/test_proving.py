"""The proof that tests test the checkout they run in: which sources are made to fail, and what a run shows."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from liza.config.rules import breakage, test_proof
from liza.config.rules.breakage import BREAKAGE_MARK, broken_source, is_test
from liza.config.rules.test_proof import (
    GreenPart,
    NotProved,
    ProofObservation,
    ProofOutcome,
    Proved,
    is_proof_due,
    judge_proof,
    to_test_proof,
    unproved_reason,
)
from liza.model.configuration import Config, Gate, TestProof

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


def test_a_script_is_recognized_by_and_keeps_its_first_line() -> None:
    assert broken_source("bin/tool", "#!/usr/bin/env -S python3.11 -u") == (
        f'#!/usr/bin/env -S python3.11 -u\nraise RuntimeError("{BREAKAGE_MARK}")\n'
    )
    assert str(broken_source("bin/tool", "#! /bin/sh")).endswith("exit 97\n")
    assert broken_source("bin/tool", "ELF") is None


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (ProofObservation(exit_status=1, broken=SOURCES), Proved()),
        (ProofObservation(exit_status=1, broken=SOURCES, lines_with_path=("Makefile:3",)), Proved()),
        (
            ProofObservation(exit_status=1, broken=SOURCES, elsewhere=("the installed /site/invo/__init__.py",)),
            test_proof.TestsAnotherCheckout(("the installed /site/invo/__init__.py",), "cure"),
        ),
        (
            ProofObservation(exit_status=1, broken=SOURCES, copies=("x.pth leads to /me/invo",)),
            NotProved("x.pth leads to /me/invo"),
        ),
        (ProofObservation(exit_status=0), NotProved("the repository has no source of a kind that can be made to fail")),
        (
            replace(SEEN, green=(GreenPart("p"), GreenPart("q", "so"), GreenPart("r", runs_no_test=True))),
            NotProved(
                "`p` stays green when all sources fail; `q` stays green when all sources fail: so; `r` runs no test"
            ),
        ),
        (
            ProofObservation(exit_status=None, broken=SOURCES),
            NotProved("the tests did not end in time when the sources were made to fail"),
        ),
        (
            ProofObservation(exit_status=0, broken=SOURCES, green=(GreenPart("p"),), copies=("x.pth",)),
            NotProved("`p` stays green when all sources fail: x.pth"),
        ),
        (
            ProofObservation(exit_status=0, broken=SOURCES[:1]),
            NotProved("the command only prepares a test, and runs none"),
        ),
        (
            ProofObservation(exit_status=0, broken=SOURCES, lines_with_path=("Makefile:3",)),
            test_proof.TestsAnotherCheckout(("/me/invo, which is named in Makefile:3",), "cure"),
        ),
    ],
)
def test_only_positive_evidence_shows_that_another_checkout_is_tested(
    seen: ProofObservation, outcome: ProofOutcome
) -> None:
    assert judge_proof(seen, "/me/invo", "cure") == outcome


def test_a_proof_holds_for_one_test_command_and_set_up() -> None:
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


def test_a_package_is_recognized_by_its_installed_file_endings() -> None:
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


def test_documentation_is_read_by_no_test() -> None:
    assert [name for name in ("README.md", "doc/a.rst", "LICENSE", "a.txt", "Makefile", "x.sh", "requirements.txt")
            if test_proof.is_documentation(name)] == ["README.md", "doc/a.rst", "LICENSE", "a.txt"]  # fmt: skip


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
def test_a_proof_that_proved_nothing_does_not_advise_repetition(proof: TestProof, command: str) -> None:
    assert test_proof.unproved_command(Config(integration_command="t", proof=proof)) == command


@pytest.mark.parametrize(
    ("suffixes", "text"),
    [
        (".py .pyx", f'raise RuntimeError("{BREAKAGE_MARK}")\n'),
        (".js .mjs .cjs .jsx .ts .mts .cts .tsx", f'throw new Error("{BREAKAGE_MARK}");\n'),
        (".sh .bash .zsh", f"echo '{BREAKAGE_MARK}' >&2\nexit 97\n"),
        (".pl .pm", f'die "{BREAKAGE_MARK}";\n'),
        (".rb .ex .exs", f'raise "{BREAKAGE_MARK}"\n'),
        (".php", f"<?php throw new Exception('{BREAKAGE_MARK}');\n"),
        (".lua", f'error("{BREAKAGE_MARK}")\n'),
        (".rs", f'compile_error!("{BREAKAGE_MARK}");\n'),
        (".c .h .cc .cpp .cxx .hpp .m", f"#error {BREAKAGE_MARK}\n"),
        (".go .java .kt .scala .cs .swift .zig .hs .ml .dart", f"{BREAKAGE_MARK}\n"),
    ],
)
def test_each_language_has_a_source_that_fails(suffixes: str, text: str) -> None:
    assert {broken_source(f"src/a{suffix}", "") for suffix in suffixes.split()} == {text}


@pytest.mark.parametrize(
    ("first_line", "end"),
    [
        *((f"#!/bin/{shell}", "exit 97\n") for shell in ("sh", "bash", "dash", "zsh", "ksh")),
        *((f"#!/usr/bin/{python}", '")\n') for python in ("python", "python2", "python3", "python3.12")),
        ("#!/usr/bin/env node", '");\n'),
        ("#!/usr/bin/env -S A=b bun -x", '");\n'),
        ("#!/usr/bin/perl -w", '";\n'),
        ("#!/usr/bin/ruby", f'raise "{BREAKAGE_MARK}"\n'),
    ],
)
def test_a_program_without_suffix_is_recognized_by_its_first_line(first_line: str, end: str) -> None:
    text = str(broken_source("bin/tool", first_line))
    assert text.startswith(f"{first_line}\n")
    assert text.endswith(end)


@pytest.mark.parametrize("first_line", ["#!/usr/bin/tclsh", "#!", "#!/usr/bin/env", "python3", "#!/usr/bin/env -i"])
def test_a_file_of_another_program_is_no_source(first_line: str) -> None:
    assert broken_source("bin/tool", first_line) is None


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"{directory}/a.py"
            for directory in ["test", "tests", "__tests__", "spec", "specs", "testing", "e2e", "testdata", "fixtures"]
        ),
        "__mocks__/a.js",
        "a/tests/b/c.py",
        ".github/a.py",
        ".hidden.py",
        "test.py",
        "tests.py",
        "conftest.py",
        "test_a.py",
        "test-a.py",
        "run_tests.sh",
        "run-test",
        "runtests.py",
        "a_test.go",
        "a_spec.rb",
        "a.test.ts",
        "a.cy.js",
        "a.stories.tsx",
        "ATest.java",
        "ATests.cs",
        "setup.py",
        "noxfile.py",
        "fabfile.py",
        "manage.py",
        "build.rs",
        "Gruntfile.js",
        "webpack.common.js",
        "vite.config.mts",
        "types.d.ts",
        ".eslintrc.cjs",
        "a.rc.js",
        "docs/conf.py",
    ],
)
def test_tests_and_files_of_tools_stay_as_they_are(name: str) -> None:
    assert is_test(name)


@pytest.mark.parametrize("name", ["conf.py", "contest.py", "latest/a.py", "a/docs/conf.py", "attest_a.py", "spec.py"])
def test_a_source_whose_name_is_similar_is_no_test(name: str) -> None:
    assert not is_test(name)


def test_a_failing_source_can_be_one_with_invalid_syntax() -> None:
    text = breakage.add_syntax_error(str(broken_source("a.py", "")))
    with pytest.raises(SyntaxError):
        compile(text, "a.py", "exec")
    compile(str(broken_source("a.py", "")), "a.py", "exec")


@pytest.mark.parametrize(
    ("outcome", "stored"),
    [
        (Proved(), TestProof(outcome="proved", command="c", setup="s")),
        (NotProved("r"), TestProof(outcome="unproved", command="c", setup="s", why="r")),
        (
            test_proof.TestsAnotherCheckout(("a", "b"), "cure"),
            TestProof(outcome="elsewhere", command="c", setup="s", why="a; b"),
        ),
    ],
)
def test_an_outcome_is_stored_with_its_command_and_set_up(outcome: ProofOutcome, stored: TestProof) -> None:
    assert to_test_proof(outcome, "c", "s") == stored
    assert to_test_proof(outcome, "c", None) == replace(stored, setup="")


def test_reasons_that_were_not_recorded_are_named_as_such() -> None:
    config = Config(integration_command="t", proof=TestProof(outcome="elsewhere", command="t"))
    assert test_proof.tested_instead(config) == "another checkout"
    assert unproved_reason(config) == "no reason is recorded"
    assert test_proof.unproved_command(config) == "liza doctor --tests"
    skipped = replace(config, proof=TestProof(outcome="skipped", command="t"))
    assert test_proof.tested_instead(skipped) is None
    assert not is_proof_due(replace(Config(), proof=TestProof(outcome="proved")))


@pytest.mark.parametrize(
    ("name", "is_document"),
    [
        ("a/b.markdown", True), ("a.adoc", True), ("a.org", True), ("a.tex", True), ("docs/CHANGELOG", True),
        ("COPYING", True), ("README", True), ("CHANGES", True), ("AUTHORS", True), ("NEWS", True), ("notes.txt", True),
        ("constraints-dev.txt", False), ("CMakeLists.txt", False), ("requirements/dev.txt", False),
        ("LICENSE.py", False), ("a.mdx", False), ("x/requirements.txt", False),
    ],
)  # fmt: skip
def test_a_file_that_tools_read_is_no_documentation(name: str, is_document: bool) -> None:
    assert test_proof.is_documentation(name) is is_document


GREEN = Config(
    integration_command="p && q",
    proof=TestProof(
        outcome="unproved",
        command="p && q",
        why="`p` stays green when all sources fail: so; `q` runs no test",
        green_parts=("p", "q"),
    ),
)


def test_green_parts_are_untested_until_a_person_accepts_each() -> None:
    first = test_proof.untested_reason(GREEN)
    assert first is not None
    assert (first.text, first.hint) == (
        "`p` stays green when all sources fail: so; `q` runs no test",
        """liza config set unproved_commands '["p", "q"]'""",
    )
    accepted = replace(GREEN, unproved_commands=("p",))
    second = test_proof.untested_reason(accepted)
    assert second is not None
    assert (second.text, second.hint) == (
        "`q` runs no test",
        """liza config set unproved_commands '["p", "q"]'""",
    )
    both = replace(GREEN, unproved_commands=("p", "q"))
    assert test_proof.untested_reason(both) is None
    remarks = [(finding.kind, finding.text) for finding in test_proof.proof_findings(both, ["p && x"])]
    assert remarks == [("remark", "`p` stays green when all sources fail")]
    assert [finding.kind for finding in test_proof.proof_findings(accepted, ["p && q"])] == ["untested", "remark"]
    assert test_proof.untested_reason(replace(GREEN, integration_command="other")) is None


def test_a_proof_turned_off_is_a_remark_on_each_merge() -> None:
    config = Config(integration_command="t", proof=TestProof(outcome="skipped", command="t"))
    assert [finding.text for finding in test_proof.proof_findings(config, ["t"])] == ["the tests are not proved"]
    assert test_proof.proof_findings(Config(), []) == ()


def test_a_proof_counts_only_for_its_own_commands() -> None:
    proof = TestProof(outcome="proved", command="t", reads_last_commit=True, setup_builds=True, changed=("Makefile",))
    config = Config(integration_command="t", proof=proof)
    assert test_proof.reads_last_commit(config)
    assert test_proof.is_setup_due_for_each(config)
    assert test_proof.outdated_reason(config) == "the proof is of before Makefile changed"
    other = replace(config, integration_command="u", sandbox_setup="s")
    assert not test_proof.reads_last_commit(other)
    assert not test_proof.is_setup_due_for_each(other)
    assert test_proof.outdated_reason(other) is None
    assert is_proof_due(replace(config, gates=(Gate(name="g", command="lint"),)))
