"""The integration branch: its commit, the commit at which Liza left it, and what of it a branch has.

A squash or rebase merge leaves no ancestor to find: what a branch has is judged by content. `liza/merging/drift.py`
says what a move of the branch outside of Liza means for merged work.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Collection
from contextlib import suppress

from liza.git import branch_moves, candidates, git_refs
from liza.git.branch_moves import LAST_INTEGRATION_REF
from liza.git.git_refs import current_branch
from liza.git.runner import COMMIT, Git
from liza.model import targets
from liza.model.errors import Missing
from liza.model.model import State
from liza.model.paths import Paths
from liza.model.targets import CommitsAhead
from liza.system import atomic, untrusted_files


def require_integration(git: Git, state: State) -> str:
    """Return the commit of integration. Raises Missing if it is gone, with the command that restores it."""
    commit = branch_moves.branch_tip(git, state.config.integration_branch)
    if commit is None:
        raise _integration_gone_error(git, state)
    return commit


def is_last_tip(git: Git, commit: str | None) -> bool:
    """Return whether Liza left integration at ``commit``; True if that is unknown. Raises GitFailed."""
    return read_last_tip(git) in (None, commit)


def record_last_tip(git: Git, tip: str) -> None:
    """Record that Liza, or a person by a Liza command, put integration at ``tip``. Raises GitFailed."""
    git.out("update-ref", LAST_INTEGRATION_REF, tip)


def _integration_gone_error(git: Git, state: State) -> Missing:
    branch = state.config.integration_branch
    start = read_last_tip(git) or find_newest_merge(git, state) or "HEAD"
    return Missing(f"the branch {branch} is gone", f"git branch {shlex.quote(branch)} {start[:12]}")


def find_newest_merge(git: Git, state: State) -> str | None:
    """Return the newest merge commit on the board that the repository still has, or None."""
    own_commits = (commit for task in state.tasks for commit in targets.find_own_commits(task))
    merge_commits = list(filter(COMMIT.fullmatch, own_commits))
    merge_commits += filter(COMMIT.fullmatch, (commit for epic in state.epics.values() for commit in epic.landed))
    if not merge_commits:
        return None
    return git.out("rev-list", "--ignore-missing", "--topo-order", "-n1", *merge_commits) or None


def read_last_tip(git: Git) -> str | None:
    """Return the commit at which Liza left integration, or None if that is unknown."""
    return git.find_commit(LAST_INTEGRATION_REF)


_LANDED = "refs/liza/landed/"
"""Refs at the commits of integration that `liza land --merge` brought to branches of the person."""


def record_landing(git: Git, branch: str, tip: str) -> None:
    """Record that a branch of the person has integration up to ``tip``. Raises GitFailed."""
    git.out("update-ref", _LANDED + branch, tip)


def find_landed_branch(git: Git, state: State, commit: str) -> str | None:
    """Return a branch of the person that has the work of ``commit``, which integration contains; None without one.

    It is the current branch, that of the pull request, or one that `liza land` has moved. Raises Missing, GitFailed.
    """
    tip = require_integration(git, state)
    own = (state.config.integration_branch, *targets.target_branches(state))
    names = (current_branch(git), state.pull_request.base, *git_refs.refs_below(git, _LANDED))
    for branch in dict.fromkeys(name for name in names if name and name not in own):
        base = None if targets.is_crew_branch(branch) else branch_moves.branch_tip(git, branch)
        if base is not None and git_refs.is_contained(git, commit, find_landed(git, base, tip)):
            return branch
    return None


_DRIVER = "liza-ours"
"""Merge driver that resolves each conflict inside a file in favour of the first commit."""


def find_landed(git: Git, base: str, tip: str) -> str:
    """Return the newest commit on the first-parent history of ``tip``, the tip of integration, whose work ``base`` has.

    It is ``base`` itself if ``base`` has no work but that of its ancestors. Raises GitFailed.
    """
    rows = git.lines("rev-list", "--first-parent", "--no-commit-header", "--format=%H %T %P", f"{base}..{tip}")
    if not rows:
        return tip
    fields = [row.split(" ") for row in reversed(rows)]
    chain, trees = tuple(row[0] for row in fields), tuple(row[1] for row in fields)
    start = fields[0][2]
    # A base on this history has no commit of another history: no squash can have brought work to it.
    if start in ("", base):
        return base
    # Integration was synced with the base since: only a commit with the same tree adds nothing to it.
    synced = bisect_left(chain, True, key=lambda commit: git.ok("merge-base", "--is-ancestor", base, commit))
    tree = git.out("rev-parse", f"{base}^{{tree}}")
    same = next((index for index in reversed(range(synced, len(chain))) if trees[index] == tree), None)
    if same is not None:
        return chain[same]
    for commit in reversed(_list_candidates(git, start, base, chain[:synced])):
        if _has_landed(git, start, base, commit):
            return commit
    return base


def _list_candidates(git: Git, start: str, base: str, chain: tuple[str, ...]) -> tuple[str, ...]:
    """Return the commits of ``chain``, oldest first, before the first one that changes a file which ``base`` does not.

    A merge of each commit costs some milliseconds: without a squash none has to be made.
    """
    if not chain:
        return ()
    changed = set(git_refs.list_changed_paths(git, start, base))
    missing = [path for path in git_refs.list_changed_paths(git, start, chain[-1]) if path not in changed]
    if not missing:
        return chain
    touching = set(_list_changing(git, start, chain[-1], missing))
    return chain[: next((index for index, commit in enumerate(chain) if commit in touching), len(chain))]


def _has_landed(git: Git, start: str, base: str, commit: str) -> bool:
    """Whether ``base`` has the work of ``commit``: a merge of it changes nothing.

    If people changed the same lines after the squash, a merge has conflicts. Then a commit of the base must have had
    all of the work, nothing of it may be missing outside of these lines, and no later commit may be called a revert.
    """
    if _merge_adds_nothing(git, base, commit):
        return True
    if not _merge_adds_nothing(git, base, commit, ours=True):
        return False
    paths = git_refs.list_changed_paths(git, start, commit)
    if _list_changing(git, start, base, paths, "--regexp-ignore-case", "--grep=revert"):
        return False
    return any(_merge_adds_nothing(git, own, commit) for own in _list_changing(git, start, base, paths))


def _merge_adds_nothing(git: Git, base: str, commit: str, *, ours: bool = False) -> bool:
    """Whether a merge of ``commit`` into ``base`` is clean and has the tree of ``base``.

    ``ours``: with conflicts inside of files resolved in favour of ``base``.
    """
    if ours:
        driver = f"merge.{_DRIVER}.driver", "git merge-file --ours %A %O %B"
        git = git.with_config(("merge.default", _DRIVER), driver)
    tree, conflicts = candidates.merge_trees(git.with_environment(GIT_ATTR_SOURCE=base), base, commit)
    return not conflicts and tree == git.out("rev-parse", f"{base}^{{tree}}")


def _list_changing(git: Git, start: str, tip: str, paths: Collection[str], *options: str) -> tuple[str, ...]:
    """Return the first-parent commits in ``start..tip`` that change one of the files. Raises GitFailed."""
    names = "".join(f"{path.rstrip('/')}\n" for path in paths)
    stdin = f"{start}..{tip}\n--\n{names}".encode("utf-8", "surrogateescape")
    return tuple(git.out("--literal-pathspecs", "rev-list", "--first-parent", *options, "--stdin", stdin=stdin).split())


def record_landed_branch(paths: Paths, branch: str) -> None:
    """Record the branch that integration was brought to. An error is ignored: then the checked-out branch counts."""
    with suppress(OSError):
        atomic.write(paths.landed_branch, branch.encode("utf-8", "surrogateescape") + b"\n", sync=False)


def read_landed_branch(paths: Paths) -> str | None:
    """Return the branch of the last landing; None before the first one. Raises NotRegularFile, OSError."""
    data = untrusted_files.read_if_exists(paths.landed_branch)
    return None if data is None else data.decode("utf-8", "surrogateescape").strip() or None


def find_commits_ahead(git: Git, state: State, paths: Paths) -> CommitsAhead | None:
    """Compare integration with the person's branch: the one that it was brought to last, whatever is checked out.

    Before a landing that is the branch of the checkout.

    None if there is no such branch, or it is integration itself. Raises GitFailed.
    """
    into = state.config.integration_branch
    landed, checked_out = read_landed_branch(paths), current_branch(git)
    if landed is not None and branch_moves.branch_tip(git, landed) is None:
        landed = None
    head = landed or checked_out
    if head is None or head == into:
        return None
    base, tip = git_refs.find_commits(git, f"refs/heads/{head}", f"refs/heads/{into}")
    if base is None or tip is None:
        return None
    landed_commit = find_landed(git, base, tip)
    commits, own = (
        int(git.out("rev-list", "--count", commit, "--not", *others))
        for commit, others in ((tip, (base, landed_commit)), (base, (tip,)))
    )
    tracked = state.pull_request
    request = tracked.url if tracked.is_open and tracked.base == head else ""
    return CommitsAhead(into, head, commits=commits, own=own, request=request, is_checked_out=head == checked_out)
