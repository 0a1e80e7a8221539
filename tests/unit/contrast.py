"""The contrast of two colours, as WCAG 2 defines it: from 1 to 21."""

from __future__ import annotations

from collections.abc import Sequence


def contrast(one: Sequence[int], other: Sequence[int]) -> float:
    """Return the contrast of two colours of red, green and blue, each from 0 to 255."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: Sequence[int]) -> float:
    parts = [part / 255 for part in colour]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def terminal_colour(number: int) -> tuple[int, int, int]:
    """Return the colour of a number from 16 to 255 of a terminal."""
    if number >= 232:
        return (8 + 10 * (number - 232),) * 3
    levels = (0, 95, 135, 175, 215, 255)
    red, green, blue = ((number - 16) // part % 6 for part in (36, 6, 1))
    return levels[red], levels[green], levels[blue]
