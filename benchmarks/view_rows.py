"""Rows of `liza ui` at a pseudo-terminal of 80x24, beside `liza status` in the same run, and those of `liza web`."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

from benchmarks.growth_rows import describe, fill_board
from benchmarks.options import Options
from benchmarks.page_rows import measure_page
from benchmarks.projects import project, recorded_elsewhere
from benchmarks.rows import Row, Samples, summarize
from benchmarks.running_crews import process_cpu, resident_memory
from benchmarks.timing import run_process
from liza.crew.crew import find_crew
from liza.ui.facts import gather
from liza.ui.rules.drawing import draw
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import Wanted
from tests.journeys.crews import BIN, Crew
from tests.terminal_stand_in import TerminalStandIn

GROUP = "view"
SIZES = (15, 500)
STATUS = "liza status"
FACTS_GOALS, START_GOALS, MEMORY_GOALS, CHANGE_GOALS = (5, 20), (800, 1000), (80, 90), (300, 400)
FIRST = "Write change 0."
SLOW_BYTES = 2_000
"""Bytes per second of the slow line."""


def measure_facts(options: Options, crew: Crew, tasks: int, goal: float) -> Row:
    """CPU of this process from a change to the lines of the picture; git's processes are not in it."""
    opened, view = find_crew(crew.root), PictureView(columns=80, rows=24)
    taken = []
    for number in range(options.rounds(30)):
        describe(crew, number)
        start = time.thread_time()
        draw(gather(opened, Wanted()), view)
        taken.append((time.thread_time() - start) * 1000)
    return Row(GROUP, f"facts and view, {tasks} tasks: CPU", "ms", summarize(taken), target=float(goal))


def measure_start(options: Options, crew: Crew, tasks: int, goal: float) -> Iterator[Row]:
    """From the start of the process to its first full picture, beside the whole `liza status`."""
    words = [str(BIN / "liza"), "status"]
    wall, cpu, rival = [], [], []
    for _ in range(options.rounds(11)):
        start = time.monotonic()
        with TerminalStandIn([BIN / "liza", "ui"], crew.root) as terminal:
            terminal.wait_for_text(FIRST, 60)
            wall.append((time.monotonic() - start) * 1000)
            cpu.append(process_cpu(terminal.process.pid))
        rival.append(run_process(words, crew.root, {"LIZA_COMMAND_SERVER": "0"}))
    walls = {STATUS: summarize([spent.wall for spent in rival])}
    yield Row(GROUP, f"start to full picture, {tasks} tasks", "ms", summarize(wall), walls, goal)
    cpus = {STATUS: summarize([spent.cpu for spent in rival])}
    yield Row(GROUP, f"start to full picture, {tasks} tasks: CPU", "ms", summarize(cpu), cpus)


def measure_picture(options: Options, crew: Crew, tasks: int, number: int) -> Iterator[Row]:
    """A picture that is open: changes, keys, memory, and nothing to do."""
    with TerminalStandIn([BIN / "liza", "ui"], crew.root) as terminal:
        terminal.wait_for_text(FIRST, 60)
        times, sizes = measure_changes(options, crew, terminal)
        yield Row(GROUP, f"change to screen, {tasks} tasks, p95", "ms", times, target=float(CHANGE_GOALS[number]))
        yield Row(GROUP, f"bytes per change, {tasks} tasks", "bytes", sizes, target=1500.0, is_count=True)
        times, sizes = measure_keys(options, terminal)
        yield Row(GROUP, f"key to screen, {tasks} tasks, p95", "ms", times, target=50.0)
        yield Row(GROUP, f"bytes per key, {tasks} tasks", "bytes", sizes, target=500.0, is_count=True)
        yield from measure_idle(options, terminal, tasks)
        memory = summarize([resident_memory(terminal.process.pid)])
        yield Row(GROUP, f"memory, {tasks} tasks", "MB", memory, target=float(MEMORY_GOALS[number]))


def measure_changes(options: Options, crew: Crew, terminal: TerminalStandIn) -> tuple[Samples, Samples]:
    times, sizes = [], []
    for number in range(1, options.rounds(30) + 1):
        before, start = terminal.count, describe(crew, number)
        terminal.wait_for_text(f"Write change {number}.")
        times.append((time.monotonic() - start) * 1000)
        time.sleep(0.7)
        sizes.append(float(terminal.count - before))
    return summarize(times), summarize(sizes)


def measure_keys(options: Options, terminal: TerminalStandIn) -> tuple[Samples, Samples]:
    times, sizes = [], []
    for number in range(options.rounds(40)):
        before, start = terminal.count, time.monotonic()
        terminal.type("j" if number % 20 < 10 else "k")
        terminal.wait_for(lambda before=before: terminal.count > before)
        times.append((time.monotonic() - start) * 1000)
        time.sleep(0.15)
        sizes.append(float(terminal.count - before))
    return summarize(times), summarize(sizes)


def measure_idle(options: Options, terminal: TerminalStandIn, tasks: int) -> Iterator[Row]:
    """Without a change: ages of less than a minute are over, and those in minutes change once a minute."""
    seconds = 5.0 if options.quick else 60.0
    time.sleep(5.0 if options.quick else 60.0)
    before, cpu = terminal.count, process_cpu(terminal.process.pid)
    time.sleep(seconds)
    share = (process_cpu(terminal.process.pid) - cpu) / seconds / 10
    yield Row(GROUP, f"idle, {tasks} tasks: CPU", "% of a core", summarize([share]), target=0.5)
    rate = (terminal.count - before) / seconds
    yield Row(GROUP, f"idle, {tasks} tasks: output", "bytes/s", summarize([rate]), target=10.0)


def measure_slow_line(options: Options, crew: Crew) -> Row:
    """Age of the picture on a slow line, while the board changes 20 times a second.

    It is the time since the oldest change that the screen does not show.
    """
    written = {0: describe(crew, 0)}
    ended = threading.Event()

    def change() -> None:
        while not ended.wait(0.05):
            written[len(written)] = describe(crew, len(written))

    ages = []
    with TerminalStandIn([BIN / "liza", "ui"], crew.root, bytes_per_second=SLOW_BYTES) as terminal:
        terminal.wait_for_text(FIRST, 60)
        time.sleep(3)
        thread = threading.Thread(target=change)
        thread.start()
        end = time.monotonic() + (5 if options.quick else 30)
        while time.monotonic() < end:
            time.sleep(0.1)
            match = re.search(r"Write change (\d+)\.", terminal.text)
            missed = written.get(int(match[1]) + 1) if match else None
            ages.append(0.0 if missed is None else time.monotonic() - missed)
        ended.set()
        thread.join()
    note = f"{len(written) / (5 if options.quick else 30):.0f} changes a second were made"
    return Row(GROUP, "line of 2 KB/s, 20 changes a second: age, p95", "s", summarize(ages), target=3.0, note=note)


def measure(options: Options) -> Iterator[Row]:
    for number, tasks in enumerate(SIZES):
        with project(options) as crew, recorded_elsewhere(crew):
            fill_board(crew, tasks)
            yield measure_facts(options, crew, tasks, FACTS_GOALS[number])
            describe(crew, 0)
            yield from measure_start(options, crew, tasks, float(START_GOALS[number]))
            yield from measure_picture(options, crew, tasks, number)
            if number == 0:
                yield measure_slow_line(options, crew)
            yield from measure_page(options, crew, tasks)
