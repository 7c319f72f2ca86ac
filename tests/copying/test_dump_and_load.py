"""Dump and load: everything comes back with its types, on every engine, or nothing is left and the line is named."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import os
import random
import stat
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvmodels import InvalidArgumentError, KvMap, KvU64, Limits, open_kv
from kvmodels.core.keys import encode_key
from kvmodels.errors import (
    DecodeError,
    EngineError,
    InvalidValueError,
    KeyTooLargeError,
    OperationTooLargeError,
    ReadOnlyError,
    SchemaMismatchError,
    ValueTooLargeError,
)
from tests.copying.contents import EVERYTHING, contents, damage, dumped, engine_of, fill, same
from tests.unit.encoding.graphs import graphs, text, trees
from tests.worlds import in_the_soak


def test_everything_comes_back_with_its_type_and_its_deadline(stores):
    kv, copy = stores.open(), stores.open()
    fill(kv)
    text = dumped(kv)
    assert copy.load(io.StringIO(text)) == len(EVERYTHING)
    assert same(contents(kv), contents(copy))
    assert dumped(copy).splitlines()[1:] == text.splitlines()[1:]


def test_a_dump_is_readable_by_its_owner_alone(stores, tmp_path):
    before = os.umask(0)
    try:
        stores.open().dump(tmp_path / "private.ndjson")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "private.ndjson").stat().st_mode) == 0o600


@pytest.mark.parametrize("target", ["memory://", "sqlite://:memory:", "copy.db", "lmdb"])
def test_a_dump_of_any_engine_is_loaded_by_any_other(stores, target, tmp_path, url_of):
    kv = stores.open()
    fill(kv)
    url = {"copy.db": str(tmp_path / target), "lmdb": url_of("lmdb")}.get(target, target)
    with open_kv(url, clock=stores.clock) as copy:
        copy.load(io.StringIO(dumped(kv)))
        assert same(contents(kv), contents(copy))


@given(st.lists(st.tuples(text, st.one_of(trees, graphs())), max_size=5))
def test_any_values_come_back(pairs):
    with open_kv() as kv, open_kv() as copy:
        for part, value in pairs:
            kv.set((part, "k"), value)
        copy.load(io.StringIO(dumped(kv)))
        assert same(contents(kv), contents(copy))


def test_a_deadline_is_kept_to_the_millisecond_and_what_has_expired_is_left_out(stores):
    kv, copy = stores.open(), stores.open()
    kv.set(("short",), 1, expire_in=1)
    kv.set(("long",), 2, expire_in=1.5)
    stores.clock.ms += 1_000
    file = io.BytesIO()
    assert kv.dump(file) == 1
    file.seek(0)
    copy.load(file)
    assert contents(copy) == [(encode_key(("long",)), 2, stores.clock.ms + 500)]
    stores.clock.ms += 500
    assert contents(copy) == []


def test_K26_a_copy_is_one_snapshot_with_deadlines_and_is_verified(stores):
    """kvdex copies key by key from a store that goes on changing, without deadlines, and never looks at the copy."""
    kv = stores.open()
    kv.atomic().set(("a",), 0, expire_in=60).set(("z",), 0, expire_in=60).commit()
    stop = threading.Event()
    durability: Literal["commit", "relaxed"] = "commit" if stores.engine == "memory" else "relaxed"

    def write():
        for number in itertools.count(1):
            if stop.is_set():
                return
            beside.atomic().set(("a",), number, expire_in=60).set(("z",), number, expire_in=60).commit()

    with open_kv(engine_of(kv).url, clock=stores.clock, durability=durability) as beside:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(10):
                text = dumped(kv)
                first, last = (json.loads(line) for line in text.splitlines()[1:3])
                assert first["value"] == last["value"]
                assert first["expires_at"] == last["expires_at"]
                whole = text.splitlines(keepends=True)
                with open_kv() as copy, pytest.raises(DecodeError, match="keys were dumped"):
                    copy.load(io.StringIO("".join(whole[:1] + whole[2:])))
        finally:
            stop.set()
            writer.join()


def test_a_store_that_is_not_empty_is_refused_and_left_alone(stores):
    kv = stores.open()
    fill(kv)
    text = dumped(kv)
    other = stores.open()
    other.set(("mine",), 1)
    for restart in (False, True):
        with pytest.raises(EngineError, match="empty store"):
            other.load(io.StringIO(text), restart=restart)
    assert [value for _, value, _ in contents(other)] == [1]


def test_expired_rows_do_not_keep_a_store_from_being_empty(stores):
    kv, copy = stores.open(), stores.open()
    kv.set(("a",), 1)
    copy.set(("a",), "old", expire_in=1)
    stores.clock.ms += 1_000
    copy.load(io.StringIO(dumped(kv)))
    assert contents(copy) == contents(kv)


def test_a_store_can_be_used_and_watched_like_any_other_after_a_load(stores):
    kv, copy = stores.open(), stores.open()
    kv.set(("a",), 1)
    copy.load(io.StringIO(dumped(kv)))
    entry = copy.get(("a",))
    assert copy.atomic().check(entry).set(("a",), 2).commit()
    with pytest.raises(EngineError, match="empty store"):
        copy.load(io.StringIO(dumped(kv)))


# -- files


@pytest.mark.parametrize("mode", ["path", "text", "binary", "gzip"])
def test_a_dump_goes_to_a_path_or_to_any_file_object(stores, tmp_path, mode):
    kv, copy = stores.open(), stores.open()
    fill(kv)
    path = tmp_path / "dump.ndjson"
    if mode == "path":
        assert kv.dump(path) == len(EVERYTHING)
        assert copy.load(path) == len(EVERYTHING)
    else:
        opened: Callable[..., Any] = gzip.open if mode == "gzip" else open
        letter, options = ("t", {"encoding": "utf-8"}) if mode == "text" else ("b", {})
        with opened(path, f"w{letter}", **options) as file:
            kv.dump(file)
        with opened(path, f"r{letter}", **options) as file:
            copy.load(file)
    assert same(contents(kv), contents(copy))


def test_a_dump_never_overwrites_a_file_and_leaves_no_half_of_one(stores, tmp_path):
    kv = stores.open()
    kv.set(("a",), 1)
    path = tmp_path / "dump.ndjson"
    path.write_text("mine")
    with pytest.raises(EngineError, match=r"File exists.*never overwrites a file"):
        kv.dump(path)
    with pytest.raises(EngineError, match=r"No such file or directory'\). Check the path\.$"):
        kv.load(tmp_path / "missing.ndjson")
    assert path.read_text() == "mine"
    path.unlink()
    damage(kv, ("z",))
    with pytest.raises(DecodeError) as caught:
        kv.dump(path)
    assert caught.value.key == ("z",)
    assert not path.exists()


@pytest.mark.parametrize("file", [None, 7, b"path", object()])
def test_what_is_no_file_is_refused(stores, file):
    kv = stores.open()
    with pytest.raises(InvalidArgumentError):
        kv.dump(file)
    with pytest.raises(InvalidArgumentError):
        kv.load(file)


def test_a_path_that_cannot_be_opened_is_a_typed_error(stores, tmp_path):
    kv = stores.open()
    with pytest.raises(EngineError, match="No such file"):
        kv.load(tmp_path / "nothing")
    with pytest.raises(InvalidArgumentError, match="no file name can hold"):
        kv.load("a\0b")
    with pytest.raises(EngineError, match="No such file"):
        kv.dump(tmp_path / "no folder" / "x")
    assert contents(kv) == []


# -- damage


def sample_dump() -> list[str]:
    with open_kv(clock=lambda: 1_700_000_000_000) as kv:
        fill(kv)
        return dumped(kv).splitlines(keepends=True)


SAMPLE = sample_dump()

DAMAGES = {
    "nothing": ([], 1),
    "no dump": (["[1, 2]\n"], 1),
    "something else": (['{"name": "Ada"}\n', *SAMPLE[1:]], 1),
    "a dump of a later format": ([SAMPLE[0].replace('dump":1', 'dump":2'), *SAMPLE[1:]], 1),
    "no first line": (SAMPLE[1:], 1),
    "no last line": (SAMPLE[:-1], len(SAMPLE)),
    "only the first line": (SAMPLE[:1], 2),
    "half of the last line": ([*SAMPLE[:-1], SAMPLE[-1][:5]], len(SAMPLE)),
    "half of a line": ([*SAMPLE[:4], SAMPLE[4][:-9] + "\n", *SAMPLE[5:]], 5),
    "a line too few": ([*SAMPLE[:4], *SAMPLE[5:]], len(SAMPLE) - 1),
    "a line too many": ([*SAMPLE[:4], SAMPLE[4], *SAMPLE[4:]], len(SAMPLE) + 1),
    "two dumps": (SAMPLE * 2, len(SAMPLE) + 1),
    "an empty line": ([*SAMPLE[:4], "\n", *SAMPLE[4:]], 5),
    "no object": ([*SAMPLE[:4], "7\n", *SAMPLE[4:]], 5),
    "no key": ([*SAMPLE[:4], '{"value": 7}\n', *SAMPLE[4:]], 5),
    "the empty key": ([*SAMPLE[:4], '{"key": [], "value": 7}\n', *SAMPLE[4:]], 5),
    "a key that is none": ([*SAMPLE[:4], '{"key": [null], "value": 7}\n', *SAMPLE[4:]], 5),
    "no value": ([*SAMPLE[:4], '{"key": [1]}\n', *SAMPLE[4:]], 5),
    "two values": ([*SAMPLE[:4], '{"key": [1], "value": 7, "document": {}}\n', *SAMPLE[4:]], 5),
    "a document that is none": ([*SAMPLE[:4], '{"key": [1], "document": 7}\n', *SAMPLE[4:]], 5),
    "an unknown tag": ([*SAMPLE[:4], '{"key": [1], "value": {"$what": 7}}\n', *SAMPLE[4:]], 5),
    "a deadline that is none": ([*SAMPLE[:4], '{"key": [1], "value": 7, "expires_at": "x"}\n', *SAMPLE[4:]], 5),
    "something else in a line": ([*SAMPLE[:4], '{"key": [1], "value": 7, "versionstamp": "x"}\n', *SAMPLE[4:]], 5),
    "a catalogue in the middle": (
        [*SAMPLE[:4], '{"key": ["__kvmodels__", "header"], "value": {"format": 1, "collections": {}}}\n', *SAMPLE[4:]],
        5,
    ),
    "an end that is none": ([*SAMPLE[:-1], '{"end": 7}\n'], len(SAMPLE)),
}


@pytest.mark.parametrize(("lines", "number"), DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_or_foreign_file_names_its_line_and_nothing_is_left(stores, lines, number):
    kv = stores.open()
    with pytest.raises(DecodeError, match=rf"line {number}:"):
        kv.load(io.StringIO("".join(lines)))
    assert contents(kv) == []
    assert kv.load(io.StringIO("".join(SAMPLE))) == len(EVERYTHING)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"SQLite format 3\0" + bytes(1000), bytes(range(256)) * 100])
def test_a_file_of_bytes_is_no_dump(stores, data, tmp_path):
    kv = stores.open()
    path = tmp_path / "foreign"
    path.write_bytes(data)
    for file in (path, io.BytesIO(data), io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")):
        with pytest.raises(DecodeError, match="line 1:"):
            kv.load(file)
    assert contents(kv) == []


def test_a_file_without_lines_is_not_read_as_one(stores, monkeypatch):
    monkeypatch.setattr("kvmodels.api.dump_files.LONGEST_LINE", 1_000)
    with pytest.raises(DecodeError, match="line 2: longer"):
        stores.open().load(io.StringIO(SAMPLE[0] + "x" * 10_000))


def test_random_damage_is_a_typed_error_or_a_dump_that_says_something_else():
    chance = random.Random(3)
    whole = "".join(SAMPLE).encode()
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            at = chance.randrange(len(data))
            if chance.random() < 0.5:
                data[at] = chance.randrange(256)
            else:
                del data[at : at + chance.randrange(1, 40)]
        with open_kv() as kv:
            try:
                kv.load(io.BytesIO(bytes(data)))
            except (DecodeError, InvalidValueError, SchemaMismatchError):
                refused += 1
                assert contents(kv) == []
    assert refused > 200, "seed 3"


class Breaking(io.StringIO):
    """A file that breaks in the middle."""

    def __init__(self, text: str, error: BaseException) -> None:
        super().__init__(text)
        self._error = error
        self._left = len(SAMPLE) // 2

    def readline(self, size: int | None = -1) -> str:  # type: ignore[override]
        self._left -= 1
        if self._left < 0:
            raise self._error
        return super().readline(-1 if size is None else size)


@pytest.mark.parametrize("error", [OSError("the disk"), KeyboardInterrupt(), RuntimeError("a bug")], ids=repr)
def test_a_load_that_breaks_off_leaves_nothing(stores, error, monkeypatch):
    monkeypatch.setattr("kvmodels.api.dump_files.CHUNK_BYTES", 1)
    kv = stores.open()
    with pytest.raises(type(error)):
        kv.load(Breaking("".join(SAMPLE), error))
    assert contents(kv) == []
    assert kv.load(io.StringIO("".join(SAMPLE))) == len(EVERYTHING)


# -- what the store cannot hold


def one_line(value, key="k"):
    with open_kv() as kv:
        kv.set((key,), value)
        return dumped(kv)


@pytest.mark.parametrize(
    ("limits", "text", "error"),
    [
        (Limits.DENO, one_line("x" * 70_000), ValueTooLargeError),
        (Limits.MATTERMOST, one_line(1, "k" * 51), KeyTooLargeError),
        (Limits.EMBEDDED, one_line(1).replace('"k"', f'"{"k" * 3000}"'), KeyTooLargeError),
    ],
    ids=["value", "runes", "key"],
)
def test_what_is_too_large_for_the_store_is_refused_with_its_line(stores, limits, text, error):
    kv = stores.open(limits=limits)
    with pytest.raises(error) as caught:
        kv.load(io.StringIO(text))
    assert caught.value.__notes__ == ["line 2 of the dump"]
    assert contents(kv) == []


@pytest.mark.parametrize("limits", [Limits.DENO, *in_the_soak(Limits.DENOKV_SERVER)])
def test_a_dump_is_loaded_within_the_limits_of_the_store(stores, limits):
    kv, copy = stores.open(), stores.open(limits=limits)
    operation = kv.atomic()
    for number in range(1_100):
        operation.set((number, "k" * 100), "v" * 300)
    operation.commit()
    for number in range(30):
        kv.set(("large", number), "v" * 65_000)
    assert copy.load(io.StringIO(dumped(kv))) == 1_130
    assert contents(copy) == contents(kv)


def test_a_store_that_is_open_for_reading_can_be_dumped_and_not_loaded(tmp_path):
    path = tmp_path / "a.db"
    with open_kv(path) as kv:
        fill(kv)
        text = dumped(kv)
    with open_kv(path, readonly=True) as kv:
        assert dumped(kv).splitlines()[1:] == text.splitlines()[1:]
    path = tmp_path / "empty.db"
    open_kv(path).close()
    with open_kv(path, readonly=True) as kv, pytest.raises(ReadOnlyError):
        kv.load(io.StringIO(text))


@pytest.mark.servers
def test_memory_holds_a_part_of_the_store_only(tmp_path):
    path, dump = tmp_path / "a.db", tmp_path / "dump"
    with open_kv(path, durability="relaxed") as kv:
        for number in range(64):
            kv.set((number,), number.to_bytes(2, "big") * 500_000)
        tracemalloc.start()
        try:
            kv.dump(dump)
            assert tracemalloc.get_traced_memory()[1] < 30_000_000
            tracemalloc.reset_peak()
            with open_kv(tmp_path / "b.db", durability="relaxed") as copy:
                copy.load(dump)
                assert tracemalloc.get_traced_memory()[1] < 30_000_000
        finally:
            tracemalloc.stop()


# -- codecs


def test_values_move_between_codecs_with_their_types(stores):
    values = {("a",): [1, 1.0, 2**70, {"b": b"x"}], ("u",): KvU64(1), ("s",): {1, "a"}}
    for one, other in (("msgpack", "v8"), ("v8", "msgpack")):
        kv, copy = stores.open(codec=one), stores.open(codec=other)
        fill(kv, values)
        copy.load(io.StringIO(dumped(kv)))
        assert same(contents(kv), contents(copy))


def test_what_the_other_codec_lacks_is_refused_and_not_changed(stores):
    kv, copy, same_codec = stores.open(codec="v8"), stores.open(), stores.open(codec="v8")
    kv.set(("map",), KvMap({"a": 1}))
    with pytest.raises(InvalidValueError) as caught:
        copy.load(io.StringIO(dumped(kv)))
    assert caught.value.__notes__ == ["line 2 of the dump"]
    assert contents(copy) == []
    same_codec.load(io.StringIO(dumped(kv)))
    assert type(same_codec.get(("map",)).value) is KvMap


def test_an_operation_that_is_too_large_even_for_one_line_is_refused():
    with open_kv(limits=Limits("tiny", 100, 101, 1_000, 10, 10, 500, 500, 10, 10)) as kv:
        with pytest.raises(OperationTooLargeError):
            kv.load(io.StringIO(one_line("x" * 600)))
        assert contents(kv) == []
