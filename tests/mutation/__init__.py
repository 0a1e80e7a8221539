"""Mutation testing of the rules: small changes of the code, each of which some test in tests/unit must notice.

`bin/test --mutation` runs it. Read `mutants.py` first; CONTRIBUTING.md says what is counted.
"""
