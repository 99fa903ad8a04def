"""What every section of a report draws from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvcap.report import Axis, Table, size_axis
from kvcap.report.axes import count_text, size_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcap.analysis.figures import Figures
    from kvcap.analysis.plan import Plan
    from kvcap.analysis.policy_answer import PolicyRow
    from kvcap.queries import Results, RunInfo

SMALLEST_SHARE_OF_AXIS = 2048
"""A capacity axis begins at this part of its end, or at one block."""


@dataclass(frozen=True)
class ReportContext:
    """A replay, its plan, what policies made of it, and how capacities are shown."""

    results: Results
    plan: Plan
    figures: Figures
    policies: tuple[PolicyRow, ...]

    @property
    def run(self) -> RunInfo:
        """The replay."""
        return self.figures.run

    @property
    def in_bytes(self) -> bool:
        """Whether capacities are shown in bytes; else in blocks."""
        return self.run.block_bytes is not None

    @property
    def goal_blocks(self) -> int:
        """The planned capacity."""
        return self.plan.at_goal.capacity_blocks

    def shown(self, blocks: float) -> float:
        """Return a capacity in the unit of the axes."""
        return blocks * (self.run.block_bytes or 1)

    def size(self, blocks: float | None) -> str:
        """Return a capacity in words."""
        if blocks is None:
            return ""
        return size_text(self.shown(blocks)) if self.in_bytes else f"{count_text(blocks)} blocks"

    @property
    def last_useful_blocks(self) -> int:
        """The capacity from which more storage serves nothing more."""
        return max(1, int(self.figures.curve.capacity_blocks[-1]))

    def capacity_axis(self, title: str = "Capacity") -> Axis:
        """Return the axis of all charts over capacity, to where nothing more is gained, or known."""
        top = max(self.last_useful_blocks, *(tier.last_blocks for tier in self.plan.tiers), 1)
        end = top * 1.25 if self.run.bound_blocks is None else min(top * 1.25, self.run.bound_blocks)
        unit = "log scale" if self.in_bytes else "blocks, log scale"
        each = " of each pool" if self.plan.pools > 1 else ""
        return size_axis(
            f"{title}{each} ({unit})",
            self.shown(max(1, end / SMALLEST_SHARE_OF_AXIS)),
            self.shown(end),
            in_bytes=self.in_bytes,
        )


def rows_table(name: str, rows: Sequence[dict[str, Any]], shown: dict[str, Any] | None = None) -> Table:
    """Return a table of a query's rows.

    Parameters
    ----------
    name
        File name of the download, without its ending.
    rows
        As the query gave them; at least one.
    shown
        Header and a function from row to text for each column to show; None shows everything plainly.
    """
    columns = list(rows[0])
    return Table(
        name=name,
        columns=columns,
        rows=[list(row.values()) for row in rows],
        headers=None if shown is None else list(shown),
        cells=None if shown is None else [[str(cell(row)) for cell in shown.values()] for row in rows],
    )
