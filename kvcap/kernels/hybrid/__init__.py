"""Prefix caches of models whose layers keep different things: simulations per capacity over spans of blocks.

:mod:`~kvcap.kernels.hybrid.vllm` has one pool of blocks that all groups of layers take from. A prefix is
known by the segment that holds its last token, and its length (:mod:`kvcap.kernels.segments`), so that blocks
of any size can be cut out of ids of any other.

:mod:`~kvcap.kernels.hybrid.sglang` has a radix tree with a pool of tokens for full attention and another one
for windows, or for states.
"""
