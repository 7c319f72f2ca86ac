"""Every example of the documents that the project follows, in their order.

000, 001 and 002 are three editions of Deno's page on the key space (002 is the Chinese one), 004 is its page on
secondary indexes. A JavaScript number is a float here and a bigint an int; null is None, undefined ``UNDEFINED``.
Where the editions contradict each other or the real Deno, a comment cites the sentences and says what holds here.
"""

from __future__ import annotations

import math
import random
import re
import uuid
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from kvmodels.api._sync.kv import Kv, open_kv
from kvmodels.core.keys import Key, decode_key, encode_key, encode_part
from kvmodels.core.operations import parse_versionstamp
from kvmodels.core.ulid import ULID, UlidGenerator
from kvmodels.core.values import UNDEFINED, KvU64
from kvmodels.errors import InvalidArgumentError, InvalidValueError

EDITIONS = ["000", "001", "002"]
EDITIONS_WITH_ULIDS = ["000", "002"]


@pytest.fixture
def kv():
    with open_kv() as store:
        yield store


# Key Space: "a flat namespace of key+value+versionstamp pairs" -------------------------------------------------------


@pytest.mark.parametrize("edition", EDITIONS)
def test_an_entry_is_a_key_a_value_and_a_versionstamp(kv, edition):
    result = kv.set(("greeting",), "hello")
    entry = kv.get(("greeting",))
    assert (entry.key, entry.value, entry.versionstamp) == (("greeting",), "hello", result.versionstamp)


# Keys ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize("part", ["text", 42.0, True, b"\x01\x02\x03", 42], ids=repr)
def test_key_parts_are_strings_numbers_booleans_byte_arrays_and_bigints(kv, edition, part):
    kv.set((part,), "here")
    (entry,) = kv.list(())
    assert entry.key == (part,)
    assert type(entry.key[0]) is type(part)


@pytest.mark.parametrize(("edition", "collection"), [("000", "users"), ("001", "user"), ("002", "users")])
def test_a_user_name_cannot_inject_key_parts(kv, edition, collection):
    # 'with keys like "users/alice/settings" and "users/bob/settings"'
    kv.set((collection, "alice", "settings"), "alice's")
    kv.set((collection, "bob", "settings"), "bob's")
    # 'An attacker could create a new user with the name "alice/settings/hacked" ... In Deno KV, the injection would
    # result in the key ["users", "alice/settings/hacked", "settings"], which is not harmful.'
    kv.set((collection, "alice/settings/hacked", "settings"), "the attacker's")
    assert kv.get((collection, "alice", "settings")).value == "alice's"
    assert kv.get((collection, "bob", "settings")).value == "bob's"
    assert kv.get((collection, "alice", "settings", "hacked", "settings")).versionstamp is None
    assert [entry.value for entry in kv.list((collection, "alice"))] == ["alice's"]
    assert kv.get((collection, "alice/settings/hacked", "settings")).value == "the attacker's"


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize("delimiter", ["\0", "\0\xff", "\x02", "\x00\x02", "\xff", "/", ""])
def test_no_text_is_a_delimiter(kv, edition, delimiter):
    kv.set(("users", "alice", "settings"), 1)
    kv.set(("users", f"alice{delimiter}settings"), 2)
    assert kv.get(("users", "alice", "settings")).value == 1
    assert [entry.value for entry in kv.list(("users", "alice"))] == [1]


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_same_letters_cut_differently_are_different_keys(kv, edition):
    # 'the key parts ["abc", "def"], ["ab", "cdef"], ["abc", "", "def"] are all different keys'
    keys = [("abc", "def"), ("ab", "cdef"), ("abc", "", "def")]
    for position, key in enumerate(keys):
        kv.set(key, position)
    assert [kv.get(key).value for key in keys] == [0, 1, 2]
    assert len({encode_key(key) for key in keys}) == 3


@pytest.mark.parametrize("edition", EDITIONS)
def test_keys_are_case_sensitive_and_ordered_by_their_parts_the_first_one_most(kv, edition):
    # "Keys are case sensitive and are ordered lexicographically by their parts."
    for key in [("b", "a"), ("a", "b"), ("A", "z"), ("a", "B"), ("a",), ("a", "b", "a")]:
        kv.set(key, None)
    assert [entry.key for entry in kv.list(())] == [
        ("A", "z"),
        ("a",),
        ("a", "B"),
        ("a", "b"),
        ("a", "b", "a"),
        ("b", "a"),
    ]


# Key Part Ordering ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edition", EDITIONS)
def test_parts_are_ordered_by_type_first(kv, edition):
    # The list says "1. Uint8Array 2. string 3. number 4. bigint 5. boolean". The prose below it ("1.0 ... is greater
    # than the part 0n") and the real Deno put bigint before number, and that is what holds.
    ordered = [b"\xff", "a", 10**30, -1.0, False]
    for part in reversed(ordered):
        kv.set((part,), None)
    assert [entry.key[0] for entry in kv.list(())] == ordered


def listed_order(kv, parts):
    """The parts as the store lists them; floats as text, so that -0.0 and NaN can be compared."""
    shuffled = list(parts)
    random.Random(1).shuffle(shuffled)
    for part in shuffled:
        kv.set(("order", part), None)
    return [signed(entry.key[1]) for entry in kv.list(("order",))]


def signed(part):
    if isinstance(part, float) and math.isnan(part):
        return "-nan" if math.copysign(1, part) < 0 else "nan"
    return repr(part)


@pytest.mark.parametrize("edition", EDITIONS)
def test_byte_arrays_are_in_byte_order(kv, edition):
    # "Uint8Array: byte ordering of the array"
    ordered = [b"", b"\x00", b"\x00\x00", b"\x00\xff", b"\x01", b"\x01\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]
    assert listed_order(kv, ordered) == [repr(part) for part in ordered]


@pytest.mark.parametrize("edition", EDITIONS)
def test_strings_are_in_the_byte_order_of_their_utf_8(kv, edition):
    # "string: byte ordering of the UTF-8 encoding of the string": not UTF-16, where U+1F600 sorts below U+FF5E.
    ordered = ["", "\0", "A", "Z", "a", "aa", "b", "é", "～", "😀"]
    assert listed_order(kv, ordered) == [repr(part) for part in ordered]
    assert ordered == sorted(ordered, key=str.encode)


@pytest.mark.parametrize(
    ("edition", "listed"),
    [
        ("000", "-Infinity < -1.0 < -0.5 < -0.0 < 0.0 < 0.5 < 1.0 < Infinity < NaN"),
        ("001", "-NaN < -Infinity < -1.0 < -0.5 < -0.0 < 0.0 < 0.5 < 1.0 < Infinity < NaN"),
        ("002", "-Infinity < -1.0 < -0.5 < -0.0 < 0.0 < 0.5 < 1.0 < Infinity < NaN"),
    ],
)
def test_numbers_are_in_numerical_order_with_nan_at_the_ends(kv, edition, listed):
    # Edition 001 has -NaN first and the others omit it: both hold, -NaN is a key of its own, as is -0.0.
    ordered = [float(text) for text in listed.split(" < ")]
    assert listed_order(kv, ordered) == [signed(part) for part in ordered]
    assert encode_part(-0.0) != encode_part(0.0)


@pytest.mark.parametrize("edition", EDITIONS)
def test_bigints_are_in_mathematical_order(kv, edition):
    # "bigint: mathematical ordering, largest negative number first, largest positive number last"
    ordered = [-(2**2039), -(2**64), -(2**63), -256, -255, -1, 0, 1, 255, 256, 2**63, 2**64, 2**2039]
    assert listed_order(kv, ordered) == [repr(part) for part in ordered]


@pytest.mark.parametrize("edition", EDITIONS)
def test_false_is_before_true(kv, edition):
    # "boolean: false < true"
    assert listed_order(kv, [False, True]) == ["False", "True"]


@pytest.mark.parametrize("edition", EDITIONS)
def test_one_point_zero_is_before_two_point_zero_and_after_the_bigint_zero(kv, edition):
    # "the part 1.0 (a number) is ordered before the part 2.0 (also a number), but is greater than the part 0n"
    assert listed_order(kv, [1.0, 2.0, 0]) == ["0", "1.0", "2.0"]
    assert encode_part(0) < encode_part(1.0) < encode_part(2.0)


# Key Examples --------------------------------------------------------------------------------------------------------

KEY_EXAMPLES: list[Key] = [
    ("users", 42.0, "profile"),
    ("posts", "2023-04-23", "comments"),
    ("products", "electronics", "smartphones", "apple"),
    ("orders", 1001.0, "shipping", "tracking"),
    ("files", bytes([1, 2, 3]), "metadata"),
    ("projects", "openai", "tasks", 5.0),
    ("events", "2023-03-31", "location", "san_francisco"),
    ("invoices", 2023.0, "Q1", "summary"),
    ("teams", "engineering", "members", 1),
]


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_key_examples_are_stored_and_listed_in_order(kv, edition):
    for position, key in enumerate(KEY_EXAMPLES):
        kv.set(key, position)
    for position, key in enumerate(KEY_EXAMPLES):
        entry = kv.get(key)
        assert (entry.key, entry.value) == (key, position)
        assert [type(part) for part in entry.key] == [type(part) for part in key]
        assert decode_key(encode_key(key)) == key
    # The first parts differ, so the order is that of their names.
    assert [entry.key[0] for entry in kv.list(())] == sorted(str(key[0]) for key in KEY_EXAMPLES)
    # 1n and 1 are two keys.
    assert kv.get(("teams", "engineering", "members", 1.0)).versionstamp is None


# Universally Unique Lexicographically Sortable Identifiers (000 and 002) ---------------------------------------------


@pytest.mark.parametrize("edition", EDITIONS_WITH_ULIDS)
def test_keys_of_a_timestamp_and_a_random_id_are_listed_chronologically(kv, edition):
    keys = [
        ("users", 1691377037923.0, "8c72fa25-40ad-42ce-80b0-44f79bc7a09e"),  # first user
        ("users", 1691377037924.0, "8063f20c-8c2e-425e-a5ab-d61e7a717765"),  # second user
        ("users", 1691377037925.0, "35310cea-58ba-4101-b09a-86232bf230b2"),  # third user
    ]
    for key in reversed(keys):
        kv.set(key, {"id": key[2]})
    assert [entry.key for entry in kv.list(("users",))] == keys
    generated = ("users", datetime.now(UTC).timestamp() * 1000, str(uuid.uuid4()))
    kv.set(generated, {"name": "now"})
    assert [entry.key for entry in kv.list(("users",))] == [*keys, generated]


@pytest.mark.parametrize("edition", EDITIONS_WITH_ULIDS)
def test_ulids_are_listed_chronologically(kv, edition):
    texts = [
        "01H76YTWK3YBV020S6MP69TBEQ",  # first user
        "01H76YTWK4V82VFET9YTYDQ0NY",  # second user
        "01H76YTWK5DM1G9TFR0Y5SCZQV",  # third user
    ]
    for text in reversed(texts):
        kv.set(("users", text), {"id": text})
    assert [entry.key[1] for entry in kv.list(("users",))] == texts
    # They encode the three milliseconds of the keys above.
    assert [ULID(text).timestamp_ms for text in texts] == [1691377037923, 1691377037924, 1691377037925]
    assert [str(ULID(text)) for text in texts] == texts
    assert [ULID(text) for text in texts] == sorted(ULID(text) for text in texts)
    generated = str(ULID())
    assert re.fullmatch("[0-9A-HJKMNP-TV-Z]{26}", generated)
    assert generated > texts[-1]


@pytest.mark.parametrize("edition", EDITIONS_WITH_ULIDS)
def test_monotonic_ulids_increment_the_least_significant_random_bit(kv, edition):
    # "Strict ordering for the same timestamp by incrementing the least-significant random bit by 1"
    texts = ["01H76YTWK3YBV020S6MP69TBEQ", "01H76YTWK3YBV020S6MP69TBER", "01H76YTWK3YBV020S6MP69TBES"]
    first = ULID(texts[0])
    generator = UlidGenerator(clock_ms=lambda: first.timestamp_ms, randomness=lambda count: bytes(first)[-count:])
    generated = [str(ULID(generator.next_int())) for _ in range(3)]
    assert generated == texts
    for text in reversed(generated):
        kv.set(("users", text), {"id": text})
    assert [entry.key[1] for entry in kv.list(("users",))] == texts
    assert [int(second) - int(one) for one, second in pairwise(map(ULID, texts))] == [1, 1]


# Values --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize(
    "value",
    [
        UNDEFINED,
        None,
        True,
        1.5,
        "string",
        2**70,
        b"\x00\xff",
        [1, "two"],
        {"a": 1},
        {1.0: "a", "b": 2},
        {1, "two"},
        datetime(2023, 4, 23, tzinfo=UTC),
        re.compile("abc"),
    ],
    ids=repr,
)
def test_every_kind_of_value_is_stored_and_comes_back(kv, edition, value):
    # "undefined null boolean number string bigint Uint8Array Array Object Map Set Date RegExp"
    kv.set(("value",), value)
    entry = kv.get(("value",))
    assert entry.value == value
    assert type(entry.value) is type(value)
    assert entry.versionstamp is not None


@pytest.mark.parametrize("edition", EDITIONS)
def test_values_nest(kv, edition):
    # "Objects and arrays can contain any of the above types ... including other Maps and Sets."
    value = {
        "list": [None, UNDEFINED, [b"bytes", {"deep": [2**70, -0.5]}]],
        "map": {1: {"inner": {2.5: {"set", "of", "strings"}}}},
        "set": {frozenset({1, 2}), "x"},
        "date": [datetime(2023, 4, 23, tzinfo=UTC)],
        "pattern": {"p": re.compile("a+", re.IGNORECASE)},
    }
    kv.set(("value",), value)
    assert kv.get(("value",)).value == value


@pytest.mark.parametrize("edition", EDITIONS)
def test_circular_references_are_supported(kv, edition):
    value: dict[str, Any] = {"name": "loop"}
    value["self"] = value
    kv.set(("value",), value)
    stored = kv.get(("value",)).value
    assert stored["self"] is stored
    assert stored["name"] == "loop"


class SomeClass:
    pass


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize("value", [SomeClass(), SomeClass, print, lambda: None, object(), open], ids=lambda _: "value")
def test_class_instances_functions_and_symbols_are_not_supported(kv, edition, value):
    # "Objects with a non-primitive prototype are not supported ... Functions and symbols can also not be serialized."
    with pytest.raises(InvalidValueError):
        kv.set(("value",), value)
    with pytest.raises(InvalidValueError):
        kv.set(("value",), {"inside": [value]})
    assert kv.get(("value",)).versionstamp is None


# Deno.KvU64 type -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_u64_is_used_with_sum_min_and_max(kv, edition):
    u64 = KvU64(42)  # new Deno.KvU64(42n)
    kv.set(("n",), u64)
    assert kv.get(("n",)).value == u64
    kv.atomic().sum(("n",), KvU64(8)).commit()
    assert kv.get(("n",)).value == KvU64(50)
    kv.atomic().min(("n",), KvU64(42)).commit()
    assert kv.get(("n",)).value == KvU64(42)
    kv.atomic().max(("n",), KvU64(43)).commit()
    assert kv.get(("n",)).value == KvU64(43)


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_u64_is_64_bit_unsigned(edition):
    assert int(KvU64(2**64 - 1)) == 2**64 - 1
    for wrong in (-1, 2**64):
        with pytest.raises(InvalidArgumentError):
            KvU64(wrong)


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize("value", [{"value": KvU64(7)}, [KvU64(7)]], ids=repr)
def test_a_u64_cannot_be_stored_within_an_object_or_array(kv, edition, value):
    # "It can not be stored within an object or array." The real Deno stores {value: 7n}; here it is an error.
    with pytest.raises(InvalidValueError):
        kv.set(("value",), value)


# Value Examples ------------------------------------------------------------------------------------------------------

VALUE_EXAMPLES = [
    UNDEFINED,
    None,
    True,
    False,
    42.0,
    -42.5,
    42,
    "hello",
    bytes([1, 2, 3]),
    [1.0, 2.0, 3.0],
    {"a": 1.0, "b": 2.0, "c": 3.0},
    {"a": 1.0, "b": 2.0, "c": 3.0},  # new Map([["a", 1], ["b", 2], ["c", 3]])
    {1.0, 2.0, 3.0},
    datetime(2023, 4, 23, tzinfo=UTC),  # new Date("2023-04-23")
    re.compile("abc"),
    KvU64(42),
]


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_value_examples_come_back(kv, edition):
    for position, value in enumerate(VALUE_EXAMPLES):
        kv.set(("example", position), value)
    entries = list(kv.list(("example",)))
    assert [entry.value for entry in entries] == VALUE_EXAMPLES
    assert [type(entry.value) for entry in entries] == [type(value) for value in VALUE_EXAMPLES]


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_circular_value_example_comes_back(kv, edition):
    # const a = {}; const b = { a }; a.b = b;
    a: dict[str, Any] = {}
    b = {"a": a}
    a["b"] = b
    kv.set(("example",), a)
    stored = kv.get(("example",)).value
    assert stored["b"]["a"] is stored
    assert set(stored) == {"b"}
    assert set(stored["b"]) == {"a"}


# Versionstamp --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edition", EDITIONS)
def test_every_write_assigns_a_greater_versionstamp(kv, edition):
    # "Every time a value is inserted or modified, a versionstamp is assigned to it."
    stamps = [kv.set(("k",), "the same value").versionstamp for _ in range(5)]
    assert stamps == sorted(set(stamps))
    # "non-sequential, 12 byte values": every example and the real Deno have 10 bytes, and so it is here.
    assert {len(parse_versionstamp(stamp)) for stamp in stamps} == {10}
    kv.set(("older",), 1)
    kv.set(("newer",), 1)
    # "If versionstamp A is greater than versionstamp B, then value A was modified more recently than value B."
    assert kv.get(("newer",)).versionstamp > kv.get(("older",)).versionstamp


@pytest.mark.parametrize("edition", EDITIONS)
def test_the_versionstamp_example(edition):
    newer, older = "000002fa526aaccb0000", "000002fa526aacc90000"
    assert newer > older
    assert parse_versionstamp(newer) > parse_versionstamp(older)
    assert {len(parse_versionstamp(stamp)) for stamp in (newer, older)} == {10}


@pytest.mark.parametrize("edition", EDITIONS)
def test_all_data_of_one_transaction_has_one_versionstamp(kv, edition):
    # "if two set operations are performed in the same atomic operation, then the versionstamp ... will be the same"
    result = kv.atomic().set(("a",), 1).set(("b",), 2).commit()
    assert kv.get(("a",)).versionstamp == kv.get(("b",)).versionstamp == result.versionstamp


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_transaction_with_another_versionstamp_fails_and_is_not_applied(kv, edition):
    kv.set(("k",), "first")
    read = kv.get(("k",))
    kv.set(("k",), "second")
    result = kv.atomic().check(read).set(("k",), "third").set(("other",), 1).commit()
    assert not result.ok
    assert kv.get(("k",)).value == "second"
    assert kv.get(("other",)).versionstamp is None
    assert kv.atomic().check(kv.get(("k",))).set(("k",), "third").commit().ok


# 004, unique indexes (one-to-one) ------------------------------------------------------------------------------------


def insert_user(kv: Kv, user: dict[str, str]) -> None:
    primary_key = ("users", user["id"])
    by_email_key = ("users_by_email", user["email"])
    res = (
        kv.atomic()
        .check(primary_key, None)
        .check(by_email_key, None)
        .set(primary_key, user)
        .set(by_email_key, user)
        .commit()
    )
    if not res.ok:
        raise TypeError("User with ID or email already exists")


def get_user(kv: Kv, user_id: str) -> dict[str, str] | None:
    return kv.get(("users", user_id)).value


def get_user_by_email(kv: Kv, email: str) -> dict[str, str] | None:
    return kv.get(("users_by_email", email)).value


def delete_user(kv: Kv, user_id: str, between=lambda: None) -> int:
    """The function of the page, counting its attempts; ``between`` runs between the query and the delete."""
    attempts = 0
    ok = False
    while not ok:
        attempts += 1
        get_res = kv.get(("users", user_id))
        if get_res.value is None:
            return attempts
        between()
        ok = (
            kv.atomic()
            .check(get_res)
            .delete(("users", user_id))
            # The page reads res.value.email, a slip: the entry to delete is that of the record that is checked.
            .delete(("users_by_email", get_res.value["email"]))
            .commit()
            .ok
        )
    return attempts


ADA = {"id": "1", "name": "Ada", "email": "ada@example.com"}
BOB = {"id": "2", "name": "Bob", "email": "bob@example.com"}


def test_a_user_is_found_by_id_and_by_email(kv):
    insert_user(kv, ADA)
    insert_user(kv, BOB)
    assert get_user(kv, "1") == ADA
    assert get_user_by_email(kv, "bob@example.com") == BOB
    assert get_user(kv, "3") is None
    assert get_user_by_email(kv, "nobody@example.com") is None


@pytest.mark.parametrize("clash", [{"id": "1"}, {"email": "ada@example.com"}], ids=repr)
def test_an_insert_that_violates_a_constraint_fails_and_modifies_nothing(kv, clash):
    insert_user(kv, ADA)
    before = list(kv.list(()))
    with pytest.raises(TypeError, match="User with ID or email already exists"):
        insert_user(kv, BOB | clash)
    assert list(kv.list(())) == before


def test_deleting_a_user_removes_both_keys(kv):
    insert_user(kv, ADA)
    insert_user(kv, BOB)
    assert delete_user(kv, "1") == 1
    assert [entry.key for entry in kv.list(())] == [("users", "2"), ("users_by_email", "bob@example.com")]
    assert delete_user(kv, "1") == 1, "deleting an absent user returns"


def test_a_delete_is_retried_when_the_email_moves_between_query_and_delete(kv):
    # "This race can occur if an update changes the user's email, because the secondary index moves in this case."
    insert_user(kv, ADA)
    moved = ADA | {"email": "ada@new.example.com"}
    moves = [True]

    def change_email():
        if moves:
            moves.pop()
            kv.atomic().set(("users", "1"), moved).delete(("users_by_email", ADA["email"])).set(
                ("users_by_email", moved["email"]), moved
            ).commit()

    assert delete_user(kv, "1", between=change_email) == 2
    assert list(kv.list(())) == []


# 004, non-unique indexes (one-to-many) -------------------------------------------------------------------------------


def insert_user_with_color(kv: Kv, user: dict[str, str]) -> bool:
    primary_key = ("users", user["id"])
    by_color_key = ("users_by_favorite_color", user["favoriteColor"], user["id"])
    return kv.atomic().check(primary_key, None).set(primary_key, user).set(by_color_key, user).commit().ok


def get_users_by_favorite_color(kv: Kv, color: str) -> list[dict[str, str]]:
    return [entry.value for entry in kv.list(("users_by_favorite_color", color))]


def test_users_are_listed_by_their_favorite_color(kv):
    users = [
        {"id": "1", "name": "Ada", "favoriteColor": "red"},
        {"id": "2", "name": "Bob", "favoriteColor": "blue"},
        {"id": "3", "name": "Cleo", "favoriteColor": "red"},
        {"id": "4", "name": "Dan", "favoriteColor": "redder"},
    ]
    for user in users:
        assert insert_user_with_color(kv, user)
    assert get_users_by_favorite_color(kv, "red") == [users[0], users[2]]
    assert get_users_by_favorite_color(kv, "blue") == [users[1]]
    assert get_users_by_favorite_color(kv, "green") == []
    assert get_user(kv, "3") == users[2], "the primary key remains the user id"
    assert not insert_user_with_color(kv, users[0] | {"favoriteColor": "green"})
    assert get_users_by_favorite_color(kv, "green") == []
