"""Guards of a session: the parser of shell commands, the files with the rules, and what a session was refused.

The rules themselves, and the judgment, are in `rules/guards`. Only `bash_grammar` imports tree_sitter. A hook loads
`shell_parser` and `session_guards` at each tool call, so these import no slow modules. Read `shell_parser.py` first.
"""
