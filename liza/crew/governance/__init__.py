"""The circuit breaker in a crew: supervisors check it, and its open trips set signals.

`breaker_signals.py` sets and clears the signals. The rules are in `rules/governance`. Read `breaker_check.py` first.
"""
