"""The coder: reads its brief, writes what it knows for the task, tests, commits, and ends in exactly one way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from liza.demo.agents.agent_commands import AgentBrief, print_progress, read_brief, run_command, try_command
from liza.demo.agents.coder_script import ANSWER, CODER_STEPS, AskPerson, Crash, HandOver, PriorOutcome, Step


def main() -> None:
    """One session."""
    brief = read_brief()
    task = brief.require(r"^TASK (\S+) \(try \d+ of \d+\)")
    known = CODER_STEPS.get(task)
    if known is None:
        run_command([*brief.liza, "block", f"I have not learnt {task}", "--ask", "Who can do this?"])
        return
    situation = read_prior_outcome(brief)
    print_progress(f"{task}: {situation}")
    # Somebody may have stopped us between two steps: what is not known for a situation is begun as the first time.
    step = known.get(situation, known["first"])
    branch = brief.find(r"[Mm]erge (\S+) into this branch")
    if branch is not None:
        _merge(branch)
    _write(step, brief)
    _end_session(brief, task, step)


def read_prior_outcome(brief: AgentBrief) -> PriorOutcome:
    """What went before, as the brief tells it; what is most urgent to mend comes first."""
    if brief.find(r"^(REJECTED by )"):
        return "rejected"
    if brief.find(r"^(MERGE FAILED: )"):
        return "merge failed"
    if brief.find(r"^(HANDED OVER: )"):
        return "handed over"
    if brief.find(r"^(ANSWERED: )"):
        return "answered"
    return "resumed" if brief.require(r"^TASK \S+ \(try (\d+) of") != "1" else "first"


def _merge(branch: str) -> None:
    """Bring the branch in; what conflicts is written anew below, and the commit concludes the merge."""
    subprocess.run(["git", "merge", "--no-edit", branch], capture_output=True, check=False)
    conflicts = run_command(["git", "diff", "--name-only", "--diff-filter=U"]).split()
    print_progress(f"merged {branch}; in conflict: {', '.join(conflicts) or 'nothing'}")


def _write(step: Step, brief: AgentBrief) -> None:
    answer = brief.find(r"^ANSWERED: .* → (.*)$") or ""
    for name, text in step.files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace(ANSWER, answer), encoding="utf-8")
        print_progress(f"wrote {name}")


def _end_session(brief: AgentBrief, task: str, step: Step) -> None:
    match step.end:
        case Crash(words):
            print(words, file=sys.stderr)
            sys.exit(1)
        case AskPerson(why, ask):
            run_command([*brief.liza, "block", why, "--ask", ask])
        case HandOver(done, following):
            _commit(task, done)
            run_command([*brief.liza, "handoff", done, "--next", following])
            sys.exit(42)
        case None:
            _submit(brief, task)


def _submit(brief: AgentBrief, task: str) -> None:
    red = try_command(brief.require(r"^TESTS\s+(.+?)(?:  \(set-up has been run\))?$"))
    if red is not None:
        run_command([*brief.liza, "block", f"the tests are red: {red}", "--ask", "What did I break?"])
        return
    _commit(task, "tests pass")
    run_command([*brief.liza, "submit"])


def _commit(task: str, words: str) -> None:
    """Commit what there is; a session before this one may have done it all."""
    run_command(["git", "add", "-A"])
    if try_command("git diff --cached --quiet && ! git rev-parse -q --verify MERGE_HEAD") is not None:
        run_command(["git", "commit", "-q", "-m", f"{task}: {words}"])


if __name__ == "__main__":
    main()
