"""What a change may do to a table's facts: what its statement says, and nothing else."""

import msgspec
import pytest

from headgate.migration.strategies.contract import RefusedError
from headgate.migration.strategies.fingerprint import (
    CatalogueFact,
    Facts,
    FormChange,
    Named,
    change_between,
    check_became,
    check_carried,
    check_form,
    wanted,
)
from headgate.migration.strategies.mariadb.fingerprint import facts_of
from headgate.migration.strategies.postgresql.fingerprint import check_changed
from headgate.migration.strategies.postgresql.names import paired

FORMED = frozenset({"column"})
OLD, NEW = CatalogueFact("column", "v", "int"), CatalogueFact("column", "v", "bigint")
OWNER = CatalogueFact("owner", "", "ann")
GRANT = CatalogueFact("column grant", "bob", "SELECT", "note")


def facts(*given: CatalogueFact) -> Facts:
    return frozenset(given)


def test_what_the_statement_says_is_wanted_and_the_rest_as_it_is() -> None:
    change = change_between(facts(OLD), facts(NEW))
    assert change == FormChange((OLD,), (NEW,))
    expected = wanted(facts(OLD, OWNER, GRANT), change, {"note": "title"}, FORMED)
    assert expected == facts(NEW, OWNER, CatalogueFact("column grant", "bob", "SELECT", "title"))
    check_became(expected, expected)


def test_facts_of_a_column_that_is_dropped_go_with_it() -> None:
    assert wanted(facts(OWNER, GRANT), FormChange(), {}, FORMED) == facts(OWNER)


def test_on_the_way_back_only_what_no_statement_forms_is_wanted() -> None:
    expected = wanted(facts(OLD, OWNER), None, {}, FORMED)
    check_became(expected, facts(NEW, OWNER), FORMED)
    with pytest.raises(RefusedError, match="would lack owner ann"):
        check_became(expected, facts(NEW), FORMED)


def test_a_fact_less_or_more_is_refused_by_name() -> None:
    with pytest.raises(RefusedError, match="would lack owner ann after the change"):
        check_became(facts(OLD, OWNER), facts(OLD))
    with pytest.raises(RefusedError, match=r"would have column grant bob \(note\) SELECT, which was not requested"):
        check_became(facts(OLD), facts(OLD, GRANT))


def test_a_statement_about_something_else_is_refused() -> None:
    check_form(FormChange((OLD,), (NEW,)), FORMED)
    with pytest.raises(RefusedError, match="the statement changes owner of the table: use strategy direct"):
        check_form(FormChange((OLD,), (NEW, OWNER)), FORMED)


def test_what_a_copy_would_not_have_is_refused() -> None:
    check_carried(facts(OLD, OWNER), facts(OLD), FORMED, "t")
    with pytest.raises(RefusedError, match="table t: a copy would not have column v int; column v bigint"):
        check_carried(facts(OLD), facts(NEW), FORMED, "t")


def test_facts_of_a_definition_of_mariadb() -> None:
    text = (
        "TABLE (  `id` int(11) NOT NULL AUTO_INCREMENT,\n  `a``b` varchar(9) DEFAULT 'x,',\n  PRIMARY KEY (`id`),\n"
        "  CONSTRAINT `c` CHECK (`id` > 0)\n) ENGINE=InnoDB DEFAULT CHARSET=latin1 COMMENT='it''s'\n"
        " PARTITION BY HASH (`id`)\nPARTITIONS 3"
    )
    assert facts_of(text) == facts(
        CatalogueFact("columns", "", "id, a``b"),
        CatalogueFact("column", "id", "int(11) NOT NULL AUTO_INCREMENT"),
        CatalogueFact("column", "a``b", "varchar(9) DEFAULT 'x,'"),
        CatalogueFact("key", "", "PRIMARY KEY (`id`)"),
        CatalogueFact("key", "", "CONSTRAINT `c` CHECK (`id` > 0)"),
        CatalogueFact("options", "", "ENGINE=InnoDB DEFAULT CHARSET=latin1 COMMENT='it''s'"),
        CatalogueFact("partitions", "", " PARTITION BY HASH (`id`)\nPARTITIONS 3"),
    )


def test_what_a_copy_has_is_called_by_kind_and_definition_in_order() -> None:
    copy = [Named("index", "UNIQUE btree (a)", "c1"), Named("index", "UNIQUE btree (a)", "c2")]
    copy += [Named("constraint", "CHECK (a > 0)", "c3"), Named("index", "btree (b)", "c4")]
    given = [Named("index", "UNIQUE btree (a)", "first"), Named("index", "UNIQUE btree (a)", "second")]
    given += [Named("index", "CHECK (a > 0)", "another kind"), Named("constraint", "CHECK (a > 0)", "positive")]
    assert [new for _, new in paired(copy, given)] == ["first", "second", "positive"]


K, J = CatalogueFact("identity", "k", "integer"), CatalogueFact("identity", "j", "integer")
ON_K, ON_J = CatalogueFact("sequence grant", "bob", "USAGE", "k"), CatalogueFact("sequence grant", "bob", "USAGE", "j")
STORED = b'{"removed": [], "added": [{"aspect": "identity", "subject": "e", "text": "integer", "column": ""}]}'
"""What a version that did not read rights on sequences has stored with a migration."""


def test_a_change_that_an_earlier_version_has_stored_says_nothing_of_sequences() -> None:
    change = msgspec.json.decode(STORED, type=FormChange)
    new = CatalogueFact("identity", "e", "integer")
    after = facts(K, ON_K, new, CatalogueFact("sequence grant", "its owner", "USAGE", "e"))
    check_changed(facts(K, ON_K), after, change, {"k": "k"})
    with pytest.raises(RefusedError, match=r"would have sequence grant its owner \(e\) USAGE"):
        check_changed(facts(K, ON_K), after, msgspec.structs.replace(change, knows_sequences=True), {"k": "k"})


def test_rights_on_the_sequence_of_an_identity_that_is_dropped_go_with_it() -> None:
    check_changed(facts(K, ON_K), facts(), FormChange(removed=(K,), knows_sequences=True), {"k": "k"})


def test_rights_on_a_sequence_are_kept_if_its_column_is_renamed() -> None:
    change = FormChange((K,), (J,), knows_sequences=True)
    check_changed(facts(K, ON_K), facts(J, ON_J), change, {"k": "j"})
    with pytest.raises(RefusedError, match="would lack sequence grant bob"):
        check_changed(facts(K, ON_K), facts(J), change, {"k": "j"})


def test_on_the_way_back_a_column_that_only_the_old_table_has_is_as_it_was() -> None:
    check_changed(facts(), facts(K, ON_K, CatalogueFact("column grant", "bob", "SELECT", "k")), None, {"id": "id"})


def test_on_the_way_back_rights_are_those_of_a_sequence_that_both_tables_have() -> None:
    check_changed(facts(J, ON_J), facts(K, ON_K), None, {"j": "k"})
    with pytest.raises(RefusedError, match="would lack sequence grant bob"):
        check_changed(facts(J, ON_J), facts(K), None, {"j": "k"})
    check_changed(facts(), facts(K, ON_K), None, {"k": "k"})
    check_changed(facts(K, ON_K), facts(), None, {"k": "k"})
