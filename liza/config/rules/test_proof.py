"""Proof that the tests test the checkout that they run in: evaluation of a test run with failing sources. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import assert_never

from liza.model.configuration import Config, TestProof
from liza.model.gates import GateFinding, GateFindingKind
from liza.model.value_classes import Value, replace

BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
NO_SOURCE = "the repository has no source of a kind that can be made to fail"
"""Reason why there is no proof; no command changes that."""
PROVED_TEXT = "the tests fail when the sources of their own worktree fail"
FIX_TESTS = "change the command with `liza edit`, so that it fails when the sources fail"
SETUP_BUILDS_TEXT = "it builds what the tests use: it runs for each candidate"
LAST_COMMIT_TEXT = (
    "the tests read only the last commit (HEAD~1): candidates are tested one by one; use LIZA_BASE in them instead"
)
NO_TEST = "the command only prepares a test, and runs none"
_FOREIGN = ("vendor", "third_party", "scripts", "docs", "examples")
_DOCUMENTS = re.compile(
    r".*\.(md|markdown|rst|adoc|org|tex)|(?!(.*/)?(requirements|constraints|CMakeLists)[^/]*$)(?!(.*/)?requirements/).*\.txt"
    r"|(.*/)?(LICENSE|COPYING|README|CHANGELOG|CHANGES|AUTHORS|NEWS)"
)
_LOG = re.compile(r"\(see (\S*/\S+)\)")


RED_REASON = "the tests are red as they are"
"""Why nothing is proved if a person accepted red tests."""


class ProofVerdict(StrEnum):
    """Result of a proof, as ``TestProof.outcome`` holds it."""

    PROVED = "proved"
    UNPROVED = "unproved"
    ELSEWHERE = "elsewhere"
    """It tests another checkout."""
    SKIPPED = "skipped"
    """A person turned the proof off."""


class Proved(Value):
    """The tests fail when the sources of the checkout that they run in fail."""


class NotProved(Value):
    """There is no evidence against the tests, and none of what they test."""

    reason: str


class TestsAnotherCheckout(Value):
    """The tests use files of another checkout or of an installed copy. ``where`` names them, ``hint`` is a command."""

    where: tuple[str, ...]
    hint: str


ProofOutcome = Proved | NotProved | TestsAnotherCheckout
RUNS_NO_TEST = "runs no test"


class GreenPart(Value):
    """A part of a command that says nothing about the sources, and why, if the cause is known.

    It stays green when all sources fail; or, with ``runs_no_test``, its test runners counted no test.
    """

    text: str
    shape: str = ""
    runs_no_test: bool = False

    @property
    def description(self) -> str:
        """The part and what was seen, in a phrase."""
        seen = f"`{self.text}` {RUNS_NO_TEST if self.runs_no_test else 'stays green when all sources fail'}"
        return f"{seen}: {self.shape}" if self.shape else seen


class ProofDetails(Value):
    """Results of a proof beside its outcome, as ``TestProof`` has them. ``unexamined``: directories of sources that can
    fail without a red test."""

    gates: tuple[str, ...] = ()
    green_parts: tuple[str, ...] = ()
    reads_last_commit: bool = False
    setup_builds: bool = False
    unexamined: str = ""
    meaning: str = ""


_NO_DETAILS = ProofDetails()


class ProofObservation(Value):
    """Observations of two test runs in a slot: one with the sources as they are, one with sources that fail.

    ``exit_status``: of the second run, 0 if no test of it failed; None if it timed out. ``broken``: the sources that
    were made to fail. ``green``: parts of the command that say nothing about the sources.
    ``elsewhere``: the copies of sources that the tests load instead. ``copies``: those that they may load instead.
    ``lines_with_path``: tracked lines, or the command, that contain the path of the person's checkout.
    """

    exit_status: int | None
    broken: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    lines_with_path: tuple[str, ...] = ()
    green: tuple[GreenPart, ...] = ()


def installed_suffixes(sources: Iterable[str], tracked: Iterable[str]) -> frozenset[str]:
    """Return the path suffixes of the project's Python packages when installed, such as ``invo/__init__.py``.

    Packages are at the top or in ``src`` of the repository or of a directory with a build file. A module outside of a
    package is left out: its name alone is not evidence.
    """
    files = [PurePosixPath(name) for name in tracked]
    projects = {PurePosixPath(), *(path.parent for path in files if path.name in BUILD_FILES)}
    roots = {directory for project in projects for directory in (project, project / "src")}
    tails = (
        path.relative_to(root)
        for path in map(PurePosixPath, sources)
        if path.suffix == ".py"
        for root in roots.intersection(path.parents)
    )
    return frozenset(str(tail) for tail in tails if len(tail.parts) > 1 and tail.parts[0] not in ("src", *_FOREIGN))


def judge_proof(seen: ProofObservation, root: str, cure: str) -> ProofOutcome:
    """Return what the two runs prove. Only positive evidence proves that another checkout is tested.

    Sources that have a copy and fail without a red test are such evidence. A line that names the checkout is evidence
    only if all tests passed.
    """
    if not seen.broken:
        return NotProved(NO_SOURCE)
    if seen.elsewhere:
        return TestsAnotherCheckout((_join_first(seen.elsewhere),), cure)
    if seen.exit_status == 0 and seen.lines_with_path:
        return TestsAnotherCheckout((f"{root}, which is named in {_join_first(seen.lines_with_path)}",), cure)
    if seen.green:
        cause = _join_first(seen.copies)
        parts = [part if part.shape else replace(part, shape=cause) for part in seen.green]
        return NotProved("; ".join(part.description for part in parts))
    if seen.exit_status is None:
        return NotProved("the tests did not end in time when the sources were made to fail")
    if seen.copies:
        return NotProved(_join_first(seen.copies))
    return Proved() if seen.exit_status else NotProved(NO_TEST)


def contains_path(line: str, path: str) -> bool:
    """Return whether a line contains a path or one below it, and not only a path with the same start or end."""
    before = r"(?:(?<![\w.~+-])|(?<=-[A-Za-z]))"
    return re.search(rf"{before}{re.escape(path)}(?![\w+~@%-]|\.\w)", line) is not None


def is_documentation(name: str) -> bool:
    """Return whether a tracked file is documentation: no test and no tool reads a path from it."""
    return _DOCUMENTS.fullmatch(name) is not None


def to_test_proof(
    outcome: ProofOutcome, command: str, setup: str | None, details: ProofDetails = _NO_DETAILS
) -> TestProof:
    """Return an outcome as it is stored on the board."""
    match outcome:
        case Proved():
            verdict, why = ProofVerdict.PROVED, details.unexamined and f"not examined: {details.unexamined}"
        case NotProved(reason):
            verdict, why = ProofVerdict.UNPROVED, reason
        case TestsAnotherCheckout(where):
            verdict, why = ProofVerdict.ELSEWHERE, "; ".join(where)
        case _:
            assert_never(outcome)
    return TestProof(
        outcome=verdict.value,
        command=command,
        setup=setup or "",
        why=why,
        gates=details.gates,
        green_parts=details.green_parts,
        reads_last_commit=details.reads_last_commit,
        setup_builds=details.setup_builds,
        meaning=details.meaning,
    )


def is_proof_due(config: Config, environment: str = "", *, is_confined: bool = False) -> bool:
    """Return whether the proof has to run: the commands, the set-up or the packages changed since the last one, or it
    did not run in a box.

    ``environment`` is the digest of the packages in ``config.environment`` now. ``is_confined``: whether tests run in
    boxes. False if a person turned the proof off.
    """
    if not config.has_tests or config.proof.outcome == ProofVerdict.SKIPPED:
        return False
    is_unboxed = is_confined and not config.proof.boxed
    return is_unboxed or not _is_current(config) or environment != config.proof.environment


def may_be_red_alone(config: Config, *, is_confined: bool) -> bool:
    """Return whether the tests may be red without any task: a person accepted them as red, or they run in boxes, and no
    proof in a box has seen them green."""
    is_boxed_green = config.proof.boxed and config.proof.outcome == ProofVerdict.PROVED
    return config.proof.why == RED_REASON or (is_confined and not is_boxed_green)


def tested_instead(config: Config) -> str | None:
    """Return what the tests use instead of their checkout, if that was proved; else None. Merges are then untested."""
    shown = config.proof.outcome == ProofVerdict.ELSEWHERE and config.has_tests and _is_current(config)
    return (config.proof.why or "another checkout") if shown else None


def unaccepted_parts(config: Config) -> tuple[str, ...]:
    """Return the parts of the commands that say nothing about the sources, and that no person has accepted."""
    if not config.has_tests or not _is_current(config):
        return ()
    return tuple(part for part in config.proof.green_parts if part not in config.unproved_commands)


def untested_reason(config: Config) -> GateFinding | None:
    """Return why nothing may be merged without a person, with the command for it; None if candidates are tested."""
    used, parts = tested_instead(config), unaccepted_parts(config)
    if used is None and not parts:
        return None

    if used is not None:
        text = f"{config.integration_command} does not test the worktree it runs in, it uses {used}"
        return GateFinding(GateFindingKind.UNTESTED, text, "liza edit && liza doctor --tests")
    # The reasons of all parts are joined: that of this one has its shape.
    reasons = [f"`{reason.removeprefix('`')}" for reason in config.proof.why.split("; `")]
    texts = (
        next((reason for reason in reasons if reason.startswith(f"`{part}`")), describe_part(config, part))
        for part in parts
    )
    return GateFinding(GateFindingKind.UNTESTED, "; ".join(dict.fromkeys(texts)), accept_command(config, parts))


def accept_command(config: Config, parts: Sequence[str]) -> str:
    """Return the command with which a person accepts parts of the commands, beside those accepted before."""
    accepted = [*config.unproved_commands, *parts]
    is_plain = len(accepted) == 1 and not set(accepted[0]) & set(',"[{\n')
    value = accepted[0] if is_plain else json.dumps(accepted, ensure_ascii=False)
    return f"liza config set unproved_commands {shlex.quote(value)}"


def describe_part(config: Config, part: str) -> str:
    """Return what a proof showed about a part of the commands, in a phrase."""
    if f"`{part}` {RUNS_NO_TEST}" in config.proof.why:
        return f"`{part}` {RUNS_NO_TEST}"
    return f"`{part}` stays green when all sources fail"


def proof_findings(config: Config, commands: Sequence[str]) -> tuple[GateFinding, ...]:
    """Return what the proof says about a run of these gate commands: a remark for each part that a person accepted."""
    if not config.has_tests:
        return ()

    if config.proof.outcome == ProofVerdict.SKIPPED:
        return (GateFinding(GateFindingKind.REMARK, "the tests are not proved"),)
    obstacle = untested_reason(config)
    accepted = config.proof.green_parts if _is_current(config) else ()
    remarks = [
        GateFinding(GateFindingKind.REMARK, describe_part(config, part))
        for part in accepted
        if part in config.unproved_commands and any(part in command for command in commands)
    ]
    return (*([obstacle] if obstacle is not None else []), *remarks)


def reads_last_commit(config: Config) -> bool:
    """Return whether the tests examine only what the last commit changed: then each candidate is one task."""
    return config.proof.reads_last_commit and config.has_tests and _is_current(config)


def is_setup_due_for_each(config: Config) -> bool:
    """Return whether the set-up builds what the tests use: then it runs for each candidate."""
    return config.proof.setup_builds and config.proof.setup == (config.sandbox_setup or "")


def outdated_reason(config: Config) -> str | None:
    """Return which files changed since the proof that define what the tests are; None if the proof is not old."""
    if not config.has_tests or not _is_current(config) or not config.proof.changed:
        return None
    return f"the proof is of before {_join_first(config.proof.changed)} changed"


def unproved_reason(config: Config) -> str | None:
    """Return why it is not proved that the tests test their own checkout; None if it is, or without tests."""
    if not config.has_tests or (config.proof.outcome == ProofVerdict.PROVED and _is_current(config)):
        return None
    if config.proof.outcome == ProofVerdict.SKIPPED:
        return "the proof was turned off (--no-proof)"
    if not _is_current(config):
        return "the proof has not run for this command"
    return config.proof.why or "no reason is recorded"


def unproved_command(config: Config) -> str:
    """Return the command to run next if it is not proved what the tests test; empty if no command changes that.

    After a proof that has run, this is not the proof again: the log of the failed tests, or the test command.
    """
    doubt = unproved_reason(config)
    if doubt is None or doubt == NO_SOURCE:
        return ""
    if config.proof.outcome != ProofVerdict.UNPROVED or not _is_current(config):
        return "liza doctor --tests"
    log = _LOG.search(doubt)
    return f"less {log[1]}" if log else "liza edit && liza doctor --tests"


def _is_current(config: Config) -> bool:
    proof = config.proof
    commands = tuple(gate.command for gate in config.gates)
    return (proof.command, proof.setup) == (config.integration_command, config.sandbox_setup or "") and (
        proof.gates == commands or proof.outcome == ProofVerdict.SKIPPED
    )


def _join_first(names: Iterable[str]) -> str:
    listed = list(names)
    rest = len(listed) - 3
    return ", ".join(listed[:3]) + (f" and {rest} more" if rest > 0 else "")
