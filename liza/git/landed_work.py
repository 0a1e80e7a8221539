"""Judge by content what of integration a branch has: a squash or rebase merge leaves no ancestor to find."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection

from liza.git import merge_refs, merges
from liza.git.ref_names import current_branch
from liza.git.runner import Git
from liza.model.model import State
from liza.model.targets import CommitsAhead

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
    changed = set(merge_refs.list_changed_paths(git, start, base))
    missing = [path for path in merge_refs.list_changed_paths(git, start, chain[-1]) if path not in changed]
    if not missing:
        return chain
    touching = set(_list_commits(git, start, chain[-1], missing))
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
    paths = merge_refs.list_changed_paths(git, start, commit)
    if _list_commits(git, start, base, paths, "--regexp-ignore-case", "--grep=revert"):
        return False
    return any(_merge_adds_nothing(git, own, commit) for own in _list_commits(git, start, base, paths))


def _merge_adds_nothing(git: Git, base: str, commit: str, *, ours: bool = False) -> bool:
    """Whether a merge of ``commit`` into ``base`` is clean and has the tree of ``base``.

    ``ours``: with conflicts inside of files resolved in favour of ``base``.
    """
    if ours:
        driver = f"merge.{_DRIVER}.driver", "git merge-file --ours %A %O %B"
        git = git.with_config(("merge.default", _DRIVER), driver)
    tree, conflicts = merges.merge_trees(git.with_environment(GIT_ATTR_SOURCE=base), base, commit)
    return not conflicts and tree == git.out("rev-parse", f"{base}^{{tree}}")


def _list_commits(git: Git, start: str, tip: str, paths: Collection[str], *options: str) -> tuple[str, ...]:
    """Return the first-parent commits in ``start..tip`` that change one of the files. Raises GitFailed."""
    names = "".join(f"{path.rstrip('/')}\n" for path in paths)
    stdin = f"{start}..{tip}\n--\n{names}".encode("utf-8", "surrogateescape")
    return tuple(git.out("--literal-pathspecs", "rev-list", "--first-parent", *options, "--stdin", stdin=stdin).split())


def find_commits_ahead(git: Git, state: State) -> CommitsAhead | None:
    """Compare integration with the branch of the person's checkout.

    None if that checkout is on integration itself or on no branch. Raises GitFailed.
    """
    into = state.config.integration_branch
    head = current_branch(git)
    if head is None or head == into:
        return None
    if not git.ok("show-ref", "--verify", "--quiet", f"refs/heads/{into}"):
        return None
    if not git.ok("rev-parse", "-q", "--verify", f"refs/heads/{head}"):
        return None
    base, tip = git.out("rev-parse", f"refs/heads/{head}", f"refs/heads/{into}").split()
    landed = find_landed(git, base, tip)
    commits, own = (
        int(git.out("rev-list", "--count", commit, "--not", *others))
        for commit, others in ((tip, (base, landed)), (base, (tip,)))
    )
    tracked = state.pull_request
    request = tracked.url if tracked.is_open and tracked.base == head else ""
    return CommitsAhead(into, head, commits=commits, own=own, request=request)
