"""Count bytecode instructions: a measure of work that is the same on every machine, busy or not."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from types import CodeType, FrameType
from typing import Any, TypeVar

_T = TypeVar("_T")
_TOOL = 4


def instructions(function: Callable[[], _T]) -> tuple[_T, int]:
    """Return what a function returns, and how many instructions its Python code takes."""
    counter = count()
    # Python 3.12 and later tell a tracer of the opcodes of a function from its second call on.
    with _monitored(counter) if sys.version_info >= (3, 12) else _traced(counter):
        result = function()
    return result, next(counter)


@contextmanager
def _traced(counter: Iterator[int]) -> Iterator[None]:
    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            next(counter)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


@contextmanager
def _monitored(counter: Iterator[int]) -> Iterator[None]:
    def step(code: CodeType, offset: int) -> None:
        next(counter)

    monitoring = sys.monitoring
    monitoring.use_tool_id(_TOOL, "kvcap tests")
    monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, step)
    monitoring.set_events(_TOOL, monitoring.events.INSTRUCTION)
    try:
        yield
    finally:
        monitoring.set_events(_TOOL, 0)
        monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(_TOOL)
