"""Files of records on the admin page: their size and type, and the download.

Rules of this module: a file is a download, because a browser would run an uploaded page with the rights of the admin.
"""

from __future__ import annotations

import mimetypes
from typing import Any, Final

from pydantic import BaseModel
from starlette.exceptions import HTTPException

from kvmodels.ext.blob_response import BlobResponse
from kvmodels.schema.blobs.blob import Blob

FILE: Final = "file"
"""The parameter that names the field of a download."""


def file_text(value: Any) -> str | None:
    """Return the size and the type of a file; None for any other value."""
    return f"{value.size:,} bytes, {value.content_type}" if isinstance(value, Blob) else None


def file_response(record: BaseModel, name: str, title: str) -> BlobResponse:
    """Return the download of a field. Raises HTTPException 404: it holds no file."""
    blob = getattr(record, name) if name in type(record).model_fields else None
    if not isinstance(blob, Blob) or not blob.is_stored:
        raise HTTPException(404, f"{title} has no file in this field.")
    suffix = mimetypes.guess_extension(blob.content_type.partition(";")[0]) or ".bin"
    return BlobResponse(blob, filename=f"{title}-{name}{suffix}")
