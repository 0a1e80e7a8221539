"""Scripted agents. Each knows its instructions file and what `liza ready` prints, as a model would, and nothing else:
they read no board and no environment of Liza's, and import nothing of it but one another."""
