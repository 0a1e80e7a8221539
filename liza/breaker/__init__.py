"""What agents report beside their work, and patterns of failure that stop a crew: the circuit breaker.

Read `rules/breaker_patterns.py` first, then `rules/breaker_trips.py`.
"""
