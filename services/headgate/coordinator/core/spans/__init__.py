"""The life of a span: review of reports, deadlines, division, and its removal without a sink."""
