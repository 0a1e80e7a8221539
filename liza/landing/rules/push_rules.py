"""To which remote branches are pushed, which of them, and whether one may be replaced. Pure.

The argument ``config`` is the settings of remotes and branches, as git prints their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from liza.git.rules.push_address import ORIGIN
from liza.git.rules.remote_urls import Forge, parse_remote_url
from liza.model.history_events import UNFINISHED_ENDS, HistoryEvent
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.value_classes import Value


class PushStep(StrEnum):
    """What is done with the branch of the remote."""

    NOTHING = "nothing"
    PUSH = "push"
    REFUSE = "refuse"


class PushFacts(Value):
    """``tip``: the commit to push. ``remote_tip``: the branch of the remote; None if it does not exist.

    ``last_pushed``: the commit that this crew pushed last. ``is_contained``: whether ``tip`` contains ``remote_tip``.
    """

    tip: str
    remote_tip: str | None
    last_pushed: str | None
    is_contained: bool


def decide_push(facts: PushFacts) -> PushStep:
    """Return whether to push. A commit that another person pushed is never overwritten."""
    if facts.remote_tip == facts.tip:
        return PushStep.NOTHING
    if facts.remote_tip is None or facts.is_contained or facts.remote_tip == facts.last_pushed:
        return PushStep.PUSH
    return PushStep.REFUSE


RESOLVED_KEYS = {Forge.GITHUB: "gh-resolved", Forge.GITLAB: "glab-resolved"}
"""The setting of a remote with which the program of a forge records the project that a person chose."""


def list_remotes(config: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the remotes that have a URL."""
    names = (key.removeprefix("remote.").removesuffix(".url") for key in config if key.endswith(".url"))
    return tuple(name for name in names if f"remote.{name}.url" in config)


def find_push_remote(config: Mapping[str, str], base: str | None) -> str:
    """Return the remote that a person pushes to: by the settings for ``base``, for all branches, or ``origin``.

    Without a base, ``pushRemote`` counts if all branches that have it name the same remote.
    """
    remotes = list_remotes(config)
    names = {value for key, value in config.items() if key.startswith("branch.") and key.endswith(".pushremote")}
    only = next(iter(names)) if base is None and len(names) == 1 else None
    settings = (config.get(f"branch.{base}.pushremote"), config.get("remote.pushdefault"), only, ORIGIN)
    default = remotes[0] if len(remotes) == 1 else ORIGIN
    return next((name for name in settings if name in remotes), default)


def find_projects(config: Mapping[str, str], base: str | None, push: str) -> tuple[str, ...]:
    """Return the remotes that may be the project, where pull requests against ``base`` go; ``push`` is the push remote.

    One remote: it is decided. Of several that name the same repository the first counts. A repository that a person
    chose and that no remote has is returned as a URL.
    """
    remotes = list_remotes(config)
    resolved = [name for name in remotes if any(config.get(f"remote.{name}.{key}") for key in RESOLVED_KEYS.values())]
    tracked = config.get(f"branch.{base}.remote")
    if resolved:
        names = [_follow_choice(config, name) for name in resolved]
    elif tracked in remotes and tracked != push:
        names = [tracked]
    else:
        default = ORIGIN if ORIGIN in remotes else push
        names = [name for name in (tracked, "upstream") if name in remotes] or [default]
    by_repository = dict[str, str]()
    for name in names:
        by_repository.setdefault(_name_repository(config.get(f"remote.{name}.url", name)), name)
    return tuple(by_repository.values())


def _follow_choice(config: Mapping[str, str], name: str) -> str:
    """Return the remote of the chosen repository: ``base`` is ``name`` itself, OWNER/NAME another on its host.

    If no remote has that one, return its URL.
    """
    url = config[f"remote.{name}.url"]
    repository = parse_remote_url(url)
    choice = next(value for key in RESOLVED_KEYS.values() if (value := config.get(f"remote.{name}.{key}")))
    if repository is None or "/" not in choice:
        return name
    chosen = url.replace(repository.path, choice)
    urls = {_name_repository(config[f"remote.{other}.url"]): other for other in list_remotes(config)}
    return urls.get(_name_repository(chosen), chosen)


def _name_repository(url: str) -> str:
    repository = parse_remote_url(url)
    return url if repository is None else repository.full_name.lower()


_SAVED: Final = (*UNFINISHED_ENDS, HistoryEvent.STOP, HistoryEvent.HANDOFF)


class TaskTips(Value):
    """Commits by task: of its branch, and as it was pushed last."""

    local: Mapping[str, str]
    pushed: Mapping[str, str]


def find_unpushed(state: State, tips: TaskTips, *, at_rest: bool = False) -> tuple[str, ...]:
    """Return all open tasks whose branches have commits that were not pushed; with ``at_rest`` those in whose worktrees
    no session writes now: after a submission, and after a session that left commits.
    """
    return tuple(
        task.id
        for task in state.tasks
        if task.status not in FINAL_STATUSES and _is_unpushed(task, tips) and (_is_at_rest(task) or not at_rest)
    )


def _is_unpushed(task: Task, tips: TaskTips) -> bool:
    """Return whether the branch has commits of its own that were not pushed."""
    tip = tips.local.get(task.id)
    return tip is not None and tip not in (task.base_commit, tips.pushed.get(task.id))


def _is_at_rest(task: Task) -> bool:
    """Return whether no session writes commits now, as far as the board says."""
    return task.status is not Status.CLAIMED or bool(task.history and task.history[-1].event in _SAVED)
