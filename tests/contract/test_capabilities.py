"""An engine has the capabilities that it declares, and no others are used."""

from __future__ import annotations

import pytest

from kvmodels.core.operations import AtomicWrite, Set, point
from kvmodels.engines.contract import ImmediateReads, WriteCalls
from kvmodels.errors import UnsupportedError


def test_the_capabilities_are_one_frozen_value(engine):
    assert engine.capabilities is engine.capabilities
    with pytest.raises(AttributeError):
        engine.capabilities.traits = None


def test_snapshots_and_follow_up_reads_come_together(engine):
    if engine.capabilities.traits.snapshots:
        with engine.snapshot() as state:
            assert state.read([point(b"k")], follow=lambda _: [point(b"l")]).followed == [[]]
    else:
        with pytest.raises(UnsupportedError):
            engine.snapshot()


def test_a_declared_point_reader_gives_the_row_that_a_read_gives(engine):
    engine.commit(AtomicWrite((), (Set(b"k", b"v", 3),)))
    row_at_key = engine.capabilities.immediate.row
    if row_at_key is not None:
        assert row_at_key(b"k", None, None)[1] == engine.read([point(b"k")]).ranges[0][0].value
        assert row_at_key(b"nothing", None, None) == ()


def test_a_declared_turn_reader_gives_the_rows_that_a_read_gives_or_leaves_them_to_it(engine):
    engine.commit(AtomicWrite((), (Set(b"k", b"v", 3),)))
    turn_reader = engine.capabilities.immediate.turn_reader
    if turn_reader is not None:
        reader = turn_reader()
        found = [reader.rows(b"k") for _ in range(9)]
        reader.close()
        assert all(rows is None or rows == engine.read([point(b"k")]).ranges[0] for rows in found)


def test_an_engine_whose_answers_can_be_lost_offers_no_call_past_them(engine):
    capabilities = engine.capabilities
    if capabilities.traits.may_lose_answers:
        assert (capabilities.immediate, capabilities.writes) == (ImmediateReads(), WriteCalls())
