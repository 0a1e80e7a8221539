"""Rows of the worker API: 200 workers that report, ask and listen, while the server is killed three times.

The load is a process of its own (`worker_load.py`), so its CPU time competes with the server for the two cores.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from benchmarks.options import Options
from benchmarks.projects import project
from benchmarks.rows import Row, summarize
from benchmarks.timing import BARE, run_process
from benchmarks.worker_load import COMMAND, LoadResult, WorkerLoad
from liza.guards import guard_files
from liza.programs.session.run_directory import RunDir, Turn
from liza.usage.telemetry_log import TelemetryLog
from tests.edges.api_worker import Api, now
from tests.journeys.crews import BIN, Crew

GROUP = "worker-api"
KILLS = 3
SETTLED = 3.0  # seconds after which all workers have connected to a server that answers
TYPED_STARTS = 16
PROMPT_INTERVAL = 0.1  # seconds between two prompts to random workers
LAST_PROMPT = 1.0  # seconds before the end of the load, for its delivery
TYPED_ELSEWHERE = (
    "The document of this API describes prompts that are typed into a terminal in pieces of 512 bytes, with a pause of "
    "600 ms after ESC, and repeated Enter."
)
EVENTS, BATCHES, QUESTIONS = 20.0, 2.0, 1.0  # per second and worker


class Prompter(threading.Thread):
    """Submits prompts as a person, one every PROMPT_INTERVAL seconds. ``submitted``: when, by the prompt's text."""

    def __init__(self, api: Api, runs: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.submitted: dict[str, float] = {}
        self._api, self._runs, self._over = api, runs, threading.Event()

    def run(self) -> None:
        choice = random.Random(2)
        for number in itertools.count():
            if self._over.wait(PROMPT_INTERVAL):
                return
            # A prompt without an answer may be stored: the next one needs another text.
            text, start = f"prompt {number}", time.time()
            body = {"run_id": choice.choice(self._runs), "content": text}
            with suppress(OSError):
                # Without an answer it is not known whether the prompt was accepted, so it is not counted.
                if self._api.post("/v1/prompt", body).status < 400:
                    self.submitted[text] = start

    def stop(self) -> None:
        self._over.set()
        self.join()


class Outcome(NamedTuple):
    """What a load saw. ``restarts``: when the workers had to connect all at once, from and to. ``cpu``: CPU seconds of
    the servers."""

    result: LoadResult
    submitted: dict[str, float]
    restarts: list[tuple[float, float]]
    cpu: float


def measure(options: Options) -> Iterator[Row]:
    workers, seconds = (10, 6.0) if options.quick else (200, 60.0)
    with project(options) as crew:
        api = Api(crew)
        api.start()
        try:
            runs = [f"coder-{number}.1" for number in range(1, workers + 1)]
            tokens = tuple(api.worker(run).token for run in runs)
            install_guards(crew, runs)
            load = WorkerLoad(str(crew.paths.api_socket), tokens, seconds, EVENTS, BATCHES, QUESTIONS)
            outcome = _run_load(api, runs, load, options)
        finally:
            api.kill()
        recorded = {run: _recorded_turns(crew, run) for run in runs}
        about = f"{workers} workers × {EVENTS:g} events/s, {KILLS} kills"
        yield from _rows(about, outcome, recorded, seconds)
        yield from _latency_rows(about, outcome, _typed_seconds(options))
        yield Row(GROUP, f"{workers} workers: CPU of the server", "cores", summarize([outcome.cpu / seconds]))
        load_cpu = summarize([outcome.result.cpu / seconds])
        yield Row(GROUP, f"{workers} workers: CPU of the load", "cores", load_cpu)
        yield _hook_row(crew, options)


def install_guards(crew: Crew, runs: Sequence[str]) -> None:
    """Write the guards of these runs, as a supervisor does before it starts a session."""
    home = crew.root.parent
    loaded = guard_files.load_guards(crew.paths, home)
    for run in runs:
        guard_files.install_guards(RunDir(crew.paths, run), loaded, home, None, "deny")


def _run_load(api: Api, runs: Sequence[str], load: WorkerLoad, options: Options) -> Outcome:
    """Run the load while the server is killed and started again."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker_load"],
            stdin=subprocess.PIPE, stdout=output, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert child.stdin is not None
        assert child.stderr is not None
        child.stdin.write(msgspec.json.encode(load))
        child.stdin.close()
        child.stderr.readline()
        prompter, cpu = Prompter(api, runs), 0.0
        restarts: list[tuple[float, float]] = []
        prompter.start()
        for number in range(KILLS):
            time.sleep(load.seconds / (KILLS + 1))
            cpu += _server_cpu(api)
            killed = time.time()
            api.kill()
            api.start()
            restarts.append((killed, time.time() + SETTLED))
            options.log(f"server killed and started again: {number + 1}")
        time.sleep(load.seconds / (KILLS + 1) - LAST_PROMPT)
        prompter.stop()
        time.sleep(LAST_PROMPT / 2)
        cpu += _server_cpu(api)
        errors = child.stderr.read().decode(errors="replace")
        if child.wait() != 0:
            raise RuntimeError(f"the load ended with {child.returncode}: {errors[-500:]}")
        output.seek(0)
        result = msgspec.json.decode(output.read(), type=LoadResult)
        return Outcome(result, prompter.submitted, [(result.begin, result.begin + SETTLED), *restarts], cpu)


def _server_cpu(api: Api) -> float:
    """Return the CPU seconds of the server until now."""
    assert api.process is not None
    fields = Path(f"/proc/{api.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _recorded_turns(crew: Crew, run: str) -> int:
    sums = TelemetryLog(RunDir(crew.paths, run).path).read()
    return 0 if sums is None else sums.turns


def _rows(about: str, outcome: Outcome, recorded: dict[str, int], seconds: float) -> Iterator[Row]:
    """What became of the events and the prompts."""
    result, submitted = outcome.result, outcome.submitted
    sent = sum(result.sent.values())
    lost = sum(max(0, result.sent[run] - recorded[run]) for run in result.sent)
    doubled = sum(max(0, recorded[run] - result.sent[run]) for run in result.sent)
    arrived = [times for text in submitted if (times := result.prompts.get(text))]
    note = "; ".join(f"{count} × {text}" for text, count in list(result.problems.items())[:3])
    yield Row(GROUP, f"{about}: events recorded", "events/s", summarize([sent / seconds]), better="higher")
    yield Row(GROUP, f"{about}: events lost", "", summarize([float(lost)]), target=0.0, is_count=True)
    yield Row(GROUP, f"{about}: events doubled", "", summarize([float(doubled)]), target=0.0, is_count=True)
    problems = float(sum(result.problems.values()))
    yield Row(GROUP, f"{about}: requests refused", "", summarize([problems]), target=0.0, is_count=True, note=note)
    missing = float(len(submitted) - len(arrived))
    yield Row(GROUP, f"{about}: prompts not delivered", "", summarize([missing]), target=0.0, is_count=True)
    twice = float(sum(len(times) > 1 for times in arrived))
    yield Row(GROUP, f"{about}: prompts delivered twice", "", summarize([twice]), is_count=True)


def _latency_rows(about: str, outcome: Outcome, typed: Sequence[float]) -> Iterator[Row]:
    """The times of all requests and prompts, and of those that met no restart. ``typed``: as ``_typed_seconds``."""
    result, submitted = outcome.result, outcome.submitted
    without = f"without {SETTLED:g} s from each start of a server"
    answers = summarize([taken for _, taken in result.questions])
    yield Row(GROUP, f"{about}: authorize, median", "ms", answers, target=5.0)
    yield Row(GROUP, f"{about}: authorize, p99", "ms", answers, target=25.0)
    if calm := [ms for asked, ms in result.questions if not _meets(asked, asked + ms / 1000, outcome.restarts)]:
        yield Row(GROUP, f"{about}: authorize, p99, {without}", "ms", summarize(calm), target=25.0)
    yield Row(GROUP, f"{about}: telemetry request", "ms", summarize(result.telemetry))
    delivery = f"{about}: prompt submitted → delivered, p95"
    times = [(submitted[text], arrived[0]) for text in submitted if (arrived := result.prompts.get(text))]
    rivals = {"typed into a terminal (startup.py)": summarize([one * 1000 for one in typed])} if typed else {}
    delays = summarize([(end - begin) * 1000 for begin, end in times])
    yield Row(GROUP, delivery, "ms", delays, rivals, 50.0, note=TYPED_ELSEWHERE)
    if calm := [(end - begin) * 1000 for begin, end in times if not _meets(begin, end, outcome.restarts)]:
        yield Row(GROUP, f"{delivery}, {without}", "ms", summarize(calm), rivals, 50.0)


def _meets(begin: float, end: float, windows: Sequence[tuple[float, float]]) -> bool:
    """Return whether a time from ``begin`` to ``end`` overlaps one of the windows."""
    return any(begin < high and low < end for low, high in windows)


def _typed_seconds(options: Options) -> list[float]:
    """Return after how many seconds programs in terminals had a prompt that was typed; empty without tmux or if quick.

    In a process of its own, because it changes the environment.
    """
    if options.quick or shutil.which("tmux") is None:
        return []
    count = str(TYPED_STARTS)
    command = [sys.executable, "-m", "benchmarks.startup", "--count", count, "--defences", "0", "--at-once", "2"]
    done = subprocess.run([*command, "--json"], capture_output=True, check=True, text=True)
    return list(json.loads(done.stdout)["delivered"])


def _hook_row(crew: Crew, options: Options) -> Row:
    """The verdict of the guards for a tool call, through the hook of a program as a process."""
    run = RunDir(crew.paths, "coder-1.1")
    run.mark_ready(now(), "hook SessionStart")
    run.write_turn(Turn(time=now(), phase="busy", session="s"))
    payload = json.dumps({"session_id": "s", "tool_name": "Bash", "tool_input": COMMAND}).encode()
    environment = {"LIZA_RUN": run.run, "LIZA_ROOT": str(crew.root)}
    command = [str(BIN / "liza"), "hook", "claude", "PreToolUse"]
    own, bare = [], []
    for _ in range(5 if options.quick else 25):
        own.append(run_process(command, crew.root, environment, payload).cpu)
        bare.append(run_process(BARE, crew.root).cpu)
    rivals = {"python -I -S -c pass": summarize(bare)}
    return Row(GROUP, "verdict of the guards through liza hook, CPU", "ms", summarize(own), rivals, 40.0)
