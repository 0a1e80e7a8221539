"""The embedded default: a whole crew at work on a small project, with scripted agents."""
