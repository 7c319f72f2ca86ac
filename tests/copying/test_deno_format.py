"""Dumps in the format of Deno: every value comes back or is refused with its key, and bad lines leave nothing."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from kvmodels import Database, DecodeError, InvalidValueError, KvModel, PrimaryKey, ReservedKeyError, open_kv
from kvmodels.codecs.deno_json import deno_form, deno_value, parse_deno_line
from kvmodels.core.values import KvArray
from kvmodels.errors import EngineError, InvalidArgumentError
from tests.copying.contents import EVERYTHING, contents, same
from tests.unit.encoding.graphs import trees

LINE = '{"key":[{"type":"string","value":"a"}],"value":{"type":"bigint","value":"7"},"versionstamp":"00"}'
CYCLE: list[object] = []
CYCLE.append(CYCLE)


class Tree(KvModel, collection="trees"):
    id: PrimaryKey[int]
    kind: str


def deno_dump(kv) -> str:
    file = io.StringIO()
    kv.dump(file, format="deno")
    return file.getvalue()


def test_values_and_deadlines_come_back(stores):
    kv, copy = stores.open(), stores.open()
    for key, value in EVERYTHING.items():
        if key not in {("graph",), ("time",), ("members",)}:
            kv.set(key, value, expire_in=60 if key == ("raw",) else None)
    kv.set(("members",), {"set": {1, "a", b"b"}, "tuples": {(1, ("a",)), 2}, (1, "k"): "tuple key"})
    kv.set(("time",), [datetime(2026, 1, 2, 3, 4, 5, 6, UTC), datetime(9999, 12, 31, tzinfo=UTC)])
    copy.load(io.StringIO(deno_dump(kv)), format="deno")
    assert same(contents(kv), contents(copy))


@given(trees)
def test_a_value_comes_back_or_is_refused(value):
    try:
        form = deno_form(value)
    except InvalidValueError:
        return
    back = deno_value(parse_deno_line(json.dumps(form)), as_in_javascript=True)
    assert deno_form(back) == form


def test_a_record_has_numbers_and_no_index_entries():
    with Database(models=[Tree]) as db:
        db[Tree].create(id=7, kind="oak")
        db.kv.set(("n",), 7)
        lines = [json.loads(line) for line in deno_dump(db.kv).splitlines()]
    assert [[part["value"] for part in line["key"]] for line in lines] == [["n"], ["trees", "7"]]
    assert lines[0]["value"] == {"type": "bigint", "value": "7"}
    assert lines[1]["value"]["value"]["id"] == {"type": "number", "value": 7}


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        ("msgpack", datetime(2026, 1, 1)),
        ("msgpack", re.compile(r"(?P<name>a)")),
        ("msgpack", re.compile(b"a")),
        ("msgpack", 10**4_300),
        ("msgpack", {"__proto__": 1}),
        ("msgpack", CYCLE),
        ("v8", KvArray([1], {"index": 0})),
    ],
    ids=["naive time", "named group", "bytes pattern", "digits", "__proto__", "cycle", "array"],
)
def test_a_value_that_the_format_cannot_hold_is_refused_with_its_key(codec, value, tmp_path):
    with open_kv(codec=codec) as kv:
        kv.set(("a", 1), value)
        with pytest.raises(InvalidValueError) as caught:
            kv.dump(tmp_path / "dump", format="deno")
        assert caught.value.key == ("a", 1)
    assert not (tmp_path / "dump").exists()


@pytest.mark.parametrize(
    "bad",
    [
        LINE[:40],
        "[]",
        '{"key":[],"value":{"type":"null","value":null}}',
        LINE.replace("bigint", "number"),
        LINE.replace("bigint", "Symbol"),
        LINE.replace('"7"', "7"),
        LINE.replace('{"type":"bigint","value":"7"}', '{"type":"Date","value":null}'),
        LINE.replace('{"type":"bigint","value":"7"}', '{"type":"Map","value":[[1,2]]}'),
        LINE.replace('{"type":"bigint","value":"7"}', '{"type":"RegExp","value":"/(/"}'),
        LINE.replace('"versionstamp":"00"', '"expires_at":"soon"'),
        '{"kvmodels_dump":1,"codec":"msgpack","versionstamp":"00"}',
    ],
)
def test_a_bad_line_is_named_and_nothing_is_left(bad):
    with open_kv() as kv:
        with pytest.raises(DecodeError) as caught:
            kv.load(io.StringIO(f"{LINE}\n\n{bad}\n"), format="deno")
        assert str(caught.value.reason).startswith("line 3: ")
        assert kv.count(()) == 0


def test_a_key_of_a_model_or_of_the_library_is_refused():
    with Database(models=[Tree]) as db:
        for part in ("trees", "__kvmodels__"):
            with pytest.raises(ReservedKeyError):
                db.kv.load(io.StringIO(LINE.replace('"a"', f'"{part}"')), format="deno")
        assert db.check().ok
        assert db.kv.load(io.StringIO(LINE), format="deno") == 1
        with pytest.raises(EngineError, match="empty"):
            db.kv.load(io.StringIO(LINE), format="deno")


def test_progress_is_told_and_an_unknown_format_is_refused(tmp_path):
    told: list[int] = []
    with open_kv() as kv, open_kv() as copy:
        kv.set(("a",), 1)
        kv.dump(tmp_path / "dump", progress=told.append)
        copy.load(tmp_path / "dump", progress=told.append)
        assert told == [1, 1]
        verbs: tuple[Any, ...] = (kv.dump, kv.load)
        for verb in verbs:
            with pytest.raises(InvalidArgumentError, match="format"):
                verb(tmp_path / "other", format="json")
    assert not (tmp_path / "other").exists()
