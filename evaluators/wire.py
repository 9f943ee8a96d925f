"""The worker protocol: length-prefixed frames of JSON and raw bytes over a private socket.

A frame is 16 bytes of head (magic, length of the JSON header, length of all blobs), the JSON header
`{"nonce": ..., "body": {...}, "blobs": [lengths]}` and the blobs one after another. A reply repeats its request's
nonce. Nothing is ever unpickled: whoever unpickles a child's reply hands the child the parent.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MAGIC = b"AVO1"
MAX_HEADER = 64 << 20  # JSON; emitted texts (SASS, PTX) travel here
MAX_BLOBS = 4 << 30  # all tensors of one call together
_HEAD = struct.Struct(">4sIQ")


class WireError(Exception):
    """The bytes are not a frame, or the frame is not allowed; the message says which and why."""


class Closed(WireError):
    """The other side closed the channel."""


@dataclass(frozen=True)
class Frame:
    nonce: str
    body: dict[str, Any]
    blobs: tuple[bytes, ...] = ()


def encode(frame: Frame) -> list[bytes]:
    """The frame as buffers to send in order. Raises WireError where the body is not JSON or a limit is passed."""
    blobs = [bytes(b) for b in frame.blobs]
    try:
        header = json.dumps({"nonce": frame.nonce, "body": frame.body, "blobs": [len(b) for b in blobs]}).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"the body of a frame has to be JSON: {error}") from None
    total = sum(map(len, blobs))
    _check_lengths(len(header), total, (MAX_HEADER, MAX_BLOBS))
    return [_HEAD.pack(MAGIC, len(header), total), header, *blobs]


def _check_lengths(header: int, blobs: int, most: tuple[int, int]) -> None:
    if header > most[0]:
        raise WireError(f"a header of {header} bytes is over the limit of {most[0]}")
    if blobs > most[1]:
        raise WireError(f"blobs of {blobs} bytes are over the limit of {most[1]}")


class Decoder:
    """Turns a stream of bytes into frames, whatever pieces they arrive in. Raises WireError at the first wrong byte.

    most: bytes of a header and of blobs that are taken; less than the protocol's own where the sender is not trusted.
    """

    def __init__(self) -> None:
        self.most = MAX_HEADER, MAX_BLOBS
        self._buffer = bytearray()
        self._lengths: tuple[int, int] | None = None

    def feed(self, data: bytes) -> None:
        self._buffer += data

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._buffer)

    def next(self) -> Frame | None:
        """The next complete frame, or None until more bytes come."""
        if self._lengths is None:
            seen = bytes(self._buffer[: len(MAGIC)])
            if seen != MAGIC[: len(seen)]:
                raise WireError(f"a frame starts with {MAGIC!r}, not with {seen!r}")
            if len(self._buffer) < _HEAD.size:
                return None
            _, header, blobs = _HEAD.unpack_from(self._buffer)
            _check_lengths(header, blobs, self.most)
            self._lengths = header, blobs
        header, blobs = self._lengths
        end = _HEAD.size + header + blobs
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            frame = _parse(bytes(view[_HEAD.size : _HEAD.size + header]), view[_HEAD.size + header : end])
        del self._buffer[:end]
        self._lengths = None
        return frame


def _parse(header: bytes, blobs: memoryview) -> Frame:
    try:
        text = header.decode("utf-8")  # `loads` would take other encodings, and halves of surrogate pairs in this one
        fields = json.loads(text)
        if "\\ud" in text.lower():
            # Half of a surrogate pair is valid JSON and no text: nobody could print or store it.
            fields = json.loads(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise WireError(f"the header of a frame is not JSON: {error}") from None
    if not isinstance(fields, dict) or set(fields) != {"nonce", "body", "blobs"}:
        raise WireError("the header of a frame has exactly the keys nonce, body, blobs")
    nonce, body, lengths = fields["nonce"], fields["body"], fields["blobs"]
    if not isinstance(nonce, str) or not isinstance(body, dict) or not isinstance(lengths, list):
        raise WireError("in the header of a frame nonce is a string, body an object and blobs a list")
    if not all(type(n) is int and n >= 0 for n in lengths) or sum(lengths) != len(blobs):
        raise WireError(f"the lengths of the blobs, {lengths[:8]}, do not add up to the {len(blobs)} bytes that came")
    pieces, at = [], 0
    for length in lengths:
        pieces.append(bytes(blobs[at : at + length]))
        at += length
    return Frame(nonce, body, tuple(pieces))


def send(sock: socket.socket, frame: Frame) -> None:
    """Sends all of it; obeys the socket's timeout. Raises Closed where nobody is left to read."""
    try:
        for piece in encode(frame):
            sock.sendall(piece)
    except (BrokenPipeError, ConnectionResetError):
        raise Closed("the other side closed the channel") from None


def receive(sock: socket.socket, decoder: Decoder) -> Frame:
    """The next frame of a blocking socket. Raises Closed at the end of the stream."""
    while True:
        frame = decoder.next()
        if frame is not None:
            return frame
        data = sock.recv(1 << 20)
        if not data:
            raise Closed("the other side closed the channel" + (" within a frame" if decoder.pending else ""))
        decoder.feed(data)


def request(nonce: str, task: str, payload: dict[str, Any], blobs: Sequence[bytes] = ()) -> Frame:
    return Frame(nonce, {"task": task, "payload": payload}, tuple(blobs))
