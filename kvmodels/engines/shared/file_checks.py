"""Where a file may be: which file a path holds, and the file systems that cannot hold one.

Rules of this module: it asks the operating system and opens nothing but the list of mounts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvmodels.errors import EngineError, InvalidArgumentError, ReadOnlyError, UnsupportedError

try:
    import resource
except ImportError:  # Windows has no such limit
    resource = None  # type: ignore[assignment]

MOUNTS = "/proc/mounts"

NETWORK_FILE_SYSTEMS = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "sshfs"}
)


class FileIdentity(NamedTuple):
    """Device and number of a file: two paths with one identity are one file."""

    device: int
    number: int


def require_file_name(argument: str, path: str) -> None:
    """Refuse text that the system cannot take as a path: a lone surrogate, or a NUL. Raises InvalidArgumentError."""
    try:
        if b"\0" not in os.fsencode(path):
            return
    except UnicodeEncodeError:
        pass
    raise InvalidArgumentError(
        "the path has a character that no file name can hold",
        argument=argument,
        value=path,
        hint="Give a path without lone surrogates and NUL characters.",
    )


def canonical_path(path: str, url: str) -> str:
    """The absolute path without links. Raises EngineError or InvalidArgumentError."""
    require_file_name("url", path)
    return absolute_path(path, url, os.path.realpath)


def absolute_path(path: str, url: str, resolved: Callable[[str], str] = os.path.abspath) -> str:
    """The absolute path. Raises EngineError."""
    try:
        return resolved(path)
    except FileNotFoundError as error:
        raise EngineError(
            "the path is relative, and the working directory no longer exists",
            url=url,
            reason=path,
            hint="Give an absolute path, or change to a folder that exists.",
        ) from error


def file_identity(path: str) -> FileIdentity | None:
    """The identity of the file, or None when there is none. Raises OSError."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return FileIdentity(found.st_dev, found.st_ino)


def has_room_for_no_more(files: Iterable[str], size: int) -> bool:
    """Whether the files, in one folder, cannot grow by ``size`` bytes: for a limit of the process, or a full disk.

    For a library that does not hand on the error number of the system, or calls what was cut short an I/O error.
    """
    paths = [path for path in files if path]
    present = [path for path in paths if os.path.exists(path)]
    largest = max((os.stat(path).st_size for path in present), default=0)
    if resource is not None:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if limit != resource.RLIM_INFINITY and largest + size >= limit:
            return True
    return hasattr(os, "statvfs") and os.statvfs(os.path.dirname(paths[0]) or ".").f_bavail == 0


def replaced(url: str, path: str) -> EngineError:
    """Return the error of a call that finds another file under the path of an open store."""
    return EngineError(
        "the file was replaced while the store was open",
        url=url,
        reason=path,
        hint="Close every handle before the file is moved, replaced or restored, and open it again.",
    )


def unusable(url: str, path: str, error: OSError) -> EngineError:
    """Return the error of an opening that the operating system has denied access to the path."""
    denied = isinstance(error, PermissionError)
    enter = "Let this user enter every folder above the file and read its own folder, or give another path."
    return EngineError(
        "the operating system refuses access to the path",
        url=url,
        reason=f"{type(error).__name__}: {error.strerror}: {error.filename or path}",
        hint=enter if denied else "Check that the path is right: every part but the last one must be a folder.",
    )


def read_only(url: str, *, asked_for: bool) -> ReadOnlyError:
    """Return the error of a write to a store that is read-only, by ``readonly=True`` or by permissions."""
    denied = "This user may not write the file or its folder. Make both writable, and open the store again."
    return ReadOnlyError(
        "this store is open for reading only",
        url=url,
        reason="readonly=True" if asked_for else "no permission to write",
        hint="Open it with readonly=False." if asked_for else denied,
    )


def refuse_network_place(path: str, url: str) -> None:
    """Refuse a file on a network file system, where the operating system says which those are."""
    if hasattr(os, "major") and not is_on_a_disk(path) and os.path.exists(MOUNTS):
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            refuse_network_file_system(path, url, mounts)


def is_on_a_disk(path: str) -> bool:
    """Whether Linux keeps the file, or what will hold it, on a block device of this machine.

    No network file system has one: their device numbers have the major number 0, as those of other file systems without
    a device, of which this says nothing.
    """
    try:
        device = os.stat(path).st_dev
    except FileNotFoundError:
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            return False
        device = os.stat(folder).st_dev
    return os.major(device) != 0


def refuse_network_file_system(path: str, url: str, mounts: Iterable[str]) -> None:
    """Refuse a file on a network file system, whose locks and shared memory do not hold between machines."""
    deepest, kind = "", ""
    for line in mounts:
        fields = line.split(" ", 3)
        if len(fields) < 3:
            continue
        mount = fields[1]
        if "\\" in mount:  # the kernel writes space, tab, newline and backslash in octal
            mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), mount)
        inside = path.startswith(mount) and (path == mount or path.startswith(mount.rstrip("/") + "/"))
        # A later mount on the same point hides the earlier one.
        if inside and len(mount) >= len(deepest):
            deepest, kind = mount, fields[2]
    if kind in NETWORK_FILE_SYSTEMS or kind.removeprefix("fuse.") in NETWORK_FILE_SYSTEMS:
        raise UnsupportedError(
            "the file is on a network file system",
            url=url,
            reason=f"{kind} on {deepest}",
            hint="Data is lost there. Use a local disk, or allow_network_fs=True if only one machine opens it.",
        )
