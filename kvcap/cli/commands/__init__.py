"""One module per command: ``NAME``, ``HELP``, ``add_arguments(parser)`` and ``run(args)``.

These modules import argparse and the options alone; what a command needs is imported inside ``run``,
so that ``--help`` is instant.
"""
