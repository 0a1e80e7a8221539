"""The arithmetic of `benchmarks/run`: percentiles, what is noise, and what became slower."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import benchmarks
from benchmarks.charts import Bar, Line, Scale, bar_chart, line_chart
from benchmarks.comparing import compare_rows
from benchmarks.rows import Row, percentile, read_rows, summarize, write_rows


def _row(scale: float, rival: float | None = None, seed: int = 1, **more: object) -> Row:
    chance = random.Random(seed)

    def drawn(center: float) -> list[float]:
        return [center * chance.lognormvariate(0, 0.05) for _ in range(50)]

    rivals = {} if rival is None else {"rival": summarize(drawn(rival))}
    return Row("board", "transition", "ms", summarize(drawn(scale)), rivals, **more)  # type: ignore[arg-type]


def test_every_group_can_be_measured_by_names_liza_has() -> None:
    names = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
    assert all(importlib.import_module(f"benchmarks.{name}") for name in names)


def test_percentiles_are_measured_values_and_blocks_keep_their_order() -> None:
    values = [float(number) for number in range(1, 101)]
    random.Random(2).shuffle(values)
    assert (percentile(values, 95), percentile(values, 99), percentile([7.0], 99)) == (95.0, 99.0, 7.0)
    assert summarize([1, 1, 2, 2, 3, 3, 4, 4, 5, 5]).blocks == (1, 2, 3, 4, 5)
    assert summarize([3, 1]).blocks == (3, 1)
    with pytest.raises(ValueError, match="no values"):
        summarize([])


def test_two_runs_of_equal_code_report_no_difference() -> None:
    for seed in range(200):
        (change,) = compare_rows([_row(10, 3, seed)], [_row(10, 3, seed + 1000)])
        assert not change.is_worse, (seed, change.describe())
        assert not change.is_better, (seed, change.describe())


@pytest.mark.parametrize("rival", [3.0, None])
def test_a_row_a_quarter_slower_is_nearly_always_named(rival: float | None) -> None:
    changes = [compare_rows([_row(10, rival, seed)], [_row(12.5, rival, seed + 1000)])[0] for seed in range(200)]
    assert sum(change.is_worse for change in changes) >= 198
    assert changes[0].describe().startswith("worse  board: transition: ")


def test_a_slower_machine_with_a_slower_rival_is_not_reported() -> None:
    (change,) = compare_rows([_row(10, 3)], [_row(20, 6, 2)])
    assert not change.is_worse
    (change,) = compare_rows([_row(10)], [_row(20, None, 2)])
    assert change.is_worse, "without a rival nothing says that it was the machine"


def test_a_faster_row_is_not_worse_beside_a_better_rival() -> None:
    (change,) = compare_rows([_row(20, 9)], [_row(10, 3, 2)])
    assert change.factor > 1 + change.noise
    assert not change.is_worse


def test_a_load_that_came_during_the_run_is_noise() -> None:
    calm, loaded = _row(10), summarize([10.0] * 20 + [30.0] * 30)
    (change,) = compare_rows([calm], [Row("board", "transition", "ms", loaded)])
    assert change.factor == pytest.approx(3, rel=0.1)
    assert change.noise > 0.6


def test_one_sample_counts_less_than_many() -> None:
    single: Callable[[float], Row] = lambda value: Row("crew", "tasks", "tasks/s", summarize([value]))  # noqa: E731
    assert not compare_rows([single(10)], [single(12.5)])[0].is_worse
    assert compare_rows([single(10)], [single(14)])[0].is_worse


def test_fewer_transitions_per_second_and_more_processes_are_worse() -> None:
    faster = {"better": "higher"}
    (change,) = compare_rows([_row(250, 900, **faster)], [_row(150, 900, 2, **faster)])
    assert change.is_worse
    (change,) = compare_rows([_row(250, 900, **faster)], [_row(150, 540, 2, **faster)])
    assert not change.is_worse, "the rival became slower as much"
    count: Callable[[float], Row] = lambda number: Row("crew", "merge jobs", "", summarize([number]), is_count=True)  # noqa: E731
    assert compare_rows([count(1)], [count(1.1)])[0].is_worse
    assert compare_rows([count(0)], [count(1)])[0].is_worse
    assert not compare_rows([count(1)], [count(1)])[0].is_worse


def test_rows_are_read_as_written_with_their_target(tmp_path: Path) -> None:
    rows = [_row(10, 3, target=12.0, series="transition", x=50.0), _row(5, note="alone")]
    write_rows(tmp_path / "results.json", {"cores": 2}, rows)
    assert read_rows(tmp_path / "results.json") == ({"cores": 2}, rows)
    assert (rows[0].is_met, rows[1].is_met) == (True, None)
    slow = Row("writers", "8 writers, p99", "ms", summarize([1.0] * 90 + [200.0] * 10), target=100.0)
    assert slow.is_met is False


def test_a_chart_is_an_svg_readable_on_dark_pages() -> None:
    lines = [Line("board", [(10, 1.0), (1000, 100.0)]), Line("a <rival>", [(10, 2.0), (1000, 2.5)], is_rival=True)]
    text = line_chart("Cost", "tasks", "ms", lines)
    root = ElementTree.fromstring(text)
    paths = [element.get("points") for element in root.iter("{http://www.w3.org/2000/svg}polyline")]
    assert paths[0] == "64.0,354.0 552.0,44.0"
    assert "prefers-color-scheme:dark" in text
    assert "a &lt;rival&gt;" in text
    bars = ElementTree.fromstring(bar_chart("CPU", "ms", [Bar("hook", 50.0, 25.0), Bar("ready", 25.0, 25.0)]))
    widths = [float(element.get("width", 0)) for element in bars.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert widths == [500.0, 250.0]


def test_widely_different_values_get_a_logarithmic_axis_but_no_zero() -> None:
    assert Scale([1, 1000], 0, 300).ticks() == [1, 10, 100, 1000]
    assert Scale([1, 1000], 0, 300).pixel(100) == 200
    assert not Scale([0, 1000], 0, 300).is_logarithmic
    assert Scale([3, 7], 0, 80).ticks() == [0, 2, 4, 6, 8]
