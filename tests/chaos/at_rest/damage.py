"""One damage at a time, to one file of a relay."""

from collections.abc import Iterator, Mapping

Files = dict[str, bytes]


def flipped(data: bytes, bit: int) -> bytes:
    """`data` with one bit changed."""
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def bits(files: Mapping[str, bytes], path: str, step: int = 1, begin: int = 0) -> Iterator[tuple[int, Files]]:
    """Each bit (each `step`th) of a file from the byte `begin` on, and the relay's files with it flipped."""
    for bit in range(begin * 8, len(files[path]) * 8, step):
        yield bit, {**files, path: flipped(files[path], bit)}


def cuts(files: Mapping[str, bytes], path: str, step: int = 1, begin: int = 0) -> Iterator[tuple[int, Files]]:
    """Each size that a file may be cut to, from `begin` on, and the relay's files with it cut."""
    for size in range(begin, len(files[path]), step):
        yield size, {**files, path: files[path][:size]}


def without(files: Mapping[str, bytes], *paths: str) -> Files:
    """The files, some of them gone."""
    return {path: content for path, content in files.items() if path not in paths}
