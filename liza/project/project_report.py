"""Findings of the doctor about the project: its commands, whether they can start, and gaps of worktrees."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from liza.board.presence import has_board
from liza.box import support
from liza.config.rules import test_proof
from liza.git import local_files, slot_setup, slots_directory
from liza.git.rules import slot_states
from liza.git.runner import Git
from liza.git.worktrees import Worktrees, measure_slot
from liza.model import clean_environment
from liza.model.configuration import Config, Confinement
from liza.model.errors import Finding, LizaError, Refused
from liza.model.paths import BOXES, TASK_LINKS, Paths
from liza.model.value_classes import replace
from liza.project import commands, detect, hook_files
from liza.project.rules import output_causes, project_kinds
from liza.project.rules.project_kinds import INIT, SUBMODULE_COMMAND, suggest_init_command, suggest_setup_command
from liza.text.formats import count_noun, format_bytes

_NO_TEST_COMMAND = "config.integration_command is empty: merges are not tested"
_MAX_COPIED_SIBLINGS = 50  # entries of a directory that is proposed for a copy because of one file
_SHELL_SYNTAX = set("|&;<>()`\n")


def inspect_project(paths: Paths, git: Git, config: Config) -> Iterator[Finding]:
    """Check the commands, the environment and the worktrees of the project. Raises LizaError, OSError."""
    setup = config.sandbox_setup
    if not has_board(paths):
        # No crew yet: check the commands that init will choose.
        project = detect.read_project(paths.root, git)
        setup = project.setup.text if project.setup else None
        keep, why_not = detect.usable_environment(paths.root, project.setup)
        config = replace(config, environment=keep)
        if why_not and setup is None:
            test = project.test.text if project.test else "your tests"
            text = f"{why_not}: init will need --setup and --test"
            yield Finding("python", text, True, suggest_init_command(project, test))
    yield from inspect_box(config)
    yield from _check_commands(paths, git, config)
    yield from _check_environment(paths.root, config)
    slot = _find_set_up_slot(paths, git, config) if setup else None
    yield from find_worktree_gaps(paths, git, setup, config.sandbox_copy, slot, has_crew=has_board(paths))
    if has_board(paths):
        # Before init, no program that the repository's configuration names may run, such as one that signs.
        yield from hook_files.inspect_signing(paths, git, config)
    yield from _disk(paths)


def inspect_box(config: Config) -> Iterator[Finding]:
    """Yield whether agents, set-up and tests run in boxes, and why not."""
    if config.confinement is Confinement.OFF:
        yield Finding("box", "config.confinement is off: agents can do what you can")
        return
    machine = support.find_support()
    if machine.works:
        yield Finding("box", f"{machine.program}: agents, set-up and tests can write only their worktree")
        return
    is_allowed = config.confinement is Confinement.AUTO
    result = "none, agents can do what you can" if is_allowed else "none, and config.confinement is required"
    yield Finding("box", f"{result}: {machine.cause}", is_allowed, machine.remedy or support.OFF_COMMAND)


def _find_set_up_slot(paths: Paths, git: Git, config: Config) -> Path | None:
    """Return a worktree of an agent in which the set-up has run, or None."""
    worktrees = Worktrees(paths, git, config.integration_branch)
    slots = paths.slot("x").parent
    names = sorted(path.name for path in slots.iterdir() if _is_real_directory(path)) if slots.is_dir() else []
    for name in names:
        is_agents = not slot_states.is_merge_slot(name) and worktrees.exists(name)
        if is_agents and not slot_setup.is_setup_due(paths.root, worktrees.slot_git(name), config):
            return paths.slot(name)
    return None


def _check_commands(paths: Paths, git: Git, config: Config) -> Iterator[Finding]:
    root = paths.root
    test, setup = config.integration_command, config.sandbox_setup
    origin, setup_origin = "config.integration_command; `liza edit` changes it", "config.sandbox_setup"
    if not test:
        project = detect.read_project(root, git)
        detected = project.test
        if detected is None:
            has_crew = has_board(paths)
            text = "no command found: merges are not tested" if not has_crew else _NO_TEST_COMMAND
            set_tests = 'liza config set integration_command "make test"'
            yield Finding("tests", text, True, set_tests if has_crew else f'{INIT} --test "make test"')
        else:
            test, origin = detected.text, ", ".join(detected.source_files)
        if project.setup is not None and not setup:
            setup, setup_origin = project.setup.text, ", ".join(project.setup.source_files)
    env = commands.command_environment(root, config.environment)
    if test:
        obstacle = find_missing_program(test, env)
        text = f"{test} ({origin})"
        script = commands.find_crlf_script(output_causes.list_words(test), root)
        if script:
            crlf = f"{text}: {output_causes.describe_crlf(script)}"
            yield Finding("tests", crlf, False, output_causes.crlf_remedy(script))
        elif obstacle:
            project = detect.read_project(root, git)
            hint = "liza edit" if config.integration_command else suggest_init_command(project, test)
            yield Finding("tests", f"{text}: it does not start: {obstacle} is missing", False, hint)
        else:
            yield Finding("tests", text)
    yield from _check_proof(root, git, config)
    if setup:
        obstacle = find_missing_program(setup, env)
        text = f"{setup} ({setup_origin})"
        hint = "liza edit" if config.sandbox_setup else suggest_setup_command(project)
        not_starting = f"{text}: it does not start: {obstacle} is missing; install it, or use another set-up"
        failed = Finding("set-up", not_starting, False, hint)
        yield failed if obstacle else Finding("set-up", text)


def _check_proof(root: Path, git: Git, config: Config) -> Iterator[Finding]:
    tested_checkout, doubt = test_proof.tested_instead(config), test_proof.unproved_reason(config)
    if tested_checkout is not None:
        worktree_commands = project_kinds.worktree_commands(
            detect.read_project(root, git), str(config.integration_command)
        )
        hint_text = (
            f"; set sandbox_setup to {worktree_commands[0]} and integration_command to {worktree_commands[1]}"
            if worktree_commands
            else "; change config.integration_command or config.sandbox_setup"
        )
        text = f"the tests do not test the worktree they run in: they use {tested_checkout}{hint_text}"
        yield Finding("proof", text, False, "liza edit && liza doctor --tests")
    elif (untested := test_proof.untested_reason(config)) is not None:
        text = f"nothing is merged: untested: {untested.text}; {test_proof.FIX_TESTS}, or accept this part for good"
        yield Finding("proof", text, False, untested.hint)
    elif doubt:
        text = f"not proved that the tests test the worktree they run in: {doubt}"
        yield Finding("proof", text, True, test_proof.unproved_command(config))
    elif config.integration_command:
        text = f"{test_proof.PROVED_TEXT}; {config.proof.why}" if config.proof.why else test_proof.PROVED_TEXT
        yield Finding("proof", text)
    outdated = test_proof.outdated_reason(config)
    if outdated is not None:
        yield Finding("proof", f"{outdated}; it is renewed when the crew is idle", True, "liza doctor --tests")
    if test_proof.reads_last_commit(config):
        yield Finding("proof", test_proof.LAST_COMMIT_TEXT)
    if config.sandbox_setup and test_proof.is_setup_due_for_each(config):
        yield Finding("set-up", test_proof.SETUP_BUILDS_TEXT)


def find_missing_program(command: str, env: Mapping[str, str]) -> str | None:
    """Return the program that is missing for a command to start, judged by its first words; None without evidence.

    Commands with shell syntax, or with a program in the worktree, are not checked.
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
    return None if shutil.which(words[0], path=env.get("PATH", clean_environment.DEFAULT_PATH)) else words[0]


def _check_environment(root: Path, config: Config) -> Iterator[Finding]:
    """Findings about the environment in use, and about variables of this terminal that are left out."""
    keep = config.environment
    if keep is not None:
        links = detect.find_checkout_links(Path(keep), root)
        if links:
            where = f"{keep} (config.environment) has this checkout installed ({links[0].text})"
            text = f"{where}: tests may import it from there"
            yield Finding("python", text, False, "liza edit")
        elif not (Path(keep) / "bin").is_dir():
            yield Finding("python", f"{keep} (config.environment) does not exist", False, "liza edit")
        else:
            yield Finding("python", f"{keep} (config.environment) comes first on PATH; it holds dependencies only")
    removed = clean_environment.clean_variables(os.environ, str(root), keep, os.path.realpath).removed
    if removed:
        text = f"not for tests and sessions: {detect.describe_removed(removed)}"
        yield Finding("left out", text)


def find_worktree_gaps(
    paths: Paths, git: Git, setup: str | None, copied: Sequence[str], slot: Path | None = None, *, has_crew: bool
) -> Iterator[Finding]:
    """Findings about files that a new worktree lacks, or that it finds outside itself. Raises GitFailed.

    ``copied``: the patterns of ``config.sandbox_copy``. ``slot``: a worktree in which the set-up has run. ``has_crew``:
    whether the hints are for a crew that exists.
    """
    root = paths.root
    if not has_crew:  # `liza init` copies them
        copied = (*copied, *local_files.copy_patterns(local_files.find_included(git).ignored))
    local = local_files.find_local_files(git, copied)
    if local:
        text = f"{', '.join(local)}: git ignores it, so no worktree has it"
        yield Finding("files", text, True, _suggest_copy(has_crew, copied, local))
    modules = detect.find_submodules(git) if (root / ".gitmodules").is_file() else ()
    if modules and "submodule" not in (setup or ""):
        text = f"{', '.join(modules)}: empty in each worktree, because no set-up fetches it"
        if has_crew:
            yield Finding("submodules", f"{text}; set config.sandbox_setup to {SUBMODULE_COMMAND}", True, "liza edit")
        else:
            yield Finding("submodules", text, True, f'liza init "…" --setup "{SUBMODULE_COMMAND}"')
    if _uses_lfs(root) and shutil.which("git-lfs") is None:
        yield Finding("lfs", ".gitattributes needs git-lfs, which is not installed", False, "git lfs install")
    yield from _check_pre_commit(root, git)
    if setup is None or slot is not None:
        yield from find_hook_gaps(git, setup, copied, slot, has_crew=has_crew)
    if (root / "package.json").is_file():
        yield from _node_modules(paths)


def _uses_lfs(root: Path) -> bool:
    path = root / ".gitattributes"
    return path.is_file() and re.search(r"^[^#\n]*\bfilter=lfs\b", path.read_text(errors="replace"), re.M) is not None


def _check_pre_commit(root: Path, git: Git) -> Iterator[Finding]:
    if not (root / ".pre-commit-config.yaml").is_file():
        return
    if (root / hook_files.hooks_directory(git) / "pre-commit").is_file():
        yield Finding("hooks", "pre-commit checks the commits of agents too: worktrees share .git/hooks")
    else:
        yield Finding("hooks", "pre-commit is configured but not installed: no commits are checked", True,
                      "pre-commit install")  # fmt: skip


def find_hook_gaps(
    git: Git, setup: str | None, copied: Sequence[str], slot: Path | None, *, has_crew: bool
) -> Iterator[Finding]:
    """Findings about files that hooks need for the commits of agents. Arguments as in ``find_worktree_gaps``."""
    gaps = [need for need in hook_files.find_needs(git) if _lacks(git, copied, slot, need.path)]
    is_dependency = [need for need in gaps if Path(need.path).name in local_files.DEPENDENCY_DIRECTORIES]
    for needs in (is_dependency, [need for need in gaps if need not in is_dependency]):
        if not needs:
            continue
        paths = tuple(dict.fromkeys(need.path for need in needs))
        hooks = tuple(dict.fromkeys(need.hook for need in needs))
        subject = f"git hook {hooks[0]} needs" if len(hooks) == 1 else f"git hooks {', '.join(hooks)} need"
        text = f"{subject} {', '.join(paths)}, which no worktree has"
        if needs is is_dependency:
            command = " && ".join(dict.fromkeys(_make_dependencies(git, Path(path)) for path in paths))
            command = f"{setup} && {command}" if setup else command
            hint = shlex.join(["liza", "config", "set", "sandbox_setup", command])
            yield Finding("hooks", text, True, hint if has_crew else f'liza init "…" --setup {shlex.quote(command)}')
        else:
            # One command for all files: two would each replace the value of the other.
            names = dict.fromkeys(
                (*local_files.find_local_files(git, copied), *(_copied_name(git, path) for path in paths))
            )
            yield Finding("hooks", text, True, _suggest_copy(has_crew, copied, tuple(names)))


def _lacks(git: Git, copied: Sequence[str], slot: Path | None, path: str) -> bool:
    """Return whether a new worktree lacks this path of the checkout."""
    if slot is not None:
        return not os.path.lexists(slot / path)
    return not (local_files.is_copied(path, copied) or git.names("--literal-pathspecs", "ls-files", "-z", "--", path))


def _copied_name(git: Git, path: str) -> str:
    """Return the name to copy for a file: its directory, if git tracks nothing there and the directory is small."""
    parent = str(Path(path).parent)
    if parent == "." or git.names("--literal-pathspecs", "ls-files", "-z", "--", parent):
        return path
    return parent if len(list((git.directory / parent).iterdir())) <= _MAX_COPIED_SIBLINGS else path


def _make_dependencies(git: Git, path: Path) -> str:
    """Return the command that makes a directory of dependencies in a worktree."""
    project = detect.read_directory(git.directory / path.parent, git)
    own = project.setup or project.worktree_setup
    checkout = '"$(git rev-parse --path-format=absolute --git-common-dir)/.."'
    freeze = f"{checkout}/{path}/bin/python -m pip freeze --exclude-editable"  # what the person's environment has
    usual = f"python3 -m venv {path.name} && {freeze} | {path.name}/bin/pip install -q -r /dev/stdin"
    usual = "npm install --no-package-lock" if path.name == "node_modules" else usual
    command = usual if own is None else own.text
    return command if str(path.parent) == "." else f"(cd {shlex.quote(str(path.parent))} && {command})"


def _suggest_copy(has_crew: bool, copied: Sequence[str], names: Sequence[str]) -> str:
    patterns = local_files.copy_patterns(names)
    if has_crew:
        return local_files.copy_command(copied, patterns)
    return f'liza init "…" {local_files.copy_options((*copied, *patterns))}'


def _node_modules(paths: Paths) -> Iterator[Finding]:
    """Warn about node_modules above the worktrees: Node searches there, so tests pass that fail in a fresh clone."""
    slots = paths.slot("x").parent.resolve()
    for directory in (slots, *slots.parents):
        modules = directory / "node_modules"
        if modules.is_dir():
            text = f"Node finds modules in {modules} from each worktree: tests may pass that fail in a fresh clone"
            first = "liza down --purge && " if has_board(paths) else ""
            other = suggest_directory(paths.root, os.environ)
            where = shlex.quote(str(other)) if other is not None else "DIR"
            yield Finding("node", text, True, f'{first}liza init "…" --worktrees {where}')


def _disk(paths: Paths) -> Iterator[Finding]:
    slots = paths.slot("x").parent
    directories = sorted(slots.iterdir()) if _is_real_directory(slots) else []
    sizes = {
        path.name: measure_slot(paths, path.name)
        for path in directories
        if _is_real_directory(path) and path.name not in (TASK_LINKS, BOXES)
    }
    if sizes:
        largest = ", ".join(
            f"{name} {format_bytes(size)}" for name, size in sorted(sizes.items(), key=lambda entry: -entry[1])[:4]
        )
        more = f" and {len(sizes) - 4} more" if len(sizes) > 4 else ""
        total = f"{format_bytes(sum(sizes.values()))} in {count_noun(len(sizes), 'worktree')}"
        yield Finding("disk", f"{total} below {slots}: {largest}{more}")


def _is_real_directory(path: Path) -> bool:
    """Whether the path is a directory and not a link to one."""
    return path.is_dir() and not path.is_symlink()


def project_findings(paths: Paths, git: Git, config: Config) -> list[Finding]:
    """As ``inspect_project``, with a finding for files that cannot be read."""
    findings: list[Finding] = []
    try:
        findings.extend(inspect_project(paths, git, config))
    except LizaError as error:
        findings.append(Finding("project", error.message, False, error.hint))
    except OSError as error:
        path = shlex.quote(str(error.filename or paths.root))
        findings.append(
            Finding("project", f"{path} cannot be read: {error.strerror or error}", False, f"ls -ldL {path}")
        )
    return findings


def suggest_directory(root: Path, environ: Mapping[str, str]) -> Path | None:
    """Return a directory that `liza init --worktrees` accepts, and above which Node finds no modules; None without one.

    Creates nothing. Raises OSError.
    """
    for directory in (
        *slots_directory.propose_directories(root, environ),
        Path("/var/tmp") / f"{root.name}.worktrees",
    ):
        if any((above / "node_modules").is_dir() for above in directory.parents):
            continue
        try:
            return slots_directory.choose_directory(root, directory, environ).directory
        except Refused:
            continue
    return None
