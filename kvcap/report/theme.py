"""Colours and type of a report, light and dark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_LIGHT: Final = {
    "page": "#f6f5f1",
    "surface": "#fcfcfb",
    "ink": "#0b0b0b",
    "ink-2": "#52514e",
    "ink-3": "#716f6a",
    "grid": "#e5e4de",
    "base": "#b5b3aa",
    "s1": "#2a78d6",
    "s2": "#c2571f",
    "s3": "#178a61",
    "s4": "#7d4fb8",
    "rest": "#d9d7d0",
    "q0": "#e8f0fa",
    "q1": "#cde2fb",
    "q2": "#9ec5f4",
    "q3": "#6da7ec",
    "q4": "#3987e5",
    "q5": "#256abf",
    "q6": "#184f95",
    "in-low": "#0b0b0b",
    "in-high": "#ffffff",
}
_DARK: Final = {
    "page": "#121211",
    "surface": "#1a1a19",
    "ink": "#ffffff",
    "ink-2": "#c3c2b7",
    "ink-3": "#98968e",
    "grid": "#2c2c2a",
    "base": "#56554f",
    "s1": "#4a96ee",
    "s2": "#e08040",
    "s3": "#35b184",
    "s4": "#a984e0",
    "rest": "#3a3936",
    "q0": "#16233a",
    "q1": "#0d366b",
    "q2": "#184f95",
    "q3": "#256abf",
    "q4": "#3987e5",
    "q5": "#6da7ec",
    "q6": "#9ec5f4",
    "in-low": "#ffffff",
    "in-high": "#0b0b0b",
}
_INK_TURNS_AT: Final = {"light": 5, "dark": 4}
"""The shade of a heat map from which its words need the other ink."""


def chart_css() -> str:
    """Return the rules for charts inside a page; colours are the page's variables."""
    return (Path(__file__).parent / "chart.css").read_text(encoding="utf-8")


def page_css() -> str:
    """Return the rules for a page, its variables for light and dark first."""
    dark = _variables(_DARK, "dark")
    rules = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
    return (
        f":root{{{_variables(_LIGHT, 'light')}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}{rules}"
    )


def standalone_css() -> str:
    """Return the light rules for a chart on its own, without variables."""
    values = dict(pair.split(":") for pair in _variables(_LIGHT, "light").split(";") if pair)
    return re.sub(r"var\((--[\w-]+)\)", lambda match: values[match[1]], chart_css())


def _variables(colours: dict[str, str], mode: str) -> str:
    pairs = [f"--{name}:{value}" for name, value in colours.items()]
    turns = _INK_TURNS_AT[mode]
    pairs += [f"--in-q{shade}:{colours['in-high' if shade >= turns else 'in-low']}" for shade in range(7)]
    return ";".join(pairs) + ";"
