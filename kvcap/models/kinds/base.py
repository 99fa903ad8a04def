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
    kv_in_engines
        The precision at which engines keep the cache whatever is asked; None where they follow.
    """

    title: ClassVar[str]
    kv_fixed: ClassVar[str | None] = None
    indexer_fixed: ClassVar[str | None] = None
    indexer_default: ClassVar[str | None] = None
    kv_in_engines: ClassVar[str | None] = None

    @property
    def starts_full(self) -> bool:
        """Whether the first layer is one of full attention, where kinds of layers mix."""
        return False

    @property
    def one_pool_in_sglang(self) -> bool:
        """Whether SGLang keeps the tokens of windows as it keeps those of full attention."""
        return False

    @abstractmethod
    def groups(self, include_draft: bool) -> tuple[Group, ...]:
        """Return what the layers keep in the cache, draft (MTP) layers included on request."""


def draft_name(name: str) -> str:
    """Return the name of a group of draft layers."""
    return f"{name}, draft layers"
