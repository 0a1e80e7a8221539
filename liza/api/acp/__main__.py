"""``python -P -m liza.api.acp RUNDIR``: started by a run's shim as the run's program. The brief is its stdin."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

from liza.api.acp.agent_process import AgentProcess
from liza.api.acp.session_driver import SessionDriver, StopOrder
from liza.api.acp.turns import OutputLines, SurfaceCalls, WorkerSurfaces, connect_surfaces
from liza.model.errors import LizaError, Missing
from liza.model.paths import Paths
from liza.programs.presets.command_line import SidecarOrder, read_order
from liza.programs.session.run_directory import RunDir


def main(connect: Callable[[RunDir, str], WorkerSurfaces] = connect_surfaces) -> int:
    """Drive the run's program to its end, and return the exit status. ``connect``: see ``connect_surfaces``."""
    events: SimpleQueue[Any] = SimpleQueue()

    def stop(_number: int, _frame: FrameType | None) -> None:
        events.put(StopOrder())

    signal.signal(signal.SIGTERM, stop)
    lines = OutputLines()
    try:
        run_dir = RunDir(Paths(Path(os.environ["LIZA_ROOT"])), os.environ["LIZA_RUN"])
        order = read_order(run_dir.path)
        if order is None:
            raise Missing(f"{run_dir.path} has no order for a sidecar", f"liza logs {run_dir.agent}")
        status = _drive(run_dir, order, connect(run_dir, order.cwd), events, lines)
    except (LizaError, OSError) as error:
        lines.write("notice", text=f"the session could not be driven: {error}")
        return 1
    if status is None:
        # The end by a signal is recorded as such, unless the supervisor noted why it stopped the session.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    return status or 0


def _drive(
    run_dir: RunDir, order: SidecarOrder, worker: WorkerSurfaces, events: SimpleQueue[Any], lines: OutputLines
) -> int | None:
    brief = sys.stdin.read()
    env = {name: value for name, value in {**os.environ, **order.env}.items() if value is not None}
    process = AgentProcess(order.argv, order.cwd, env, run_dir.path)
    surfaces = SurfaceCalls(run_dir.run, worker, lines)
    return SessionDriver(order, run_dir, process, surfaces, events, lines).run(brief)


if __name__ == "__main__":
    sys.exit(main())
