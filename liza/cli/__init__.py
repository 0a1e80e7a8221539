"""The doors: what a person or an agent types, and what is printed. Nothing is decided here."""
