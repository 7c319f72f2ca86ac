"""Every interleaving of the protocol of blobs, with stops, late commits and repeated ones; and its mutants."""

from __future__ import annotations

from typing import Any

import pytest

from tests.blobs.protocol import PARTS, Scene, attach, copier, explore, sweep, writer


def new(key: str, id_: str, **others: Any) -> dict[str, Any]:
    """Return the first variables of a process that uploads a blob into a record."""
    return {"at": "ready", "id": id_, "key": key, "n": 0, **others}


def stored(key: str, id_: str) -> dict[tuple[Any, ...], Any]:
    """Return the rows of a record with a blob."""
    return {("record", key): id_, **{("chunk", id_, n): n for n in range(PARTS)}}


SWEEP = (sweep, {"at": "look"})
REMOVE: dict[str, Any] = {"at": "ready", "id": None, "key": "r"}

SCENES = {
    "upload": Scene(((writer, new("r", "a")), SWEEP), {}, ticks=2),
    "upload beside two sweeps": Scene(((writer, new("r", "a")), SWEEP, SWEEP), {}, ticks=1),
    "two uploads of one key": Scene(((writer, new("r", "a")), (writer, new("r", "b"))), {}, ticks=1, late=0),
    "replace": Scene(((writer, new("r", "b")), SWEEP), stored("r", "a"), ticks=2),
    "replace beside removal": Scene(((writer, new("r", "b")), (attach, REMOVE)), stored("r", "a"), ticks=1),
    "copy beside removal": Scene(
        ((copier, new("s", "b", source="r") | {"at": "begin"}), (attach, REMOVE), SWEEP),
        stored("r", "a"),
        ticks=1,
        late=0,
    ),
    "removal and restore": Scene(
        ((attach, REMOVE | {"history": 1}), (attach, REMOVE | {"id": "a", "restores": 1}), SWEEP),
        stored("r", "a"),
        ticks=4,
    ),
}

MUTANTS = {
    "chunks without the check of the loose row": "upload",
    "no check at the attachment": "upload",
    "an incomplete upload is attached": "upload",
    "repeatable first batch": "upload",
    "sweep without its check": "upload",
    "chunks removed without a check": "upload beside two sweeps",
    "a copy that takes over the id": "copy beside removal",
    "removal with history without a loose row": "removal and restore",
    "removal with history without its deadline": "removal and restore",
}


@pytest.mark.parametrize("name", SCENES)
def test_no_interleaving_breaks_a_stored_blob_or_leaves_a_chunk(name: str) -> None:
    broken, states = explore(SCENES[name])
    assert broken is None
    assert states > 50


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_model_convicts_each_mutant(mutant: str) -> None:
    broken, _ = explore(SCENES[MUTANTS[mutant]], frozenset({mutant}))
    assert broken is not None
