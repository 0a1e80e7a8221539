"""The machine and the versions of a run, without names of hosts or paths."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

from liza import __version__


def describe_machine(scratch: Path) -> dict[str, Any]:
    """Return what the figures depend on. ``scratch`` is the directory of the measured repositories."""
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory GB": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "file system": file_system(scratch),
        "python": platform.python_version(),
        "git": _first_line("git", "--version").removeprefix("git version "),
        "yq": _first_line("yq", "--version") or "none",
        "tmux": _first_line("tmux", "-V").removeprefix("tmux ") or "none",
        "liza": __version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def file_system(path: Path) -> str:
    """Return the type of the file system of a directory."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    real = path.resolve()
    holding = [(len(mount[1]), mount[2]) for mount in mounts if real.is_relative_to(mount[1])]
    return max(holding)[1] if holding else "unknown"


def _first_line(program: str, option: str) -> str:
    if shutil.which(program) is None:
        return ""
    done = subprocess.run([program, option], capture_output=True, text=True, check=False)
    return done.stdout.strip().partition("\n")[0]


def load_average() -> float:
    """Return the load average of the last minute."""
    return round(os.getloadavg()[0], 1)
