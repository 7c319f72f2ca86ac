"""The standard streams of the process: closed ones, their encoding, and output that cannot be written.

Rules of this module: it works without the packages of the extra ``cli``. An output that cannot be written is one line
on stderr and an exit code, never a traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final

_FAILED: Final = 3
_READER_HAS_GONE: Final = 1


def complete_streams() -> None:
    """Open closed standard streams, and read and write UTF-8 where the locale has only ASCII.

    A store that is opened while a descriptor is free would get it, and output would be written into the store. A stdout
    that was closed stays one that cannot be written; the others are empty.
    """
    for descriptor, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            _occupy(descriptor, flags)
            stream = open(descriptor, "w" if descriptor else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
        stream = getattr(sys, name)
        if stream.encoding.lower().replace("-", "") in ("ascii", "usascii", "ansi_x3.41968"):
            stream.reconfigure(encoding="utf-8")


def run_with_streams(command: Callable[[], object]) -> None:
    """Run a command that ends with ``SystemExit``, flush its output, and exit.

    The exit code is 3 if the output cannot be written, and 1 if its reader has gone, as with other programs.
    """
    code: Any = 0
    try:
        try:
            command()
        except SystemExit as ended:
            code = ended.code
        sys.stdout.flush()
    except OSError as error:
        code = _code_of(error)
        _occupy(sys.stdout.fileno(), os.O_WRONLY)  # so that Python's own flush at the end succeeds
    sys.exit(code)


def _code_of(error: OSError) -> int:
    if isinstance(error, BrokenPipeError):
        return _READER_HAS_GONE
    place = "the output cannot be written" if error.filename is None else f"{error.filename}"
    sys.stderr.write(f"Error: {place}: {error.strerror or error}\n")
    return _FAILED


def _occupy(descriptor: int, flags: int) -> None:
    """Let a descriptor be that of the empty file."""
    opened = os.open(os.devnull, flags)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
