"""Liza for programs that it did not start: a server of the Model Context Protocol on stdin and stdout (decision 50)."""
