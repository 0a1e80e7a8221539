"""How commands run on a commit that a stranger wrote: in a box without network, logins and files of the person."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Final

from liza.box import support
from liza.crew.crew import Crew
from liza.git.git_config import switch_filters_off
from liza.model.configuration import Config, Confinement, Network
from liza.model.errors import Missing
from liza.model.value_classes import replace
from liza.tasks.rules.strangers import NO_BOX

HOW: Final = "A stranger wrote it: its set-up and its tests ran in a box without network and logins."
_VARIABLES: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TERM", "TMPDIR",
    "GIT_NO_REPLACE_OBJECTS", "LIZA_RUN", "LIZA_ROOT", "VIRTUAL_ENV", "JAVA_HOME", "GOROOT", "RUSTUP_HOME",
)  # fmt: skip
"""Variables that are no login and name no cache of the person."""


def require_box() -> None:
    """Raise Missing if this machine makes no box: then nothing runs."""
    machine = support.find_support()
    if machine.is_load:  # It may pass.
        support.find_support.cache_clear()
    if not machine.works:
        raise Missing(f"{NO_BOX}: {machine.cause}", machine.remedy or "liza doctor")


def confine(crew: Crew) -> Crew:
    """Return the crew, with the same open board, for a checkout of what a stranger wrote: the filters that its
    attributes name are programs of the person, and do not run. Raises Missing if this machine makes no box, GitFailed.
    """
    require_box()
    confined = replace(crew)
    worktrees = crew.worktrees_onto(crew.board.read().config.integration_branch, Confinement.REQUIRED)
    off = switch_filters_off(crew.git)
    worktrees = replace(worktrees, git=crew.git.with_config(*off), settings=off)
    vars(confined).update(board=crew.board, worktrees=worktrees)
    return confined


def restrict(config: Config) -> Config:
    """Return the configuration for such commands: nothing that a person shares with the boxes of the crew."""
    return replace(config, confinement=Confinement.REQUIRED, network=Network.OFF, shared=(), sandbox_copy=())


def select_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that such commands get."""
    return {name: value for name, value in environ.items() if any(fnmatchcase(name, each) for each in _VARIABLES)}
