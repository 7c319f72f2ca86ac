"""``describe``, ``collections`` and ``stats`` know the history of a model."""

from __future__ import annotations

from datetime import timedelta

from kvmodels import Database, History, HistoryDescription, KvModel, PrimaryKey, describe
from kvmodels.cli.model_source import model_source


class Deed(KvModel, collection="deeds"):
    id: PrimaryKey[int]
    title: str
    preview: str = ""

    class Meta:
        history = History(timedelta(days=30), exclude=("preview",))


class Offer(KvModel, collection="offers"):
    id: PrimaryKey[int]

    class Meta:
        history = History(timedelta(days=1.5), only="removed")


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]


def test_a_declared_history_and_that_of_the_store_are_described_alike():
    with Database("memory://", models=[Deed, Note]) as db:
        stored = {one.name: one.history for one in db.collections()}
        declared = HistoryDescription(2_592_000.0, ("preview",))
        assert describe(Deed).history == declared
        assert stored["deeds"] == HistoryDescription(2_592_000.0, ("preview",), state="readable")
        assert (describe(Note).history, stored["notes"]) == (None, None)


def test_stats_count_old_versions_and_the_trash_apart_from_records():
    with Database("memory://", models=[Deed, Note]) as db:
        before = db.stats(exact=True)
        db[Deed].create(id=1, title="a")
        db[Deed].patch(1, title="b")
        db[Deed].create(id=2, title="c")
        db[Deed].remove(2)
        found = db.stats(exact=True)
        deeds, notes = found.collections
        assert notes.history is None
        assert deeds.history is not None
        # Two versions and one row of the trash.
        assert (deeds.records.rows, deeds.history.rows, deeds.history.expiring) == (1, 3, 3)
        assert deeds.total.rows == 4
        assert found.library.rows == before.library.rows
        assert "  old versions: 3 rows" in str(found)
        assert db.stats() == found


def test_a_printed_class_has_the_history_of_the_store_unless_it_excludes_fields():
    with Database("memory://", models=[Deed, Offer]) as db:
        source = model_source(db.collections(), db.indexes())
    assert "history = History(keep=datetime.timedelta(seconds=129600.0), only='removed')" in source
    assert "# not declared here: the history, without preview" in source
    names: dict[str, object] = {}
    exec(compile(source, "printed", "exec", dont_inherit=True), names)
    printed = names["Offers"]
    assert isinstance(printed, type)
    assert describe(printed).history == describe(Offer).history
