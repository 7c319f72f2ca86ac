"""The schema of KV Connect as classes of the ``protobuf`` package, the reference for our codec."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Of each message: fields with name, number and type; ``*`` marks repeated ones, a capital letter a message.
SCHEMA: dict[str, str] = {
    "SnapshotRead": "ranges=1:*ReadRange",
    "ReadRange": "start=1:bytes end=2:bytes limit=3:int32 reverse=4:bool",
    "SnapshotReadOutput": "ranges=1:*ReadRangeOutput read_disabled=2:bool read_is_strongly_consistent=4:bool "
    "status=8:enum",
    "ReadRangeOutput": "values=1:*KvEntry",
    "KvEntry": "key=1:bytes value=2:bytes encoding=3:enum versionstamp=4:bytes",
    "AtomicWrite": "checks=1:*Check mutations=2:*Mutation enqueues=3:*Enqueue",
    "Check": "key=1:bytes versionstamp=2:bytes",
    "Mutation": "key=1:bytes value=2:KvValue mutation_type=3:enum expire_at_ms=4:int64 sum_min=5:bytes sum_max=6:bytes "
    "sum_clamp=7:bool",
    "KvValue": "data=1:bytes encoding=2:enum",
    "Enqueue": "payload=1:bytes deadline_ms=2:int64 keys_if_undelivered=3:*bytes backoff_schedule=4:*uint32",
    "AtomicWriteOutput": "status=1:enum versionstamp=2:bytes failed_checks=4:*uint32",
    "Watch": "keys=1:*WatchKey",
    "WatchKey": "key=1:bytes",
    "WatchOutput": "status=1:enum keys=2:*WatchKeyOutput",
    "WatchKeyOutput": "changed=1:bool entry_if_changed=2:KvEntry",
}


def message_classes() -> dict[str, Any]:
    """Return a class of the ``protobuf`` package for each message."""
    file = descriptor_pb2.FileDescriptorProto(name="datapath.proto", package="datapath", syntax="proto3")
    number = file.enum_type.add(name="Number")  # every enumeration is open, so one stands for all
    number.value.add(name="UNSPECIFIED", number=0)
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            add_field(message, text)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"datapath.{name}")) for name in SCHEMA}


def add_field(message: Any, text: str) -> None:
    name, _, rest = text.partition("=")
    number, _, kind = rest.partition(":")
    kinds = descriptor_pb2.FieldDescriptorProto
    field = message.field.add(name=name, number=int(number))
    field.label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
    kind = kind.removeprefix("*")
    if kind[0].isupper():
        field.type, field.type_name = kinds.TYPE_MESSAGE, f".datapath.{kind}"
    elif kind == "enum":
        field.type, field.type_name = kinds.TYPE_ENUM, ".datapath.Number"
    else:
        field.type = getattr(kinds, f"TYPE_{kind.upper()}")
