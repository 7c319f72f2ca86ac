"""Every promise about columns: round trips, order in both directions, one encoding for equal values, prefixes, None."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from enum import Enum, IntEnum, StrEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Literal, NamedTuple
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import AwareDatetime, EmailStr, IPvAnyAddress, NaiveDatetime, SecretStr

from kvmodels.codecs.columns.base import ColumnCodec, descending, nullable
from kvmodels.codecs.columns.registry import column_codec
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.ulid import ULID
from kvmodels.core.values import KeyNumber
from kvmodels.errors import DecodeError, InvalidValueError, ModelDefinitionError


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"
    NONE = ""


class Level(IntEnum):
    LOW = -1
    HIGH = 300


class Day(Enum):
    FIRST = date(2026, 1, 1)
    LAST = date(2026, 12, 31)


def codec(annotation: Any, *metadata: Any) -> ColumnCodec:
    found = column_codec(annotation, metadata)
    assert found is not None
    return found


class Case(NamedTuple):
    """A column type, its values, and the order of the values stated without any encoding."""

    column: ColumnCodec
    values: st.SearchStrategy[Any]
    order: Callable[[Any], Any] = lambda value: value


TEXTS = st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("\0\x01ab\xff")), max_size=6)
BYTES = st.binary(max_size=6)
DECIMALS = st.one_of(
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-1000, max_value=1000),
    st.builds(
        lambda sign, digits, exponent: Decimal((sign, tuple(digits), exponent)),
        st.integers(0, 1),
        st.lists(st.integers(0, 9), max_size=12),
        st.integers(-40, 40),
    ),
    st.sampled_from(
        [Decimal(text) for text in ("0", "-0.00", "0E+9999", "1E+6144", "-1E+6144", "1E-6144", "1.0", "1")]
    ),
)
OFFSETS = st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


def code_points(text: str) -> list[int]:
    return [ord(character) for character in text]


CASES = {
    "bool": Case(codec(bool), st.booleans()),
    "int": Case(codec(int), st.one_of(st.integers(), st.integers(-300, 300))),
    "number": Case(codec(int, KeyNumber()), st.integers(-(2**53) + 1, 2**53 - 1)),
    "float": Case(codec(float), st.one_of(st.floats(allow_nan=False), st.integers(-100, 100))),
    "str": Case(codec(str), TEXTS, code_points),
    "bytes": Case(codec(bytes), BYTES),
    "uuid": Case(codec(UUID), st.uuids()),
    "ulid": Case(codec(ULID), st.integers(0, 2**128 - 1).map(ULID)),
    "date": Case(codec(date), st.dates()),
    "datetime": Case(
        codec(datetime),
        st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.one_of(st.just(UTC), OFFSETS)),
    ),
    "time": Case(codec(time), st.times().map(lambda value: value.replace(fold=0))),
    "timedelta": Case(codec(timedelta), st.timedeltas()),
    "decimal": Case(codec(Decimal), DECIMALS),
    "ip4": Case(codec(IPv4Address), st.ip_addresses(v=4)),
    "ip6": Case(codec(IPv6Address), st.ip_addresses(v=6)),
    "ip": Case(codec(IPvAnyAddress), ADDRESSES, lambda address: (address.version, int(address))),
    "StrEnum": Case(codec(Colour), st.sampled_from(Colour), lambda member: code_points(member.value)),
    "IntEnum": Case(codec(Level), st.sampled_from(Level)),
    "Enum of dates": Case(codec(Day), st.sampled_from(Day), lambda member: member.value),
    "Literal": Case(codec(Literal["b", "a"]), st.sampled_from(["a", "b"])),
}

# -0.0, decimal zeros and offsets are what the key does not keep; pydantic gives an int for a float field never.
LOSSY = {"float", "decimal", "datetime"}

every_column = pytest.mark.parametrize("name", CASES)


def is_one_part(packed: bytes) -> bool:
    return len(decode_key(packed)) == 1 and encode_key(decode_key(packed)) == packed


@every_column
def test_a_column_is_one_part_from_which_an_equal_value_comes_back(name):
    case = CASES[name]

    @given(case.values)
    def check(value):
        for column in (case.column, nullable(case.column), descending(case.column), descending(nullable(case.column))):
            packed = column.pack(value)
            assert is_one_part(packed)
            assert column.unpack(decode_key(packed)[0]) == value
            assert column.name == case.column.name

    check()


@every_column
def test_a_lossless_column_gives_back_the_same_value(name):
    case = CASES[name]
    assert case.column.lossless == (name not in LOSSY)

    @given(case.values)
    def check(value):
        result = case.column.unpack(decode_key(case.column.pack(value))[0])
        assert (type(result), repr(result)) == (type(value), repr(value))

    if case.column.lossless:
        check()


@every_column
def test_packed_values_sort_as_the_values_do_in_both_directions(name):
    case = CASES[name]
    up, down = case.column, descending(case.column)

    @given(case.values, case.values)
    def check(left, right):
        a, b = case.order(left), case.order(right)
        assert (up.pack(left) < up.pack(right)) == (a < b)
        assert (down.pack(left) < down.pack(right)) == (a > b)
        assert (up.pack(left) == up.pack(right)) == (down.pack(left) == down.pack(right)) == (a == b)

    check()


@every_column
def test_the_order_of_a_column_is_kept_when_others_follow_it(name):
    # A value that is the beginning of another must not let the next column decide.
    case = CASES[name]

    @given(case.values, case.values)
    def check(left, right):
        for column, reverse in ((case.column, False), (descending(case.column), True)):
            first, second = case.order(left), case.order(right)
            if first == second:
                continue
            expected = (first > second) if reverse else (first < second)
            for below, above in ((b"\x01\x00", b"\x27"), (b"\x27", b"\x01\x00")):
                assert ((column.pack(left) + below) < (column.pack(right) + above)) == expected

    check()


@every_column
def test_stored_values_come_back_and_pack_to_the_same_bytes(name):
    case = CASES[name]

    @given(case.values)
    def check(value):
        for column in (case.column, nullable(case.column), descending(case.column)):
            stored = column.to_stored(value) if column.to_stored else value
            assert type(stored) in (bool, int, float, str, bytes) or name in {"StrEnum", "IntEnum"}
            again = column.from_stored(stored) if column.from_stored else stored
            assert (type(again), repr(again)) == (type(value), repr(value)) or name == "datetime"
            assert again == value
            assert column.pack_stored(stored) == column.pack(value)

    check()


@every_column
def test_none_is_empty_bytes_first_ascending_and_last_descending(name):
    case = CASES[name]
    up, down = nullable(case.column), descending(nullable(case.column))
    assert up.pack(None) == encode_key((b"",))
    for column in (up, down):
        assert column.unpack(decode_key(column.pack(None))[0]) is None
        assert column.pack_stored(None) == column.pack(None)
        assert column.to_stored is None or column.to_stored(None) is None
        assert column.from_stored is None or column.from_stored(None) is None

    @given(case.values)
    def check(value):
        assert up.pack(None) < up.pack(value)
        assert down.pack(None) > down.pack(value)
        assert up.pack(value) == case.column.pack(value)
        assert down.pack(value) == descending(case.column).pack(value)

    check()


@every_column
def test_a_column_without_none_refuses_none(name):
    for column in (CASES[name].column, descending(CASES[name].column)):
        with pytest.raises(InvalidValueError):
            column.pack(None)


@pytest.mark.parametrize(("name", "values"), [("str", TEXTS), ("bytes", BYTES)])
def test_a_packed_value_begins_with_a_packed_prefix_exactly_if_the_value_does(name, values):
    column = CASES[name].column

    @given(values, values)
    @example("a\0b" if name == "str" else b"a\0b", "a\0" if name == "str" else b"a\0")
    @example("a\0" if name == "str" else b"a\0", "a" if name == "str" else b"a")
    def check(value, prefix):
        for each in (column, nullable(column), descending(column), descending(nullable(column))):
            assert each.pack_prefix is not None
            assert each.pack(value).startswith(each.pack_prefix(prefix)) == value.startswith(prefix)
            assert each.pack(prefix + value).startswith(each.pack_prefix(prefix))
        for each in (nullable(column), descending(nullable(column))):
            assert each.pack_prefix is not None
            assert not each.pack(None).startswith(each.pack_prefix(prefix))

    check()


@every_column
def test_only_text_and_bytes_have_prefixes(name):
    has_prefix = CASES[name].column.pack_prefix is not None
    assert has_prefix == (name in {"str", "bytes", "StrEnum", "Literal"})


# -- equal values


EQUAL = [
    (float, 0.0, -0.0),
    (float, 1.0, 1),
    (float, 2.0**60, 2**60),
    (Decimal, Decimal("1.0"), Decimal("1.00")),
    (Decimal, Decimal("100"), Decimal("1E+2")),
    (Decimal, Decimal("0"), Decimal("-0E-7")),
    (Decimal, Decimal((0, (0, 0, 1), 0)), Decimal(1)),
    (Decimal, Decimal(10**150), Decimal("1E+150")),
    (datetime, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))),
    (time, time(1, 2), time(1, 2, fold=1)),
    (UUID, UUID("A" * 32), UUID("a" * 32)),
    (ULID, ULID("01arz3ndektsv4rrffq69g5fav"), ULID("01ARZ3NDEKTSV4RRFFQ69G5FAV")),
    (IPv6Address, IPv6Address("::1"), IPv6Address("0:0:0:0:0:0:0:1")),
    (bytes, b"a", bytearray(b"a")),
    (str, "red", Colour.RED),
    (int, 300, Level.HIGH),
    (Colour, Colour.RED, "red"),
]


@pytest.mark.parametrize(("annotation", "left", "right"), EQUAL, ids=[f"{a.__name__}-{b!r}" for a, _, b in EQUAL])
def test_equal_values_have_one_encoding(annotation, left, right):
    assert left == right
    assert codec(annotation).pack(left) == codec(annotation).pack(right)


@given(DECIMALS, st.integers(1, 5))
def test_decimals_do_not_depend_on_the_precision_of_the_context(value, precision):
    expected = codec(Decimal).pack(value)
    with localcontext() as context:
        context.prec = precision
        assert codec(Decimal).pack(value) == expected
        assert codec(Decimal).unpack(decode_key(expected)[0]) == value


def test_a_decimal_of_a_hundred_digits_keeps_them_all():
    value = Decimal("1." + "1234567890" * 9 + "123456789")
    assert len(value.as_tuple().digits) == 100
    assert codec(Decimal).unpack(decode_key(codec(Decimal).pack(value))[0]) == value
    assert codec(Decimal).pack(value) < codec(Decimal).pack(value + Decimal("1E-98"))


def test_text_is_never_confused_by_the_year():
    years = [date(1, 1, 1), date(99, 12, 31), date(999, 1, 1), date(1000, 1, 1), date(9999, 12, 31)]
    packed = [codec(date).pack(day) for day in years]
    assert packed == sorted(packed)


# -- refusals

NAIVE = datetime(2026, 1, 1)
REFUSED = [
    (bool, [1, 0, "true", 1.0]),
    (int, [True, 1.0, "1", 2**2040, -(2**2040), Decimal(1)]),
    (float, [True, "1.0", math.nan, -math.nan, 2**53 + 1, 10**400, -(10**400), Decimal(1)]),
    (str, [b"a", 1, "\ud800", "a\udfff", ULID(0)]),
    (bytes, ["a", 1, [1]]),
    (UUID, [str(UUID(int=1)), 1, ULID(0)]),
    (ULID, [str(ULID(0)), 1, UUID(int=1)]),
    (date, [NAIVE, datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01", 1]),
    (datetime, [NAIVE, date(2026, 1, 1), "2026-01-01T00:00:00+00:00", 1]),
    (time, [time(1, tzinfo=UTC), "01:00", 1]),
    (timedelta, [1, 1.0, "1"]),
    (Decimal, [1, 1.0, "1", Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"), Decimal("1E+6145")]),
    (IPv4Address, ["10.0.0.1", IPv6Address("::1"), 1]),
    (IPv6Address, ["::1", IPv4Address("10.0.0.1"), IPv6Address("fe80::1%eth0")]),
    (IPvAnyAddress, ["::1", IPv6Address("fe80::1%eth0")]),
    (Colour, ["green", 1, Level.LOW, []]),
    (Literal["a"], [1, b"a"]),
]
CASES_REFUSED = [(annotation, value) for annotation, values in REFUSED for value in values]


@pytest.mark.parametrize(("annotation", "value"), CASES_REFUSED, ids=[f"{a}-{str(v)[:20]!r}" for a, v in CASES_REFUSED])
def test_what_a_column_cannot_hold_is_refused(annotation, value):
    for column in (codec(annotation), nullable(codec(annotation)), descending(codec(annotation))):
        with pytest.raises(InvalidValueError) as caught:
            column.pack(value)
        assert caught.value.hint


@pytest.mark.parametrize(
    "value",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(9999, 12, 31, 23, 59, tzinfo=timezone(timedelta(hours=-1))),
    ],
)
def test_a_datetime_without_an_equal_in_utc_is_refused(value):
    with pytest.raises(InvalidValueError, match="UTC"):
        codec(datetime).pack(value)


@pytest.mark.parametrize("text", ["1E+6145", "-1E-6145", "1" * 101, "1." + "0" * 99 + "1", "1E+999999999"])
def test_a_decimal_out_of_range_is_refused(text):
    with pytest.raises(InvalidValueError, match="too many digits"):
        codec(Decimal).pack(Decimal(text))


@pytest.mark.parametrize("value", [2**53, -(2**53), True, 1.0])
def test_a_key_number_is_an_int_that_a_float_holds(value):
    with pytest.raises(InvalidValueError):
        codec(int, KeyNumber()).pack(value)


def test_a_naive_datetime_can_be_stored_but_not_be_a_column():
    column = codec(datetime)
    assert column.to_stored is not None
    assert column.from_stored is not None
    assert column.from_stored(column.to_stored(NAIVE)) == NAIVE
    with pytest.raises(InvalidValueError, match="naive"):
        column.pack_stored(column.to_stored(NAIVE))


@given(st.datetimes(timezones=OFFSETS))
def test_a_stored_datetime_keeps_its_offset(value):
    column = codec(datetime)
    assert column.to_stored is not None
    assert column.from_stored is not None
    again = column.from_stored(column.to_stored(value))
    assert (again, again.utcoffset()) == (value, value.utcoffset())


def test_an_offset_of_a_fraction_of_a_second_is_refused_because_python_does_not_read_it_back():
    value = datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1)))
    to_stored = codec(datetime).to_stored
    assert to_stored is not None
    with pytest.raises(InvalidValueError, match="offset"):
        to_stored(value)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (UUID, "x"),
        (ULID, 1),
        (date, NAIVE),
        (datetime, "x"),
        (time, 1),
        (timedelta, 1),
        (Decimal, 1),
        (Colour, "green"),
        (IPv4Address, "10.0.0.1"),
    ],
)
def test_storing_a_value_of_another_type_is_refused(annotation, value):
    to_stored = codec(annotation).to_stored
    assert to_stored is not None
    with pytest.raises(InvalidValueError):
        to_stored(value)


# -- damaged keys and documents


@pytest.mark.parametrize(
    ("annotation", "part"),
    [
        (bool, 1),
        (int, 1.0),
        (int, True),
        (float, 1),
        (str, b"a"),
        (bytes, b""),
        (bytes, b"\x02"),
        (bytes, "a"),
        (UUID, "nonsense"),
        (UUID, "{" + str(UUID(int=1)) + "}"),
        (UUID, 1),
        (ULID, "nonsense"),
        (date, "2026-13-01"),
        (date, 5),
        (datetime, "2026-01-01"),
        (datetime, "2026-01-01T00:00:00+01:00"),
        (time, "25:00"),
        (timedelta, "1"),
        (timedelta, 10**30),
        (Decimal, "1"),
        (Decimal, b""),
        (Decimal, b"\x04"),
        (Decimal, b"\x03\x20"),
        (Decimal, b"\x03\x20\x00\x00"),
        (Decimal, b"\x03\x20\x00\x65"),
        (Decimal, b"\x01\x20\x00"),
        (Decimal, b"\x02\x00"),
        (IPv4Address, b"\x06" + bytes(16)),
        (IPv4Address, b"\x04abc"),
        (IPv6Address, b"\x04abcd"),
        (IPvAnyAddress, "::1"),
        (Colour, "green"),
    ],
)
def test_a_part_of_another_column_is_a_decode_error(annotation, part):
    with pytest.raises(DecodeError) as caught:
        codec(annotation).unpack(part)
    assert caught.value.reason


@pytest.mark.parametrize("part", ["a", b"", b"\x00", b"\xff", b"\xfd\x9e\xff", b"\xd8\xd8\xff", b"\x00\xff"])
def test_a_part_that_is_not_descending_is_a_decode_error(part):
    with pytest.raises(DecodeError):
        descending(codec(str)).unpack(part)


def test_key_numbers_are_integral():
    for part in (1.5, math.inf, math.nan, 1):
        with pytest.raises(DecodeError):
            codec(int, KeyNumber()).unpack(part)


@pytest.mark.parametrize(
    ("annotation", "stored"),
    [
        (UUID, 1),
        (ULID, "x"),
        (date, "x"),
        (datetime, b""),
        (time, "x"),
        (timedelta, "1"),
        (Decimal, "x"),
        (Colour, "x"),
        (IPv4Address, "::1"),
        (IPv6Address, 1),
    ],
)
def test_a_stored_value_of_another_column_is_a_decode_error(annotation, stored):
    from_stored = codec(annotation).from_stored
    assert from_stored is not None
    with pytest.raises(DecodeError):
        from_stored(stored)


# -- which types are columns


class Mixed(Enum):
    A = 1
    B = "b"


class Pairs(Enum):
    A = (1, 2)


class Empty(Enum):
    pass


@pytest.mark.parametrize(
    ("annotation", "name"),
    [
        (EmailStr, "str"),
        (AwareDatetime, "datetime"),
        (IPvAnyAddress, "ip"),
        (IPv4Address | IPv6Address, "ip"),
        (Colour, "str"),
        (Level, "int"),
        (Day, "date"),
        (Literal[1, 2], "int"),
        (Literal[True], "bool"),
        (Literal[Colour.RED], "str"),
        (Literal[b"a", None], "bytes"),  # noqa: PYI061 - the form that is to be recognised
    ],
)
def test_a_type_has_the_codec_of_its_values(annotation, name):
    assert codec(annotation).name == name


@pytest.mark.parametrize(
    "annotation",
    [
        list,
        dict,
        list[str],
        tuple,
        complex,
        object,
        None,
        SecretStr,
        NaiveDatetime,
        int | str,
        Pairs,
        Empty,
        Literal[None],  # noqa: PYI061 - the form that is to be recognised
        {},
        "str",
        Case,
    ],
)
def test_a_type_outside_the_list_is_no_column(annotation):
    assert column_codec(annotation) is None


@pytest.mark.parametrize("annotation", [Mixed, Literal["a", 1], Literal[1, True], Literal[Colour.RED, "x"]])
def test_values_of_different_types_have_no_common_order(annotation):
    with pytest.raises(ModelDefinitionError, match="one type"):
        column_codec(annotation)


@pytest.mark.parametrize("annotation", [str, bool, float, Level, list])
@pytest.mark.parametrize("mark", [KeyNumber, KeyNumber()])
def test_key_number_marks_an_int_field(annotation, mark):
    assert codec(int, mark).name == "number"
    with pytest.raises(ModelDefinitionError, match="KeyNumber"):
        column_codec(annotation, [mark])


def test_other_metadata_changes_nothing():
    assert column_codec(int, ["x", 1, object()]) is column_codec(int)


def test_addresses_of_both_versions_share_a_column():
    column = codec(IPvAnyAddress)
    for text in ("10.0.0.1", "::1"):
        assert column.unpack(decode_key(column.pack(ip_address(text)))[0]) == ip_address(text)
    assert column.pack(IPv4Address("255.255.255.255")) < column.pack(IPv6Address("::"))
