"""Where several sources go to one table, people see which span is of which source."""

from headgate.cli.span_columns import span_columns


def test_the_source_is_shown_where_several_go_to_one_table() -> None:
    alone, shared = {"table": "public.orders"}, {"table": "public.orders@tenant=1"}
    assert "topic" not in span_columns([alone], "feed")
    assert span_columns([alone, shared], "feed")[:3] == ("feed", "span", "topic")
