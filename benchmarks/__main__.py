"""``benchmarks/run [GROUP…]``: measure, print each row, write RESULTS.md and results.json, compare with a run."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import comparing, machine, report
from benchmarks.options import Options
from benchmarks.rows import Row, read_rows, write_rows

HERE = Path(__file__).resolve().parent
GROUPS = {
    "board": "board_rows",
    "writers": "writer_rows",
    "worktrees": "worktree_rows",
    "queue": "queue_rows",
    "commands": "command_rows",
    "waiting": "waiting_rows",
    "view": "view_rows",
    "crew": "crew_rows",
    "growth": "growth_rows",
    "hosts": "host_rows",
    "worker-api": "worker_api",
    "confinement": "confinement_rows",
    "long": "long_rows",
}
"""The module of each group, in the order in which they are measured."""
ONLY_BY_NAME = {"long"}
"""Groups that are measured only if they are named."""
IDENTITY = "[user]\n\tname = Benchmark\n\temail = bench@example.invalid\n[init]\n\tdefaultBranch = main\n"


def main() -> int:
    # Asked to end, it removes what it made and ends its children.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    words = _parser().parse_args()
    unknown = [name for name in words.groups if name not in GROUPS]
    if unknown:
        print(f"no group {', '.join(unknown)}; there are {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    if words.quick and words.output == HERE:
        words.output = Path(tempfile.mkdtemp(prefix="liza-quick-"))
        print(f"quick: the results are in {words.output}")
    results = words.output / "results.json"
    if words.plots:
        report.write_all(words.output, *read_rows(results))
        return 0
    if words.flames:
        return _draw_flames(words)
    older = read_rows(words.compare)[1] if words.compare else []
    rows = _run(words, results)
    return print_comparison(older, rows) if words.compare else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/run", description=__doc__)
    parser.add_argument(
        "groups",
        nargs="*",
        metavar="GROUP",
        help=f"of {', '.join(GROUPS)}; by default all but {', '.join(ONLY_BY_NAME)}",
    )
    parser.add_argument("--quick", action="store_true", help="few rounds; the results are not kept")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="name what became slower; exit 1 if anything")
    parser.add_argument("--plots", action="store_true", help="write RESULTS.md and the plots again, measure nothing")
    parser.add_argument("--flames", action="store_true", help="draw the flame graphs, measure nothing else")
    parser.add_argument("--output", type=Path, default=HERE, metavar="DIR", help="of the results; default: benchmarks")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where the measured repositories are made")
    return parser


def _draw_flames(words: argparse.Namespace) -> int:
    """Draw the flame graphs of `submit` and of a whole task."""
    from benchmarks import flames

    scratch = Path(tempfile.mkdtemp(prefix="liza-bench-", dir=words.scratch or _disk()))
    prepare_environment(scratch)
    try:
        for path in flames.draw_all(Options(scratch, words.quick, print), words.output / "plots"):
            print(path)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _run(words: argparse.Namespace, results: Path) -> list[Row]:
    """Measure the groups in a HOME of their own, write the results after each, and return all rows."""
    groups = words.groups or [group for group in GROUPS if group not in ONLY_BY_NAME]
    # Rows of groups that are not measured now stay, so that one group can be measured alone.
    rows = _kept_rows(results, groups)
    scratch = Path(tempfile.mkdtemp(prefix="liza-bench-", dir=words.scratch or _disk()))
    prepare_environment(scratch)
    options = Options(scratch, words.quick, lambda line: print(f"  {line}", flush=True))
    facts = {**machine.describe_machine(scratch), "quick": words.quick, "load before": machine.load_average()}
    start = time.monotonic()
    try:
        for group in groups:
            print(f"== {group}", flush=True)
            rows = sorted([*rows, *_measure(group, options)], key=lambda row: list(GROUPS).index(row.group))
            facts |= {"load after": machine.load_average(), "seconds": round(time.monotonic() - start)}
            write_rows(results, facts, rows)
            report.write_all(words.output, facts, rows)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return rows


def _measure(group: str, options: Options) -> Iterable[Row]:
    """Measure one group and print its rows. A failure is printed, and the other groups continue."""
    try:
        for row in importlib.import_module(f"benchmarks.{GROUPS[group]}").measure(options):
            print(f"  {report.describe_row(row)}", flush=True)
            yield row
    except Exception as error:  # noqa: BLE001 - one group that fails does not lose the rows of the others
        print(f"  ! {group} was not measured to its end: {type(error).__name__}: {error}", flush=True)


def _disk() -> Path:
    """Return a directory that is on a disk: the one for temporary files, else that of the checkout."""
    temporary = Path(tempfile.gettempdir())
    return temporary if machine.file_system(temporary) != "tmpfs" else HERE.parent


def prepare_environment(scratch: Path) -> None:
    """Give this process and its children a HOME and a git configuration of their own, and no variables of Liza."""
    home = scratch / "home"
    home.mkdir()
    (home / ".gitconfig").write_text(IDENTITY)
    for name in [name for name in os.environ if name.startswith(("LIZA_", "GIT_", "XDG_"))]:
        del os.environ[name]
    os.environ |= {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}


def _kept_rows(results: Path, measured: Sequence[str]) -> list[Row]:
    if not results.exists():
        return []
    return [row for row in read_rows(results)[1] if row.group not in measured and row.group in GROUPS]


def print_comparison(older: Sequence[Row], rows: Sequence[Row]) -> int:
    """Print every row that changed by more than the noise; return 1 if one became worse."""
    changes = comparing.compare_rows(older, rows)
    changed = [change for change in changes if change.is_worse or change.is_better]
    for change in changed:
        print(change.describe())
    worse = sum(change.is_worse for change in changed)
    print(f"{len(changes)} rows compared: {worse} worse, {len(changed) - worse} better, the others within the noise")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
