"""Search in a batch of candidates: which prefix to test next, which one to publish, and which task made it red. Pure.

A batch is a chain of candidates, each built on the one before. A prefix is named by its length; to test it is to test
its last candidate. Prefix 0 is the tip of integration.
"""

from __future__ import annotations

from collections.abc import Sequence

from liza.rules.value_classes import Value


class PrefixResult(Value):
    """Result of one test run of a prefix. ``certain``: a repetition could not change it."""

    length: int
    passed: bool
    certain: bool = False


class RunPrefix(Value):
    """Test the prefix of this length. ``again``: it was red, and nothing shorter is left to test."""

    length: int
    again: bool = False


class PublishPrefix(Value):
    """Publish the prefix of this length, which is 0 or green. ``culprit``: index of the task that is red on top of
    it, None if the whole batch is green."""

    length: int
    culprit: int | None = None


BatchStep = RunPrefix | PublishPrefix


def next_batch_step(size: int, results: Sequence[PrefixResult], retries: int) -> BatchStep:
    """Return the next step for a batch of ``size`` candidates, after ``results`` in the order of the runs.

    The whole batch is tested first. A red one is bisected. A task is a culprit only if its candidate was red
    ``1 + retries`` times on a prefix that is green.
    """
    green = max((result.length for result in results if result.passed), default=0)
    red = min((result.length for result in results if not result.passed and result.length > green), default=None)
    if red is None:
        return PublishPrefix(size) if green == size else RunPrefix(size)
    if red - green > 1:
        return RunPrefix((green + red) // 2)
    failures = [result for result in results if result.length == red]
    if len(failures) > retries or any(result.certain for result in failures):
        return PublishPrefix(green, culprit=red - 1)
    return RunPrefix(red, again=True)
