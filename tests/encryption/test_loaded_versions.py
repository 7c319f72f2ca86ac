"""Old versions that a load takes: sealed again under the present key, or refused before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from itertools import count

import pytest

from kvmodels import (
    Database,
    DecryptionError,
    Encrypted,
    Field,
    History,
    Indexed,
    KeyRing,
    KvModel,
    LoadResult,
    PrimaryKey,
    SchemaMismatchError,
)
from tests.encryption.models import (
    ONE,
    ONLY_ONE,
    RING,
    TWO,
    Patient,
    Plain,
    PlainAgain,
    Sealed,
    holders,
    names,
    patient,
)
from tests.encryption.test_rotation import key_ids

_NUMBERS = count()
ONLY_TWO = KeyRing({2: TWO})


class Diary(KvModel, collection="diaries"):
    """No blind index, so an old key leaves the header."""

    id: PrimaryKey[int]
    text: Encrypted[str]
    mood: Indexed[str] = Field(default="fine")

    class Meta:
        history = History()


@pytest.fixture
def url() -> str:
    return f"memory://loaded_{next(_NUMBERS)}"


def dump_of_two_keys() -> str:
    """A dump whose old versions have both keys, because the rotation has stopped after its first commit."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with Database("memory://", models=[Diary], keys=RING) as db:
        diaries = db[Diary]
        for number in range(3):
            diaries.create(id=number, text=f"Planted {number}")
            diaries.patch(number, text=f"Planted new {number}")
        diaries.remove(2)
        with pytest.raises(KeyboardInterrupt):
            db.rotate(Diary, to=2, progress=stop)
        diaries.patch(1, text="Planted latest")
        diaries.patch(1, text="Planted last")
        assert key_ids(db) == {1, 2}
        return dumped(db)


def dumped(db: Database) -> str:
    file = StringIO()
    db.dump(file, history=True)
    return file.getvalue()


def load(db: Database, dump: str) -> LoadResult:
    return db.load(StringIO(dump), on_conflict="ignore")


def without_records(dump: str) -> str:
    """A dump with its old versions only, as of a collection whose records were all removed."""
    lines = dump.splitlines()
    rows = [line for line in lines[1:-1] if line.startswith('{"key":["__kvmodels__"')]
    return "\n".join([lines[0], *rows, f'{{"end":{{"keys":{len(rows)}}}}}'])


def keys_in_use(db: Database) -> tuple[int, ...]:
    return db.stats().collections[0].keys


def test_a_load_seals_old_versions_under_the_present_key(url: str):
    dump = dump_of_two_keys()
    with Database(url, models=[Diary], keys=RING) as db:
        found = load(db, dump)
        assert (found.written, found.versions_left_out) == (2, 0)
        assert key_ids(db) == {1}, "the new store begins with the lowest id"
        assert keys_in_use(db) == (1,)
        assert names_of(db, 1) == ["Planted last", "Planted latest", "Planted new 1", "Planted 1"]
        assert [one.record.text for one in db[Diary].history(2) if one.record] == ["Planted new 2", "Planted 2"]
        assert db.rotate(Diary, to=2).complete
        assert key_ids(db) == {2}
        assert keys_in_use(db) == (2,)
        assert db.check().ok
    assert "Planted" not in dump


def names_of(db: Database, key: int) -> list[str]:
    return [one.record.text for one in db[Diary].history(key) if one.record]


def test_no_loaded_version_needs_a_key_that_is_not_in_use(url: str):
    """After the load the old key may leave the ring at once, if the store has never used it."""
    dump = dump_of_two_keys()
    keeper = Database(url, models=[Diary], keys=ONLY_TWO)
    with keeper, Database(url, models=[Diary], keys=RING) as db:
        load(db, dump)
        assert key_ids(db) == {2}
        assert keys_in_use(db) == (2,)
        assert names_of(keeper, 1)[-1] == "Planted 1"
        assert keeper[Diary].restore(2).text == "Planted new 2"
        assert keeper.check().ok


def test_a_load_beside_a_rotation_leaves_no_old_value(url: str):
    dump = dump_of_two_keys()
    with Database(url, models=[Diary], keys=RING) as db, Database(url, models=[Diary], keys=RING) as loader:
        db[Diary].create(id=9, text="own")

        def load_now(_: object) -> None:
            if loader[Diary].get_or_none(0) is None:
                load(loader, dump)

        assert db.rotate(Diary, to=2, progress=load_now).complete
        assert loader[Diary].get(0).text == "Planted new 0"
        assert key_ids(db) == {2}
        assert keys_in_use(db) == (2,)


@pytest.mark.parametrize("rotates", [False, True])
def test_an_interrupted_load_is_continued(url: str, rotates: bool):
    dump = dump_of_two_keys()
    lines = dump.splitlines()
    first = next(line for line in lines if '"history","diaries",1,' in line)
    with Database(url, models=[Diary], keys=RING) as db:
        assert load(db, "\n".join([lines[0], first, '{"end":{"keys":1}}'])).versions == 1
        if rotates:
            assert db.rotate(Diary, to=2).complete
        assert load(db, dump).versions_left_out == 1
        assert names_of(db, 1)[-1] == "Planted 1"
        assert len(names_of(db, 1)) == 4
        assert load(db, dump).versions == 0
        assert db.check().ok


def test_another_first_version_of_a_key_is_left_out(url: str):
    dump = dump_of_two_keys()
    with Database(url, models=[Diary], keys=RING) as db:
        load(db, dump)
        for key in (0, 1):
            db[Diary].remove(key)
        begin = next(line for line in dump.splitlines() if '"history","diaries",0,' in line)
        other = dump.replace(begin, begin.replace('["mood","fine"]', '["mood","sad"]'))
        assert other != dump
        assert load(db, other).versions == 0


@pytest.mark.parametrize("only_versions", [False, True])
def test_a_missing_key_is_told_before_anything_is_written(url: str, only_versions: bool):
    dump = dump_of_two_keys()
    given = without_records(dump) if only_versions else dump
    with Database(url, models=[Diary], keys=ONLY_TWO) as db:
        with pytest.raises(DecryptionError, match="Give the key with this id") as raised:
            load(db, given)
        assert (raised.value.key_id, raised.value.field) == (1, "text")
        with pytest.raises(DecryptionError, match="another key"):
            load(Database(url, models=[Diary], keys=KeyRing({1: TWO, 2: TWO})), given)
        assert list(db.kv.list(("diaries",))) == []
        assert db.stats().collections[0].history.rows == 0  # type: ignore[union-attr]


def test_a_process_without_keys_loads_no_versions(url: str):
    class PlainDiary(KvModel, collection="diaries"):
        id: PrimaryKey[int]
        mood: Indexed[str] = Field(default="fine")

        class Meta:
            history = History()

    given = without_records(dump_of_two_keys())
    with Database(url, models=[PlainDiary]) as db, pytest.raises(SchemaMismatchError, match="without keys"):
        load(db, given)


def test_a_plain_old_version_is_refused_where_the_field_is_encrypted(url: str):
    with Database("memory://", models=[Plain]) as db:
        db[Plain].create(id=1, name="Planted", insurance="a")
        db[Plain].remove(1)
        dump = dumped(db)
    with Database(url, models=[Sealed], keys=RING) as db:
        with pytest.raises(DecryptionError, match="plain value"):
            load(db, dump)
        assert holders(db, "Planted") == []


def test_a_sealed_old_version_is_opened_where_the_field_is_plain(url: str):
    with Database("memory://", models=[Sealed], keys=RING) as db:
        db[Sealed].create(id=1, name="Ada", insurance="a")
        db[Sealed].patch(1, name="Eve")
        dump = dumped(db)
    with Database(url, models=[PlainAgain], keys=RING) as db:
        assert load(db, dump).versions == 1
        assert key_ids(db) == set()
        assert names(db[PlainAgain].history(1)) == ["Eve", "Ada"]


def test_the_keys_of_a_service_are_asked_for(url: str):
    asked: list[int] = []

    class Service:
        def get(self, key_id: int) -> bytes:
            asked.append(key_id)
            return {1: ONE, 2: TWO}[key_id]

    given = without_records(dump_of_two_keys())
    with Database(url, models=[Diary], keys=Service()) as db:
        assert load(db, given).versions > 0
        assert sorted(asked) == [1, 2]
        assert key_ids(db) == {1}


def test_values_under_the_present_key_keep_their_bytes(url_of: Callable[..., str]):
    with Database(url_of("memory"), models=[Patient], keys=ONLY_ONE) as db:
        db[Patient].insert(patient(1))
        db[Patient].remove(1)
        dump = dumped(db)
    with Database(url_of("memory", "other"), models=[Patient], keys=RING) as db:
        load(db, dump)
        again = dumped(db)
    assert [line.partition('"document"')[2] for line in again.splitlines()[1:3]] == [
        line.partition('"document"')[2].replace('"begin":"', '"begin":"-') for line in dump.splitlines()[1:3]
    ]
