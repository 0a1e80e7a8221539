#!/usr/bin/env python3
"""Verify the statements about landed commits in a clone, with git alone: no code of Liza is used.

    git fetch origin refs/notes/liza:refs/notes/liza
    python3 verify_evidence.py BRANCH

Prints a line for each task that landed on the branch, and exits 1 if a statement does not agree with the commits.
`git verify-commit refs/notes/liza` checks who signed them.
"""

import json
import subprocess
import sys

STATEMENT = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
VERDICT = "urn:liza:verdict:v1"


def git(*words: str) -> str:
    """Return what git prints; empty if it fails."""
    return subprocess.run(["git", *words], capture_output=True, text=True, check=False).stdout.strip()


def read_note(commit: str) -> list:
    """Return the statements in the note of a commit that are about it."""
    lines = dict.fromkeys(git("notes", "--ref", "liza", "show", commit).splitlines())
    statements = [json.loads(line) for line in lines if line]
    return [
        statement
        for statement in statements
        if statement["_type"] == STATEMENT
        and {"gitCommit": commit} in [each["digest"] for each in statement["subject"]]
    ]


def find_faults(commit: str, verdict: dict) -> list:
    """Return what of a verdict the commits contradict."""
    reviewed = verdict["reviewed"]["digest"]["gitCommit"]
    tested = verdict.get("tested", {}).get("digest", {}).get("gitCommit")
    faults = []
    if reviewed not in git("rev-list", "--no-walk", "--parents", commit).split()[2:]:
        faults.append(f"{reviewed[:12]} was reviewed, and is not what was merged")
    if not any(
        r["verdict"] == "approve" and r["commit"]["digest"]["gitCommit"] == reviewed for r in verdict["reviews"]
    ):
        faults.append(f"{reviewed[:12]} was not approved")
    if tested is not None:
        if commit not in git("rev-list", "--first-parent", "--max-count=100", tested).split():
            faults.append(f"{tested[:12]} was tested, and does not have it")
        results = [each["predicate"]["result"] for each in read_note(tested) if each["predicateType"] == TEST_RESULT]
        if not results or "FAILED" in results:
            faults.append(f"no passed test of {tested[:12]}")
    return faults


def main() -> int:
    """Check each noted commit that the branch contains."""
    count = failed = 0
    contained = set(git("rev-list", sys.argv[1]).split())
    for row in git("notes", "--ref", "liza", "list").splitlines():
        commit = row.split()[1]
        verdicts = [each["predicate"] for each in read_note(commit) if each["predicateType"] == VERDICT]
        for verdict in verdicts if commit in contained else ():
            faults = find_faults(commit, verdict) + (["it has two verdicts"] if len(verdicts) > 1 else [])
            print(commit[:12], verdict["task"], verdict["howTested"], "; ".join(faults) or "ok")
            count, failed = count + 1, failed + bool(faults)
    print(f"{count} landed, {failed} with faults")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
