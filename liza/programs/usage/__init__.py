"""Tokens, cost and tool calls of a session, read from what its program writes.

Offers: figures from the program's output (`usage_report`), those of a running session, also from its own conversation
log, and its finished tool calls (`meter`, which compares them by `call_digest`), and the record of every finished
session in `.liza/usage.jsonl` (`ledger`). If the runtime of a run reports its turns (`telemetry_log`), the figures
are those of its reports. Read `meter.py` first.
"""
