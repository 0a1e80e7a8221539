"""What each command imports and which processes it starts, as committed in `tests/data/command_costs.json`.

These numbers do not depend on the load, so they are asserted; `benchmarks/run` measures times. A command that costs
more fails with the names of what was added. One that costs less asks to tighten the numbers: ``bin/test
--update-costs`` rewrites the file.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from liza.programs.guards import guard_files
from liza.programs.hooks import hook_events
from liza.programs.hooks.hook_templates import load_template
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.system.file_lock import Lock
from tests.conftest import git
from tests.journeys.command_probe import UPDATES, Costs, name_process, run_probed, split_imports
from tests.journeys.crews import Crew

DATA = Path(__file__).parent.parent / "data" / "command_costs.json"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PERSON = {"LIZA_RUN": "", "LIZA_TASK": "", "LIZA_ROOT": ""}
TASK = ("--desc", "Write", "--done", "it is there", "--scope", "post.txt", "--spec", "README.md")


class Walk:
    """Runs the commands of one task in order, and keeps what each cost."""

    def __init__(self, crew: Crew, directory: Path) -> None:
        self.crew, self.directory = crew, directory
        self.costs: dict[str, Costs] = {}

    def step(
        self, name: str, *words: str, cwd: Path | None = None, run: str = "", task: str = "", stdin: str = ""
    ) -> None:
        """Run a command as a person, or as ``run``, and keep its costs under ``name``."""
        env = {"LIZA_RUN": run, "LIZA_TASK": task, "LIZA_ROOT": str(self.crew.root)} if run else {}
        self.costs[name], _ = run_probed(words, cwd or self.crew.root, self.directory, env, stdin)

    def commit(self, worktree: Path, name: str) -> None:
        (worktree / name).write_text("x\n")
        git(worktree, "add", "-A")
        git(worktree, "commit", "-q", "-m", "work")


def _install_guards(run: RunDir) -> None:
    """Write the guards of a session, as its start does."""
    home = run.paths.root
    refusals: dict[str, Any] = {}
    for provider in ("claude", "pi"):
        refusals |= hook_events.list_refusals(provider, load_template(provider))
    guard_files.install_guards(run, guard_files.load_guards(run.paths, home), home, None, "deny", refusals)


def walk_commands(crew: Crew, directory: Path) -> dict[str, Costs]:
    """Run every frequent command once, in the situation that is usual for it: a supervisor lives and records."""
    walk = Walk(crew, directory)
    crew.add("mail")
    crew.paths.locks.mkdir(exist_ok=True)
    recording = Lock(crew.paths.supervisor_lock("coder-9"))
    with recording.acquire(timeout=0):
        walk.step("status", "status")
        walk.step("status --json", "status", "--json")
        walk.step("task add", "task", "add", "--id", "post", *TASK)
        walk.step("task show --json", "task", "show", "mail", "--json")
        walk.step("validate", "validate")
        walk.step("agents", "agents")
        walk.step("guard test", "guard", "test", "ls")
        walk.step("claim", "claim", "mail", "--agent", "coder-1")
        _walk_coder(walk, crew.paths.task_link("mail").resolve())
        walk.step("claim a review", "claim", "mail", "--agent", "code-reviewer-1")
        reviewer = {"run": "code-reviewer-1.1", "task": "mail"}
        walk.step("ready of a reviewer", "ready", cwd=crew.paths.slot("code-reviewer-1"), **reviewer)
        walk.step("verdict", "verdict", "approve", "good", cwd=crew.paths.slot("code-reviewer-1"), **reviewer)
        walk.step("merge", "merge", "mail")
        walk.step("history", "history", "mail")
        walk.step("block", "block", "why", "--ask", "What?", **_claim_by(crew, "post", "coder-2"))
        walk.step("task unblock", "task", "unblock", "post", "--answer=so")
        walk.step("handoff", "handoff", "half", "--next", "rest", **_claim_by(crew, "post", "coder-2"))
    crew.add("last")
    with_last = _claim_by(crew, "last", "coder-3")
    walk.commit(crew.paths.task_link("last").resolve(), "last.txt")
    walk.step("submit without a supervisor", "submit", **with_last)
    return walk.costs


def _walk_coder(walk: Walk, worktree: Path) -> None:
    """The commands of a coder's session, in its worktree."""
    record = RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=datetime.now(UTC), worktree=str(worktree))
    RunDir(walk.crew.paths, "coder-1.1").create(record)
    run = {"run": "coder-1.1", "task": "mail", "cwd": worktree}
    payload = json.dumps({"session_id": "s-1", "source": "startup", "hook_event_name": "SessionStart"})
    walk.step("hook SessionStart", "hook", "claude", "SessionStart", stdin=payload, **run)
    payload = json.dumps({"session_id": "s-1", "hook_event_name": "UserPromptSubmit", "prompt": "go on"})
    walk.step("hook UserPromptSubmit", "hook", "claude", "UserPromptSubmit", stdin=payload, **run)
    _install_guards(RunDir(walk.crew.paths, run["run"]))
    tool: dict[str, Any] = {"session_id": "s-1", "tool_name": "Bash", "tool_input": {"command": "git status && make"}}
    walk.step("hook PreToolUse", "hook", "claude", "PreToolUse", stdin=json.dumps(tool), **run)
    tool["tool_input"] = {"command": "cd x && git push"}
    walk.step("hook of a denied tool", "hook", "pi", "tool_call", stdin=json.dumps(tool), **run)
    walk.step("ready", "ready", **run)
    walk.step("heartbeat", "heartbeat", **run)
    walk.commit(worktree, "mail.txt")
    walk.step("submit", "submit", **run)


def _claim_by(crew: Crew, task: str, agent: str) -> dict[str, Any]:
    """Claim a task without counting; return the words with which `step` runs a command of that run."""
    crew.prepare("claim", task, "--agent", agent)
    found = crew.task(task)
    assert found.run is not None
    return {"run": found.run, "task": task, "cwd": crew.paths.task_link(task).resolve()}


def summarize(costs: dict[str, Costs]) -> dict[str, Any]:
    """Return what is committed: for each command its processes, and for each module the commands that import it."""
    tables: dict[str, dict[str, list[str]]] = {"modules": {}, "packages": {}, "standard library": {}}
    for verb, cost in costs.items():
        for table, names in zip(tables.values(), split_imports(cost), strict=True):
            for name in names:
                table.setdefault(name, []).append(verb)
    return {
        "python": PYTHON,
        "number of imports": {verb: len(cost.imports) for verb, cost in costs.items()},
        "processes": {verb: dict(sorted(cost.processes.items())) for verb, cost in costs.items()},
        **{name: {key: _join(table[key], costs) for key in sorted(table)} for name, table in tables.items()},
    }


def _join(verbs: list[str], every: Iterable[str]) -> str:
    """Return the commands of a module as one line, so that the file has a line for each module."""
    missing = [verb for verb in every if verb not in verbs]
    if not missing:
        return "all"
    return f"all but {', '.join(missing)}" if len(missing) < len(verbs) else ", ".join(verbs)


def _split(text: str, every: Iterable[str]) -> set[str]:
    rest = text.removeprefix("all but ") if text.startswith("all but ") else None
    if text == "all":
        return set(every)
    return set(every) - set(rest.split(", ")) if rest is not None else set(text.split(", "))


def compare(costs: dict[str, Costs], committed: dict[str, Any]) -> list[str]:
    """Return a line for each command that costs more, or less, than what is committed."""
    lines = [f"{verb}: is not in the file" for verb in costs if verb not in committed["processes"]]
    for verb, cost in costs.items():
        lines += _compare_processes(verb, cost.processes, Counter(committed["processes"].get(verb, {})))
    # The standard library, and what packages try to import, differ between versions of Python.
    tables = ["modules", *(["packages", "standard library"] if committed["python"] == PYTHON else [])]
    for number, table in enumerate(tables):
        allowed: dict[str, set[str]] = defaultdict(set)
        for name, verbs in committed[table].items():
            for verb in _split(verbs, committed["processes"]):
                allowed[verb].add(name)
        for verb, cost in costs.items():
            names = split_imports(cost)[number]
            lines += [f"{verb}: imports {name} too: {_chain(cost, name)}" for name in sorted(names - allowed[verb])]
            lines += [f"{verb}: no longer imports {name}: tighten" for name in sorted(allowed[verb] - names)]
    return lines


def _chain(cost: Costs, name: str) -> str:
    """Return the imports that lead to a module, or to the first module of a package."""
    return cost.chain(next(module for module in cost.imports if module == name or module.startswith(f"{name}.")))


def _compare_processes(verb: str, now: Counter[str], before: Counter[str]) -> list[str]:
    more = [f"{verb}: starts {count} more: {name}" for name, count in sorted((now - before).items())]
    fewer = [f"{verb}: starts {count} fewer: {name}: tighten" for name, count in sorted((before - now).items())]
    return more + fewer


def test_no_command_imports_a_module_or_starts_a_process_more_than_is_committed(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "probe").mkdir()
    costs = walk_commands(crew, tmp_path / "probe")
    if UPDATES:
        DATA.write_text(json.dumps(summarize(costs), indent=1, ensure_ascii=False) + "\n")
    found = compare(costs, json.loads(DATA.read_text()))
    assert not found, "\n".join([*found, "next: justify it or remove it; bin/test --update-costs rewrites the file"])


def test_an_added_import_and_an_added_process_are_named_and_so_is_what_went() -> None:
    before = Costs({"liza.a": ("liza.__main__", 3), "json": ("liza.a", 7)}, Counter({"git status": 1, "git log": 1}))
    committed = json.loads(json.dumps(summarize({"submit": before, "hook": Costs({}, Counter())})))
    assert compare({"submit": before, "hook": Costs({}, Counter())}, committed) == []
    now = Costs({"liza.a": ("liza.__main__", 3), "git.cmd": ("liza.a", 9)}, Counter({"git status": 2}))
    assert compare({"submit": now}, committed) == [
        "submit: starts 1 more: git status",
        "submit: starts 1 fewer: git log: tighten",
        "submit: imports git too: liza.__main__:3 → liza.a:9 → git.cmd",
        "submit: no longer imports json: tighten",
    ]


def test_a_process_is_counted_under_the_command_of_git_and_not_under_its_options() -> None:
    assert name_process(["/usr/bin/git", "--no-pager", "-C", "/x", "worktree", "add", "-q"]) == "git worktree add"
    assert name_process(["git", "-c", "a=b", "config", "--list"]) == "git config"
    assert name_process(["/v/bin/python3.11", "-P", "-m", "liza", "merge", "t"]) == "python -m liza merge"
    assert name_process(["/v/bin/python", "-I", "-S", "/x/_shim.py", "/y"]) == "python _shim.py"
    assert name_process(["tmux", "-L", "x"]) == "tmux"
