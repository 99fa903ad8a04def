"""What a cache really did, beside what its traffic says that it could have done.

``observed`` has a log as its caches saw it. ``limits`` (``fits``, ``periods``) finds the capacity and the
lifetime that explain it, ``restarts`` the times at which everything was lost, ``fitting`` both in turn.
``survival`` says what becomes of blocks by age and depth, ``surplus`` what hit though the log had not shown
it, ``groups`` splits the waterfall by hour, instance, session and model, ``words`` says what cannot be told.
``answer`` makes an ``explanation`` of all this, and ``tables`` has it as Arrow.
"""
