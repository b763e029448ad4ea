"""Strategy ``online``: a copy whose rows all come through Spark, kept in step by a feed.

In the order of a change: ``strategy`` its effects · ``lane_plan`` what the copy looks like until the cut-over ·
``steps``, ``marked`` and ``copying`` the thread that goes from step to step · ``range_work`` what a task of Spark's
must find before it writes · ``marks`` what shows that changes have come · ``lane`` what all this asks of a kind of
database · ``back``, ``way_back`` undoing it.
"""
