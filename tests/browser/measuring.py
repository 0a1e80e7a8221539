"""What a page looks like to a browser: sizes, scrolling, the order of the tab key, and the rules of axe-core."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

TARGET = 44
"""Pixels that a finger needs, each way."""
CONTROLS = "a[href], button, input:not([type=hidden]), textarea, select, summary"
STOPS = f"{CONTROLS}, [tabindex='0']"
"""What the tab key stops at: also frames that scroll."""
_SMALL = """\
(controls, least) => controls
  .map((control) => [control, control.getBoundingClientRect()])
  .filter(([, box]) => box.width > 1 && (box.height < least || box.width < least))
  .map(([control, box]) => `${control.outerHTML.slice(0, 120)} ${box.width.toFixed(1)}x${box.height.toFixed(1)}`)
"""
APART = 16
"""Pixels between two buttons of one question."""
_CLOSE = """\
(buttons, least) => buttons.flatMap((button, number) => buttons.slice(number + 1)
  .filter((other) => other.closest("article, section") === button.closest("article, section"))
  .map((other) => [button, other, button.getBoundingClientRect(), other.getBoundingClientRect()])
  .map(([one, two, a, b]) =>
    [one, two, Math.max(b.left - a.right, a.left - b.right, b.top - a.bottom, a.top - b.bottom)])
  .filter(([one, two, gap]) => gap < least - 0.1)
  .map(([one, two, gap]) => `${one.textContent}, ${two.textContent}: ${gap.toFixed(1)}`))
"""
_SCROLLING = """\
(elements) => elements
  .filter((element) => element.scrollWidth > element.clientWidth)
  .filter((element) => ["auto", "scroll"].includes(getComputedStyle(element).overflowX))
  .map((element) => `${element.tagName.toLowerCase()}.${element.className}`)
"""
_WIDE = """\
(elements) => elements
  .filter((element) => !element.closest("div.diff"))
  .filter((element) => element.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
  .map((element) => element.outerHTML.slice(0, 120))
"""
_AXE = """\
async (rules) => (await axe.run({ resultTypes: ["violations"], iframes: false, ...rules })).violations
  .flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 160)}: ${node.failureSummary}`))
"""


def list_small_targets(page: Page) -> list[str]:
    """Return the links, buttons and fields that are too small for a finger."""
    small: list[str] = page.locator(CONTROLS).locator("visible=true").evaluate_all(_SMALL, TARGET)
    return small


def list_close_buttons(page: Page) -> list[str]:
    """Return the pairs of buttons between which a finger may slip."""
    close: list[str] = page.locator("button, .button").locator("visible=true").evaluate_all(_CLOSE, APART)
    return close


def list_scrolled_sideways(page: Page) -> list[str]:
    """Return what can be scrolled sideways, and what is wider than the page."""
    document = page.locator("html")
    overflow = document.evaluate("(html) => html.scrollWidth - html.clientWidth")
    scrolled: list[str] = page.locator("body *").evaluate_all(_SCROLLING)
    wide: list[str] = page.locator("body *").evaluate_all(_WIDE) if overflow > 0 else []
    return [*scrolled, *wide, *([f"the page, by {overflow} px"] if overflow > 0 else [])]


def list_faults(page: Page) -> list[str]:
    """Return what axe-core finds: names, headings, landmarks, and contrast in light and dark."""
    page.evaluate(_read_axe())
    page.emulate_media(color_scheme="light")
    faults: list[str] = page.evaluate(_AXE, {})
    page.emulate_media(color_scheme="dark")
    return faults + page.evaluate(_AXE, {"runOnly": ["color-contrast"]})


@cache
def _read_axe() -> str:
    return f"() => {{ {files('axe_playwright_python').joinpath('axe.min.js').read_text(encoding='utf-8')} }}"


def unfold(page: Page) -> None:
    """Open all that is folded."""
    page.locator("details").evaluate_all("(all) => all.forEach((details) => { details.open = true; })")


def walk_with_tab(page: Page) -> tuple[list[int], int]:
    """Press Tab once for each control: the numbers of those that had the focus, and how many there are."""
    controls = page.locator(STOPS).locator("visible=true")
    controls.evaluate_all("(all) => all.forEach((control, number) => { control.liza = number; })")
    count, order = controls.count(), []
    page.locator("body").evaluate("() => document.activeElement.blur()")
    for _ in range(count):
        page.keyboard.press("Tab")
        number: Any = page.locator("body").evaluate("() => document.activeElement.liza ?? null")
        if number is not None:
            order.append(number)
    return order, count
