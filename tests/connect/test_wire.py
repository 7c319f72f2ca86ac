"""The messages of KV Connect against the ``protobuf`` package; hostile bytes give one error."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, cast, get_args, get_type_hints

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kvmodels.engines.connect.wire import decoding, encoding, frames, messages, metadata
from kvmodels.engines.connect.wire.errors import WireError
from kvmodels.engines.connect.wire.fields import MAX_FIELDS, bytes_field, message_field
from tests.connect.protobuf_schema import message_classes

# Of each message of a request or an answer: our class, encoder, decoder.
TOP_LEVEL: dict[str, tuple[Any, Any, Any]] = {
    "SnapshotRead": (messages.SnapshotRead, encoding.encode_snapshot_read, decoding.decode_snapshot_read),
    "SnapshotReadOutput": (
        messages.SnapshotReadOutput,
        encoding.encode_snapshot_read_output,
        decoding.decode_snapshot_read_output,
    ),
    "AtomicWrite": (messages.AtomicWriteMessage, encoding.encode_atomic_write, decoding.decode_atomic_write),
    "AtomicWriteOutput": (
        messages.AtomicWriteOutput,
        encoding.encode_atomic_write_output,
        decoding.decode_atomic_write_output,
    ),
    "Watch": (messages.WatchMessage, encoding.encode_watch, decoding.decode_watch),
    "WatchOutput": (messages.WatchOutput, encoding.encode_watch_output, decoding.decode_watch_output),
}
REFERENCE = message_classes()

FEWER = settings(max_examples=settings().max_examples // 3)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)
WIDE = {"expire_at_ms", "deadline_ms"}
UNSIGNED = {"failed_checks", "backoff_schedule"}


def values_of(kind: Any, name: str) -> st.SearchStrategy[Any]:
    """Values for a field of our dataclasses, at and between the bounds of its type."""
    if is_dataclass(kind):
        return st.builds(
            cast("type[Any]", kind), **{one: values_of(hint, one) for one, hint in get_type_hints(kind).items()}
        )
    if kind is bytes:
        return st.binary(max_size=3) | st.just(bytes(200))
    if kind is bool:
        return st.booleans()
    if kind is int:
        return INT64 if name in WIDE else UINT32 if name in UNSIGNED else INT32
    inner, *rest = get_args(kind)
    if type(None) in rest:
        return st.none() | values_of(inner, name)
    return st.lists(values_of(inner, name), max_size=3).map(tuple)


def filled(target: Any, ours: Any) -> Any:
    """A message of the reference with the fields of ours."""
    for field in fields(ours):
        value = getattr(ours, field.name)
        if isinstance(ours, messages.WatchMessage):
            for key in value:
                target.keys.add(key=key)
        elif isinstance(value, tuple):
            for one in value:
                if is_dataclass(one):
                    filled(getattr(target, field.name).add(), one)
                else:
                    getattr(target, field.name).append(one)
        elif is_dataclass(value):
            part = getattr(target, field.name)
            part.SetInParent()
            filled(part, value)
        elif value is not None:
            setattr(target, field.name, value)
    return target


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_messages_are_the_bytes_that_protobuf_writes_and_are_read_back(name):
    kind, encode, decode = TOP_LEVEL[name]

    @FEWER
    @given(values_of(kind, ""))
    def check(ours):
        written = encode(ours)
        assert written == filled(REFERENCE[name](), ours).SerializeToString(deterministic=True)
        assert decode(written) == ours

    check()


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """Bytes near a message: pieces of several messages with bytes changed, put in or left out, or anything."""
    kind, encode, _ = TOP_LEVEL[name]
    pieces = draw(st.lists(values_of(kind, "").map(encode) | st.binary(max_size=12), max_size=3))
    data = bytearray(b"".join(pieces))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data[at : at + draw(st.integers(0, 2))] = draw(st.binary(max_size=2))
    return bytes(data)


@pytest.mark.parametrize("name", TOP_LEVEL)
def test_any_bytes_are_read_or_refused_as_by_protobuf(name):
    _, _, decode = TOP_LEVEL[name]

    @FEWER
    @given(damaged(name) | st.binary(max_size=60))
    @example(b"\x0b\x0c")  # a group without content
    @example(b"\x0b" * 101 + b"\x0c" * 101)  # groups inside groups
    @example(b"\x08" + b"\xff" * 9 + b"\x7f")  # an integer of more than 64 bits
    @example(b"\x88\x80\x80\x80\x80\x00\x01")  # a tag of six bytes
    @example(b"\x12\x04\x08\x01\x12\x00\x12\x02\x08\x00")
    def check(data):
        try:
            expected = REFERENCE[name].FromString(data)
        except DecodeError:
            expected = None
        try:
            found = decode(data)
        except WireError:
            found = None
        assert (found is None) == (expected is None)
        if found is not None:
            assert filled(REFERENCE[name](), found) == without_unknown_fields(expected)

    check()


def without_unknown_fields(message: Any) -> Any:
    message.DiscardUnknownFields()
    return message


@pytest.mark.parametrize(
    "data",
    [
        message_field(1, b"") * (MAX_FIELDS + 1),
        message_field(3, bytes_field(4, b"\x01" * (MAX_FIELDS + 1))),
        b"\x12\xff\xff\xff\xff\x0f",
        b"\x0b" * 100_000,
    ],
)
def test_messages_that_would_take_much_memory_are_refused(data):
    with pytest.raises(WireError):
        decoding.decode_atomic_write(data)


@given(st.lists(st.binary(max_size=30), max_size=6), st.integers(1, 7))
def test_frames_arrive_whole_however_the_stream_is_cut(payloads, size):
    stream = b"".join(map(frames.encode_frame, payloads))
    reader = frames.FrameReader()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [one for piece in pieces for one in reader.feed(piece)] == payloads


def test_a_frame_above_the_limit_is_refused_before_it_arrives():
    with pytest.raises(WireError):
        frames.FrameReader().feed((frames.MAX_FRAME_BYTES + 1).to_bytes(4, "little"))


METADATA = metadata.DatabaseMetadata(
    3,
    "00000000-0000-0000-0000-000000000001",
    (metadata.Endpoint("/v2", "strong"), metadata.Endpoint("https://example.com/far", "eventual")),
    "a secret of the server",
    datetime(2030, 1, 2, 3, 4, 5, 678000, UTC),
)


def test_metadata_is_read_back_and_never_shows_its_token():
    assert metadata.decode_metadata(metadata.encode_metadata(METADATA)) == METADATA
    assert METADATA.token not in repr(METADATA)
    request = metadata.MetadataRequest((1, 2, 3))
    assert metadata.decode_metadata_request(metadata.encode_metadata_request(request)) == request
    assert metadata.decode_metadata_request(b"") == metadata.MetadataRequest((1,))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"version": 3', b'"version": 4'),
        (b'"version": 3', b'"version": true'),
        (b"00000000-0000", b"00000000_0000"),
        (b'"strong"', b'"eventual"'),
        (b'"strong"', b'"weak"'),
        (b'"/v2"', b'"/v2/"'),
        (b'"/v2"', b"null"),
        (b"a secret of the server", b"a secret\\nof the server"),
        (b'"a secret of the server"', b"7"),
        (b".678Z", b".678"),
        (b"2030", b"20x0"),
        (b"[{", b'[7, {"'),
        (b'"endpoints": [', b'"endpoints": [7, '),
        (b'"endpoints"', b'"ends"'),
        (b"{", b"[" * 60_000),
        (b"{", b"{" + b" " * 70_000),
        (b'{"version"', b'\xff{"version"'),
        (b'{"version"', b'["version"'),
    ],
)
def test_metadata_with_a_fault_is_refused(old, new):
    good = metadata.encode_metadata(METADATA)
    bad = good.replace(old, new, 1)
    assert bad != good
    with pytest.raises(WireError):
        metadata.decode_metadata(bad)


@pytest.mark.parametrize(
    "body",
    [b"[]", b"{}", b'{"supportedVersions": 3}', b'{"supportedVersions": ["3"]}', b"[" * 50_000, b"\xff", b"7" * 9_000],
)
def test_a_metadata_request_with_a_fault_is_refused(body):
    with pytest.raises(WireError):
        metadata.decode_metadata_request(body)
