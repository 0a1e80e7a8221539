"""Check the circuit breaker: record trips, and set their signals.

One supervisor at a time does it, with its search for alarms. The patterns are evaluated only if an event that counts
was added since the last check, or the settings changed.
"""

from __future__ import annotations

from datetime import timedelta

from liza.crew import usage_summary
from liza.crew.crew import Crew
from liza.crew.governance import breaker_signals
from liza.rules.governance.breaker_patterns import SessionCost, evaluate_patterns
from liza.rules.governance.breaker_trips import record_findings
from liza.rules.governance.watched_events import collect_events, fingerprint
from liza.rules.model import State
from liza.rules.reports.narration import LIZA


def check_breaker(crew: Crew, state: State, last: str) -> str:
    """Record the trips that are due, and set the signals of open trips. Return the fingerprint of the events.

    ``last`` is the result of the last check, or empty. The caller holds the lock of the alert log and has read
    ``state`` since. Raises LizaError, OSError.
    """
    now = crew.clock.now()
    events = collect_events(state, now)
    seen = fingerprint(events, state.config.breaker)
    if seen != last:
        findings = evaluate_patterns(state, events, _collect_costs(crew, state))
        if findings:
            with crew.change(LIZA, "breaker") as tx:
                tx.state = record_findings(tx.state, findings, now)
            state = tx.state
    breaker_signals.restore_signals(crew, state)
    return seen


def _collect_costs(crew: Crew, state: State) -> list[SessionCost]:
    """Return the costs of the sessions within the window; empty if they are not limited."""
    settings = state.config.breaker
    if settings.cost_without_merge <= 0:
        return []
    start = crew.clock.now() - timedelta(seconds=settings.window)
    used = ((entry.run, entry.time, entry.used) for entry in usage_summary.read_usage(crew, state))
    return [SessionCost(run, time, spent.cost) for run, time, spent in used if time > start and spent and spent.cost]
