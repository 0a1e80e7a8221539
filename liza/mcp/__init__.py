"""Liza for programs that it did not start: a server of the Model Context Protocol on stdin and stdout (decision 51).

Read `tools.py` first: the six tools. `mcp_server.py` speaks the protocol, `mcp_calls.py` answers one call.
"""
