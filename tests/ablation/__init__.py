"""Defences switched off, from the tests' side alone: the product has no switch that an agent could find."""
