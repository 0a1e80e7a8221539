"""Guards: which tool calls of a session are denied, and why.

`rules/judgment.py` judges a call, `shell_parser.py` reads shell commands; only `shell_parser.py` imports tree_sitter.
Read `session_guards.py` first.
"""
