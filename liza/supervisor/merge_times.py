"""Tell which command of a merge runs, and how long its set-up and its gates took. The merger records both."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from liza.crew.crew import Crew
from liza.merging import gate_log
from liza.model.configuration import TESTS_GATE, Config
from liza.model.errors import LizaError
from liza.model.gates import GENERATOR_RUN, SET_UP_RUN, GateOutcome, GateRun
from liza.model.narration import LIZA, Detail
from liza.model.paths import Paths
from liza.supervisor.jobs import Job
from liza.text.formats import format_duration

LONG_MERGE = 15.0
"""Seconds after which a command of a merge is announced, and a merge's times are told at its end."""
LOOK_SECONDS = 3.0  # seconds between two looks at the record
UNRECORDED_SECONDS = 10.0  # seconds for a merger to record what it runs


class MergeTimes:
    """Watches one merge from a thread, until its job has ended."""

    def __init__(self, crew: Crew, job: Job, notify: Callable[[str], None]) -> None:
        self._crew, self._job, self._notify = crew, job, notify
        self._began = crew.clock.now()

    def announce(self, command: str) -> None:
        """Say that tests run; also without -v what runs, if it takes long: else nothing is shown for minutes."""
        self._notify(Detail(f"{LIZA}  merge of {self._job.subject} runs: {command}"))
        threading.Thread(target=self._watch, args=(command,), name=f"times-{self._job.name}", daemon=True).start()

    def _watch(self, command: str) -> None:
        announced: set[str] = set()
        pause = LONG_MERGE
        while not self._job.wait(pause):
            pause = LOOK_SECONDS
            run = self._running()
            if run is None and not announced and self._job.seconds > LONG_MERGE + UNRECORDED_SECONDS:
                announced.add("")
                took = format_duration(self._job.seconds)
                self._notify(f"{LIZA}  merge of {self._job.subject} runs: {command}, for {took} now")
            elif run is not None and run.gate not in announced:
                seconds = max(0.0, (self._crew.clock.now() - run.time).total_seconds())
                if seconds >= min(LONG_MERGE, self._job.seconds):
                    announced |= {"", run.gate}
                    self._notify(f"{LIZA}  {self._describe_running(run)}, for {format_duration(seconds)} now")

    def _running(self) -> GateRun | None:
        runs = _runs_since(self._crew.paths, self._began)
        return runs[-1] if runs and runs[-1].outcome is GateOutcome.RUNNING else None

    def _describe_running(self, run: GateRun) -> str:
        config = self._crew.board.read().config
        names = {SET_UP_RUN: "set-up", TESTS_GATE: "tests", GENERATOR_RUN: "generator"}
        what = names.get(run.gate, f"gate {run.gate}")
        verb = "run" if run.gate == TESTS_GATE else "runs"
        return f"{what} of the merge of {self._job.subject} {verb}: {_command_of(config, run.gate)}"

    def report(self) -> None:
        """Say how long the merge took, and of that its set-up and gates; only a long one without -v."""
        times: dict[str, float] = {}
        for run in _runs_since(self._crew.paths, self._began):
            if run.outcome is not GateOutcome.RUNNING:
                name = run.gate.strip("()")
                times[name] = times.get(name, 0.0) + run.seconds
        if not times:
            return
        parts = ", ".join(f"{name} {format_duration(seconds)}" for name, seconds in times.items())
        line = f"{LIZA}  merge of {self._job.subject} took {format_duration(self._job.seconds)}: {parts}"
        self._notify(line if self._job.seconds >= LONG_MERGE else Detail(line))


def _command_of(config: Config, gate: str) -> str:
    if gate == SET_UP_RUN:
        return config.sandbox_setup or ""
    if gate == GENERATOR_RUN:
        return " and ".join(dict.fromkeys(config.generated.values()))
    return next((own.command for own in config.all_gates if own.name == gate), gate)


def _runs_since(paths: Paths, began: datetime) -> tuple[GateRun, ...]:
    """Return the runs of this merge: only one merger runs. Without the record the times are not told."""
    with suppress(LizaError, OSError):
        return tuple(run for run in gate_log.read_runs(paths) if run.time >= began)
    return ()
