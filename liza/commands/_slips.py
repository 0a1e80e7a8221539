"""What people type that is no command, and the command that they mean. Pure.

The words come from other tools (git, docker, tmux, kubectl), and from what a command does in other words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from liza.model.errors import UsageError
from liza.text.formats import closest_match


class Slip(NamedTuple):
    """The words that mean ``command``. ``alone``: the command if nothing follows the word.

    With ``alone``, ``command`` takes what follows, at its end or in place of ``{}``; without, it takes nothing.
    """

    words: str
    command: str
    alone: str = ""


_AT_TOP: Final = (
    Slip("list ls dir tasks todo todos backlog board plans issues", "liza task list"),
    Slip("ps agent workers worker crew top who", "liza agents", "liza agents"),
    Slip("stop kill halt quit shutdown terminate end off", "liza down", "liza down"),
    Slip("go launch begin boot spawn scale on", "liza up", "liza up"),
    Slip("restart reload", "liza down; liza up"),
    Slip("plan goal spec", "liza edit goal"),
    Slip("add new create import task-add", "liza task add", "liza task add"),
    Slip("do implement fix build", "liza start", "liza start --help"),
    Slip("show view describe info inspect get-task cat", "liza task show", "liza task list"),
    Slip("drop rm remove delete del cancel abandon close", 'liza task drop {} "…"', "liza task drop --help"),
    Slip("unblock reply respond questions question asks", "liza answer", "liza answer"),
    Slip("supersede split replace", "liza task supersede", "liza task supersede --help"),
    Slip("free unassign", "liza task release", "liza task release --help"),
    Slip("assign take pick", "liza claim {} --agent coder-1", "liza claim --agent coder-1"),
    Slip("log tail output follow transcript trace", "liza logs", "liza logs"),
    Slip("st stat state progress summary", "liza status"),
    Slip("events journal timeline activity reflog", "liza history", "liza history"),
    Slip("changes patch compare", "liza diff", "liza diff"),
    Slip("approve", 'liza verdict approve "…" --task {}', "liza verdict --help"),
    Slip("reject", 'liza verdict reject "…" --task {}', "liza verdict --help"),
    Slip("review reviews", "liza task list --status in-review"),
    Slip("pr pull-request mr", "liza land --pr"),
    Slip("ship deploy publish finish done deliver", "liza land"),
    Slip("pull fetch rebase update-branch", "liza sync", "liza sync"),
    Slip("revert rollback unmerge", 'liza undo {} --because "…"', "liza undo --help"),
    Slip("message msg tell say send chat comment prompt ask", "liza note --help"),
    Slip("cost costs usage stats tokens spend money", "liza metrics"),
    Slip("program provider providers model models", "liza programs list"),
    Slip("login auth account accounts", "liza programs accounts"),
    Slip("check test tests verify diagnose health", "liza doctor"),
    Slip("setup new-crew bootstrap", "liza init --help"),
    Slip("set", "liza config set", "liza config --help"),
    Slip("get settings setting options", "liza config get", "liza config get"),
    Slip("uninstall purge destroy", "liza down --purge"),
    Slip("clean cleanup", "liza gc --dry-run"),
    Slip("worktree worktrees wt workspace", "liza slots"),
    Slip("cd checkout switch dir-of", "liza path", "liza slots"),
    Slip("shell exec sh bash sandbox", "liza confine", "liza confine --help"),
    Slip("connect join enter", "liza attach", "liza agents"),
    Slip("continue unpause", "liza resume"),
    Slip("suspend freeze wait", "liza pause"),
    Slip("retry rerun", "liza queue retry", "liza queue"),
    Slip("merges", "liza queue"),
    Slip("commit push-work complete", "liza submit"),
    Slip("alarms alarm alerts alert why error errors", "liza explain", "liza explain"),
    Slip("notify notifications", "liza watch --help"),
    Slip("tui dashboard overview monitor picture", "liza ui", "liza ui --help"),
    Slip("server api daemon", "liza serve --help"),
    Slip("browser page html phone http website gui", "liza web", "liza web --help"),
    Slip("completion completions", "liza --install-completion"),
    Slip("commands man usage-help ?", "liza help --all"),
    Slip("upgrade update self-update", "liza --version"),
    Slip("tutorial example try", "liza demo"),
    Slip("report-bug bug", "liza bug-report"),
)
"""Of words behind `liza`. A word that has become a command is never looked up."""

_IN_GROUPS: Final = {
    "task": (
        Slip("ls all tree", "liza task list"),
        Slip("new create import", "liza task add", "liza task add"),
        Slip("view get describe info status cat log history", "liza task show", "liza task list"),
        Slip("update set change modify", "liza task edit", "liza task edit --help"),
        Slip("rm remove delete del cancel close abandon", 'liza task drop {} "…"', "liza task drop --help"),
        Slip("answer reply", "liza answer", "liza answer"),
        Slip("claim take assign start", "liza claim {} --agent coder-1", "liza claim --agent coder-1"),
        Slip("done complete finish submit", "liza submit"),
        Slip("merge land", "liza merge", "liza merge"),
        Slip("diff", "liza diff", "liza diff"),
        Slip("logs", "liza logs", "liza logs"),
        Slip("split replace", "liza task supersede", "liza task supersede --help"),
        Slip("stop free unassign reset retry", "liza task release", "liza task release --help"),
    ),
    "programs": (
        Slip("ls", "liza programs list"),
        Slip("info describe", "liza programs show", "liza programs list"),
        Slip("test try run", "liza programs check", "liza programs check"),
        Slip("login auth account", "liza programs accounts"),
    ),
    "config": (
        Slip("list ls show view", "liza config get --all"),
        Slip("edit", "liza edit"),
        Slip("unset reset", "liza config set --help"),
    ),
    "queue": (Slip("list ls show", "liza queue"), Slip("pause stop", "liza queue hold", "liza queue hold --help")),
    "slots": (Slip("list ls show", "liza slots"), Slip("rm remove delete", "liza slots nuke", "liza slots --help")),
    "epics": (Slip("list ls show", "liza epics"),),
    "breaker": (Slip("show list", "liza breaker"), Slip("reset close clear", "liza resume")),
}
_NAMES_A_PART: Final = {"task": "liza task show", "config": "liza config get", "programs": "liza programs show"}
"""Groups behind which people type what they want to see."""
_ADD: Final = "liza task add"
_SHOW: Final = "liza task show"
_AGENT: Final = re.compile(r"(planner|coder|(code-)?reviewer)-[0-9]")
_NAME: Final = re.compile(r"[A-Za-z][\w.-]*")


def unknown_command(words: Sequence[str], names: Iterable[str], group: str = "") -> UsageError:
    """Return the error for a word that is no command. Its hint is the command that it means, or else one spelled alike.

    ``words``: the word, and what follows it. ``names``: the commands there are. ``group``: the group that they belong
    to; empty for `liza` itself.
    """
    word, parent = words[0], f"liza {group}" if group else "liza"
    message = f"{parent} has no command {word!r}" if group else f"no such command {word!r}"
    slips = _IN_GROUPS.get(group, ()) if group else _AT_TOP
    slip = next((slip for slip in slips if word.lower() in slip.words.split()), None)
    if slip is not None:
        return UsageError(message, _complete(slip, words[1:]))
    if suggestion := closest_match(word, names):
        return UsageError(f"{message}; did you mean {suggestion}?", f"{parent} {suggestion} --help")
    if group in _NAMES_A_PART and _NAME.fullmatch(word):
        return UsageError(message, f"{_NAMES_A_PART[group]} {word}")
    return UsageError(message, f"{parent} --help" if group else "liza help --all")


def _complete(slip: Slip, others: Sequence[str]) -> str:
    """Return the whole command: with what was typed behind the word, if it takes that."""
    if not (slip.alone and others):
        return slip.alone or slip.command
    command = slip.command
    if command == _ADD and not any(word.startswith("-") for word in others):
        return shlex.join(["liza", "start", " ".join(others)])
    if command == _SHOW:
        return command_that_shows(others[0])
    if "{}" in command:
        return command.replace("{}", shlex.quote(others[0]))
    return shlex.join([*command.split(), *others])


_BY_STATUS: Final = (
    (("done", "merged", "closed", "complete", "completed", "finished", "approved"), "liza merge {task}"),
    (("abandoned", "cancelled", "canceled", "dropped", "superseded"), 'liza task drop {task} "…"'),
    (("unclaimed", "todo", "to-do", "open", "ready", "new"), "liza task release {task}"),
    (("draft",), "liza task edit {task} --draft"),
    (("claimed", "working", "in-progress", "doing"), "liza claim {task} --agent coder-1"),
    (("rejected", "to-fix"), 'liza verdict reject "…" --task {task}'),
)


def refuse_slip(words: Sequence[str], command_path: str, option: str) -> None:
    """Raise UsageError if the refused words mean another command. ``option``: the one that does not exist, or empty."""
    others = [word for word in words[len(command_path.split()) - 1 :] if not word.startswith("-")]
    if command_path == "liza start" and not others and not option:
        raise UsageError("liza start needs one sentence, which becomes a task; liza up starts the crew", "liza up")
    if command_path == "liza task edit" and option in ("--status", "--state"):
        wanted = next((word for word in words if word.startswith(f"{option}=")), "").partition("=")[2]
        status = (wanted or (others[-1] if len(others) > 1 else "")).lower().replace("_", "-").replace(" ", "-")
        task = others[0] if others else "TASK"
        command = next((step for names, step in _BY_STATUS if status in names), "liza task show {task}")
        text = "the state of a task is not set: it follows from claims, submissions, verdicts and merges"
        raise UsageError(text, command.format(task=task))


def command_that_shows(name: str) -> str:
    """Return the command that shows the agent or the task of this name."""
    return shlex.join(["liza", *(("agents",) if _AGENT.match(name) else ("task", "show")), name])
