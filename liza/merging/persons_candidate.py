"""Test a candidate that a person asked for, such as that of a sync or an undo: it is published or refused at once."""

from __future__ import annotations

import shlex

from liza.crew.crew import Crew
from liza.git import branch_moves
from liza.merging import candidate_tests, gate_log, merge_outcomes
from liza.merging.candidate_tests import CandidateRun
from liza.model.errors import Refused
from liza.model.tested import HowTested
from liza.model.value_classes import Value


class PersonsCandidate(Value):
    """A commit that is to replace ``expected`` at the tip of ``branch``.

    ``name`` is part of the name of the log. ``what``: the subject of a sentence, ``the undo of a``. ``command``: what
    the person typed. ``untested``: the person publishes it also if the tests say nothing about it.
    """

    name: str
    what: str
    commit: str
    expected: str
    branch: str
    command: str
    untested: bool


def run_gates(crew: Crew, wanted: PersonsCandidate) -> HowTested:
    """Run the gates of a candidate, and return what it may be called. The caller holds the merge lock.

    Raises Refused if one is red, if the tests rewind the branch or, unless the person allows it, if they say nothing
    about the commit: the branch is then where it was. Raises GitFailed, OSError.
    """
    into, log = wanted.branch, f"less {shlex.quote(str(crew.paths.logs / f'merge-{wanted.name}.log'))}"
    run = CandidateRun(wanted.name, wanted.commit, wanted.expected, into, always=wanted.untested)
    result = candidate_tests.run_candidate_tests(crew, run)
    gate_log.record(crew, gate_log.read_or_report(crew), result.runs)
    if result.moved_refs:
        crew.append_alert_log([f"tests_moved_refs  {result.told(wanted.what)}. Next: git reflog"])
    if result.rewound_from is not None:
        restored = merge_outcomes.restore_branch(crew.git, into, result.rewound_from)
        raise Refused(f"{into} is unchanged: {result.told(wanted.what)}; {restored}", log)
    if result.failure is not None:
        branch_moves.move_branch_back(crew.git, into, wanted.commit, wanted.expected)
        raise Refused(f"{wanted.what} is red: {result.failure}", log)
    why = result.how.untested
    if why is not None and not wanted.untested:
        branch_moves.move_branch_back(crew.git, into, wanted.commit, wanted.expected)
        raise Refused(f"{wanted.what} is untested: {why.text}", why.hint or f"{wanted.command} --untested")
    return result.how
