"""Guards of a session: the parser of shell commands, the files with the rules, and what a session was refused.

The rules themselves, and the judgment, are in `rules/guards`. Only `bash_grammar` imports tree_sitter.
Read `shell_parser.py` first.
"""
