"""A new crew whose board is on a server: whether the database can have it, and its creation."""

from __future__ import annotations

import shlex

from liza.board import crew_moves
from liza.board.address import write_address
from liza.board.opening import open_server_board
from liza.crew import shared_pages
from liza.crew.crew import Crew
from liza.git.git_refs import HEADS
from liza.git.git_remote import GitRemote, read_urls
from liza.git.root_commits import read_root_commits
from liza.git.runner import Git
from liza.git.shared_remote import SharedRemote, open_remote
from liza.model.configuration import Config
from liza.model.errors import Refused
from liza.project.baseline import InitOptions
from liza.project.shared_board import NewServerCrew, choose_address


def check_new_crew(git: Git, options: InitOptions, tip: str) -> NewServerCrew:
    """Return the crew to create, whose merges begin at ``tip``.

    Raises UsageError, Refused, Missing, GitFailed, BoardServerRefused, BoardUnavailable.
    """
    assert options.board is not None
    address = choose_address(git, options.board, options.host)
    roots = read_root_commits(git)
    if crew_moves.read_repository(address) is not None:
        raise crew_moves.existing_error(address)
    branch = options.integration_branch or Config().integration_branch
    refuse_other_tip(GitRemote(git, read_urls(git, address.remote, "--push"), address.remote), branch, tip)
    return NewServerCrew(address, roots, branch, tip)


def refuse_other_tip(remote: GitRemote, branch: str, tip: str) -> None:
    """Raise Refused if the remote has the branch of the merges at another commit. Raises Missing, GitFailed."""
    present = remote.list_refs(HEADS + branch).get(HEADS + branch)
    if present is not None and present != tip:
        other = f'liza init "…" --integration-branch {shlex.quote(f"{branch}-2")}'
        raise Refused(f"{remote.name} has a branch {branch} at {present[:12]} already; here it is at {tip[:12]}", other)


def create_crew(new: NewServerCrew, crew: Crew, text: str, above: int) -> Crew:
    """Push the branch of the merges, write the first board, then its address in this clone; return the crew with it.

    Raises BoardInconsistent, Refused, RemoteUnavailable, BoardServerRefused, BoardUnavailable.
    """
    push_integration(open_remote(crew.git, new.address.remote, crew.paths), new.branch, new.tip)
    board = open_server_board(new.address, crew.paths, crew.clock)
    board.create(text, above)
    for name, page in shared_pages.list_pages(crew.paths):
        board.write_page(name, page)
    crew_moves.note_repository(new.address, new.repository)
    write_address(crew.paths.board_address, new.address)
    return Crew(crew.paths, crew.clock, remote_name=new.address.remote)


def push_integration(remote: SharedRemote, branch: str, tip: str) -> None:
    """Create the branch of the merges at the remote, which may have it already at ``tip``. Raises Refused, Missing,
    RemoteUnavailable, GitFailed."""
    if not remote.create_branch(branch, tip):
        refuse_other_tip(remote, branch, tip)
        remote.mark_seen(branch, tip)
