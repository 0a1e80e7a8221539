"""Liza's word inside a program: hooks that the program runs by itself, installed for one run and understood again."""
