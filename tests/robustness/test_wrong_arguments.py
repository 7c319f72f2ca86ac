"""A wrong argument of any public method gives an error of this library, and an error always has a text."""

from __future__ import annotations

import inspect
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import pytest
from pydantic import ValidationError

import kvmodels
from kvmodels import (
    AlreadyExistsError,
    AsyncDatabase,
    Avg,
    Database,
    DecodeError,
    Field,
    Indexed,
    InvalidArgumentError,
    InvalidCursorError,
    InvalidValueError,
    KvModel,
    KvModelsError,
    MultiIndexed,
    PrimaryKey,
    Sum,
    Unique,
    open_async_kv,
    open_kv,
)
from kvmodels._support.naming import short_repr


class Part(KvModel):
    id: PrimaryKey[int]
    number: Unique[str]
    shelf: Indexed[str] = Field(default="a")
    code: Indexed[bytes] = Field(default=b"")
    tags: MultiIndexed[list[bytes]] = Field(default_factory=list)
    price: Decimal = Decimal(1)


class WithoutRepr:
    def __init__(self, *arguments: object) -> None:
        """Take what a callback is given: the class itself is a function that can be called."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


HUGE = 10**5000
WRONG: tuple[Any, ...] = (
    *(None, -1, 1.5, True, float("nan"), HUGE, "x", "\ud800", b"\xff", {}),
    *(WithoutRepr(), WithoutRepr, [WithoutRepr()], [HUGE]),
)

VALID: dict[str, Any] = {
    "keys": [("a",)],
    "key": ("a",),
    "prefix": ("a",),
    "value": 1,
    "name": "n",
    "objs": [],
    "changes": {},
    "fields": "shelf",
    "source": "parts.csv",
}
"""Return the other arguments of a call; None if they are not named here."""

NOT_CALLED = {
    "close", "listen",  # what follows would find nothing open, or a thread would run
    "from_engine",  # takes parts that the library itself makes
}  # fmt: skip


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    monkeypatch.chdir(tmp_path)  # "x" is a valid path
    Path("parts.csv").write_text("id,number\n7,seven\n")
    with Database("memory://", models=[Part]) as opened:
        opened[Part].create(id=1, number="one")
        yield opened


TARGETS: dict[str, Callable[[Database], Any]] = {
    "database": lambda db: db,
    "repository": lambda db: db[Part],
    "query set": lambda db: db[Part].all(),
    "grouped query": lambda db: db[Part].group_by("shelf"),
    "kv": lambda db: db.kv,
    "atomic operation": lambda db: db.kv.atomic(),
    "namespace": lambda db: db.kv.namespace("n"),
    "plan": lambda db: db.plan(),
}


def calls(target: Any) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Each argument of each public method, as a function of its value."""
    for name in sorted(set(dir(type(target))) - NOT_CALLED):
        member = inspect.getattr_static(type(target), name)
        if name.startswith("_") or isinstance(member, property) or not callable(getattr(target, name)):
            continue
        method = getattr(target, name)
        for wrong in inspect.signature(method).parameters:
            yield f"{name}({wrong})", partial(called, method, wrong)


def called(method: Callable[..., Any], wrong: str, value: Any) -> None:
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for one in inspect.signature(method).parameters.values():
        given = value if one.name == wrong else VALID.get(one.name)
        if one.name != wrong and (one.default is not one.empty or one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)):
            continue
        if one.kind is one.VAR_KEYWORD:
            named["shelf"] = given
        elif one.kind is one.KEYWORD_ONLY:
            named[one.name] = given
        else:
            positional.append(given)
    answer = method(*positional, **named)
    if hasattr(answer, "__next__") and not hasattr(answer, "versionstamp"):
        next(answer, None)


@pytest.mark.parametrize("name", TARGETS)
def test_a_wrong_argument_of_a_public_method_gives_an_error_of_the_library(db: Database, name: str):
    tried, texts, untyped = 0, list[str](), list[str]()
    for label, call in calls(TARGETS[name](db)):
        for value in WRONG:
            tried += 1
            try:
                call(value)
            except KvModelsError as error:
                texts.append(str(error))
            except ValidationError:  # pydantic says what is wrong with the fields of a record
                continue
            except Exception as error:  # noqa: BLE001 - this is what must not happen
                untyped.append(f"{label} of {short_repr(value)}: {type(error).__name__}: {error}")
    assert tried >= len(WRONG)
    assert untyped == []
    assert all(text.startswith("[KV") for text in texts)


@pytest.mark.parametrize("name", ["Index", "UniqueConstraint", "AggregateIndex", "Indexed", "Unique", "MultiIndexed"])
def test_a_wrong_option_of_a_declaration_gives_an_error_of_the_library(name: str):
    declare: Any = getattr(kvmodels, name)
    fields = () if name in {"Indexed", "Unique", "MultiIndexed"} else ("shelf",)
    options = [one.name for one in inspect.signature(declare).parameters.values() if one.kind is one.KEYWORD_ONLY]
    for option in options:
        for value in WRONG:
            with suppress(KvModelsError):
                declare(*fields, **{option: value})
    for value in WRONG if fields else ():
        with suppress(KvModelsError):
            declare(value)


@pytest.mark.parametrize("open_store", [open_kv, Database])
def test_a_wrong_option_of_a_store_gives_an_error_of_the_library(open_store: Any, db: Database):
    for option in inspect.signature(open_store).parameters:
        for value in WRONG:
            with suppress(KvModelsError), open_store(**{option: value}) as store:
                assert store is not None


def forged(*parts: Any) -> str:
    """A page cursor with a correct digest."""
    payload = msgpack.packb(parts[0] if len(parts) == 1 else parts)
    return urlsafe_b64encode(payload + sha256(payload).digest()[:8]).decode().rstrip("=")


def forged_cursors(plan_hash: str) -> Iterator[str]:
    wrong: list[Any] = [
        5,
        None,
        "ab",
        [5],
        [None],
        [[]],
        [["", 0, 1]],
        [{"a": 1, "b": 2}],
        [["", None]],
        [["shelf", 99]],
    ]
    for indexes in wrong:
        yield forged(2, indexes, plan_hash, b"")
    for mark in (b"", b"\xff", msgpack.packb(5), msgpack.packb([[], {}, 1]), msgpack.packb([9, b"", True])):
        yield forged(2, [["", 0]], plan_hash, mark)
    yield from (forged(5), forged(None), forged([2]), forged({"a": 1}), forged(2, [], 5, b""), forged(*[2] * 10))


def test_a_forged_page_cursor_is_refused(db: Database):
    query = db[Part].order_by("id")
    cursors = list(forged_cursors(query.explain().hash))
    assert len(cursors) > 20
    for cursor in cursors:
        for direction in ("after", "before"):
            with pytest.raises((InvalidCursorError, KvModelsError)) as refused:
                query.page(size=1, **{direction: cursor})
            assert refused.value.code in ("KV704", "KV705"), cursor


def test_what_is_no_cursor_is_refused_by_pages_and_listings(db: Database):
    wrong: list[Any] = [5, b"abc", "\ud800", "é", "=", "AAA", True, [], {}]
    for given in wrong:
        with pytest.raises(InvalidCursorError):
            db[Part].order_by("id").page(size=1, after=given)
        with pytest.raises(InvalidCursorError):
            list(db.kv.list(("a",), cursor=given))


def test_keys_to_read_or_watch_must_be_in_a_list(db: Database):
    for wrong in (5, object(), "abc"):
        keys: Any = wrong
        for call in (db.kv.get_many, db.kv.watch, db.kv.snapshot().get_many):
            with pytest.raises(InvalidArgumentError) as refused:
                call(keys)
            assert refused.value.argument == "keys"


async def test_the_asynchronous_store_refuses_them_as_well():
    wrong: Any = 5
    async with AsyncDatabase("memory://", models=[Part]) as db:
        with pytest.raises(InvalidArgumentError):
            await db.kv.get_many(wrong)
        with pytest.raises(InvalidArgumentError):
            db.kv.watch(wrong)
        with pytest.raises(InvalidArgumentError):
            await db[Part].all().update(wrong)


def test_bytes_that_can_change_are_operands_like_bytes(db: Database):
    parts = db[Part]
    parts.create(id=2, number="two", code=b"c", tags=[b"t"])
    for query in (
        parts.filter(code=bytearray(b"c")),
        parts.filter(code__in=[bytearray(b"c"), b"c"]),
        parts.filter(tags__contains=bytearray(b"t")),
        parts.filter(tags__contains_any=[bytearray(b"t")]),
        parts.filter(tags__contains_all=[bytearray(b"t"), b"t"]),
    ):
        assert [part.id for part in query] == [2]


def test_every_error_has_a_text_whatever_its_attributes_are():
    for key, shown in (
        (HUGE, "<int of 16610 bits>"),
        ((1, HUGE), "<tuple, whose repr() raises ValueError>"),
        (WithoutRepr(), "<WithoutRepr, whose repr() raises RuntimeError>"),
        ("\ud800", r"'\ud800'"),
    ):
        error = AlreadyExistsError("a record with this key exists", model="Part", key=key)
        assert f"key={shown}" in str(error)
        assert error.key is key


@pytest.mark.parametrize("scheme", ["sqlite:///", "lmdb:///", ""])
@pytest.mark.parametrize("name", ["a\ud800", "a\0b"])
def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path, scheme: str, name: str):
    with pytest.raises(InvalidArgumentError) as refused:
        Database(f"{scheme}{tmp_path}/{name}", models=[Part])
    assert refused.value.argument == "url"


def test_a_backup_and_a_dump_to_a_path_that_no_file_can_have_are_refused(db: Database, tmp_path: Path):
    for write in (db.kv.backup, db.kv.dump, db.kv.load, db.dump, db.load):
        with pytest.raises(InvalidArgumentError):
            write(f"{tmp_path}/a\ud800")


def test_what_is_no_file_and_no_progress_function_is_refused(db: Database, tmp_path: Path):
    verbs: list[Any] = [db.kv.dump, db.kv.load, db.dump, db.load]
    for verb in verbs:
        for arguments, options in (((7,), {}), ((tmp_path / "new",), {"progress": 7})):
            with pytest.raises(InvalidArgumentError):
                verb(*arguments, **options)
    assert not (tmp_path / "new").exists()


def test_a_sum_of_decimals_of_very_different_sizes_is_refused(db: Database):
    db[Part].create(id=2, number="two", price=Decimal("1e99999999999"))
    for function in (Sum("price"), Avg("price")):
        with pytest.raises(InvalidValueError, match="too many digits"):
            db[Part].all().allow_scan().aggregate(function)


def test_a_sum_of_decimals_is_exact_up_to_the_bound(db: Database):
    db[Part].create(id=2, number="two", price=Decimal("1e20000"))
    [total] = db[Part].all().allow_scan().aggregate(Sum("price")).values()
    assert total == 10**20000 + 1


def test_a_sum_that_fails_names_the_key(db: Database):
    db.kv.set(("visits", 7), "text")
    with pytest.raises(InvalidValueError) as failed:
        db.kv.atomic().sum(("visits", 7), 1).commit()
    assert failed.value.key == ("visits", 7)


def test_an_object_given_to_create_and_a_size_by_position_are_refused_with_the_right_call(db: Database):
    with pytest.raises(InvalidArgumentError) as caught:
        call: Any = db[Part].create
        call(Part(id=9, number="nine"))
    assert (caught.value.argument, caught.value.value) == ("body", "Part")
    assert "save(obj) or insert(obj)" in str(caught.value.hint)
    with pytest.raises(InvalidArgumentError) as caught:
        call = db[Part].page
        call(20)
    assert (caught.value.argument, caught.value.hint) == (
        "page()",
        "Write page(size=20), with after= for the next page.",
    )


@pytest.mark.parametrize("method", ["insert", "save"])
def test_fields_in_place_of_an_object_are_refused_with_the_right_call(db: Database, method: str):
    call: Any = getattr(db[Part], method)
    for given in ({"id": 9, "number": "nine"}, {}):
        with pytest.raises(InvalidArgumentError, match=r"create\(id=1, ...\), which makes the object") as caught:
            call(**given)
        assert (caught.value.argument, caught.value.value) == (f"{method}()", ", ".join(given) or "nothing")
    with pytest.raises(InvalidValueError, match=r"Give an object, Part\(...\)"):
        call({"id": 9, "number": "nine"})


@pytest.mark.parametrize("make", [lambda: AsyncDatabase("memory://"), lambda: open_async_kv(), lambda: transaction()])
def test_an_asynchronous_object_in_a_with_statement_is_refused_with_the_right_statement(make: Callable[[], Any]):
    with pytest.raises(InvalidArgumentError) as caught, make():
        raise AssertionError("it was entered")
    assert caught.value.hint == "Write 'async with', inside of a coroutine."


def transaction() -> Any:
    return AsyncDatabase("memory://").transaction()


async def test_a_synchronous_object_in_an_async_with_statement_is_refused(db: Database):
    for target in (db, db.kv, db.transaction(), db.kv.lock("x")):
        unusual: Any = target
        with pytest.raises(InvalidArgumentError, match="Write 'with'"):
            async with unusual:
                raise AssertionError("it was entered")


class Shelf(KvModel, collection="shelves_of_the_test"):
    room: PrimaryKey[str]
    number: PrimaryKey[int]
    width: int


class NarrowPart(KvModel, collection="parts_of_the_test"):
    id: PrimaryKey[int]
    width: int


def test_the_hint_of_a_record_that_cannot_be_read_names_the_key_as_a_call_takes_it():
    with Database("memory://", models=[Shelf, NarrowPart]) as db:
        db.kv.unsafe().set(("shelves_of_the_test", "a", 4), {"room": "a", "number": 4, "width": "wide"})
        db.kv.unsafe().set(("parts_of_the_test", 4), {"id": 4, "width": "wide"})
        for model, key, call in ((Shelf, ("a", 4), "remove(('a', 4))"), (NarrowPart, 4, "remove(4)")):
            repository: Any = db[model]
            with pytest.raises(DecodeError) as caught:
                repository.get(key)
            assert f"repository.{call}." in str(caught.value.hint)
            assert repository.remove(key)
