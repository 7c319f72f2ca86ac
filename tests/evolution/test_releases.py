"""Old and new code side by side on one store: who may read, who may write, and that no entry is ever wrong."""

from __future__ import annotations

import pytest

from kvmodels import (
    Database,
    Index,
    IndexChangedError,
    Indexed,
    IndexNotReadyError,
    KvModel,
    ModelDefinitionError,
    NoUsableIndexError,
    PrimaryKey,
    ReservedKeyError,
    SchemaMismatchError,
    UniqueViolationError,
)
from kvmodels.catalog.keyspace import build_key
from kvmodels.core.operations import AtomicWrite, Committed, Conflict, Set
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.url import open_engine
from tests.evolution.releases import (
    City,
    Compound,
    Descending,
    First,
    NumberColor,
    OtherKey,
    TextKey,
    UniqueName,
    Versioned,
    WithPlan,
    database,
    user,
)
from tests.robustness.models import require_readable


class Stopped(BaseException):
    """The builder was killed here."""


class StoppingEngine(FaultEngine):
    """Stops the process after the n-th commit that sets a key."""

    key = b""
    after = 1

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        outcome = super().commit(write)
        if any(isinstance(mutation, Set) and mutation.key == self.key for mutation in write.mutations):
            self.after -= 1
            if self.after == 0:
                raise Stopped
        return outcome


def stop_a_build(url: str, model: type[KvModel], index: str, *, generation: int = 1, after: int = 1) -> None:
    """Begin to build an index and die after ``after`` commits of the build."""
    engine = StoppingEngine(open_engine(url, durability="relaxed"))
    engine.key, engine.after = build_key("users", index, generation), after
    with database(engine, model) as db, pytest.raises(Stopped):
        db.build_indexes()


def prefixes(db: Database) -> set[object]:
    """First key parts that are in use."""
    return {entry.key[0] for entry in db.kv.list(prefix=())}


def test_review_05_old_code_writes_until_the_build_begins_and_reads_on_afterwards(url, opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(20)])
    new = opened(WithPlan)
    old[First].create(**user(20))
    old[First].patch(3, name="changed by old code")
    new[WithPlan].create(**user(21), plan="pro")
    stop_a_build(url, WithPlan, "plan")
    for write in (
        lambda: old[First].create(**user(22)),
        lambda: old[First].patch(3, name="again"),
        lambda: old[First].remove(3),
        lambda: old[First].bulk_create([First(**user(22))]),
        lambda: old.build_indexes(),
    ):
        with pytest.raises(SchemaMismatchError) as caught:
            write()
        assert (caught.value.collection, caught.value.index) == ("users", "plan")
        require_readable(caught.value)
    for _ in range(2):
        assert old[First].get(3).name == "changed by old code"
        assert old[First].get(email="21@x.org").id == 21
        assert old[First].filter(color="red").count() == 11
        assert len(old[First].all().page(size=30).items) == 22
        new.build_indexes()
    assert new[WithPlan].filter(plan="free").count() == 21
    assert [found.id for found in new[WithPlan].filter(plan="pro")] == [21]
    assert new[WithPlan].get(3).name == "changed by old code"
    assert new.check().ok


def test_stored_fields_that_old_code_does_not_know_survive_its_rewrites(opened):
    new, old = opened(WithPlan), opened(First)
    # The first to open lists the collection, so the indexes of the new release are live: old code may only read.
    new[WithPlan].create(**user(1), plan="pro")
    with pytest.raises(SchemaMismatchError):
        old[First].patch(1, name="x")
    new.drop_index(WithPlan, "plan")
    new.drop_index(WithPlan, "name")
    old[First].patch(1, name="patched")
    loaded = old[First].get(1)
    loaded.name = "saved"
    old[First].save(loaded)
    old[First].mutate(1, lambda found: found.model_copy(update={"color": "green"}))
    found = new[WithPlan].get(1)
    assert (found.plan, found.name, found.color) == ("pro", "saved", "green")
    new.build_indexes()
    assert [found.id for found in new[WithPlan].filter(plan="pro")] == [1]
    assert new.check().ok


def test_a_changed_definition_is_the_next_generation_and_the_old_one_serves_until_the_switch(url, opened):
    old = opened(First)
    old[First].bulk_create([First(**user(n)) for n in range(30)])
    new = opened(Descending)
    with pytest.raises(IndexNotReadyError) as caught:
        new[Descending].filter(color="red").to_list()
    assert caught.value.index == "color"
    require_readable(caught.value)
    new[Descending].create(**user(30))
    stop_a_build(url, Descending, "color", generation=2)
    old[First].create(**user(31))
    new[Descending].patch(0, color="green")
    assert old[First].filter(color="green").first().id == 0
    assert old[First].filter(color="red").count() == 15
    with pytest.raises(UniqueViolationError):
        old[First].create(**user(32, email="1@x.org"))
    new.build_indexes()
    assert [found.color for found in new[Descending].order_by("-color")[:17]] == ["red"] * 15 + ["green", "blue"]
    assert prefixes(new) == {"users", "users_by_email", "users_by_color~2", "__kvmodels__"}
    with pytest.raises(IndexNotReadyError):
        old[First].filter(color="red").to_list()
    with pytest.raises(SchemaMismatchError):
        old[First].create(**user(33))
    assert old[First].get(0).color == "green"
    assert new.check().ok


def test_review_07_a_generation_is_never_used_again(opened):
    db = opened(First)
    db[First].create(**user(1))
    seen = []
    for _ in range(3):
        assert db.drop_index(First, "color") is True
        assert db.drop_index(First, "color") is False
        assert not any(str(part).startswith("users_by_color") for part in prefixes(db))
        with pytest.raises(IndexNotReadyError):
            db[First].filter(color="blue").to_list()
        db[First].patch(1, name="written while there is no index")
        (report,) = db.build_indexes()
        seen.append(report.generation)
        assert db[First].filter(color="blue").count() == 1
    assert seen == [2, 3, 4]
    assert "users_by_color~4" in prefixes(db)
    assert db.check().ok


def test_review_04_a_new_index_of_an_empty_collection_is_ready_at_open_and_keeps_old_writers_out(opened):
    old = opened(First)
    new = opened(Compound, require_current=True)
    new[Compound].create(**user(1))
    assert new[Compound].filter(color="blue").order_by("-name").count() == 1
    with pytest.raises(SchemaMismatchError):
        old[First].create(**user(2))
    assert new.check().ok


class WithBadge(First, collection="users"):
    """Release 1 with a field that every record has to have."""

    badge: str


def test_a_required_field_of_an_empty_collection_is_listed_at_open_and_not_missed_by_later_records(opened):
    opened(First)
    db = opened(WithBadge)
    assert db.plan().is_current
    db[WithBadge].create(**user(1, badge="b"))
    assert db.plan().is_current
    assert db.apply().complete


def test_review_03_a_reader_notices_that_its_index_was_dropped_between_two_batches(opened):
    db, other = opened(First), opened(First)
    db[First].bulk_create([First(**user(n, color="red")) for n in range(1_500)])
    rows = iter(db[First].filter(color="red"))
    assert next(rows).id == 0
    page = db[First].filter(color="red").page(size=10)
    other.drop_index(First, "color")
    with pytest.raises(IndexChangedError) as caught:
        list(rows)
    require_readable(caught.value)
    for call in (
        lambda: db[First].filter(color="red").page(size=10, after=page.next_cursor),
        lambda: db[First].filter(color="red").count(),
    ):
        with pytest.raises((IndexChangedError, IndexNotReadyError)):
            call()
    other.drop_index(First, "email")
    with pytest.raises(IndexNotReadyError):
        db[First].get(email="3@x.org")
    assert db[First].get(3).color == "red"


@pytest.mark.parametrize("model", [TextKey, OtherKey, NumberColor])
def test_review_14_a_change_that_cannot_be_made_is_refused_on_every_use_and_not_at_open(opened, model):
    opened(First, City)[First].create(**user(1))
    db = opened(model, City)
    db[City].create(id=1, country="FR")
    for call in (
        lambda: db[model].get("1" if model is TextKey else "1@x.org" if model is OtherKey else 1),
        lambda: db[model].all().to_list(),
        lambda: db[model].count(),
        lambda: db[model].filter(name="x").allow_scan().to_list(),
        lambda: db[model].insert(model(**user(2, **({"id": "2"} if model is TextKey else {}), **NUMBERS[model]))),
        lambda: db.build_indexes(model),
    ):
        with pytest.raises(SchemaMismatchError) as caught:
            call()
        assert caught.value.collection == "users"
        assert caught.value.stored
        assert caught.value.declared
        require_readable(caught.value)
    with pytest.raises(SchemaMismatchError):
        opened(model, City, require_current=True)
    assert db[City].get(1).country == "FR"
    old = opened(First)
    assert old[First].get(1).name == "name-1"
    assert old.check().ok


NUMBERS = {TextKey: {}, OtherKey: {}, NumberColor: {"color": 3}}


def test_require_current_raises_at_open_until_the_indexes_are_built(opened):
    opened(First)[First].create(**user(1))
    with pytest.raises(SchemaMismatchError) as caught:
        opened(Compound, require_current=True)
    assert caught.value.index == "color_name"
    assert "build_indexes()" in str(caught.value.hint)
    require_readable(caught.value)
    opened(Compound).build_indexes()
    current = opened(Compound, require_current=True)
    assert current[Compound].filter(color="blue", name="name-1").count() == 1


def test_code_of_a_lower_schema_version_reads_what_it_can_and_writes_nothing_once_the_store_was_brought_up(opened):
    old, new = opened(First), opened(Versioned)
    old[First].create(**user(1))
    old[First].create(**user(2))
    assert new[Versioned].get(1).name == "name-1"
    assert new.build_indexes() == ()
    assert new[Versioned].create(**user(3)).pk == 3
    for write in (lambda: old[First].create(**user(4)), lambda: old[First].remove(1)):
        with pytest.raises(SchemaMismatchError) as caught:
            write()
        assert (caught.value.stored, caught.value.declared) == (2, 1)
        require_readable(caught.value)
    assert old[First].get(1).color == "blue"
    assert new[Versioned].patch(1, name="brought up").name == "brought up"
    assert new.check().ok


def test_a_collection_that_a_process_does_not_declare_is_left_alone(opened):
    users, cities = opened(First), opened(City)
    users[First].create(**user(1))
    cities[City].create(id=1, country="FR")
    before = [(e.key, e.value, e.versionstamp) for e in users.kv.list(prefix=("users",))]
    cities.drop_index(City, "country")
    cities.build_indexes()
    assert cities.check(repair="all").ok
    assert [(e.key, e.value, e.versionstamp) for e in users.kv.list(prefix=("users",))] == before
    late = opened(City)
    with pytest.raises(ReservedKeyError):
        late.kv.set(("users", 1), {})
    with pytest.raises(ReservedKeyError):
        late.kv.delete(("users_by_color~7", "blue", 1))
    users[First].create(**user(2))
    assert users[First].filter(color="red").count() == 1
    assert users.check().ok


class A(KvModel, collection="a"):
    id: PrimaryKey[int]
    c: str

    class Meta:
        indexes = (Index("c", name="b_by_c"),)


class AByB(KvModel, collection="a_by_b"):
    id: PrimaryKey[int]
    c: Indexed[str]


class AsCollection(KvModel, collection="a_by_b_by_c"):
    id: PrimaryKey[int]


@pytest.mark.parametrize("one,other", [(A, AByB), (A, AsCollection), (AByB, AsCollection)])
def test_review_13_indexes_that_would_share_a_prefix_are_refused_together_and_against_the_store(opened, one, other):
    for models in ((one, other), (other, one)):
        with pytest.raises(ModelDefinitionError) as caught:
            opened(*models)
        assert caught.value.option == "a_by_b_by_c"
        require_readable(caught.value)
    first = opened(one)
    with pytest.raises(ModelDefinitionError):
        opened(other)
    assert first.check().ok


def test_two_models_of_one_collection_are_refused_in_one_database(opened):
    with pytest.raises(ModelDefinitionError) as caught:
        opened(First, WithPlan)
    assert "First" in str(caught.value.hint)
    require_readable(caught.value)


def test_a_new_index_stays_unused_and_unwritten_until_it_is_built(opened):
    opened(First)[First].create(**user(1))
    new = opened(WithPlan)
    new[WithPlan].create(**user(2), plan="pro")
    with pytest.raises(IndexNotReadyError) as caught:
        new[WithPlan].filter(plan="pro").to_list()
    assert caught.value.state == "disabled"
    assert [found.id for found in new[WithPlan].filter(plan="pro").allow_scan()] == [2]
    assert "users_by_plan" not in prefixes(new)
    with pytest.raises(NoUsableIndexError):
        opened(UniqueName)[UniqueName].order_by("-color", "name").to_list()
    new.build_indexes()
    assert [found.id for found in new[WithPlan].filter(plan="pro")] == [2]
    assert [found.id for found in new[WithPlan].filter(plan="free")] == [1]
    assert [found.id for found in new[WithPlan].filter(name="name-1")] == [1]
    assert new.check().ok
