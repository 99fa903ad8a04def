"""What every kind of attention offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from kvcap.models.groups import Group


class Attention(ABC):
    """Facts of one kind of attention; every subclass is a frozen dataclass of them.

    Attributes
    ----------
    title
        What people call it.
    kv_fixed, indexer_fixed
        A precision that the model itself fixes; None where the deployment chooses.
    indexer_default
        The precision of the indexer's keys unless told otherwise; None follows the KV precision.
    """

    title: ClassVar[str]
    kv_fixed: ClassVar[str | None] = None
    indexer_fixed: ClassVar[str | None] = None
    indexer_default: ClassVar[str | None] = None

    @abstractmethod
    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return what the layers keep in the cache, draft (MTP) layers included on request."""


def draft_name(name: str) -> str:
    """Return the name of a group of draft layers."""
    return f"{name}, draft layers"
