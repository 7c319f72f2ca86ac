"""Types of the part of msgpack that kvmodels uses; the package itself ships none."""

from collections.abc import Callable
from typing import Any, NamedTuple

class UnpackException(Exception): ...
class BufferFull(UnpackException): ...
class OutOfData(UnpackException): ...
class FormatError(ValueError, UnpackException): ...
class StackError(ValueError, UnpackException): ...

class ExtraData(ValueError):
    unpacked: Any
    extra: bytes

class ExtType(NamedTuple):
    code: int
    data: bytes

class Packer:
    def __init__(
        self,
        default: Callable[[Any], Any] | None = None,
        *,
        use_single_float: bool = False,
        autoreset: bool = True,
        use_bin_type: bool = True,
        strict_types: bool = False,
        datetime: bool = False,
        unicode_errors: str | None = None,
        buf_size: int = ...,
    ) -> None: ...
    def pack(self, obj: Any) -> bytes: ...
    def pack_array_header(self, size: int) -> bytes: ...
    def pack_map_header(self, size: int) -> bytes: ...
    def pack_map_pairs(self, pairs: Any) -> bytes: ...
    def pack_ext_type(self, typecode: int, data: bytes) -> bytes: ...
    def bytes(self) -> bytes: ...
    def reset(self) -> None: ...

class Unpacker:
    def __init__(
        self,
        file_like: Any = None,
        read_size: int = 0,
        *,
        use_list: bool = True,
        raw: bool = False,
        timestamp: int = 0,
        strict_map_key: bool = True,
        object_hook: Callable[[dict[Any, Any]], Any] | None = None,
        object_pairs_hook: Callable[[list[tuple[Any, Any]]], Any] | None = None,
        list_hook: Callable[[list[Any]], Any] | None = None,
        unicode_errors: str | None = None,
        max_buffer_size: int = ...,
        ext_hook: Callable[[int, bytes], Any] = ...,
        max_str_len: int = -1,
        max_bin_len: int = -1,
        max_array_len: int = -1,
        max_map_len: int = -1,
        max_ext_len: int = -1,
    ) -> None: ...
    def feed(self, next_bytes: bytes | bytearray | memoryview) -> None: ...
    def unpack(self) -> Any: ...
    def skip(self) -> None: ...
    def read_array_header(self) -> int: ...
    def read_map_header(self) -> int: ...
    def read_bytes(self, nbytes: int) -> bytes: ...
    def tell(self) -> int: ...
    def __iter__(self) -> Unpacker: ...
    def __next__(self) -> Any: ...

def packb(
    o: Any,
    *,
    default: Callable[[Any], Any] | None = None,
    use_single_float: bool = False,
    autoreset: bool = True,
    use_bin_type: bool = True,
    strict_types: bool = False,
    datetime: bool = False,
    unicode_errors: str | None = None,
    buf_size: int = ...,
) -> bytes: ...
def unpackb(
    packed: bytes | bytearray | memoryview,
    *,
    use_list: bool = True,
    raw: bool = False,
    timestamp: int = 0,
    strict_map_key: bool = True,
    object_hook: Callable[[dict[Any, Any]], Any] | None = None,
    object_pairs_hook: Callable[[list[tuple[Any, Any]]], Any] | None = None,
    list_hook: Callable[[list[Any]], Any] | None = None,
    unicode_errors: str | None = None,
    max_buffer_size: int = ...,
    ext_hook: Callable[[int, bytes], Any] = ...,
    max_str_len: int = -1,
    max_bin_len: int = -1,
    max_array_len: int = -1,
    max_map_len: int = -1,
    max_ext_len: int = -1,
) -> Any: ...
