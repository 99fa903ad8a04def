"""What a block is, and in which order the blocks of one request are touched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from kvcap.errors import UsageError
from kvcap.option_fields import on_off, option, whole_number

PartialBlock = Literal["drop", "keep"]
TouchOrder = Literal["tail-first", "head-first"]

DEFAULT_TOKEN_BLOCK_SIZE: Final = 64
DEFAULT_TOUCH_ORDER: Final[TouchOrder] = "tail-first"
DEFAULT_PARTIAL_BLOCK: Final[dict[str, PartialBlock]] = {"token_ids": "drop", "hash_ids": "keep"}


@dataclass(frozen=True)
class BlockOptions:
    """What a block is.

    Parameters
    ----------
    block_size
        Tokens per block: of a token trace (None: 64), or of hash ids that declare none.
    coarsen
        How many consecutive blocks become one.
    partial_block
        Whether an incomplete last block counts as a block; None drops it in token traces and keeps it
        in hash traces.
    token_block_size
        Tokens per block of a token trace without ``block_size``.
    chunk_tokens
        Tokens of a block after coarsening, in place of ``coarsen``; None leaves blocks as they are.
    cut_prompts_at_ids
        Whether prompts end where their last but one id ends, and one token later: a prompt that goes on in
        a later one shares its incomplete last id with it then.
    output_blocks
        Whether generated tokens enter the cache at the end of their request's path, the last one
        excepted, which is never fed back: from ``output_ids`` where a request has them, otherwise from
        ``output_length`` as blocks that no other request knows.

    Raises
    ------
    UsageError
        If blocks would become larger in two ways.
    """

    block_size: int | None = None
    coarsen: int = option(
        1,
        "make M consecutive blocks one (default: {default})",
        metavar="M",
        parse=whole_number(1),
    )
    partial_block: PartialBlock | None = option(
        None,
        "whether an incomplete last block counts as a block (default: drop for token ids, keep for hash ids)",
        choices=get_args(PartialBlock),
    )
    token_block_size: int = DEFAULT_TOKEN_BLOCK_SIZE
    chunk_tokens: int | None = option(
        None,
        "make blocks into chunks of N tokens (default: blocks as they are)",
        metavar="N",
        parse=whole_number(1),
    )
    cut_prompts_at_ids: bool = option(
        False,
        "take prompts as if they ended one token behind their last whole id, where ids of a log hide how far "
        "the next turn agrees; changes the tokens that rates are of",
    )
    output_blocks: bool = option(
        False,
        "whether generated tokens enter the cache: from output_ids where the log has them, else from "
        "output_length as blocks that no other request knows (default: off)",
        choices=("on", "off"),
        parse=on_off,
        form="value",
    )

    def __post_init__(self) -> None:
        if self.chunk_tokens is not None and self.coarsen != 1:
            raise UsageError("chunk tokens already say how blocks become larger, expected no coarsening")

    def partial_block_of(self, kind: str) -> PartialBlock:
        """Return what becomes of an incomplete last block in a trace of this kind."""
        return self.partial_block or DEFAULT_PARTIAL_BLOCK[kind]

    def coarsen_from(self, block_size: int) -> int:
        """Return how many blocks of the trace become one.

        Raises
        ------
        UsageError
            If chunks are no multiple of the trace's blocks.
        """
        if self.chunk_tokens is None:
            return self.coarsen
        if self.chunk_tokens % block_size:
            raise UsageError(
                f"blocks of {block_size} tokens do not make chunks of {self.chunk_tokens} tokens: "
                "expected a block size that divides it, or another --chunk-tokens"
            )
        return self.chunk_tokens // block_size
