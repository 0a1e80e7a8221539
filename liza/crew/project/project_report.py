"""What the doctor says of the project: its commands, whether they can start, and what worktrees lack of it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from liza.crew.project import commands, detect, environments
from liza.crew.recovery.findings import Finding
from liza.repo.runner import Git
from liza.rules.errors import LizaError
from liza.rules.model import Config
from liza.rules.paths import Paths
from liza.rules.project import clean_environment, project_kinds, test_proof
from liza.rules.project.project_kinds import SUBMODULE_COMMAND

_PROBE_TIMEOUT = 20.0  # seconds for an interpreter to say whether it has a module
_SHELL_SYNTAX = set("|&;<>()`\n")


def inspect_project(paths: Paths, git: Git, config: Config) -> Iterator[Finding]:
    """The commands, the environment and the worktrees of the project. Raises LizaError, OSError."""
    setup = config.sandbox_setup
    if not paths.state.exists():
        # What init will choose.
        from liza.crew.project import baseline

        project = detect.read_project(paths.root, git)
        setup = project.setup.text if project.setup else None
        keep, why_not = baseline.usable_environment(paths.root, project.setup)
        config = replace(config, environment=keep)
        if why_not and setup is None:
            test = project.test.text if project.test else "CMD"
            text = f"{why_not}: init will need --setup and --test"
            yield Finding("python", text, True, baseline.suggest_init_command(project, test))
    yield from _check_commands(paths, git, config)
    yield from _check_environment(paths.root, config)
    yield from find_worktree_gaps(paths, git, setup)
    yield from _disk(paths)


def _check_commands(paths: Paths, git: Git, config: Config) -> Iterator[Finding]:
    root = paths.root
    test, setup = config.integration_command, config.sandbox_setup
    origin, own = "config.integration_command; `liza edit` changes it", "config.sandbox_setup"
    if not test:
        project = detect.read_project(root, git)
        found = project.test
        if found is None:
            yield Finding("tests", "none found; `liza init --test CMD` names one")
        else:
            test, origin = found.text, ", ".join(found.source_files)
        if project.setup is not None and not setup:
            setup, own = project.setup.text, ", ".join(project.setup.source_files)
    env = commands.command_environment(root, config.environment)
    if test:
        lacks = find_start_obstacle(test, root, env, set_up=bool(setup))
        text = f"{test} ({origin})"
        if lacks:
            hint = "liza edit" if config.integration_command else 'liza init "…" --setup CMD --test CMD'
            yield Finding("tests", f"{text}: it does not start: {lacks} is not there", False, hint)
        else:
            yield Finding("tests", text)
    yield from _check_proof(root, git, config)
    if setup:
        lacks = find_start_obstacle(setup, root, env, set_up=False)
        text = f"{setup} ({own})"
        hint = "liza edit" if config.sandbox_setup else 'liza init "…" --setup CMD'
        why = f"{text}: it does not start: {lacks} is not there; install it, or name another set-up"
        wrong = Finding("set-up", why, False, hint)
        yield wrong if lacks else Finding("set-up", text)


def _check_proof(root: Path, git: Git, config: Config) -> Iterator[Finding]:
    where, doubt = test_proof.tested_instead(config), test_proof.unproved_reason(config)
    if where is not None:
        own = project_kinds.worktree_commands(detect.read_project(root, git), str(config.integration_command))
        cure = f"; set sandbox_setup to {own[0]} and integration_command to {own[1]}" if own else ""
        text = f"the tests do not test the worktree they run in: they use {where}{cure}"
        yield Finding("proof", text, False, "liza edit && liza doctor --tests")
    elif doubt:
        text = f"not proved that the tests test the worktree they run in: {doubt}"
        hint = "" if doubt == test_proof.NO_SOURCE else "liza doctor --tests"
        yield Finding("proof", text, True, hint)
    elif config.integration_command:
        yield Finding("proof", "the tests fail when the sources of their own worktree fail")


def find_start_obstacle(command: str, root: Path, env: Mapping[str, str], *, set_up: bool) -> str | None:
    """What is missing for a command to start, as far as its first words tell; a set-up may still bring modules.

    A command with shell syntax, or with a program that lies in the worktree, is believed.
    """
    first = re.split(r"&&|\|\||;", command, maxsplit=1)[0].strip().lstrip("(")
    if _SHELL_SYNTAX & set(first):
        return None
    try:
        words = [word for word in shlex.split(first) if not re.match(r"\w+=", word)]
    except ValueError:
        return None
    if not words or "/" in words[0] or words[0] in ("cd", "test", "[", "export", "set", ".", "true", "false", ":"):
        return None
    program = shutil.which(words[0], path=env.get("PATH", clean_environment.DEFAULT_PATH))
    if program is None:
        return words[0]
    module = re.fullmatch(r"python[\d.]*", words[0]) and len(words) > 2 and words[1] == "-m" and words[2]
    if not module or set_up:
        return None
    return f"the module {module}" if _is_module_missing(program, str(module), root, env) else None


def _is_module_missing(program: str, module: str, root: Path, env: Mapping[str, str]) -> bool:
    ask = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    words = [program, "-I", "-c", ask, module.split(".")[0]]
    try:
        done = subprocess.run(words, cwd=root, env=dict(env), capture_output=True, check=False, timeout=_PROBE_TIMEOUT)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 1 and not (root / module.split(".")[0]).exists()


def _check_environment(root: Path, config: Config) -> Iterator[Finding]:
    """The environment that is in use, and what of this terminal's is not."""
    keep = config.environment
    if keep is not None:
        wrong = environments.find_checkout_links(Path(keep), root)
        if wrong:
            text = (
                f"{keep} (config.environment) has this checkout installed ({wrong[0]}): tests may import it from there"
            )
            yield Finding("python", text, False, "liza edit")
        elif not (Path(keep) / "bin").is_dir():
            yield Finding("python", f"{keep} (config.environment) is not there", False, "liza edit")
        else:
            yield Finding("python", f"{keep} (config.environment) comes first on PATH; it holds dependencies only")
    removed = clean_environment.clean_variables(os.environ, str(root), keep, os.path.realpath).removed
    if removed:
        text = f"not for tests and sessions: {environments.describe_removed(removed)}"
        yield Finding("left out", text)


def find_worktree_gaps(paths: Paths, git: Git, setup: str | None) -> Iterator[Finding]:
    """What a worktree does not have by itself, or finds where it should not. Raises GitFailed."""
    root = paths.root
    modules = detect.find_submodules(git) if (root / ".gitmodules").is_file() else ()
    if modules and "submodule" not in (setup or ""):
        text = f"{', '.join(modules)}: empty in each worktree, as no set-up fetches it"
        there = paths.state.exists()
        hint = (
            f"liza edit (sandbox_setup: {SUBMODULE_COMMAND})"
            if there
            else f'liza init "…" --setup "{SUBMODULE_COMMAND}"'
        )
        yield Finding("submodules", text, True, hint)
    if _uses_lfs(root) and shutil.which("git-lfs") is None:
        yield Finding("lfs", ".gitattributes needs git-lfs, which is not installed", False, "git lfs install")
    yield from _commit_hooks(root, git)
    if (root / "package.json").is_file():
        yield from _node_modules(paths)


def _uses_lfs(root: Path) -> bool:
    path = root / ".gitattributes"
    return path.is_file() and re.search(r"^[^#\n]*\bfilter=lfs\b", path.read_text(errors="replace"), re.M) is not None


def _commit_hooks(root: Path, git: Git) -> Iterator[Finding]:
    if not (root / ".pre-commit-config.yaml").is_file():
        return
    hooks = Path(git.out("rev-parse", "--path-format=absolute", "--git-path", "hooks"))
    if (hooks / "pre-commit").is_file():
        yield Finding("hooks", "pre-commit checks the commits of agents too: worktrees share .git/hooks")
    else:
        yield Finding("hooks", "pre-commit is configured and not installed: nobody's commits are checked", True,
                      "pre-commit install")  # fmt: skip


def _node_modules(paths: Paths) -> Iterator[Finding]:
    """Node looks for modules in each directory above: what lies there passes tests that fail in a fresh clone."""
    slots = paths.slot("x").parent.resolve()
    for above in (slots, *slots.parents):
        place = above / "node_modules"
        if place.is_dir():
            text = f"Node finds modules of {place} from each worktree: tests pass with what a fresh clone does not have"
            again = "liza down --purge, then: " if paths.state.exists() else ""
            yield Finding("node", text, True, f'{again}liza init "…" --worktrees DIR')


def _disk(paths: Paths) -> Iterator[Finding]:
    place = paths.slot("x").parent
    sizes = (
        {path.name: _disk_usage(path) for path in sorted(place.iterdir()) if _is_real_directory(path)}
        if _is_real_directory(place)
        else {}
    )
    if sizes:
        told = ", ".join(
            f"{name} {_format_size(size)}" for name, size in sorted(sizes.items(), key=lambda one: -one[1])[:4]
        )
        more = f" and {len(sizes) - 4} more" if len(sizes) > 4 else ""
        yield Finding(
            "disk", f"{_format_size(sum(sizes.values()))} in {len(sizes)} worktrees below {place}: {told}{more}"
        )


def _is_real_directory(place: Path) -> bool:
    """Whether it is a directory, and no link to one."""
    return place.is_dir() and not place.is_symlink()


def _disk_usage(place: Path) -> int:
    """Bytes on disk of all files below a directory; hard links count each time, links are not followed."""
    total = 0
    for directory, _, names in os.walk(place):
        for name in names:
            try:
                total += os.lstat(f"{directory}/{name}").st_blocks * 512
            except OSError:
                continue  # an agent at work takes files away
    return total


def _format_size(size: int) -> str:
    return f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def project_findings(paths: Paths, git: Git, config: Config) -> list[Finding]:
    """``look``; what cannot be read is a finding as well."""
    found: list[Finding] = []
    try:
        found.extend(inspect_project(paths, git, config))
    except LizaError as wrong:
        found.append(Finding("project", wrong.message, False, wrong.hint))
    except OSError as wrong:
        place = shlex.quote(str(wrong.filename or paths.root))
        found.append(
            Finding("project", f"{place} cannot be read: {wrong.strerror or wrong}", False, f"ls -ldL {place}")
        )
    return found
