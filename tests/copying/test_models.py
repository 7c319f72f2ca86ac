"""Dumps of stores with models: every index is exact after a load, and what was being built is built again."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import Database, IndexNotReadyError, KvModel, open_kv
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import AtomicWrite, Committed
from kvmodels.engines.faults import FaultEngine
from kvmodels.errors import EngineError, SchemaMismatchError
from kvmodels.flows.kv.dump import Loading
from kvmodels.runtime.sync import run
from kvmodels.schema.declare.markers import Indexed, PrimaryKey, Unique
from tests.copying.contents import contents, dumped
from tests.oracle import audit, read_store, spec_of
from tests.zoo import Account, Animal
from tests.zoo_kinds import BARE, FULL, OTHER, Guest, Resident

ZOO: list[type[KvModel]] = [Animal, Account, Resident, Guest]


def stock(db):
    for number in range(40):
        db[Animal].create(
            park=("east", "west")[number % 2], number=number, species=("ibex", "yak")[number % 2], weight=number / 3,
            name=f"n{number}", berth=f"b{number}" if number else None,
            chip=f"c{number}" if number % 3 else None, tag=f"t{number}" if number % 4 else None,
            diet=("meat", None, "hay")[number % 3], passport=f"p{number}" if number % 5 else None,
            expire_in=60 if number % 7 == 0 else None,
        )  # fmt: skip
    db[Account].bulk_create([Account(id=number, email=f"{number}@x.org") for number in range(30)])
    for number in range(0, 40, 6):
        db[Animal].patch((("east", "west")[number % 2], number), diet="fish")
    db[Account].remove(3)
    for model, lifetime in ((Resident, None), (Guest, 60)):
        db[model].create(park="east", number=1, **FULL)
        db[model].create(park="east", number=2, **BARE)
        db[model].create(park="west", number=1, **OTHER, expire_in=lifetime)
    db[Resident].patch(("east", 1), tags=["new", "old"], age=0)


def exact(db):
    """Whether the store is what its records say, for two independent judges."""
    return db.check().ok and audit(read_store(db.kv), [spec_of(model) for model in ZOO]) == []


@pytest.fixture(params=["memory://", "sqlite://:memory:", "sqlite", "lmdb"])
def url(request, url_of):
    return request.param if "://" in request.param else url_of(request.param)


def test_records_and_their_entries_come_back(url):
    clock = 1_700_000_000_000
    with Database("memory://", models=ZOO, clock=lambda: clock) as db:
        stock(db)
        text, before = dumped(db.kv), contents(db.kv)
        assert exact(db)
    with open_kv(url, clock=lambda: clock) as kv:
        kv.load(io.StringIO(text))
        assert contents(kv) == before
        assert dumped(kv).splitlines()[1:] == text.splitlines()[1:]
        if url in ("memory://", "sqlite://:memory:"):
            return
    with Database(url, models=ZOO, clock=lambda: clock) as db:
        assert exact(db)


def test_a_record_and_its_copies_have_one_versionstamp(tmp_path):
    with Database("memory://", models=ZOO) as db:
        stock(db)
        text = dumped(db.kv)
    with Database(tmp_path / "zoo.db", models=ZOO) as db:
        db.kv.load(io.StringIO(text))
        assert exact(db), "the judges compare versionstamps too"
        for found in (db[Animal].get(tag="t1"), db[Animal].filter(diet="fish").first()):
            assert found is not None
            found.note = "seen"
            db[Animal].save(found)
        assert exact(db)


def test_a_dump_is_loaded_into_a_database_that_is_open_with_its_models(url):
    with Database("memory://", models=ZOO) as db:
        stock(db)
        text, before = dumped(db.kv), contents(db.kv)
    with Database(url, models=ZOO) as db:
        db.kv.load(io.StringIO(text))
        assert contents(db.kv) == before
        db[Account].create(id=1_000, email="new")
        assert db[Account].get(email="5@x.org").id == 5
        assert exact(db)
        with pytest.raises(EngineError, match="empty store"):
            db.kv.load(io.StringIO(text))


def test_collections_that_the_dump_lacks_stay_usable(url):
    with Database("memory://", models=[Account]) as db:
        db[Account].create(id=1)
        text = dumped(db.kv)
    with Database(url, models=ZOO) as db:
        db.kv.load(io.StringIO(text))
        db[Animal].create(park="east", number=1, species="yak", weight=1, name="n")
        assert exact(db)


def test_collections_that_would_share_keys_are_refused_and_nothing_is_left():
    class Odd(KvModel, collection="accounts_by_email"):
        id: PrimaryKey[int]

    with Database("memory://", models=[Account]) as db:
        text = dumped(db.kv)
    with Database("memory://", models=[Odd]) as db:
        before = contents(db.kv)
        with pytest.raises(EngineError, match="share keys"):
            db.kv.load(io.StringIO(text))
        assert contents(db.kv) == before
        db[Odd].create(id=1)


def test_a_load_that_fails_leaves_the_catalogue_that_was_there(url):
    with Database("memory://", models=ZOO) as db:
        stock(db)
        lines = dumped(db.kv).splitlines(keepends=True)
    with Database(url, models=ZOO) as db:
        before = contents(db.kv)
        with pytest.raises(Exception, match=f"line {len(lines)}"):
            db.kv.load(io.StringIO("".join(lines[:-1])))
        assert contents(db.kv) == before
        stock(db)
        assert exact(db)


def test_models_of_codec_v8_move_to_the_other_codec_and_back(tmp_path):
    with Database("memory://", models=ZOO, codec="v8") as db:
        stock(db)
        text = dumped(db.kv)
    with Database(tmp_path / "zoo.db", models=ZOO) as db:
        db.kv.load(io.StringIO(text))
        assert exact(db)
        back = dumped(db.kv)
    with Database("memory://", models=ZOO, codec="v8") as db:
        db.kv.load(io.StringIO(back))
        assert db.check().ok
        assert dumped(db.kv).splitlines()[1:] == text.splitlines()[1:]


animals = st.fixed_dictionaries(
    {
        "park": st.sampled_from(["a", "b\0", ""]),
        "number": st.integers(-3, 3),
        "species": st.text(st.characters(exclude_categories=["Cs"]), max_size=2),
        "weight": st.floats(allow_nan=False),
        "name": st.text("ab", max_size=2),
        "tag": st.one_of(st.none(), st.text("xy", max_size=2)),
        "diet": st.one_of(st.none(), st.sampled_from(["meat", "hay"])),
    }
)


@given(st.lists(animals, max_size=8))
def test_any_records_come_back(drawn):
    with Database("memory://", models=ZOO) as db:
        db[Animal].bulk_create([Animal(**values) for values in drawn], on_conflict="ignore")
        text, before = dumped(db.kv), contents(db.kv)
    with Database("memory://", models=ZOO) as db:
        db.kv.load(io.StringIO(text))
        assert contents(db.kv) == before
        assert exact(db)


# -- changes of indexes that were not finished


class Plain(KvModel, collection="people"):
    """As the records were written."""

    id: PrimaryKey[int]
    email: str
    city: str


class Wanted(KvModel, collection="people"):
    """With two indexes more."""

    id: PrimaryKey[int]
    email: Unique[str]
    city: Indexed[str]


def interrupted(engine, flow, commits):
    """Carry out a flow until it wants to commit once more."""
    plan = iter([None] * commits)

    def plan_of(_write):
        try:
            return next(plan)
        except StopIteration:
            raise KeyboardInterrupt from None

    with pytest.raises(KeyboardInterrupt):
        run(FaultEngine(engine, plan=plan_of), flow)


def leftovers(kv):
    """Rows of builds and of indexes, by first parts."""
    return {entry.key[0] if entry.key[0] != "__kvmodels__" else entry.key[:2] for entry in kv.list(())} - {"people"}


@pytest.mark.parametrize("state", ["write_only", "pending", "dropping"])
def test_a_change_of_an_index_that_was_not_finished_is_forgotten_and_can_be_made_again(url, state):
    name = f"memory://{state}"
    with Database(name, models=[Plain]) as old:
        for number in range(5):
            old[Plain].create(id=number, email=f"{number // 2}" if state == "pending" else f"{number}", city="x")
        with Database(name, models=[Wanted]) as db:
            if state == "write_only":
                interrupted(db._engine, db._core.build_indexes(()), 2)
            else:
                db.build_indexes()
            if state == "dropping":
                interrupted(db._engine, db._core.drop_index(Wanted, "city"), 1)
            assert f'"{state}"' in dumped(db.kv)
            text = dumped(db.kv)
    with open_kv(url) as kv:
        kv.load(io.StringIO(text))
        catalogue = kv.get(("__kvmodels__", "header")).value["collections"]["people"]
        assert {index["state"] for index in catalogue["indexes"]} <= {"readable"}
        listed = {f"people_by_{index['name']}" for index in catalogue["indexes"]}
        assert leftovers(kv) == {("__kvmodels__", "header")} | listed, "no entry, fence, progress or violation is left"
        text = dumped(kv)
    with Database("memory://", models=[Wanted]) as db:
        db.kv.load(io.StringIO(text))
        with pytest.raises(IndexNotReadyError):
            db[Wanted].filter(city="x").count() if state != "pending" else db[Wanted].get(email="0")
        assert db[Wanted].get(0).city == "x"
        if state == "pending":
            for number in range(5):
                db[Wanted].patch(number, email=f"n{number}")
        db.build_indexes()
        assert db.check().ok
        assert audit(read_store(db.kv), [spec_of(Wanted)]) == []
        assert db[Wanted].filter(city="x").count() == 5


# -- while a load runs


def test_no_model_can_be_used_while_a_load_runs_and_old_handles_notice(url):
    if ":memory:" in url:
        url = "memory://shared"
    url = "memory://while-loading" if url == "memory://" else url
    with Database("memory://", models=ZOO) as db:
        stock(db)
        lines = dumped(db.kv).splitlines(keepends=True)
    with Database(url, models=ZOO) as db:
        loading = Loading(db.kv._form, db._engine.limits, "token")
        db._run("load", loading.begin(restart=False))
        for mutations in loading.take(lines[:20]):
            db._run("load", loading.store(mutations))
        with pytest.raises(SchemaMismatchError, match="being loaded"):
            db[Account].create(id=99)
        with pytest.raises(SchemaMismatchError, match="being loaded"):
            Database(url, models=ZOO)
        with pytest.raises(SchemaMismatchError, match="being loaded"):
            dumped(db.kv)
        with pytest.raises(EngineError, match="being loaded"):
            db.kv.load(io.StringIO("".join(lines)))
        for mutations in loading.take(lines[20:]):
            db._run("load", loading.store(mutations))
        db._run("load", loading.finish())
        db[Account].create(id=99)
        assert exact(db)


def test_a_second_load_takes_over_and_the_first_one_stops_and_leaves_its_work_alone():
    with Database("memory://", models=ZOO) as db:
        stock(db)
        text = dumped(db.kv)
    with open_kv() as kv:
        first = Loading(kv._form, kv._opening.open().limits, "first")
        run(kv._opening.open(), first.begin(restart=False))
        batch = first.take(text.splitlines(keepends=True))
        assert batch
        kv.load(io.StringIO(text), restart=True)
        before = contents(kv)
        with pytest.raises(EngineError, match="taken over"):
            run(kv._opening.open(), first.store(batch[0]))
        run(kv._opening.open(), first.abandon())
        assert contents(kv) == before


def test_a_late_delivery_of_a_batch_is_refused():
    with open_kv() as kv:
        loading = Loading(kv._form, kv._opening.open().limits, "late")
        run(kv._opening.open(), loading.begin(restart=False))
        assert loading._guard is not None
        late = AtomicWrite((loading._guard,), loading.take(['{"kvmodels_dump":1}', '{"key":["a"],"value":1}'])[0])
        run(kv._opening.open(), loading.abandon())
        assert not isinstance(kv._opening.open().commit(late), Committed)
        assert contents(kv) == []


def test_what_a_column_of_an_unknown_type_means_is_not_guessed():
    with Database("memory://", models=ZOO) as db:
        text = dumped(db.kv)
    with open_kv() as kv:
        with pytest.raises(SchemaMismatchError) as caught:
            kv.load(io.StringIO(text.replace('["tag","str"', '["tag","quaternion"')))
        assert caught.value.__notes__ == ["line 2 of the dump"]
        assert contents(kv) == []


def test_a_catalogue_of_a_newer_format_is_refused():
    with Database("memory://", models=ZOO) as db:
        text = dumped(db.kv)
    with open_kv() as kv, pytest.raises(SchemaMismatchError, match="newer format"):
        kv.load(io.StringIO(text.replace('"format":1', '"format":3')))


def test_a_foreign_value_among_the_records_stays_what_it_is():
    with Database("memory://", models=[Account]) as db:
        db[Account].create(id=1)
        db.kv.unsafe().set(("accounts", "foreign"), [1, 2])
        text, before = dumped(db.kv), contents(db.kv)
        assert encode_key(("accounts", "foreign")) in {row[0] for row in before}
    with open_kv() as kv:
        kv.load(io.StringIO(text))
        assert contents(kv) == before
