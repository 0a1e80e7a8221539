"""Random verbs of all roles on one board, compared with a second, simple model.

Read in this order: ``reference_model.py`` says what each verb does, written from specs/architecture and without the
rules; ``moves.py`` has what is played; ``crew_machine.py`` plays and compares; ``helpful_crew.py`` completes each board
that was reached; ``known_rules.py`` lists the rules that change the board. The tests are in ``test_rules_machine.py``.
"""
