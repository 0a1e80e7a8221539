"""The search in a batch: the green prefix is published, the red task is found, with few runs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.merging.rules.merge_queue import PrefixResult, PublishPrefix, RunPrefix, next_batch_step

RETRIES = 1


def search(size: int, first_bad: int | None, retries: int = RETRIES) -> tuple[PublishPrefix, list[PrefixResult]]:
    """Search a batch whose prefixes are green up to ``first_bad`` (an index). Return the last step and all runs."""
    results: list[PrefixResult] = []
    while True:
        step = next_batch_step(size, results, retries)
        if isinstance(step, PublishPrefix):
            return step, results
        results.append(PrefixResult(step.length, first_bad is None or step.length <= first_bad))
        assert len(results) < 100


@pytest.mark.parametrize("size", [1, 2, 20])
def test_a_green_batch_is_tested_once_at_its_tip(size: int) -> None:
    step, results = search(size, None)
    assert step == PublishPrefix(size)
    assert results == [PrefixResult(size, True)]


@given(size=st.integers(1, 64), data=st.data(), retries=st.integers(0, 3))
def test_a_search_finds_the_task_that_breaks_its_batch(size: int, data: st.DataObject, retries: int) -> None:
    bad = data.draw(st.integers(0, size - 1))
    step, results = search(size, bad, retries)
    assert step == PublishPrefix(bad, culprit=bad)
    assert bad == 0 or PrefixResult(bad, True) in results
    assert [result for result in results if result.length == bad + 1] == [PrefixResult(bad + 1, False)] * (1 + retries)
    assert len(results) <= 1 + math.ceil(math.log2(size)) + 1 + retries


@given(st.integers(1, 40), st.lists(st.booleans(), max_size=60), st.integers(0, 3))
def test_the_search_ends_and_publishes_only_green_candidates(size: int, answers: list[bool], retries: int) -> None:
    results: list[PrefixResult] = []
    for passed in [*answers, *[False] * 200]:
        step = next_batch_step(size, results, retries)
        if isinstance(step, PublishPrefix):
            break
        results.append(PrefixResult(step.length, passed))
    assert isinstance(step, PublishPrefix)
    assert step.length == 0 or PrefixResult(step.length, True) in results
    if step.culprit is None:
        assert step.length == size
    else:
        assert step.culprit == step.length
        red = [result for result in results if result.length == step.length + 1]
        assert len(red) == 1 + retries
        assert not any(result.passed for result in red)


def test_one_bad_task_of_40_costs_at_most_10_runs() -> None:
    for bad in range(40):
        runs, tasks = 0, list(range(40))
        while tasks:
            batch, rest = tasks[:20], tasks[20:]
            step, results = search(len(batch), batch.index(bad) if bad in batch else None)
            runs += len(results)
            tasks = [*batch[step.length + (step.culprit is not None) :], *rest]
        assert runs <= 10


def test_a_red_run_that_passes_on_retry_blames_no_task() -> None:
    results = [PrefixResult(1, False)]
    assert next_batch_step(1, results, 1) == RunPrefix(1, again=True)
    results.append(PrefixResult(1, True))
    assert next_batch_step(1, results, 1) == PublishPrefix(1)


def test_a_flaky_tip_is_bisected_and_published_after_its_retry() -> None:
    answers = {4: [False, True]}
    results: list[PrefixResult] = []
    while not isinstance(step := next_batch_step(4, results, 1), PublishPrefix):
        results.append(PrefixResult(step.length, answers.get(step.length, [True]).pop(0)))
    assert step == PublishPrefix(4)
    assert [result.length for result in results] == [4, 2, 3, 4]


def test_a_red_run_that_repetition_cannot_change_is_not_repeated() -> None:
    assert next_batch_step(1, [PrefixResult(1, False, certain=True)], 3) == PublishPrefix(0, culprit=0)
