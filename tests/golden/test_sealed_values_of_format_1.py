"""The bytes of encrypted fields in format 1 are a promise: later releases read them, and find them by blind indexes."""

from __future__ import annotations

import hmac
import json
import re
import shutil
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import msgpack
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kvmodels import Database, SchemaMismatchError
from kvmodels.core.keys import decode_key, encode_key
from tests.golden.story import START_MS, TellingEngine, database, golden_rows, rows_of, store_of, told_again
from tests.golden.story_of_sealed_values import (
    MODELS,
    ONE,
    RING,
    TWO,
    Guest,
    Patient,
    PlainGuest,
    Remark,
    SealedGuest,
    Visit,
    dump_of,
    first_patient,
    stages,
    stages_of_v8,
)

FOLDER = Path(__file__).parent / "format_1_sealed_values"
FOLDER_OF_V8 = Path(__file__).parent / "format_1_sealed_values_v8"
LAYOUT = Path(__file__).parents[2] / "docs" / "concepts" / "layout.md"
STAGES = [
    "1_values",
    "2_old_versions",
    "3_a_rotation_that_has_begun",
    "4_a_rotation_that_met_a_damaged_value",
    "5_other_keys",
    "6_sealed_afterwards",
    "7_half_the_way_back",
    "8_plain_again",
]
GUESTS: dict[str, type[Any]] = {**dict.fromkeys(STAGES[:5], Guest), STAGES[5]: SealedGuest, STAGES[6]: SealedGuest}

Document = dict[str, Any]


def documents(stage: str) -> Iterator[tuple[tuple[Any, ...], Document]]:
    """Every stored document of a stage with its collection and primary key, also those of old versions."""
    for row in golden_rows(FOLDER, stage):
        key = decode_key(bytes.fromhex(row["key"]))
        value = stored(row)
        if key[:2] == ("__kvmodels__", "history"):
            yield key[2:-1], value["doc"]
        elif key[0] in ("patients", "visits", "guests"):
            yield key, value


def stored(row: dict[str, Any]) -> Any:
    """The value of a row of the library or of a record, which are msgpack; None for an empty one."""
    data = bytes.fromhex(row["value"])
    return msgpack.unpackb(data, strict_map_key=False, ext_hook=lambda *parts: parts) if data else None


def sections(stage: str) -> dict[str, Any]:
    """The section of encrypted fields of each collection in the header of a stage."""
    header = encode_key(("__kvmodels__", "header")).hex()
    found = next(stored(row) for row in golden_rows(FOLDER, stage) if row["key"] == header)
    return {name: one["encrypted"] for name, one in found["collections"].items() if "encrypted" in one}


def derived(key_id: int, *info: str, byte: bytes = b"") -> bytes:
    """HKDF-SHA256 of one block, as the page on the layout says."""
    extracted = hmac.digest(bytes(32), {1: ONE, 2: TWO}[key_id], sha256)
    return hmac.digest(extracted, encode_key(("kve1", *info)) + byte + b"\x01", sha256)


def opened(collection: str, key: tuple[Any, ...], field: str, sealed: bytes) -> tuple[int, bytes]:
    """Return the id of the key of a sealed value, and its plaintext."""
    assert sealed[:4] == b"kve1"
    key_id, random = int.from_bytes(sealed[4:8], "big"), sealed[8:21]
    cipher = AESGCM(derived(key_id, collection, "value", field, byte=random[:1]))
    return key_id, cipher.decrypt(random[1:], sealed[21:], encode_key((collection, field, *key)))


def blind(collection: str, field: str, part: Any) -> bytes:
    return hmac.digest(derived(1, collection, "blind", field), encode_key((part,)), sha256)[:16]


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows(tmp_path: Path, where: str) -> None:
    assert told_again(stages, FOLDER, None if where == "memory" else tmp_path / "store.db") == STAGES


@pytest.mark.parametrize("where", ["memory", "sqlite"])
def test_the_same_story_writes_the_same_rows_of_deno(tmp_path: Path, where: str) -> None:
    told = told_again(stages_of_v8, FOLDER_OF_V8, None if where == "memory" else tmp_path / "store.db")
    assert told == ["1_values"]


def test_every_value_opens_by_the_formulas_of_the_page() -> None:
    ids = {
        stage: {
            opened(key[0], key[1:], field, document[field])[0]
            for key, document in documents(stage)
            for field in document.get("$kv", {}).get("e", ())
            if key != ("patients", 5)  # the damaged one
        }
        for stage in STAGES
    }
    assert list(ids.values()) == [{1}, {1}, {1}, {1, 2}, {2}, {1, 2}, {1, 2}, {2}]


def test_the_forms_of_the_values_spelled_out() -> None:
    found = dict(documents("1_values"))
    first, second = found["patients", 1], found["patients", 2]
    names = ["balance", "born", "city", "insurance", "name", "passport", "remarks", "scan", "tags"]
    assert first["$kv"]["e"] == names
    assert second["$kv"]["e"] == ["insurance", "name", "remarks", "scan", "tags"]
    assert [second[name] for name in ("balance", "born", "city", "passport")] == [None] * 4
    plain = {field: opened("patients", (1,), field, first[field])[1] for field in names}
    assert plain.pop("scan") == b"\x03\x00\xff", "the number of the encoding of bytes"
    assert {one[0] for one in plain.values()} == {4}, "the number of the encoding of msgpack"
    values = {field: msgpack.unpackb(one[1:], ext_hook=lambda *parts: parts) for field, one in plain.items()}
    assert {name: values[name] for name in ("name", "tags", "remarks", "city")} == {
        "name": "Ada",
        "tags": ["b", "a", "b"],
        "remarks": [{"text": "tired", "grade": 2}, {"text": "", "grade": 0}],
        "city": "Paris",
    }


def test_the_blind_values_and_their_entries_spelled_out() -> None:
    found = dict(documents("1_values"))
    columns = found["patients", 1]["$kv"]["c"]
    city, tags = blind("patients", "city", "Paris"), sorted(blind("patients", "tags", tag) for tag in "ab")
    assert columns == {
        "insurance~casefold~blind1": blind("patients", "insurance", "i-1"),
        "passport~blind1": blind("patients", "passport", "P1"),
        "city~blind1": city,
        "born~blind1": columns["born~blind1"],
        "tags~blind1": tags,
    }
    assert found["patients", 2]["$kv"]["c"]["passport~blind1"] is None
    keys = {decode_key(bytes.fromhex(row["key"])) for row in golden_rows(FOLDER, "1_values")}
    assert {key[1:] for key in keys if key[0] == "patients_by_tags"} == {(b"\x01" + one, 1) for one in tags}
    assert {key[1:] for key in keys if key[0] == "patients_by_ward_city_bed"} == {
        ("a", b"\x01" + city, 7, 1),
        ("a", b"", 0, 2),
    }
    slots = {key[1:] for key in keys if key[0] == "patients_by_insurance"}
    assert slots == {(b"\x01" + blind("patients", "insurance", one),) for one in ("i-1", "i-2")}


def test_the_header_has_the_items_of_the_page() -> None:
    page = LAYOUT.read_text(encoding="utf-8")
    part = page[page.index("## Sealed values") : page.index("## The SQLite file")]
    items = set(re.findall(r"^\| `(\w+)` \|", part, re.MULTILINE))
    for stage in STAGES:
        for name, section in sections(stage).items():
            assert section.keys() == items
            for key_id, check in section["keys"].items():
                assert check == derived(int(key_id), name, "check").hex()[:16]
    assert sections("5_other_keys")["visits"]["keys"].keys() == {"2"}
    assert sections("5_other_keys")["patients"]["keys"].keys() == {"1", "2"}, "the blind indexes have key 1"
    assert sections("6_sealed_afterwards")["guests"]["fields"] == {"name": 2}
    assert sections("7_half_the_way_back")["guests"]["plain"] == {"name": 3}
    assert "guests" not in sections("8_plain_again")


def test_the_progress_of_a_rotation_has_the_items_of_the_page() -> None:
    rows = {row["parts"]: stored(row) for row in golden_rows(FOLDER, "4_a_rotation_that_met_a_damaged_value")}
    progress = rows["('__kvmodels__', 'build', 'patients', '~keys', 1)"]
    assert progress.keys() == {"to", "cursor", "scanned", "written"}
    left = [value for key, value in rows.items() if key.startswith("('__kvmodels__', 'violation', 'patients', '~keys'")]
    assert left == [{"kind": "not_decodable", "reason": "name: damaged"}]
    page = LAYOUT.read_text(encoding="utf-8")
    assert "`to`, `cursor`, `scanned` and `written`" in page
    assert 'the `kind` `"not_decodable"` and a `reason`' in page


@pytest.mark.parametrize("stage", STAGES)
def test_the_present_code_reads_the_golden_rows(stage: str) -> None:
    models = Patient, Visit, GUESTS.get(stage, PlainGuest)
    engine = TellingEngine(store_of(golden_rows(FOLDER, stage)))
    assert rows_of(engine) == golden_rows(FOLDER, stage)
    with database(engine, *models, keys=RING) as db:
        patients, changed = db[Patient], stage != "1_values"
        ada = patients.get(1)
        expected = first_patient()
        if changed:
            expected = expected.model_copy(update={"name": "Ada L.", "tags": ["a", "c"], "bed": 8})
        assert ada == expected
        assert (ada.born, ada.balance) == (date(1815, 12, 10), Decimal("-1.50"))
        assert ada.remarks[0] == Remark(text="tired", grade=2)
        assert patients.get(insurance="I-1").id == patients.get(passport="P1").id == 1
        assert [one.id for one in patients.filter(city="Paris")] == [1]
        assert [one.id for one in patients.filter(born=date(1815, 12, 10))] == [1]
        assert [one.id for one in patients.filter(tags__contains="a")] == [1]
        assert [one.id for one in patients.filter(ward="a", city="Paris").order_by("bed")] == [1]
        assert db[Visit].get(("east", -1)).reason == {"pain": 3}
        guest = db[models[2]]
        if stage != "7_half_the_way_back":  # the index is being replaced
            assert guest.get(name="Eva" if changed else "Eve").id == 1
        assert guest.get(1).name == ("Eva" if changed else "Eve")
        if changed:
            versions = [one.record for one in patients.history(1)]
            assert [(one.name, one.bed) for one in versions if one] == [("Ada L.", 8), ("Ada L.", 7), ("Ada", 7)]
            assert [one.record.name for one in patients.history(4) if one.record] == ["Leo"]
            assert [one.record.name for one in guest.history(1) if one.record] == ["Eva", "Eve"]
        damaged = stage in STAGES[1:4]
        assert [one.primary_key for one in db.check().findings] == [5] * damaged


def test_a_rotation_that_a_golden_store_has_begun_is_finished() -> None:
    engine = TellingEngine(store_of(golden_rows(FOLDER, "3_a_rotation_that_has_begun")))
    with database(engine, Patient, Visit, Guest, tokens="later", keys=RING) as db:
        assert [one.key for one in db.rotate(Patient, to=2).violations] == [5]
        db[Patient].remove(5)
        db[Patient].forget(5)
        assert db.rotate(Patient, to=2).complete
        assert db.check().ok


def test_a_golden_file_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite3"
    shutil.copy(FOLDER / "store.sqlite3", path)
    with Database(path, models=MODELS, keys=RING) as db:
        assert db.check().ok
        assert db[Patient].restore(4).name == "Leo"
        assert db[Patient].patch(1, name="Ada King").bed == 8
        with pytest.raises(SchemaMismatchError), Database(path, models=[SealedGuest], keys=RING) as old:
            old[SealedGuest].create(id=2, name="Zoe")


def test_the_present_code_reads_the_golden_rows_of_deno() -> None:
    engine = TellingEngine(store_of(golden_rows(FOLDER_OF_V8, "1_values")))
    with database(engine, Patient, codec="v8", keys=RING) as db:
        assert db[Patient].get(insurance="i-1") == first_patient().model_copy(update={"name": "Ada L."})
        assert [one.record.name for one in db[Patient].history(1) if one.record] == ["Ada L.", "Ada"]
        assert db.check().ok


def test_a_golden_store_makes_the_golden_dump() -> None:
    with database(TellingEngine(store_of(golden_rows(FOLDER, STAGES[-1]))), *MODELS, keys=RING) as db:
        found, expected = dump_of(db), (FOLDER / "dump.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in found.splitlines()] == [json.loads(line) for line in expected.splitlines()]
    assert found == expected


def test_a_golden_dump_is_loaded() -> None:
    dump = (FOLDER / "dump.jsonl").read_bytes()
    with Database("memory://", models=MODELS, keys=RING, clock=lambda: START_MS) as db:
        result = db.load(BytesIO(dump))
        assert (result.written, result.versions_left_out) == (4, 0)
        assert db[Patient].get(passport="P1").tags == ["a", "c"]
        assert [one.record.name for one in db[Patient].history(1) if one.record] == ["Ada L.", "Ada L.", "Ada"]
        assert db.check().ok
