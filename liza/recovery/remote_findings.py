"""Findings about the git remote through which several hosts share code."""

from __future__ import annotations

from collections.abc import Iterator

from liza.crew.crew import Crew
from liza.git import branch_moves, git_refs, remote_probe
from liza.git.shared_remote import SharedRemote
from liza.model.configuration import Config
from liza.model.errors import Finding, LizaError
from liza.tasks import shared_code


def inspect_remote(crew: Crew, config: Config) -> Iterator[Finding]:
    """Yield what prevents this clone from sharing code, and what was tried; nothing for a crew on one host."""
    if not crew.remote_name:
        return
    try:
        remote = shared_code.find_remote(crew)
        assert remote is not None
        yield from _inspect(crew, remote, config.integration_branch)
    except LizaError as error:
        yield Finding("remote", error.message, False, error.hint)


def _inspect(crew: Crew, remote: SharedRemote, branch: str) -> Iterator[Finding]:
    tip = remote.fetch(branch)[branch]
    local = branch_moves.branch_tip(crew.git, branch) or crew.git.find_commit("HEAD")
    if tip is None:
        missing = shared_code.missing_branch(remote, branch)
        yield Finding("remote", missing.message, False, missing.hint)
    elif local is not None and not git_refs.has_merge_base(crew.git, tip, local):
        text = f"{branch} of {remote.name} ({remote.address}) has no commit in common with {branch} here"
        yield Finding("remote", f"{text}: it is another repository", False, f"git remote get-url {remote.name}")
        return
    refused = remote_probe.probe(remote, crew.host)
    if refused is not None:
        text = f"nothing can be merged through {remote.name}: {refused.message}"
        yield Finding("remote", text, False, refused.hint)
        return
    tried = " and ".join(remote_probe.list_probe_refs(crew.host))
    text = f"{remote.name} ({remote.address}) takes refs together: {tried} were pushed and deleted"
    yield Finding("remote", f"{text}; whether it protects {branch} is seen at the first merge")
    if tip is not None:
        obstacle = shared_code.fetch_target(crew, remote, branch)[1]
        if obstacle is not None:
            yield Finding("remote", f"no merger of this host can work: {obstacle.message}", False, obstacle.hint)
