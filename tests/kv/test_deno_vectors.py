"""The operations recorded from the real Deno, carried out here: results, order, versionstamps and errors."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kvmodels.errors import KvModelsError
from kvmodels.kv import open_kv
from kvmodels.limits import Limits
from kvmodels.values import UNDEFINED, KvU64

VECTORS = Path(__file__).parents[1] / "data" / "deno_ops.json"
SEQUENCES = json.loads(VECTORS.read_text())["sequences"]

# What Deno refuses or keeps in another way than design decides, or what belongs to a later part of the API.
NO_TWIN = {
    "bad-mutations": "mutate() with a wrong type or without a value cannot be written down in this API",
    "commit-versionstamp-key": "keys that end with the versionstamp of the commit",
    "sum-number": "sums of numbers",
    "sum-bigint": "sums of big integers",
    "cursor-before-iteration": "cursors",
    "bad-cursors": "cursors",
}


def number(text):
    return struct.unpack(">d", bytes.fromhex(text))[0]


def key_part(part):
    kind = part["t"]
    if kind == "number":
        return number(part["hex"])
    if kind == "bigint":
        return int(part["v"])
    return bytes.fromhex(part["hex"]) if kind == "bytes" else part["v"]


def key_of(parts):
    return tuple(key_part(part) for part in parts)


def value_of(value):
    """A recorded value in Python: a number is a float, a bigint an int, an object or Map a dict."""
    kind = value["t"]
    if kind == "number":
        return number(value["hex"])
    if kind in {"bigint", "u64"}:
        return KvU64(int(value["v"])) if kind == "u64" else int(value["v"])
    if kind == "bytes":
        return bytes.fromhex(value["fill"]) * value["len"] if "fill" in value else bytes.fromhex(value["hex"])
    if kind == "string":
        return value["repeat"] * value["count"] + value["suffix"] if "repeat" in value else value["v"]
    if kind in {"object", "map"}:
        return {value_of(name): value_of(item) for name, item in value["v"]}
    if kind == "array":
        return [value_of(item) for item in value["v"]]
    if kind == "set":
        return {value_of(item) for item in value["v"]}
    if kind == "date":
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=number(value["ms_hex"]))
    return {"null": None, "undefined": UNDEFINED}[kind] if kind != "bool" else value["v"]


def alike(left, right):
    """Equality that tells 1 from 1.0 and True, and -0.0 from 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(alike, left, right))
    if isinstance(left, dict):
        return len(left) == len(right) and all(
            alike(a, b) and alike(left[a], right[b]) for a, b in zip(left, right, strict=True)
        )
    return left == right


class Replay:
    """Carries out one recorded sequence and compares every answer."""

    def __init__(self, kv):
        self.kv = kv
        self.stamps = {}

    def step(self, step):
        expected = step["result"]
        if "error" in expected:
            with pytest.raises(KvModelsError) as caught:
                self.perform(step)
            assert isinstance(caught.value, TypeError | ValueError), caught.value
            return
        self.compare(expected, self.perform(step))

    def perform(self, step):
        kv, op = self.kv, step["op"]
        if op == "get":
            return kv.get(key_of(step["key"]))
        if op == "getMany":
            return kv.get_many([key_of(key) for key in step["keys"]])
        if op == "set":
            return kv.set(key_of(step["key"]), value_of(step["value"]))
        if op == "delete":
            return kv.delete(key_of(step["key"]))
        if op == "list":
            selector = {name: key_of(key) for name, key in step["selector"].items()}
            options = {name: step["options"][name] for name in ("limit", "reverse") if name in step["options"]}
            entries = list(kv.list(**selector, **options))
            return entries[: step["take"]] if "take" in step else entries
        operation = kv.atomic()
        for action in step["actions"]:
            self.add(operation, action)
        return operation.commit()

    def add(self, operation, action):
        kind, key = action.get("type", action["a"]), key_of(action["key"])
        if kind == "check":
            operation.check(key, self.stamps.get(action["vs"], action["vs"]))
        elif kind == "delete":
            operation.delete(key)
        elif kind == "set":
            operation.set(key, value_of(action["value"]))
        else:
            operand = value_of(action["value"]) if "value" in action else plain(action["n"])
            getattr(operation, kind)(key, operand)

    def compare(self, expected, got):
        if "entry" in expected:
            self.compare_entry(expected["entry"], got)
        elif "entries" in expected:
            assert len(got) == len(expected["entries"])
            for one, other in zip(expected["entries"], got, strict=True):
                self.compare_entry(one, other)
        elif "deleted" in expected:
            assert got is None
        else:
            assert got.ok is expected["ok"]
            self.compare_stamp(expected.get("vs"), got.versionstamp)

    def compare_entry(self, expected, got):
        assert alike(got.key, key_of(expected["key"])), (got.key, expected["key"])
        self.compare_stamp(expected["vs"], got.versionstamp)
        if expected["vs"] is not None:
            assert alike(got.value, value_of(expected["value"])), (got, expected)

    def compare_stamp(self, label, got):
        if label is None:
            assert got is None
            return
        known = self.stamps.setdefault(label, got)
        assert known == got
        ranks = sorted(self.stamps, key=lambda name: int(name[1:]))
        assert [self.stamps[name] for name in ranks] == sorted(self.stamps.values())


def plain(operand):
    """The operand of sum, min and max as the recorded call wrote it."""
    return value_of(operand) if isinstance(operand, dict) else int(operand)


def expressible(step):
    """Whether this API has the words for a step: cursors, and sums of other numbers than KvU64, come later."""
    if step["op"] == "list":
        return not step["options"].get("cursor") and "cursor" not in json.dumps(step["result"].get("error", ""))
    if step["op"] == "atomic":
        return all(
            action["a"] != "mutate" or action["type"] in {"set", "delete"} or action["value"]["t"] == "u64"
            for action in step["actions"]
        )
    return True


def replayable(sequence):
    """The steps that can be carried out: those without a word are left out, and end the sequence if they wrote."""
    steps = []
    for step in sequence["steps"]:
        if expressible(step):
            steps.append(step)
        elif step["result"].get("ok"):
            break
    return steps


REPLAYED = {
    sequence["id"]: steps for sequence in SEQUENCES if sequence["id"] not in NO_TWIN and (steps := replayable(sequence))
}


@pytest.mark.parametrize("name", REPLAYED)
def test_a_sequence_recorded_from_deno_has_the_same_results_here(name):
    with open_kv(limits=Limits.DENO) as kv:
        machine = Replay(kv)
        for step in REPLAYED[name]:
            machine.step(step)


def test_most_of_what_was_recorded_is_replayed():
    recorded = sum(len(sequence["steps"]) for sequence in SEQUENCES)
    replayed = sum(len(steps) for steps in REPLAYED.values())
    print(f"{replayed} of {recorded} recorded steps in {len(REPLAYED)} of {len(SEQUENCES)} sequences")
    assert len(SEQUENCES) == 182
    assert replayed > 0.75 * recorded
