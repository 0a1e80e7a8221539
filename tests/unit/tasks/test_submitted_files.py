"""What a submission must not add, and which of its files are outside the scope of its task."""

from __future__ import annotations

import pytest

from liza.tasks.rules import coding
from liza.tasks.rules.coding import SubmittedFiles

VENV = (".venv/pyvenv.cfg", ".venv/bin/python", ".venv/lib/python3.11/site-packages/pip/__init__.py")
MANY = tuple(f"data/{number}/x.json" for number in range(1001))


def files(*added: str, directories: tuple[str, ...] = ("src",), **more: object) -> SubmittedFiles:
    return SubmittedFiles(added, added, directories=frozenset(directories), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("submitted", "scope", "path"),
    [
        (files("a.txt", *VENV), "a.txt", ".venv"),
        (files("web/env/pyvenv.cfg", "web/env/lib/x"), "web/", "web/env"),
        (files("web/node_modules/left/index.js"), "web", "web/node_modules"),
        (files("lib/site-packages/x.py"), "lib", "lib/site-packages"),
        (files("tools/conda-meta/history"), "tools/", "tools/conda-meta"),
        (files(*MANY), "src/ data.txt", "data"),
        (files(*MANY, directories=("data",)), "src/", None),
        (files(*MANY[:1000]), "src/", None),
        (files(*MANY, deleted=1), "src/", None),
        (files(*MANY), "data/", None),
        (files(*VENV), "the environment .venv", None),
        (files(*VENV), ".venv/bin/python", None),
        (files(*VENV, directories=(".venv", ".venv/bin")), "a.txt", None),
        (files("node_modules.txt", "docs/pyvenv.md", "src/node_modules"), "docs", None),
        (files("pyvenv.cfg"), "docs", None),
        (files("a.txt", "package-lock.json", hidden=("package-lock.json",)), "a.txt", "package-lock.json"),
        (files("gen/x.py", hidden=("gen/",)), "src/", "gen"),
        (files("gen/x.py", hidden=("gen/",)), "gen/x.py", None),
        (files("a.txt", hidden=("gen/",)), "a.txt", None),
        (files("a.txt", "AGENTS.md", briefs=("AGENTS.md",)), "a.txt", "AGENTS.md"),
        (files("a.txt", "lib", repositories=("lib",)), "a.txt", "lib"),
        (files("a.txt", "lib", repositories=("lib",)), "a.txt lib", None),
    ],
)
def test_a_submission_must_not_add_what_is_no_work(submitted: SubmittedFiles, scope: str, path: str | None) -> None:
    no_work = coding.find_no_work(submitted, scope)
    assert (no_work.path if no_work else None) == path


def test_a_refused_submission_names_the_commands_that_lead_out() -> None:
    no_work = coding.find_no_work(files("a b/node_modules/x", "a b/node_modules/y"), "a b")
    assert no_work is not None
    assert no_work.count == 2
    assert no_work.hint == (
        "git rm -r -q --cached -- 'a b/node_modules' && echo '*' > 'a b/node_modules'/.gitignore && "
        "git commit -q --amend --no-edit && liza submit"
    )
    hidden = coding.find_no_work(files("x", hidden=("x",)), "a.txt")
    assert hidden is not None
    assert hidden.hint == "git rm -r -q --cached -- x && git commit -q --amend --no-edit && liza submit"
    repository = coding.find_no_work(files("a b", repositories=("a b",)), "")
    assert repository is not None
    assert repository.hint == (
        "git rm -r -q --cached -- 'a b' && mv -- 'a b'/.git \"$(mktemp -d)\" && git add -- 'a b' && "
        "git commit -q --amend --no-edit && liza submit"
    )


@pytest.mark.parametrize(
    ("submitted", "is_needed"),
    [(files("a.txt"), False), (files(*MANY), True), (files(*MANY[:1000]), False), (files(*VENV), True)],
)
def test_directories_of_the_target_are_read_only_when_needed(submitted: SubmittedFiles, is_needed: bool) -> None:
    assert coding.needs_directories(submitted) is is_needed


@pytest.mark.parametrize(
    ("changed", "scope", "counts", "text"),
    [
        (("a.txt", "src/b.py"), "a.txt src/", {}, ""),
        (
            ("a.txt", "src/b.py", "src/c.py", "x"),
            "a.txt",
            {"src/": 2, "x": 1},
            "outside the scope: 3 files (src/ 2, x 1)",
        ),
        (("Makefile", "docs/x.md"), "Makefile, docs/", {}, ""),
        (("src/x.py",), "the parser", {}, ""),
        (("tests/x.py", "y"), "tests/*.py", {"y": 1}, "outside the scope: 1 file (y 1)"),
        (
            tuple(f"d{number}/x" for number in range(7)),
            "a.txt",
            {f"d{number}/": 1 for number in range(7)},
            "outside the scope: 7 files (d0/ 1, d1/ 1, d2/ 1, d3/ 1, d4/ 1 and 2 more)",
        ),
    ],
)
def test_files_outside_the_scope_are_counted_by_directory(
    changed: tuple[str, ...], scope: str, counts: dict[str, int], text: str
) -> None:
    found = coding.count_outside(SubmittedFiles(changed), scope)
    assert found == counts
    assert coding.describe_outside(found) == text


@pytest.mark.parametrize(
    ("dirty", "environment"),
    [((".venv/", "x"), ".venv"), (("web/node_modules/",), "web/node_modules"), ((".venv", "src/"), None)],
)
def test_an_untracked_environment_is_recognised_by_its_name(dirty: tuple[str, ...], environment: str | None) -> None:
    assert coding.find_untracked_environment(dirty) == environment
