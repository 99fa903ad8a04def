"""What a cache really did, beside what its traffic says that it could have done.

``observed`` replays a log and lays what was served from cache over it; ``limits`` (``fits``, ``periods``)
finds the capacity and lifetime that explain it, ``restarts`` the times at which everything was lost,
``fitting`` both in turn.
"""
