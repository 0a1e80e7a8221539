"""Rows of the worker API: 200 workers that report, ask and listen, while the server is killed three times.

The load is a process of its own (`worker_load.py`), so its CPU time competes with the server for the two cores.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from benchmarks.options import Options
from benchmarks.projects import project
from benchmarks.rows import Row, summarize
from benchmarks.timing import BARE, run_process
from benchmarks.worker_load import COMMAND, SETTLED, LoadResult, WorkerLoad
from liza.programs.guards import guard_files
from liza.programs.hooks import hook_events
from liza.programs.hooks.hook_templates import load_template
from liza.programs.session.run_directory import RunDir, Turn
from liza.programs.usage.telemetry_log import TelemetryLog
from tests.edges.api_worker import Api, now
from tests.journeys.crews import BIN, Crew

GROUP = "worker-api"
KILLS = 3
PROMPT_INTERVAL = 0.1  # seconds between two prompts to random workers
LAST_PROMPT = 1.0  # seconds before the end of the load, for its delivery
EVENTS, BATCHES, QUESTIONS = 20.0, 2.0, 1.0  # per second and worker


class Prompter(threading.Thread):
    """Submits prompts as a person, one every PROMPT_INTERVAL seconds. ``submitted``: when, by the prompt's text."""

    def __init__(self, api: Api, runs: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self.submitted: dict[str, float] = {}
        self._api, self._runs, self._over = api, runs, threading.Event()

    def run(self) -> None:
        choice = random.Random(2)
        while not self._over.wait(PROMPT_INTERVAL):
            text, start = f"prompt {len(self.submitted)}", time.time()
            body = {"run_id": choice.choice(self._runs), "content": text}
            with suppress(OSError):
                # Without an answer it is not known whether the prompt was accepted, so it is not counted.
                if self._api.post("/v1/prompt", body).status < 400:
                    self.submitted[text] = start

    def stop(self) -> None:
        self._over.set()
        self.join()


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
            result, submitted, cpu = _run_load(api, runs, load, options)
        finally:
            api.kill()
        recorded = {run: _recorded_turns(crew, run) for run in runs}
        yield from _rows(
            f"{workers} workers × {EVENTS:g} events/s, {KILLS} kills", result, submitted, recorded, seconds
        )
        yield Row(GROUP, f"{workers} workers: CPU of the server", "cores", summarize([cpu / seconds]))
        yield _hook_row(crew, options)


def install_guards(crew: Crew, runs: Sequence[str]) -> None:
    """Write the guards of these runs, as a supervisor does before it starts a session."""
    home = crew.root.parent
    loaded = guard_files.load_guards(crew.paths, home)
    refusals = hook_events.list_refusals("claude", load_template("claude"))
    for run in runs:
        guard_files.install_guards(RunDir(crew.paths, run), loaded, home, None, "deny", refusals)


def _run_load(
    api: Api, runs: Sequence[str], load: WorkerLoad, options: Options
) -> tuple[LoadResult, dict[str, float], float]:
    """Run the load while the server is killed and started again; return what the workers saw, and the CPU seconds."""
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
        prompter.start()
        for number in range(KILLS):
            time.sleep(load.seconds / (KILLS + 1))
            cpu += _server_cpu(api)
            api.kill()
            api.start()
            options.log(f"server killed and started again: {number + 1}")
        time.sleep(load.seconds / (KILLS + 1) - LAST_PROMPT)
        prompter.stop()
        time.sleep(LAST_PROMPT / 2)
        cpu += _server_cpu(api)
        errors = child.stderr.read().decode(errors="replace")
        if child.wait() != 0:
            raise RuntimeError(f"the load ended with {child.returncode}: {errors[-500:]}")
        output.seek(0)
        return msgspec.json.decode(output.read(), type=LoadResult), prompter.submitted, cpu


def _server_cpu(api: Api) -> float:
    """Return the CPU seconds of the server until now."""
    assert api.process is not None
    fields = Path(f"/proc/{api.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _recorded_turns(crew: Crew, run: str) -> int:
    sums = TelemetryLog(RunDir(crew.paths, run).path).read()
    return 0 if sums is None else sums.turns


def _rows(
    about: str, result: LoadResult, submitted: dict[str, float], recorded: dict[str, int], seconds: float
) -> Iterator[Row]:
    sent = sum(result.sent.values())
    lost = sum(max(0, result.sent[run] - recorded[run]) for run in result.sent)
    doubled = sum(max(0, recorded[run] - result.sent[run]) for run in result.sent)
    arrived = [times for text in submitted if (times := result.prompts.get(text))]
    delays = [(times[0] - submitted[text]) * 1000 for text in submitted if (times := result.prompts.get(text))]
    note = "; ".join(f"{count} × {text}" for text, count in list(result.problems.items())[:3])
    yield Row(GROUP, f"{about}: events recorded", "events/s", summarize([sent / seconds]), better="higher")
    yield Row(GROUP, f"{about}: events lost", "", summarize([float(lost)]), target=0.0, is_count=True)
    yield Row(GROUP, f"{about}: events doubled", "", summarize([float(doubled)]), target=0.0, is_count=True)
    problems = float(sum(result.problems.values()))
    yield Row(GROUP, f"{about}: requests refused", "", summarize([problems]), target=0.0, is_count=True, note=note)
    yield Row(GROUP, f"{about}: authorize, median", "ms", summarize(result.questions), target=5.0)
    yield Row(GROUP, f"{about}: authorize, p99", "ms", summarize(result.questions), target=25.0)
    if result.early:
        early = f"{about}: authorize, in the {SETTLED:g} s after all workers have connected"
        yield Row(GROUP, early, "ms", summarize(result.early))
    if result.interrupted:
        interrupted = f"{about}: authorize, met by a kill of the server"
        yield Row(GROUP, interrupted, "ms", summarize(result.interrupted))
    yield Row(GROUP, f"{about}: telemetry request", "ms", summarize(result.telemetry))
    yield Row(GROUP, f"{about}: prompt submitted → delivered, p95", "ms", summarize(delays), target=50.0)
    missing = float(len(submitted) - len(arrived))
    yield Row(GROUP, f"{about}: prompts not delivered", "", summarize([missing]), target=0.0, is_count=True)
    twice = float(sum(len(times) > 1 for times in arrived))
    yield Row(GROUP, f"{about}: prompts delivered twice", "", summarize([twice]), is_count=True)


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
