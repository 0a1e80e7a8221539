"""The coder: reads its brief, writes what it knows for the task, tests, commits, and ends in exactly one way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from liza.demo.agents.hands import AgentBrief, attempt, read_brief, say, tell
from liza.demo.agents.skills import ANSWER, SKILLS, AskPerson, Crash, HandOver, Situation, Step


def main() -> None:
    """One session."""
    brief = read_brief()
    task = brief.need(r"^TASK (\S+) \(try \d+ of \d+\)")
    known = SKILLS.get(task)
    if known is None:
        tell([*brief.liza, "block", f"I have not learnt {task}", "--ask", "Who can do this?"])
        return
    situation = happened(brief)
    say(f"{task}: {situation}")
    # Somebody may have stopped us between two steps: what is not known for a situation is begun as the first time.
    step = known.get(situation, known["first"])
    branch = brief.found(r"[Mm]erge (\S+) into this branch")
    if branch is not None:
        _merge(branch)
    _write(step, brief)
    _end(brief, task, step)


def happened(brief: AgentBrief) -> Situation:
    """What went before, as the brief tells it; what is most urgent to mend comes first."""
    if brief.found(r"^(REJECTED by )"):
        return "rejected"
    if brief.found(r"^(MERGE FAILED: )"):
        return "merge failed"
    if brief.found(r"^(HANDED OVER: )"):
        return "handed over"
    if brief.found(r"^(ANSWERED: )"):
        return "answered"
    return "resumed" if brief.need(r"^TASK \S+ \(try (\d+) of") != "1" else "first"


def _merge(branch: str) -> None:
    """Bring the branch in; what conflicts is written anew below, and the commit concludes the merge."""
    subprocess.run(["git", "merge", "--no-edit", branch], capture_output=True, check=False)
    conflicts = tell(["git", "diff", "--name-only", "--diff-filter=U"]).split()
    say(f"merged {branch}; in conflict: {', '.join(conflicts) or 'nothing'}")


def _write(step: Step, brief: AgentBrief) -> None:
    answer = brief.found(r"^ANSWERED: .* → (.*)$") or ""
    for name, text in step.files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(ANSWER, answer), encoding="utf-8")
        say(f"wrote {name}")


def _end(brief: AgentBrief, task: str, step: Step) -> None:
    match step.end:
        case Crash(words):
            print(words, file=sys.stderr)
            sys.exit(1)
        case AskPerson(why, ask):
            tell([*brief.liza, "block", why, "--ask", ask])
        case HandOver(done, following):
            _commit(task, done)
            tell([*brief.liza, "handoff", done, "--next", following])
            sys.exit(42)
        case None:
            _submit(brief, task)


def _submit(brief: AgentBrief, task: str) -> None:
    red = attempt(brief.need(r"^TESTS\s+(.+?)(?:  \(set-up has been run\))?$"))
    if red is not None:
        tell([*brief.liza, "block", f"the tests are red: {red}", "--ask", "What did I break?"])
        return
    _commit(task, "tests pass")
    tell([*brief.liza, "submit"])


def _commit(task: str, words: str) -> None:
    """Commit what there is; a session before this one may have done it all."""
    tell(["git", "add", "-A"])
    if attempt("git diff --cached --quiet && ! git rev-parse -q --verify MERGE_HEAD") is not None:
        tell(["git", "commit", "-q", "-m", f"{task}: {words}"])


if __name__ == "__main__":
    main()
