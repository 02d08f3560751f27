"""Lines of text files: compressed or not, in UTF-8 or, where their first bytes say so, UTF-16."""

import bz2
import codecs
import gzip
import lzma
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from triptych.errors import UserError, library
from triptych.files.folders import named, warn_once

COMPRESSED: dict[bytes, tuple[str, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": ("gzip", gzip.decompress),
    b"BZh": ("bzip2", bz2.decompress),
    b"\xfd7zXZ\0": ("xz", lzma.decompress),
    b"\x28\xb5\x2f\xfd": ("zstd", lambda content: _zstd(content)),
}
"""First bytes of a compressed file -> kind, and function that decompresses it."""
SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
"""Ends of the names of compressed files."""
NO_TEXT = {
    b"PK\x03\x04": "is a zip archive; expected its files, so unpack it first",
    b"version https://git-lfs": "is a pointer of Git LFS; get the file itself with git lfs pull",
}
"""First bytes of a file -> what it is in place of text."""


def read_input_lines(path: str | Path | None) -> list[str]:
    """Return the lines of a file as `read_lines`, or of standard input where path is None."""
    if path is not None:
        return read_lines(Path(path))
    if sys.stdin.isatty():
        print("reading lines from the terminal; end with Ctrl-D", file=sys.stderr)
    return split_lines(sys.stdin.buffer.read(), name="standard input")


def read_lines(path: Path) -> list[str]:
    r"""Return all lines of a text file of UTF-8, of UTF-16 with its first mark, or of Windows-1252.

    Only "\n" ends a line; in a file in which more lines end with a lone "\r" this does. Raises
    UserError as `read_content` does, and for bytes of another encoding. Windows-1252 is named once.
    """
    content = read_content(path)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            content = content.decode("utf-16").encode()
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not the UTF-16 that its first bytes say: {error}") from None
    if content.count(b"\r") > 2 * content.count(b"\n"):
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    try:
        return split_lines(content, name=str(path))
    except UserError as error:
        if (western := _western(content)) is None:
            raise
        warn_once(
            f"{error}; it is read as Windows-1252, the usual encoding of western European languages"
            " (for another one convert it to UTF-8)"
        )
        return split_lines(western.encode(), name=str(path))


def _western(content: bytes) -> str | None:
    """Return text of Windows-1252; None for what seems to be another encoding.

    At least four fifths of the bytes are ASCII, and no others are a character in UTF-8.
    """
    others = content.translate(None, bytes(range(128)))
    in_utf_8 = not content.decode(errors="ignore").isascii()
    if b"\0" in content or in_utf_8 or 5 * len(others) > len(content):
        return None
    try:
        return content.decode("cp1252")
    except UnicodeDecodeError:
        return None


def read_content(path: Path) -> bytes:
    """Return the bytes of a file, decompressed where its first bytes, and not its name, say so.

    The file may be in a zip archive, as `texts.zip/train.en`. Raises UserError for a missing file,
    for a truncated or damaged compressed one, and for what is no text, see NO_TEXT.
    """
    kind = "zip"
    try:
        outer = next((folder for folder in path.parents if folder.is_file()), None)
        if outer is not None and zipfile.is_zipfile(outer):
            with zipfile.ZipFile(outer) as archive:
                content = archive.read(path.relative_to(outer).as_posix())
        else:
            content = path.read_bytes()
        for first, (name, decompress) in COMPRESSED.items():
            if content.startswith(first):
                kind = name
                content = decompress(content)
                break
    except (FileNotFoundError, KeyError):
        raise UserError(f"the text file {path} does not exist{_beside(path)}") from None
    except (EOFError, ValueError, zlib.error, gzip.BadGzipFile, lzma.LZMAError) as error:
        raise UserError(f"{path} is not a complete {kind} file ({error})") from error
    except OSError as error:
        raise UserError(
            f"the text file {path} cannot be read: {error.strerror or error}"
        ) from error
    for first, what in NO_TEXT.items():
        if content.startswith(first):
            raise UserError(f"{path} {what}")
    return content


def _zstd(content: bytes) -> bytes:
    reader = library("zstandard", "a zstd file", "tables").ZstdDecompressor().stream_reader(content)
    decompressed: bytes = reader.read()
    return decompressed


def _beside(path: Path) -> str:
    """Return what the folder of a missing file holds instead; empty for a missing folder."""
    if not path.parent.is_dir():
        return ""
    names = sorted(file.name for file in path.parent.iterdir())
    return f"; its folder {'holds ' + named(names) if names else 'is empty'}"


def split_lines(content: bytes, *, name: str, first: int = 1) -> list[str]:
    r"""Return the lines of UTF-8 text, split at `\n` only, without a final `\r` or a first BOM.

    `str.splitlines` would also split at U+2028, form feed and others, which belong to the text. A
    last line without a line end counts. name: what errors call the content. first: number of the
    first line, above 1 for a later part of a text. Raises UserError for a line that is not UTF-8.
    """
    try:
        lines = content.decode("utf-8-sig" if first == 1 else "utf-8").split("\n")
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + first
        wrong = f"byte {error.object[error.start]:#04x}"
        binary = b"\0" in error.object
        kind = "; it has NUL bytes, as UTF-16 text and binary files have" if binary else ""
        raise UserError(f"{name}, line {number} is not UTF-8: {wrong}{kind}") from None
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
