"""A loop without progress is told from legitimate work by the tool calls of a session alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.model.configuration import LoopLimits
from liza.usage.rules import loop_detection
from liza.usage.rules.loop_detection import Progress, Stuck, ToolCall, check_progress

LIMITS = LoopLimits()
N = LIMITS.same_calls


def folded(calls: Iterable[tuple[str, str, float]]) -> Progress:
    """The progress after calls, each with its result and the seconds since the one before."""
    progress, now = Progress(), 0.0
    for call, result, seconds in calls:
        now += seconds
        progress = loop_detection.add_call(progress, ToolCall(call, result, call, now), LIMITS.pause)
    return progress


def verdict(calls: Iterable[tuple[str, str, float]]) -> Stuck | None:
    listed = list(calls)
    return check_progress(LIMITS, folded(listed), sum(seconds for *_, seconds in listed))


def edits_with_tests(rounds: int) -> Iterator[tuple[str, str, float]]:
    for number in range(rounds):
        yield f"edit {number}", "ok", 1.0
        yield "pytest", "1 failed", 2.0


def reading(files: int) -> Iterator[tuple[str, str, float]]:
    yield from ((f"cat {number}", f"text {number}", 0.1) for number in range(files))


LEGITIMATE = {
    "tests after each edit, always with the same failure": list(edits_with_tests(300)),
    "a build that is polled every 30 s for five hours": [("gh run view", "in progress", 30.0)] * 600,
    "a build that is polled every 11 s": [("make status", "building", 11.0)] * 300,
    "a file that is watched while it grows": [("tail log", f"line {number}", 0.5) for number in range(250)],
    "many files read, and all of them once more": [*reading(30), *reading(30)],
    "the same question just below the limit": [("ls", "a b", 0.1)] * (N - 1),
    "a hurried look, then something else, for ever": [("ls", "a b", 0.1)] * (N - 1) + [("cat a", "text", 0.1)],
    "300 different calls in less than the time": [(f"grep {number}", "", 1.0) for number in range(300)],
}
LOOPS = {
    "one call": [("pytest", "1 failed", 0.2)] * N,
    "two calls in turn": [("pytest", "1 failed", 0.2), ("cat a.py", "x", 0.2)] * N,
    "seven calls in turn": [(f"ls {number}", "none", 1.0) for number in range(7)] * N,
    "one call after which nothing new came, since the last of a day's good work": [("pytest", "1 failed", 0.2)] * N,
    "one call, and now and then a rest": ([("ls", "a", 1.0)] * 10 + [("ls", "a", 60.0)]) * 3,
    "calls that differ and change nothing": [(f"echo {number}", str(number), 2.5) for number in range(300)],
}


@pytest.mark.parametrize("name", LEGITIMATE)
def test_legitimate_work_is_no_loop(name: str) -> None:
    calls = LEGITIMATE[name]
    if name.startswith(("a build", "tests after")):
        # The worktree of such work changes, or its calls are slow: only the sameness of calls is asked here.
        assert check_progress(LoopLimits(unchanged_calls=0), folded(calls), 1e6) is None
    else:
        assert verdict(calls) is None


def test_a_loop_limit_of_one_is_reached_by_one_call() -> None:
    limits = LoopLimits(unchanged_calls=1, unchanged_seconds=1.0)
    assert check_progress(limits, folded([("ls", "a", 0.1)]), 60.0) is not None


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_is_final_once_it_lasts_as_long_again(name: str) -> None:
    good = list(edits_with_tests(50)) if "day" in name else []
    first = verdict([*good, *LOOPS[name]])
    assert first is not None
    assert not first.final
    assert first.reason.startswith(loop_detection.NO_PROGRESS_PREFIX)
    again = verdict([*good, *LOOPS[name] * 2])
    assert again is not None
    assert again.final


def test_a_worktree_change_restarts_the_count_of_unchanging_calls() -> None:
    progress = folded((f"echo {number}", "", 3.0) for number in range(400))
    assert check_progress(LIMITS, progress, 1200.0) is not None
    assert check_progress(LIMITS, loop_detection.record_worktree_change(progress, 1200.0), 1200.0) is None


def test_limits_of_0_are_off() -> None:
    calls = [("ls", "a", 3.0)] * 1000
    assert check_progress(LoopLimits(same_calls=0, unchanged_calls=0), folded(calls), 3000.0) is None


def test_calls_before_the_first_look_do_not_count() -> None:
    progress = loop_detection.forget_untimed_calls(folded([("ls", "a", 0.1)] * 500))
    assert progress.calls == 500
    assert check_progress(LIMITS, progress, 1e6) is None


CALLS = st.tuples(st.sampled_from("abcdef"), st.sampled_from("xyz"), st.floats(0.0, 60.0))


@given(st.lists(CALLS, max_size=200))
def test_fewer_quick_repeats_than_the_limit_never_count_as_sameness(
    calls: list[tuple[str, str, float]],
) -> None:
    found = check_progress(LoopLimits(unchanged_calls=0), folded(calls), 1e6)
    pairs = [(call, result) for call, result, _ in calls]
    assert found is None or max(pairs.count(pair) for pair in pairs) >= N


@given(st.lists(CALLS, max_size=60), st.integers(1, loop_detection.MAX_REMEMBERED_CALLS))
def test_quick_cycle_of_any_length_is_found_after_any_start(before: list[tuple[str, str, float]], length: int) -> None:
    cycle = [(f"new {number}", "same", 0.1) for number in range(length)]
    found = check_progress(LoopLimits(unchanged_calls=0), folded([*before, *cycle * N]), 1e6)
    assert found is not None


@given(st.lists(st.tuples(CALLS, st.booleans()), max_size=300))
def test_something_new_after_every_few_calls_is_progress(calls: list[tuple[tuple[str, str, float], bool]]) -> None:
    listed: list[tuple[str, str, float]] = []
    for number, (call, _) in enumerate(calls):
        listed.append(call)
        if number % (N - 1) == 0:
            listed.append((f"edit {number}", "ok", 0.1))
    assert check_progress(LoopLimits(unchanged_calls=0), folded(listed), 1e6) is None
