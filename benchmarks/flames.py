"""Flame graphs of `submit` and of one whole task, by sampling: ``benchmarks/run --flames``.

Every Python process gets a timer that interrupts its main thread; the handler writes the stack to a file. Samples are
of wall time, so that waiting for a child process is seen: it is drawn as a bar with the name of the child. Samples of
a supervisor that waits for an event are left out. The exit of the interpreter is not sampled.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from html import escape
from pathlib import Path

from benchmarks.charts import document
from benchmarks.crew_rows import run_tasks
from benchmarks.options import Options
from benchmarks.projects import commit_work, project, recorded_elsewhere
from benchmarks.timing import run_process
from tests.journeys.crews import BIN
from tests.journeys.process_probe import name_process

SAMPLER = '''\
"""Write the stack of the main thread every SAMPLE_SECONDS to a file of this process in SAMPLE_DIRECTORY."""

import atexit
import os
import signal
import sys

_log = os.open(f"{os.environ['SAMPLE_DIRECTORY']}/{os.getpid()}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_own = os.getpid()


def _sample(number, frame):
    if os.getpid() != _own:
        return
    names = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("subprocess.py") and hasattr(frame.f_locals.get("self"), "args"):
            words = frame.f_locals["self"].args
            names.append("child\\x01" + "\\x01".join(map(os.fsdecode, words)))
        elif not code.co_filename.startswith("<frozen importlib"):
            names.append(f"{frame.f_globals.get('__name__', '?')}:{getattr(code, 'co_qualname', code.co_name)}")
        frame = frame.f_back
    os.write(_log, ("\\0".join([" ".join(sys.argv), *reversed(names)]).replace("\\n", " ") + "\\n").encode())


signal.signal(signal.SIGALRM, _sample)
signal.siginterrupt(signal.SIGALRM, False)
_interval = float(os.environ["SAMPLE_SECONDS"])
signal.setitimer(signal.ITIMER_REAL, _interval, _interval)
atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)  # the interpreter resets the handler when it ends
'''
ROW, WIDTH = 17, 1200
MIN_WIDTH = 1.5  # pixels; narrower bars are left out
WAITS = ("threading:Condition.wait", "threading:wait", "queue:Queue.get", "select:select", "selectors:")
STYLE = (
    "text{font:11px ui-monospace,monospace;fill:#222}.title{font:600 14px system-ui,sans-serif}.page{fill:#fff}"
    ".liza{fill:#f2a65a}.child{fill:#7fb3d5}.import{fill:#cfcfcf}.library{fill:#e5d58a}.process{fill:#b5d99c}"
    "rect{stroke:#fff;stroke-width:.5}"
    "@media (prefers-color-scheme:dark){.page{fill:#16181d}.title{fill:#ddd}rect{stroke:#16181d}"
    ".liza{fill:#d98a3d}.child{fill:#5d9cc4}.import{fill:#8d8d8d}.library{fill:#b8a85c}.process{fill:#86b068}}"
)


class Tree:
    """Samples by stack: how many there are, and the trees of the frames that were called from here."""

    def __init__(self) -> None:
        self.count = 0
        self.children: dict[str, Tree] = {}

    def add(self, stack: list[str], count: int = 1) -> None:
        self.count += count
        if stack:
            self.children.setdefault(stack[0], Tree()).add(stack[1:], count)

    @property
    def depth(self) -> int:
        return 1 + max((child.depth for child in self.children.values()), default=0)


def sample_environment(directory: Path, seconds: float) -> dict[str, str]:
    """Return the variables with which each Python process samples itself into ``directory``."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(SAMPLER)
    (directory / "samples").mkdir()
    path = f"{directory}:{os.environ['PYTHONPATH']}"
    return {"PYTHONPATH": path, "SAMPLE_DIRECTORY": str(directory / "samples"), "SAMPLE_SECONDS": str(seconds)}


def read_samples(directory: Path) -> Tree:
    """Return the stacks of all processes, below the name of the process."""
    counts: Counter[tuple[str, ...]] = Counter()
    for path in sorted((directory / "samples").iterdir()):
        for line in path.read_text(errors="replace").splitlines():
            command, *frames = line.split("\0")
            stack = tidy_stack(command, frames)
            if stack is not None:
                counts[stack] += 1
    tree = Tree()
    for stack, count in counts.items():
        tree.add(list(stack), count)
    return tree


def tidy_stack(command: str, frames: list[str]) -> tuple[str, ...] | None:
    """Return a stack as it is drawn: process, frames, child; None if it waits for an event or is the benchmark's."""
    words = command.split()
    if (frames and frames[-1].startswith(WAITS)) or "crew_process" in command:
        return None
    program = Path(*words[:1]).name
    if program == "liza-agent":
        drawn = ["supervisors"]
    else:
        # `python -m liza` has the path of `__main__.py`, or "-m" while the module is searched.
        drawn = [" ".join(["liza" if program in ("__main__.py", "-m", "-c", "") else program, *words[1:2]])]
    for frame in frames:
        if frame.startswith("child\x01"):
            drawn.append(f"child: {name_process(frame.split(chr(1))[1:])}")
            break
        drawn.append(frame)
    return tuple(drawn)


def flame_graph(title: str, tree: Tree, seconds: float) -> str:
    """Return the graph as SVG: the width of a bar is its share of the samples, its tooltip says the milliseconds."""
    bars: list[str] = []
    _draw(tree, 0.0, 0, WIDTH / max(1, tree.count), seconds * 1000, bars)
    return document(title, WIDTH, 44 + ROW * (tree.depth - 1), bars, STYLE)


def _draw(tree: Tree, left: float, level: int, scale: float, unit: float, bars: list[str]) -> None:
    for name, child in sorted(tree.children.items(), key=lambda item: -item[1].count):
        width = child.count * scale
        if width >= MIN_WIDTH:
            y = 40 + level * ROW
            label = escape(name.removeprefix("liza."))
            shown = label[: int(width / 6.7)] if width > 20 else ""
            bars.append(
                f'<g><title>{label}: {child.count * unit:.3g} ms</title><rect class="{_kind(name, level)}" '
                f'x="{left:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}"/>'
                + (f'<text x="{left + 2:.1f}" y="{y + 12}">{shown}</text>' if shown else "")
                + "</g>"
            )
            _draw(child, left, level + 1, scale, unit, bars)
        left += width


def _kind(name: str, level: int) -> str:
    if level == 0:
        return "process"
    if name.startswith("child: "):
        return "child"
    return "import" if name.endswith(":<module>") else "liza" if name.startswith("liza") else "library"


def draw_submit(options: Options) -> str:
    """Sample `liza submit`, several times, with a living supervisor that records."""
    rounds, seconds = options.rounds(30), 0.001
    directory = Path(tempfile.mkdtemp(prefix="flames-", dir=options.scratch)) / "submit"
    env = sample_environment(directory, seconds)
    with project(options) as crew, recorded_elsewhere(crew):
        for number in range(rounds):
            task = f"t{number}"
            crew.add(task)
            crew.prepare("claim", task, "--agent", f"coder-{number + 1}")
            worktree = crew.paths.task_link(task).resolve()
            commit_work(worktree, f"{task}.txt")
            run = {"LIZA_RUN": crew.task(task).run or "", "LIZA_TASK": task, "LIZA_ROOT": str(crew.root)}
            run_process([str(BIN / "liza"), "submit"], worktree, {**env, **run})
    tree = read_samples(directory)
    return flame_graph(
        f"liza submit: {tree.count * seconds * 1000 / rounds:.0f} ms of wall time", tree, seconds / rounds
    )


def draw_task(options: Options) -> str:
    """Sample all processes of a crew, from the first claim to the last merge, and divide by the tasks."""
    tasks, seconds = options.rounds(20), 0.002
    directory = Path(tempfile.mkdtemp(prefix="flames-", dir=options.scratch)) / "task"
    run_tasks(options, tasks, sample_environment(directory, seconds))
    tree = read_samples(directory)
    total = tree.count * seconds / tasks
    return flame_graph(f"One task, 4 coders, 2 reviewers: {total:.2f} s of all processes", tree, seconds / tasks)


def draw_all(options: Options, directory: Path) -> list[Path]:
    """Write both graphs; return their paths."""
    directory.mkdir(exist_ok=True)
    paths = []
    for name, draw in (("flame-submit.svg", draw_submit), ("flame-task.svg", draw_task)):
        path = directory / name
        path.write_text(draw(options), encoding="utf-8")
        paths.append(path)
    return paths
