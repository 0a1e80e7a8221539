"""gc: free space below `.liza`."""

from __future__ import annotations

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.recovery import garbage
from liza.crew.result import Result
from liza.rules.errors import LizaError
from liza.rules.formatting.counts import count_noun


def gc(crew: Crew, dry_run: bool = False) -> Result:
    """Compress old run directories and logs, and delete files of crashed writers. Raises LizaError.

    ``dry_run``: change nothing; the sizes are those before the compression.
    """
    require_person(crew, planner=False)
    freed: list[garbage.Garbage] = []
    failed: list[str] = []
    for candidate in garbage.find_garbage(crew):
        try:
            done = candidate if dry_run else garbage.free(crew, candidate)
        except (LizaError, OSError) as error:
            # One that cannot be freed does not keep the others.
            failed.append(f"{candidate.path}: {error}")
            continue
        if done is not None:
            freed.append(done)
    rows = [
        {"kind": item.kind.value, "name": str(item.path.relative_to(crew.paths.root)), "bytes": item.size}
        for item in freed
    ]
    total = sum(item.size for item in freed)
    details = {"dry_run": dry_run, "freed_bytes": total, "freed": rows, "failed": failed}
    lines = [f"{row['bytes']:>12,}  {row['name']}" for row in rows]
    verb = "can be freed: their size now is" if dry_run else "freed:"
    lines.append(f"{count_noun(len(rows), 'item')} {verb} {count_noun(total, 'byte')}" if rows else "nothing to free")
    lines += [f"not freed: {line}" for line in failed]
    result = "changed" if rows and not dry_run else "unchanged"
    return Result(result, None, None, "liza gc" if rows and dry_run else "liza status", details, "\n".join(lines))
