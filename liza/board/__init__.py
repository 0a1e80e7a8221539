"""The shared file: one YAML board under one lock, changed entry by entry."""
