"""Where branches are pushed, which of them, whether one may be replaced, and what a failed push means. Pure.

A remote may have been changed since a person accepted its address: nothing is sent where no person wanted it. The
argument ``config`` is the settings of remotes and branches, as git prints their keys.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from liza.landing.rules.remote_urls import Forge, parse_remote_url
from liza.model.errors import LizaError, Refused
from liza.model.history_events import UNFINISHED_ENDS, HistoryEvent
from liza.model.model import FINAL_STATUSES, State, Status, Task
from liza.model.value_classes import FrozenStruct, Value, decodable


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


class PushFailure(StrEnum):
    """Why a remote did not answer or did not take a push."""

    LOGIN = "it asks for a login"
    MOVED = "the branch moved meanwhile"
    REJECTED = "it rejected the push"
    UNREACHABLE = "it cannot be reached"


_LOGIN = re.compile(
    r"(?i)could not read (username|password)|authentication failed|permission denied|terminal prompts disabled"
    r"|invalid (username|credentials)|host key verification failed|access denied|\b40[13]\b"
)
_MOVED = re.compile(r"\((stale info|fetch first|non-fast-forward)\)")
_REJECTED = re.compile(r"\[remote rejected\]|pre-receive hook declined|remote: error|\[rejected\]")


def classify_failure(output: str) -> PushFailure:
    """Return the cause of a failed ``git push`` or ``git ls-remote`` from what it printed."""
    if _MOVED.search(output):
        return PushFailure.MOVED
    if _REJECTED.search(output):
        return PushFailure.REJECTED
    return PushFailure.LOGIN if _LOGIN.search(output) else PushFailure.UNREACHABLE


PUSH_COMMAND, LAND_COMMAND = "liza push", "liza land --pr"
"""The commands that push; with ``--origin URL`` they accept the address first."""
_LOGIN_PART = r"\A([a-z]+://)[^/@?#\\\s]+@"


class PushAddress(FrozenStruct, frozen=True, kw_only=True):
    """Where git pushes, without credentials.

    ``urls``: the effective URLs, then the configured one, which names the repository at the forge. ``project``: the
    URLs of the project, where pull requests go, if that is another repository.
    """

    urls: tuple[str, ...]
    project: tuple[str, ...] = ()


def strip_login(url: str) -> str:
    """Return a URL without user name and password.

    Only what every program reads as such is removed: for curl the host of ``https://a?@b/`` is ``a``.
    """
    return re.sub(_LOGIN_PART, r"\1", url)


def make_address(urls: Iterable[str], project: Iterable[str] = ()) -> PushAddress:
    """Return the address of these URLs."""
    return PushAddress(urls=tuple(map(strip_login, urls)), project=tuple(map(strip_login, project)))


def parse_accepted(record: object) -> PushAddress | None:
    """Return the accepted address as the pins have it; None if no address was accepted, or it is damaged."""
    try:
        return None if record is None else msgspec.convert(record, decodable(PushAddress))
    except msgspec.ValidationError:
        return None


def accept_command(command: str, url: str) -> str:
    """Return the command with which a person accepts an address, and then pushes."""
    return f"{command} --origin {shlex.quote(url)}"


def find_change(accepted: PushAddress | None, present: PushAddress, command: str) -> LizaError | None:
    """Return the error why ``command`` may send nothing to ``present``; None if a person has accepted it."""
    url = present.urls[0]
    accept = accept_command(command, url)
    if accepted is None:
        return Refused(f"no person has accepted the address of origin, which is {url}", accept)
    if accepted.urls[:1] != present.urls[:1]:
        before = ", ".join(accepted.urls[:1])
        return Refused(f"origin is at {url} now, and a person has accepted {before}", accept)
    if accepted.urls != present.urls:
        before, now = " and ".join(accepted.urls), " and ".join(present.urls)
        return Refused(f"the URLs of origin are {now} now, and a person has accepted {before}", accept)
    if command == LAND_COMMAND and accepted.project != present.project:
        now, before = (" and ".join(address.project or address.urls) for address in (present, accepted))
        return Refused(f"pull requests go to {now} now, and a person has accepted {before}", accept)
    return None


ORIGIN = "origin"
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
