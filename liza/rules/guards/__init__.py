"""Guards: which tools an agent may use, as data.

A tool call becomes a list of acts: a command with its words, a path that is written or read, an address that is fetched
(`tool_calls`, `script_acts`). Each act is judged by the first rule that matches it (`guard_rules`, `judgment`). Pure.
Read `judgment.py` first.
"""
