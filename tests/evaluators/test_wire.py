"""Frames survive any cutting of the stream; anything that is not a frame is refused with the reason."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluators import wire
from evaluators.wire import Closed, Decoder, Frame, WireError, encode

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
frames = st.builds(
    Frame,
    st.text(),
    st.dictionaries(st.text(), json_values, max_size=4),
    st.lists(st.binary(max_size=40), max_size=4).map(tuple),
)


# How slow inputs come and how long one takes is the machine's load, not the code.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(frames, max_size=3), st.integers(1, 50))
def test_frames_survive_any_cutting(sent, piece):
    stream = b"".join(b"".join(encode(frame)) for frame in sent)
    decoder, got = Decoder(), []
    for at in range(0, len(stream), piece):
        decoder.feed(stream[at : at + piece])
        while (frame := decoder.next()) is not None:
            got.append(frame)
    assert got == sent
    assert decoder.pending == 0


@given(st.binary(max_size=80))
def test_garbage_is_refused_or_waited_for(data):
    decoder = Decoder()
    decoder.feed(data)
    if data[:4] == wire.MAGIC[: len(data[:4])]:
        with contextlib.suppress(WireError):
            assert decoder.next() is None
    else:
        with pytest.raises(WireError, match="starts with"):
            decoder.next()


def raw(header: bytes, blobs: bytes = b"", magic: bytes = b"AVO1", lengths: tuple[int, int] | None = None) -> bytes:
    return struct.pack(">4sIQ", magic, *(lengths or (len(header), len(blobs)))) + header + blobs


def head(**changes) -> bytes:
    return json.dumps({"nonce": "n", "body": {}, "blobs": [], **changes}).encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PASS speedup=1000", "starts with b'AVO1', not with b'PASS'"),
        (raw(b"{", lengths=(wire.MAX_HEADER + 1, 0)), "header of 67108865 bytes is over the limit"),
        (raw(b"{}", lengths=(2, wire.MAX_BLOBS + 1)), "over the limit"),
        (raw(b"{"), "not JSON"),
        (raw(b"[" * 100_000), "not JSON"),
        (raw(b"\xff\xfe\xfd"), "not JSON"),
        (raw(b"[]"), "exactly the keys"),
        (raw(json.dumps({"nonce": "n", "body": {}}).encode()), "exactly the keys"),
        (raw(head(extra=1)), "exactly the keys"),
        (raw(head(nonce=3)), "nonce is a string"),
        (raw(head(body=[])), "body an object"),
        (raw(head(blobs={})), "blobs a list"),
        (raw(head(blobs=[3]), b"ab"), "do not add up to the 2 bytes"),
        (raw(head(blobs=[-1, 3]), b"ab"), "do not add up"),
        (raw(head(blobs=[True, 1]), b"ab"), "do not add up"),
        (raw(head(blobs=[1.0, 1.0]), b"ab"), "do not add up"),
    ],
)
def test_a_malformed_frame_is_named(data, message):
    decoder = Decoder()
    decoder.feed(data)
    with pytest.raises(WireError, match=message.replace("(", r"\(")):
        decoder.next()


def test_half_a_surrogate_pair_becomes_a_question_mark():
    said = {"message": "\ud800 \U0001f600 \udcff", "\udbff": ["\ud83d", 1.5, None]}
    decoder = Decoder()
    for piece in encode(Frame("n", said)):
        decoder.feed(piece)
    assert decoder.next().body == {"message": "? \U0001f600 ?", "?": ["?", 1.5, None]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
def test_a_header_is_text_in_one_encoding(encoding):
    header = json.dumps({"nonce": "n", "body": {"a": "\ud800"}, "blobs": []}, ensure_ascii=False)
    header = header.encode(encoding, "surrogatepass")
    decoder = Decoder()
    decoder.feed(struct.pack(">4sIQ", wire.MAGIC, len(header), 0) + header)
    with pytest.raises(WireError, match="is not JSON"):
        decoder.next()


def test_the_first_wrong_byte_is_enough():
    decoder = Decoder()
    decoder.feed(b"AVX")
    with pytest.raises(WireError):
        decoder.next()


@pytest.mark.parametrize("body", [{"a": object()}, {"a": {1, 2}}, {(1, 2): 3}])
def test_only_json_is_sent(body):
    with pytest.raises(WireError, match="has to be JSON"):
        encode(Frame("n", body))


def test_limits_hold_for_the_sender(monkeypatch):
    monkeypatch.setattr(wire, "MAX_BLOBS", 10)
    assert encode(Frame("n", {}, (b"x" * 10,)))
    with pytest.raises(WireError, match="blobs of 11 bytes"):
        encode(Frame("n", {}, (b"x" * 5, b"y" * 6)))


def test_over_a_socket():
    ours, theirs = socket.socketpair()
    frame = Frame("n", {"x": 1}, (b"a" * 3_000_000, b"", b"\x00\xff"))
    sender = threading.Thread(target=lambda: (wire.send(theirs, frame), theirs.close()))
    sender.start()
    decoder = Decoder()
    assert wire.receive(ours, decoder) == frame
    with pytest.raises(Closed, match=r"closed the channel$"):
        wire.receive(ours, decoder)
    sender.join()
    with pytest.raises(Closed):
        wire.send(ours, frame)
    ours.close()


def test_an_end_within_a_frame_is_told_apart():
    ours, theirs = socket.socketpair()
    theirs.sendall(b"".join(encode(Frame("n", {})))[:-1])
    theirs.close()
    with pytest.raises(Closed, match="within a frame"):
        wire.receive(ours, Decoder())
    ours.close()
