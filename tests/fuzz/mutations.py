"""Small damages to the bytes of a file: what disks, copies and strangers do to it."""

from __future__ import annotations

import random
import re

#: Values that programs stumble over, as text and as bytes.
WORDS = (
    b"nan", b"NaN", b"inf", b"-Infinity", b"1e999", b"-1", b"0", b"1e-320", b"9" * 400, b"null", b"true", b"{}", b"[]",
    b'""', b"'", b'"', b"\x00", b"\xff\xfe", b"\x1b[2J", b"\xed\xa0\x80", b"[" * 3000, b'{"a":' * 3000, b"a." * 3000,
    b"../../x", b"/dev/zero", b"\r\n", b",,,,", b"\xe2\x80\xae", b"18446744073709551616", b"-9223372036854775809",
    b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x8b\xff\xff\xff\x7f", b"\\ud800", b"\n", b"\t", b"(", b"t", b"<a>",
    b"</annotation>", b"class_names", b"logits", b"labels", b".npy", b"'shape': (9223372036854775807,)", b"PAR1",
    b"PK\x01\x02", b"PK\x05\x06", b"\x93NUMPY", b"\x1f\x8b", b"A" * 70_000, b"9" * 5000, b"\x85" * 2000,
    b"I" + b"1" * 5000 + b"\n",
)  # fmt: skip
INTEGERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_QUOTED = re.compile(rb'"[^"\n]{0,80}"')


def flip_bit(data: bytes, rng: random.Random) -> bytes:
    """One bit is another one."""
    if not data:
        return b"\0"
    position = rng.randrange(len(data))
    return data[:position] + bytes([data[position] ^ 1 << rng.randrange(8)]) + data[position + 1 :]


def mutate(data: bytes, rng: random.Random) -> bytes:
    """One to four damages."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        data = rng.choice(MUTATIONS)(data, rng)
    return data


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _cut_out(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + data[start + rng.randrange(1, 65) :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    piece = data[start : start + rng.randrange(1, 257)]
    return data[:start] + piece * rng.choice((2, 3, 50)) + data[start:]


def _move(data: bytes, rng: random.Random) -> bytes:
    start, target = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    piece = data[start : start + rng.randrange(1, 65)]
    return data[:target] + piece + data[target + len(piece) :]


def _zeros(data: bytes, rng: random.Random) -> bytes:
    start, length = rng.randrange(len(data) + 1), rng.choice((1, 8, 64, 512))
    return data[:start] + bytes(length) + data[start + length :]


def _noise(data: bytes, rng: random.Random) -> bytes:
    start, length = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8, 64))
    return data[:start] + rng.randbytes(length) + data[start + length :]


def _integer(data: bytes, rng: random.Random) -> bytes:
    start, size = rng.randrange(len(data) + 1), rng.choice((1, 2, 4, 8))
    value = rng.choice(INTEGERS) & (256**size - 1)
    return data[:start] + value.to_bytes(size, rng.choice(("little", "big"))) + data[start + size :]


def _insert_word(data: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(data) + 1)
    return data[:start] + rng.choice(WORDS) + data[start:]


def _replace_number(data: bytes, rng: random.Random) -> bytes:
    return _replace(_NUMBER, data, rng)


def _replace_text(data: bytes, rng: random.Random) -> bytes:
    return _replace(_QUOTED, data, rng)


def _replace(pattern: re.Pattern[bytes], data: bytes, rng: random.Random) -> bytes:
    matches = list(pattern.finditer(data[: 1 << 20]))
    if not matches:
        return flip_bit(data, rng)
    match = rng.choice(matches)
    word = rng.choice(WORDS)
    return data[: match.start()] + word + data[match.end() :]


def _another_file(data: bytes, rng: random.Random) -> bytes:
    """Noise, which may begin as the file did."""
    return data[: rng.choice((0, 4, 8))] + rng.randbytes(rng.randrange(300))


MUTATIONS = (
    flip_bit, flip_bit, _truncate, _cut_out, _repeat, _move, _zeros, _noise, _integer, _insert_word, _insert_word,
    _replace_number, _replace_text, _another_file,
)  # fmt: skip
