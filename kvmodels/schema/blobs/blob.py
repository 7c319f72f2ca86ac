"""The type of a field that holds a file: its content is stored beside the record, in chunks.

A ``Blob`` is pending until a write of its record has stored its content; then it names what is stored. A document holds
the size, the hash, the type and the id of the content, and ``Blob.open`` reads it.

Rules of this module: an id comes only from a write of this library or from a stored document. Validation takes objects
of ``Blob`` alone, so no client can attach the content of another record by sending its id; JSON does not show it.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, Self

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from kvmodels._support.naming import short_repr, show_public_path
from kvmodels.errors import InvalidArgumentError, InvalidValueError
from kvmodels.schema.blobs.files import OpenBlob
from kvmodels.schema.blobs.sources import BlobSource, ContentReader, reader_of
from kvmodels.schema.blobs.stored import StoredBlob, stored_blob

DEFAULT_MAX_BYTES: Final = 100_000_000
"""The most bytes of a blob without ``max_bytes``."""

UNKNOWN_TYPE: Final = "application/octet-stream"

_LONGEST_TYPE: Final = 255


class BlobHome(Protocol):
    """The store of a blob, as far as the blob needs it."""

    def open(self, blob: StoredBlob, /) -> OpenBlob:
        """Return the content as a file, in a block."""
        ...

    def download(self, blob: StoredBlob, path: str | Path, overwrite: bool, /) -> Path:
        """Write the content to a file."""
        ...

    def adownload(self, blob: StoredBlob, path: str | Path, overwrite: bool, /) -> Coroutine[Any, Any, Path]:
        """Write the content to a file."""
        ...

    def wrote(self, context: Any, /) -> None:
        """Take note that a flow with this context has stored content."""
        ...


class Blob:
    """A file beside a record: the type of a field, and its values.

    A new one takes its content from bytes, a binary file, an iterator of bytes or an asynchronous iterator. The write
    of its record reads the source once and stores the content; the size is not limited by memory.

    Args:
        source: the content. A file is read from its present position, and is not closed.
        content_type: the media type; by default ``application/octet-stream``.
        max_bytes: the most bytes that are stored; by default 100 MB. Required on etcd and KV Connect, which are not
            made for large values.

    Raises:
        InvalidArgumentError: this is no source, or an option has a value that it does not take.

    Examples:
        >>> from kvmodels import Blob, Database, KvModel, PrimaryKey
        >>> class Letter(KvModel, collection="letters"):
        ...     id: PrimaryKey[int]
        ...     scan: Blob | None = None
        >>> letters = Database("memory://", models=[Letter])[Letter]
        >>> letter = letters.create(id=1, scan=Blob(b"Dear Ada", content_type="text/plain"))
        >>> letter.scan.size, letter.scan.content_type
        (8, 'text/plain')
        >>> with letters.get(1).scan.open() as file:
        ...     file.read()
        b'Dear Ada'
    """

    __slots__ = ("_content_type", "_home", "_max_bytes", "_source", "_stored")

    _source: Any
    _stored: StoredBlob | None
    _home: BlobHome | None

    def __init__(self, source: BlobSource, *, content_type: str | None = None, max_bytes: int | None = None) -> None:
        self._begin(source, content_type, max_bytes)
        if isinstance(source, (str, Path)):
            raise _no_source(source)

    def _begin(self, source: Any, content_type: str | None, max_bytes: int | None) -> None:
        self._content_type = UNKNOWN_TYPE if content_type is None else _media_type(content_type)
        given: object = max_bytes
        if given is not None and (type(given) is not int or given < 1):
            raise InvalidArgumentError(
                "max_bytes must be a whole number, 1 or more",
                argument="max_bytes",
                value=short_repr(given),
                hint="Give the most bytes of the blob, such as max_bytes=1_000_000_000.",
            )
        self._max_bytes = max_bytes
        self._source = source
        self._stored = None
        self._home = None

    @classmethod
    def from_path(cls, path: str | Path, *, content_type: str | None = None, max_bytes: int | None = None) -> Self:
        """Return a blob whose content is that of a file, which the write of its record opens and reads.

        Args:
            path: the path of the file.
            content_type: the media type; by default the usual one of the suffix.
            max_bytes: as for ``Blob``.

        Raises:
            InvalidArgumentError: an option has a value that it does not take.
        """
        if content_type is None:
            content_type = mimetypes.guess_type(str(path))[0]
        made = cls.__new__(cls)
        made._begin(Path(path), content_type, max_bytes)
        return made

    # --- what is stored -------------------------------------------------------------------------------------------

    @property
    def is_stored(self) -> bool:
        """Whether its content is stored; the content of a new blob is stored by the write of its record."""
        return self._stored is not None

    @property
    def size(self) -> int:
        """The size of the content in bytes. Raises InvalidArgumentError before it is stored."""
        return self.stored.size

    @property
    def sha256(self) -> str:
        """The SHA-256 of the content, in hexadecimal. Raises InvalidArgumentError before it is stored."""
        return self.stored.sha256.hex()

    @property
    def content_type(self) -> str:
        """The media type of the content."""
        return self._content_type if self._stored is None else self._stored.content_type

    @property
    def stored(self) -> StoredBlob:
        """The description of the stored content. Raises InvalidArgumentError before it is stored."""
        if self._stored is None:
            raise InvalidArgumentError(
                "the content of a blob is not stored yet",
                argument="blob",
                value=self._content_type,
                hint="A write of its record stores it: create(), save(), patch(). Functions of mutate() and hooks may "
                "keep and drop blobs, but not make new ones.",
            )
        return self._stored

    def open(self) -> OpenBlob:
        """Open the stored content for reading, from any position; no byte is read before it is asked for.

        Returns:
            A block to be used by ``with``, and with ``AsyncDatabase`` by ``async with``. It gives a binary file with
            ``read``, ``seek`` and ``tell``: a ``BlobFile``, or with ``AsyncDatabase`` a ``BlobStream``, whose methods
            are coroutines. A read from the beginning to the end compares the hash.

        Raises:
            InvalidArgumentError: the content is not stored yet, or the object was not loaded from a database.
        """
        return self._opening().open(self.stored)

    def download_to(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the stored content to a file, with about 1 MiB in memory.

        The file has its name only when it is complete and on the disk, and its hash was compared. Only its owner may
        read it.

        Args:
            path: the path of the file, in a folder that exists.
            overwrite: replace a file of this name.

        Returns:
            The path. Cost: one read for each MiB.

        Raises:
            EngineError: the file exists already, or cannot be written.
            BlobGoneError, DecodeError: the content was removed meanwhile, or is damaged; nothing is left in the folder.
            InvalidArgumentError: as for ``open``; an argument is of another type; or the database is asynchronous.

        Examples:
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> from kvmodels import Blob, Database, KvModel, PrimaryKey
            >>> class Song(KvModel, collection="songs"):
            ...     id: PrimaryKey[int]
            ...     audio: Blob
            >>> song = Database("memory://", models=[Song])[Song].create(id=1, audio=Blob(b"la la"))
            >>> with TemporaryDirectory() as folder:
            ...     song.audio.download_to(Path(folder) / "song.wav").read_bytes()
            b'la la'
        """
        return self._opening().download(self.stored, path, overwrite)

    async def adownload_to(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the stored content to a file, as ``download_to`` does, with ``AsyncDatabase``.

        Args:
            path: as for ``download_to``.
            overwrite: as for ``download_to``.

        Returns:
            The path. Cost: as for ``download_to``; the file is written in threads.

        Raises:
            EngineError, BlobGoneError, DecodeError: as for ``download_to``.
            InvalidArgumentError: as for ``download_to``; or the database is not asynchronous.
        """
        return await self._opening().adownload(self.stored, path, overwrite)

    def _opening(self) -> BlobHome:
        """Return the store of the content. Raises InvalidArgumentError without one."""
        stored = self.stored
        if self._home is None:
            raise InvalidArgumentError(
                "a blob without a database cannot be read",
                argument="blob",
                value=stored.sha256.hex(),
                hint="Load its record again: copies by pickle know no database.",
            )
        return self._home

    # --- for the library ------------------------------------------------------------------------------------------

    @property
    def max_bytes(self) -> int | None:
        """The most bytes that are stored, as given."""
        return self._max_bytes

    @classmethod
    def of(cls, stored: StoredBlob, home: BlobHome | None = None) -> Self:
        """Return the blob of stored content."""
        made = cls.__new__(cls)
        made._source, made._max_bytes, made._content_type = None, None, stored.content_type
        made._stored, made._home = stored, home
        return made

    def reader(self) -> ContentReader:
        """Return the reader of its source."""
        return reader_of(self._source)

    def became(self, stored: StoredBlob, home: BlobHome | None) -> None:
        """Take over what was stored of its source, which is not kept."""
        self._stored, self._home, self._source = stored, home, None

    def belongs_to(self, home: BlobHome | None) -> None:
        """Set the store that it is read from."""
        self._home = home

    # --- as a value -----------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blob) or self._stored is None or other._stored is None:
            return self is other
        mine, others = self._stored, other._stored
        return mine[:3] == others[:3]

    __hash__ = None  # type: ignore[assignment]  # a pending blob becomes equal to others when it is stored

    def __repr__(self) -> str:
        if self._stored is None:
            return f"Blob(content_type={self._content_type!r}, is_stored=False)"
        return f"Blob(size={self._stored.size}, content_type={self._stored.content_type!r})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, _: Mapping[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, tuple(self.stored)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return a schema that takes objects of this class alone, and shows size, hash and type as JSON."""
        del source, handler
        return core_schema.no_info_plain_validator_function(
            _validated,
            json_schema_input_schema=_SHOWN,
            serialization=core_schema.plain_serializer_function_ser_schema(
                _shown, return_schema=_SHOWN, when_used="json"
            ),
        )


_SHOWN: Final = core_schema.typed_dict_schema(
    {
        "size": core_schema.typed_dict_field(core_schema.nullable_schema(core_schema.int_schema())),
        "sha256": core_schema.typed_dict_field(core_schema.nullable_schema(core_schema.str_schema())),
        "content_type": core_schema.typed_dict_field(core_schema.str_schema()),
    }
)


def _validated(value: Any) -> Blob:
    if isinstance(value, Blob):
        return value
    raise PydanticCustomError("blob", "Input should be an object of Blob; its content is not taken from JSON")


def _shown(blob: Blob) -> dict[str, Any]:
    known = blob.is_stored
    return {
        "size": blob.size if known else None,
        "sha256": blob.sha256 if known else None,
        "content_type": blob.content_type,
    }


def _unpickled(size: int, sha256: bytes, content_type: str, chunk: int, blob_id: bytes) -> Blob:
    return Blob.of(StoredBlob(size, sha256, content_type, chunk, blob_id))


def encoded_blob(value: Any) -> Any:
    """Return the stored form of a blob. Raises InvalidArgumentError: its content is not stored."""
    if not isinstance(value, Blob):
        raise TypeError("expected Blob")
    return value.stored.to_value()


def decoded_blob(value: Any) -> Blob:
    """Return the blob that a document holds. Raises InvalidValueError."""
    found = stored_blob(value)
    if found is None:
        raise InvalidValueError(
            "a stored value is no blob", type=type(value).__name__, hint="Another program wrote it: kv.get shows it."
        )
    return Blob.of(found)


def _media_type(given: object) -> str:
    if isinstance(given, str) and given.isascii() and given.isprintable() and 0 < len(given) <= _LONGEST_TYPE:
        return given
    raise InvalidArgumentError(
        "a content type is not a media type",
        argument="content_type",
        value=short_repr(given),
        hint='Give printable ASCII of at most 255 characters: content_type="application/pdf".',
    )


def _no_source(source: object) -> InvalidArgumentError:
    return InvalidArgumentError(
        "a blob of a path or a text",
        argument="source",
        value=type(source).__name__,
        hint="Write Blob.from_path(path) for a file, or encode the text: Blob(text.encode()).",
    )


show_public_path(Blob)
