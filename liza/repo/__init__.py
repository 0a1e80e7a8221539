"""git: the only room that runs it."""
