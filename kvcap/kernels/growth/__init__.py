"""Growing a trace: prefixes counted by session, and what copies, longer contexts and more turns make of them.

Prefixes are *nodes*, numbered by first appearance, so that the parent of a node has a smaller number; paths
of requests are arrays of nodes with offsets.
"""
