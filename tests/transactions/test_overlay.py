"""The overlay of a transaction against a dictionary: rows, ranges, limits, both directions, counters, deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from kvmodels.core.operations import (
    Apply,
    Arithmetic,
    AtomicWrite,
    Delete,
    Mutation,
    ReadRange,
    ReadResult,
    Row,
    Set,
    point,
)
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.transaction.pending_writes import Layer, Overlay, folded

NOW = 1_000
U64 = 2
MODULUS = 1 << 64
ENTRIES = [b"e%d" % n for n in range(6)]
COUNTERS = [b"c%d" % n for n in range(3)]
RAW = [b"r%d" % n for n in range(4)]
OWNERS = [b"o%d" % n for n in range(3)]
BASE, OURS = b"base", b"ours"


def u64(number: int) -> bytes:
    return (number % MODULUS).to_bytes(8, "little")


deadlines = st.sampled_from([None, None, NOW - 1, NOW, NOW + 1])
entries = st.sampled_from(ENTRIES)
rows = st.builds(
    lambda key, n, expire_at: Row(key, b"v%d" % n, 3, OURS, expire_at), entries, st.integers(0, 9), deadlines
)
layers = st.builds(
    lambda hidden, found, sums: Layer(hidden, {row.key: row for row in found}, sums),
    st.frozensets(entries, max_size=4),
    st.lists(rows, max_size=4),
    st.dictionaries(st.sampled_from(COUNTERS), st.integers(-3, 3), max_size=2),
)
puts = st.tuples(st.sampled_from(OWNERS), layers)


def doubled(stored: tuple[bytes, int] | None) -> tuple[bytes, int]:
    number = 1 if stored is None else int.from_bytes(stored[0], "little")
    return u64(2 * number), U64


raw_keys = st.sampled_from(RAW)
numbers = st.integers(0, 5)
raw_writes: st.SearchStrategy[Mutation] = st.one_of(
    st.builds(lambda key, n, expire_at: Set(key, u64(n), U64, expire_at), raw_keys, numbers, deadlines),
    st.builds(Delete, raw_keys),
    st.builds(Arithmetic, st.sampled_from(["sum", "min", "max"]), raw_keys, numbers, deadlines, st.booleans()),
    st.builds(lambda key, *deadline: Apply(key, doubled, 8, *deadline), raw_keys, deadlines, st.booleans()),
)


def engine_at_now() -> MemoryEngine:
    return MemoryEngine(clock=lambda: NOW)


def stored_raw(base: dict[bytes, Row]) -> AtomicWrite:
    """Return the write that stores the raw rows of a snapshot."""
    return AtomicWrite(mutations=tuple(Set(*row[:3], row.expire_at) for row in base.values() if row.key in RAW))


def raw_rows(engine: MemoryEngine) -> list[Row]:
    found = engine.read([ReadRange(b"r", b"s")], include_expired=True)
    assert isinstance(found, ReadResult)
    return found.ranges[0]


@dataclass
class Model:
    """Return the expected rows, computed from the beginning each time."""

    base: dict[bytes, Row]
    puts: list[tuple[bytes, Layer]] = field(default_factory=list)
    engine: MemoryEngine = field(default_factory=engine_at_now)

    def rows(self) -> dict[bytes, tuple[bytes, int, int | None]]:
        found = {key: (row.value, row.encoding, row.expire_at) for key, row in self.base.items() if key not in RAW}
        last = dict(self.puts)
        order = sorted(last, key=lambda owner: max(at for at, (who, _) in enumerate(self.puts) if who == owner))
        for owner in order:
            for key in last[owner].hidden:
                found.pop(key, None)
        for owner in order:
            found.update({key: (row.value, row.encoding, row.expire_at) for key, row in last[owner].rows.items()})
        for key in COUNTERS:
            total = sum(layer.sums.get(key, 0) for layer in last.values())
            if total:
                before = int.from_bytes(found[key][0], "little") if key in found else 0
                found[key] = (u64(before + total), U64, None)
        found.update({row.key: (row.value, row.encoding, row.expire_at) for row in raw_rows(self.engine)})
        return found

    def range(self, wanted: ReadRange, now_ms: int | None) -> list[tuple[bytes, bytes, int, int | None]]:
        end = wanted.start + b"\x00" if wanted.end is None else wanted.end
        found = [
            (key, *row)
            for key, row in sorted(self.rows().items(), reverse=wanted.reverse)
            if wanted.start <= key < end and (now_ms is None or row[2] is None or row[2] > now_ms)
        ]
        return found if wanted.end is None else found[: wanted.limit]


bases = st.builds(
    lambda found, counters, raw: {
        **{row.key: row._replace(versionstamp=BASE) for row in found},
        **{key: Row(key, u64(n), U64, BASE, None) for key, n in counters.items()},
        **{key: Row(key, u64(n), U64, BASE, expire_at) for key, (n, expire_at) in raw.items()},
    },
    st.lists(rows, max_size=6),
    st.dictionaries(st.sampled_from(COUNTERS), numbers, max_size=3),
    st.dictionaries(raw_keys, st.tuples(numbers, st.sampled_from([None, NOW + 2])), max_size=3),
)
bounds = st.sampled_from([b"a", *ENTRIES, *COUNTERS, *RAW, b"z"])
ranges = st.builds(
    lambda one, other, limit, reverse: ReadRange(min(one, other), max(one, other), limit, reverse),
    bounds,
    bounds,
    st.none() | st.integers(1, 4),
    st.booleans(),
)
everything = st.builds(point, st.sampled_from([*ENTRIES, *COUNTERS, *RAW])) | ranges


def stored_range(base: dict[bytes, Row], wanted: ReadRange, now_ms: int | None) -> list[Row]:
    """Return the answer of a snapshot."""
    end = wanted.start + b"\x00" if wanted.end is None else wanted.end
    found = [
        row
        for key, row in sorted(base.items(), reverse=wanted.reverse)
        if wanted.start <= key < end and (now_ms is None or row.expire_at is None or row.expire_at > now_ms)
    ]
    return found[: wanted.limit]


@given(bases, st.lists(puts | raw_writes, max_size=8), st.lists(everything, min_size=1, max_size=4), st.booleans())
def test_ranges_and_rows_are_those_of_a_dictionary(base, writes, wanted, expired):
    overlay, model = Overlay(OURS), Model(base)
    model.engine.commit(stored_raw(base))
    for write in writes:
        if isinstance(write, Set | Delete | Arithmetic | Apply):
            overlay.write(write, OURS, NOW)
            model.engine.commit(AtomicWrite(mutations=(write,)))
        else:
            overlay.put(*write)
            model.puts.append(write)
    now_ms = None if expired else NOW
    for one in wanted:
        found = overlay.merged(one, stored_range(base, overlay.widened(one), now_ms), now_ms)
        shown = [(row.key, row.value, row.encoding, row.expire_at) for row in found]
        assert shown == model.range(one, now_ms)


@given(bases, st.lists(raw_writes, max_size=6))
def test_several_writes_of_a_key_are_one_mutation_with_the_same_effect(base, writes):
    one_by_one, at_once, overlay = engine_at_now(), engine_at_now(), Overlay(OURS)
    for engine in (one_by_one, at_once):
        engine.commit(stored_raw(base))
    for write in writes:
        one_by_one.commit(AtomicWrite(mutations=(write,)))
        overlay.write(write, OURS, NOW)
    mutations = tuple(overlay.mutations())
    assert len({mutation.key for mutation in mutations}) == len(mutations)
    at_once.commit(AtomicWrite(mutations=mutations))
    one, other = (
        [(row.key, row.value, row.encoding, row.expire_at) for row in raw_rows(engine) if not has_expired(row)]
        for engine in (one_by_one, at_once)
    )
    assert one == other


def has_expired(row: Row) -> bool:
    return row.expire_at is not None and row.expire_at <= NOW


@given(bases, st.lists(puts, max_size=6))
def test_an_overlay_whose_layers_are_all_empty_again_is_no_overlay(base, writes):
    overlay = Overlay(OURS)
    for write in writes:
        overlay.put(*write)
    for owner in OWNERS:
        overlay.put(owner, Layer())
    assert not overlay
    wanted = ReadRange(b"a", b"z", 3)
    assert overlay.widened(wanted) == wanted
    assert overlay.merged(wanted, stored_range(base, wanted, None)) == stored_range(base, wanted, None)


def test_the_later_of_two_claims_is_seen_and_the_earlier_one_again_when_it_is_given_up():
    overlay = Overlay(OURS)
    slot = Row(b"slot", b"one", 3, OURS, None)
    overlay.put(b"one", Layer(rows={b"slot": slot}))
    overlay.put(b"two", Layer(rows={b"slot": slot._replace(value=b"two")}))
    assert overlay.row(b"slot", None) == slot._replace(value=b"two")
    overlay.put(b"two", Layer())
    assert overlay.row(b"slot", None) == slot
    overlay.put(b"one", Layer())
    assert overlay.row(b"slot", None) is None


def test_sums_stay_sums_until_the_key_is_set():
    assert folded(Arithmetic("sum", b"k", MODULUS - 1), Arithmetic("sum", b"k", 3), NOW) == Arithmetic("sum", b"k", 2)
    assert folded(Arithmetic("min", b"k", 4), Arithmetic("min", b"k", 3), NOW) == Arithmetic("min", b"k", 3)
    assert folded(Set(b"k", u64(4), U64), Arithmetic("max", b"k", 9), NOW) == Set(b"k", u64(9), U64)
    assert isinstance(folded(Arithmetic("sum", b"k", 1), Arithmetic("max", b"k", 9), NOW), Apply)
