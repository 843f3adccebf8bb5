"""Give a copy of a shared library another soname.

Knows just enough of the 64-bit little-endian ELF format for that: program headers, the dynamic
section and its string table. Knows nothing of which library it is or why.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_STRTAB, _DT_SONAME = 0, 5, 14


def soname_of(image: bytes) -> str:
    """The soname of a shared library.

    Args:
        image: The whole file.

    Returns:
        Its DT_SONAME.

    Raises:
        ValueError: If this is no 64-bit little-endian ELF library with a soname.
    """
    start, end = _soname_span(image)
    return image[start:end].decode("ascii")


def with_soname(image: bytes, soname: str) -> bytes:
    """A copy of a shared library under another soname, of the same size.

    The string is overwritten in place, so the new name may not be longer than the old one.

    Args:
        image: The whole file.
        soname: The new name, ASCII.

    Returns:
        The changed file.

    Raises:
        ValueError: If the file is not such a library, or the new name does not fit.
    """
    start, end = _soname_span(image)
    new = soname.encode("ascii")
    if len(new) > end - start:
        raise ValueError(f"soname {soname!r} is longer than {image[start:end].decode()!r}")
    return image[:start] + new.ljust(end - start, b"\0") + image[end:]


def _soname_span(image: bytes) -> tuple[int, int]:
    try:
        headers = list(_program_headers(image))
        entries = dict(_dynamic_entries(image, headers))
        start = _file_offset(headers, entries[_DT_STRTAB]) + entries[_DT_SONAME]
        return start, image.index(b"\0", start)
    except (struct.error, KeyError) as error:
        raise ValueError(f"not a shared library with a soname ({error})") from None


def _program_headers(image: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Kind, file offset, address and size in the file of each program header."""
    fields = _HEADER.unpack_from(image)
    ident, offset, entry_size, count = fields[0], fields[5], fields[9], fields[10]
    if ident[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    for i in range(count):
        kind, _, at, address, _, size, _, _ = _PROGRAM_HEADER.unpack_from(
            image, offset + i * entry_size
        )
        yield kind, at, address, size


def _dynamic_entries(
    image: bytes, headers: list[tuple[int, int, int, int]]
) -> Iterator[tuple[int, int]]:
    at, size = next(((a, n) for kind, a, _, n in headers if kind == _PT_DYNAMIC), (0, 0))
    for position in range(at, at + size, _DYNAMIC.size):
        tag, value = _DYNAMIC.unpack_from(image, position)
        if tag == _DT_NULL:
            return
        yield tag, value


def _file_offset(headers: list[tuple[int, int, int, int]], address: int) -> int:
    for kind, at, base, size in headers:
        if kind == _PT_LOAD and base <= address < base + size:
            return address - base + at
    raise ValueError(f"address {address:#x} lies in no segment of the file")
