"""What-ifs of routing: one stream dealt to several instances, against one shared pool.

:mod:`~kvcap.analysis.routing.options` loads nothing heavy; :mod:`~kvcap.analysis.routing.answer` deals.
"""
