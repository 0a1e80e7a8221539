"""Tokens, cost and tool calls of a session, read from what its program writes.

Offers: figures from the program's output (`usage_report`) and from its own conversation log (`conversation_log`),
finished tool calls (`tool_calls`, compared by `call_digest`), all of these for a running session (`meter`), and the
record of every finished session in `.liza/usage.jsonl` (`ledger`). If the runtime of a run reports its turns
(`telemetry_log`, `context_usage`), the figures are those of its reports. Read `meter.py` first.
"""
