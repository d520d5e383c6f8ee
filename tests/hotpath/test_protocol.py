"""Frames and plain data: whatever the bytes are, the answer is a value or a ProtocolError."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiercel.hotpath.protocol import (
    MAX_DEPTH,
    FrameReader,
    Kind,
    ProtocolError,
    decode,
    encode,
    pack,
)

numbers = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False)
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(plain)
def test_plain_data_comes_back(value):
    got = decode(encode(value))
    assert got == value
    assert repr(got) == repr(value)  # 1 is not True, -0.0 is not 0.0


def test_tuples_become_lists_and_nan_survives():
    got = decode(encode((1, (float("nan"), float("inf")))))
    assert got[0] == 1
    assert math.isnan(got[1][0])
    assert got[1][1] == math.inf


@pytest.mark.parametrize("value", [object(), {1, 2}, [b"", 1j], {"x": {(1, 2): 3}}])
def test_what_is_not_plain_is_refused(value):
    with pytest.raises(ProtocolError):
        encode(value)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data):
    with pytest.raises(ProtocolError):
        decode(data)


@given(plain, st.data())
def test_damaged_values_never_do_harm(value, data):
    raw = bytearray(encode(value))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= data.draw(st.integers(1, 255))
    try:
        decode(bytes(raw))
    except ProtocolError:
        pass
    with pytest.raises(ProtocolError):
        decode(bytes(raw[:-1]) if position == len(raw) - 1 else bytes(raw) + b"x")


def nested(depth):
    text = b"[" * depth + b"]" * depth
    return len(text).to_bytes(4, "little") + bytes(4) + text


def test_depth_is_bounded():
    assert decode(nested(MAX_DEPTH)) is not None
    with pytest.raises(ProtocolError, match="nested deeper"):
        decode(nested(MAX_DEPTH + 1))
    with pytest.raises(ProtocolError, match="nested deeper"):
        decode(nested(100_000))


@pytest.mark.parametrize("text", ['"[[["', '"a\\"[["', '"\\\\"', '["\\\\[", "]\\"["]', '{"[": "]", "]": ["\\\\\\""]}'])
def test_brackets_in_strings_are_no_nesting(text):
    raw = text.encode()
    decode(len(raw).to_bytes(4, "little") + bytes(4) + raw)


def test_a_reference_to_nothing_is_refused():
    text = b'{"\\u0000bytes": 3}'
    with pytest.raises(ProtocolError, match="not there"):
        decode(len(text).to_bytes(4, "little") + bytes(4) + text)


@given(
    st.lists(st.tuples(st.sampled_from(Kind), st.integers(0, 2**64 - 1), st.binary(max_size=50)), max_size=5), st.data()
)
def test_frames_survive_any_cutting(frames, data):
    stream = b"".join(pack(*frame) for frame in frames)
    reader, got = FrameReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += reader.feed(stream[:size])
        stream = stream[size:]
    assert [(f.kind, f.nonce, f.payload) for f in got] == frames


@given(st.binary(min_size=24, max_size=100))
def test_a_stream_of_garbage_is_refused(data):
    with pytest.raises(ProtocolError):
        list(FrameReader().feed(data))


@given(st.binary(max_size=30), st.data())
def test_every_flipped_bit_of_a_frame_is_noticed(payload, data):
    raw = bytearray(pack(Kind.JOB, 5, payload))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        assert list(FrameReader().feed(bytes(raw))) == []  # a longer length: the rest is waited for
    except ProtocolError:
        pass


def test_lengths_are_limited():
    with pytest.raises(ProtocolError, match="at most 10"):
        list(FrameReader(10).feed(pack(Kind.JOB, 1, bytes(11))))
