"""What a commit may be called, for each combination of observations."""

from __future__ import annotations

import pytest

from liza.model.gates import GateFinding, GateFindingKind
from liza.model.tested import NO_GATE_APPLIED, HowTested, describe_tested, judge_commit

UNTESTED = GateFinding(GateFindingKind.UNTESTED, "a server of another checkout listens", "kill 7")
OTHER = GateFinding(GateFindingKind.UNTESTED, "only the last commit is read")
REMARK = GateFinding(GateFindingKind.REMARK, "the tests are not proved")
RED = GateFinding(GateFindingKind.RED, "the command runs no test")


@pytest.mark.parametrize(
    ("findings", "how"),
    [
        ((), HowTested(True)),
        ((RED,), HowTested(True)),
        ((REMARK,), HowTested(False, (REMARK.text,))),
        ((REMARK, REMARK), HowTested(False, (REMARK.text,))),
        ((UNTESTED, OTHER), HowTested(False, (), UNTESTED)),
        ((REMARK, UNTESTED), HowTested(False, (REMARK.text,), UNTESTED)),
    ],
)
def test_a_commit_is_judged_by_what_was_observed(findings: tuple[GateFinding, ...], how: HowTested) -> None:
    assert judge_commit(findings) == how


@pytest.mark.parametrize(
    ("how", "word", "was_run"),
    [
        (HowTested(True), "tested", True),
        (HowTested(False, ("a", "b")), "tested, but a; b", True),
        (HowTested(False, (), UNTESTED), "untested", False),
        (NO_GATE_APPLIED, "untested", False),
    ],
)
def test_each_judgment_has_a_word(how: HowTested, word: str, was_run: bool) -> None:
    assert (describe_tested(how.tested, how.remarks), how.was_run) == (word, was_run)


def test_a_second_run_of_a_commit_keeps_the_remarks_of_the_first() -> None:
    first, second = HowTested(False, ("a",)), HowTested(True)
    assert second.with_remarks_of(first) == HowTested(False, ("a",))
    assert second.with_remarks_of(None) == second
