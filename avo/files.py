"""Reading what a person names on the command line: a program, with one clear message where it is not there."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from avo.errors import UserMistake

if TYPE_CHECKING:
    from dsl.syntax import Program

LARGEST = 1 << 20  # bytes; a program is a page


def read_text(path: str) -> str:
    """The text of a file, or of standard input for `-`. Raises UserMistake where it is missing or no text."""
    try:
        data = sys.stdin.buffer.read(LARGEST + 1) if path == "-" else _bytes(Path(path))
    except FileNotFoundError:
        raise UserMistake(f"no such file: {path}") from None
    except IsADirectoryError:
        raise UserMistake(f"{path} is a directory; name a program file") from None
    except OSError as error:
        raise UserMistake(f"cannot read {path}: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise UserMistake(f"{path} is larger than {LARGEST // 1024} KiB; that is no program")
    try:
        return data.decode("utf-8-sig")  # some editors begin with a mark of the byte order
    except UnicodeDecodeError:
        raise UserMistake(f"{path} is not UTF-8 text") from None


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LARGEST + 1)


def read_program(path: str) -> tuple[str, Program]:
    """Text and parsed program. Raises dsl.diagnostics.ProgramError with every complaint of the parser."""
    from dsl.parser import parse

    text = read_text(path)
    return text, parse(text, path)


def refuse_existing(path: Path | None, force: bool) -> None:
    """Before the work for a file is begun: UserMistake where it is there already, as `write_text` would say."""
    if path is not None and path.exists() and not force:
        raise UserMistake(f"{path} is there already; --force overwrites it")


def write_text(path: Path, text: str, force: bool) -> None:
    """Write a file, whole or not at all. Raises UserMistake where it is there already (without `force`) or cannot be
    written."""
    if force:
        with writing(str(path)) as file:
            file.write(text)
        return
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise UserMistake(f"{path} is there already; --force overwrites it") from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise  # the machine's fault, and told as such
        raise UserMistake(f"cannot write {path}: {error.strerror or error}") from None


@contextmanager
def writing(path: str) -> Iterator[TextIO]:
    """A text file that takes its name only when it is whole; what is no plain file (a device, a pipe) is written as
    it stands. Raises UserMistake where it cannot be written."""
    final = Path(os.path.realpath(path))
    whole = final if final.exists() and not final.is_file() else final.with_name(f".{final.name}.{os.getpid()}.partial")
    try:
        with whole.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        if whole is not final:
            if final.exists():
                shutil.copymode(final, whole)
            whole.replace(final)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise
        raise UserMistake(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        if whole is not final:
            with suppress(OSError):  # where nothing can be written nothing can be removed either
                whole.unlink(missing_ok=True)


def _opened(path: str) -> TextIO:
    """As text, decompressed where its name says that it is compressed."""
    import gzip
    import lzma

    opening: dict[str, Any] = {".xz": lzma.open, ".gz": gzip.open}
    return cast(TextIO, opening.get(Path(path).suffix, open)(path, "rt", encoding="utf-8"))


@contextmanager
def lines_of(path: str) -> Iterator[Iterable[str]]:
    """The lines of a file of any size (also .xz, .gz), or of standard input for `-`. Raises UserMistake where it cannot
    be read."""
    try:
        if path != "-":
            with _opened(path) as file:
                yield file
            return
        file = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8")  # whatever the locale says
        try:
            yield file
        finally:
            file.detach()  # else it closes standard input
    except FileNotFoundError:
        raise UserMistake(f"no such file: {path}") from None
    except UnicodeDecodeError:
        raise UserMistake(f"{path} is not UTF-8 text") from None
    except OSError as error:
        raise UserMistake(f"cannot read {path}: {error.strerror or error}") from None
    except _damaged() as error:
        raise UserMistake(f"cannot read {path}: {error or 'it is cut off'}") from None


def _damaged() -> tuple[type[Exception], ...]:
    """What is raised for a compressed file that is cut off, or is none; asked for only where something is raised."""
    import lzma
    import zlib

    return EOFError, lzma.LZMAError, zlib.error
