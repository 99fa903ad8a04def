"""What a block is, and the keys of a trace's blocks.

:mod:`~kvcap.blocks.options` may be imported by anybody, since it loads nothing heavy;
:mod:`~kvcap.blocks.keyer` takes batches of a trace and needs kernels and schemas alone.
"""

from kvcap.blocks.options import BlockOptions

__all__ = ["BlockOptions"]
