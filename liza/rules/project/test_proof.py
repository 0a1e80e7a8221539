"""Whether the tests test the checkout that they run in: the judgement of one run with failing sources. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import assert_never

from liza.rules.model import Config, TestProof

BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
NO_SOURCE = "the repository has no source of a kind that can be made to fail"
"""Why nothing can be proved, and no command changes that."""
_FOREIGN = ("vendor", "third_party", "scripts", "docs", "examples")
_DOCUMENTS = re.compile(
    r".*\.(md|markdown|rst|adoc|org|tex)|(?!(.*/)?(requirements|constraints|CMakeLists)[^/]*$)(?!(.*/)?requirements/).*\.txt"
    r"|(.*/)?(LICENSE|COPYING|README|CHANGELOG|CHANGES|AUTHORS|NEWS)"
)
_NAMESAKES_ARE = "have names of modules of the project and are"
_UNTRACED = re.compile(
    r"python[\d.]*(?:\s+-[A-Za-z]+)*?\s+-[A-Za-z]*[IE]|\benv\s+(?:-\w*i\w*|-|--ignore-environment)\s"
)
_NAME = re.compile(r"""\bname\s*=\s*["']?([A-Za-z0-9][\w.-]*)""")


@dataclass(frozen=True)
class Proved:
    """The tests fail when the sources of the checkout that they run in fail."""


@dataclass(frozen=True)
class NotProved:
    """Nothing speaks against the tests, and nothing shows what they test."""

    reason: str


@dataclass(frozen=True)
class TestsAnotherCheckout:
    """The tests use files of another checkout, or of an installed copy. ``where`` names them, ``cure`` is a command."""

    where: tuple[str, ...]
    hint: str


ProofOutcome = Proved | NotProved | TestsAnotherCheckout


@dataclass(frozen=True)
class ProofObservation:
    """What was seen when the tests ran in a slot as it is, and then with sources that fail.

    ``code`` is that of the second run, None at the time limit. ``broken`` are the sources that are made to fail.
    ``checkout`` are those of them that the tests loaded from the person's checkout, ``copies`` the paths of
    installed or other copies of them that they loaded, ``programs`` the interpreters that loaded them. ``namesakes``
    are loaded files that have the name of a module of the project and are none of it. ``naming`` are tracked lines, or
    the command, that contain the path of the person's checkout. ``unnoted`` says why loads may have come from there
    though none was noted.
    """

    exit_status: int | None
    broken: tuple[str, ...] = ()
    checkout: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    lines_with_path: tuple[str, ...] = ()
    namesakes: tuple[str, ...] = ()
    untraced: tuple[str, ...] = ()


def installed_suffixes(sources: Iterable[str], tracked: Iterable[str]) -> frozenset[str]:
    """Return how the files of the project's Python packages end where they are installed: ``invo/__init__.py``.

    Packages lie at the top or in ``src``, of the repository or of a directory with a build file. A module that is no
    part of a package is left out: its name alone says too little.
    """
    files = [PurePosixPath(name) for name in tracked]
    projects = {PurePosixPath(), *(path.parent for path in files if path.name in BUILD_FILES)}
    roots = {place for project in projects for place in (project, project / "src")}
    tails = (
        path.relative_to(root)
        for path in map(PurePosixPath, sources)
        if path.suffix == ".py"
        for root in roots.intersection(path.parents)
    )
    return frozenset(str(tail) for tail in tails if len(tail.parts) > 1 and tail.parts[0] not in ("src", *_FOREIGN))


def judge_proof(seen: ProofObservation, root: str, cure: str) -> ProofOutcome:
    """Return what the two runs show. Only positive evidence says that another checkout is tested.

    A source that was loaded from the person's checkout, or from a copy, is such evidence whatever the tests said: any
    other part of the tests turns them red. A line that names the checkout is evidence only where they stayed green.
    """
    if not seen.broken:
        return NotProved(NO_SOURCE)
    by = f" (by {', '.join(seen.programs)})" if seen.programs else ""
    if seen.checkout:
        return TestsAnotherCheckout((f"{_join_first(seen.checkout)} in your checkout {root}{by}",), cure)
    if seen.copies:
        return TestsAnotherCheckout((f"the installed {_join_first(seen.copies)}{by}",), cure)
    if seen.exit_status is None:
        return NotProved("the tests did not end in time when the sources were made to fail")
    if seen.exit_status == 0 and seen.lines_with_path:
        return TestsAnotherCheckout((f"{root}, which is named in {_join_first(seen.lines_with_path)}",), cure)
    if seen.namesakes:
        them = "has the name of a module of the project and is" if len(seen.namesakes) == 1 else _NAMESAKES_ARE
        return NotProved(f"the tests load {_join_first(seen.namesakes)}, which {them} none of it")
    if seen.untraced:
        return NotProved(_join_first(seen.untraced))
    if seen.exit_status != 0:
        return Proved()
    number = len(seen.broken)
    sources = "the only source file was" if number == 1 else f"{number} source files were"
    return NotProved(f"{sources} made to fail and the tests stayed green: they do not run them")


def contains_path(line: str, path: str) -> bool:
    """Return whether a line names a path or what lies below it, and not just one that begins or ends alike."""
    before = r"(?:(?<![\w.~+-])|(?<=-[A-Za-z]))"
    return re.search(rf"{before}{re.escape(path)}(?![\w+~@%-]|\.\w)", line) is not None


def is_untraced_command(text: str) -> bool:
    """Return whether a command starts Python so that it notes no loads: isolated, or with an empty environment."""
    return _UNTRACED.search(text) is not None


def is_documentation(name: str) -> bool:
    """Return whether a tracked file is a text for people: no test and no tool takes a path from it."""
    return _DOCUMENTS.fullmatch(name) is not None


def distribution_names(files: Mapping[str, str]) -> frozenset[str]:
    """Return the names, as indexes of packages write them, that build files (name → text) give their projects."""
    return frozenset(normalize_distribution(name) for path, text in files.items() for name in _named(path, text))


def normalize_distribution(name: str) -> str:
    """Return the name of a distribution as indexes write it: ``my-invo`` of ``My_Invo``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _named(path: str, text: str) -> Iterable[str]:
    if PurePosixPath(path).name == "setup.py":
        return _NAME.findall(text)
    section, names = "", []
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip().strip("[]").strip()
        elif section in ("project", "tool.poetry", "metadata"):
            found = _NAME.match(line.strip())
            names += [found[1]] if found else []
    return names


def to_test_proof(outcome: ProofOutcome, command: str, setup: str | None) -> TestProof:
    """Return what the board keeps of an outcome."""
    match outcome:
        case Proved():
            return TestProof(outcome="proved", command=command, setup=setup or "")
        case NotProved(reason):
            return TestProof(outcome="unproved", command=command, setup=setup or "", why=reason)
        case TestsAnotherCheckout(where):
            return TestProof(outcome="elsewhere", command=command, setup=setup or "", why="; ".join(where))
        case _:
            assert_never(outcome)


def is_proof_due(config: Config) -> bool:
    """Return whether the proof has to run: the test command or the set-up is not the one that it was run for.

    A person who wanted no proof is not asked again.
    """
    if not config.has_tests or config.proof.outcome == "skipped":
        return False
    return not _is_current(config)


def tested_instead(config: Config) -> str | None:
    """Return what the tests use instead of the checkout they run in, if that was shown: nothing is tested then."""
    shown = config.proof.outcome == "elsewhere" and config.has_tests and _is_current(config)
    return (config.proof.why or "another checkout") if shown else None


def unproved_reason(config: Config) -> str | None:
    """Return why nobody knows that the tests test their own checkout; None where that is proved, or there are none."""
    if not config.has_tests or (config.proof.outcome == "proved" and _is_current(config)):
        return None
    if config.proof.outcome == "skipped":
        return "no proof was wanted (--no-proof)"
    if not _is_current(config):
        return "the proof has not run for this command"
    return config.proof.why or "no reason is noted"


def _is_current(config: Config) -> bool:
    return (config.proof.command, config.proof.setup) == (config.integration_command, config.sandbox_setup or "")


def _join_first(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - 3
    return ", ".join(listed[:3]) + (f" and {rest} more" if rest > 0 else "")
