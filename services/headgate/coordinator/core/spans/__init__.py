"""Spans: review of reports, deadlines, division, and removal without a sink."""
