"""Damaged and malicious files: `python -m tests.bytecode.fuzz --seconds 60 [--seed 1]`.

Every input either gives a program, which then writes the identical bytes, lists, and assembles to itself, or is refused
with a `BytecodeError` that says where and why. Anything else (another exception, a hang) is a failure: the input is
written to a file and its name is printed.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.bytecode.generate import generate
from tiercel.bytecode import dumps, find_defects, from_text, loads, to_text
from tiercel.errors import BytecodeError

# A refusal or a program takes milliseconds; this is for machines under heavy load.
SLOW_SECONDS = 20.0
HEADER = struct.Struct("<8sHHI")
ENTRY = struct.Struct("<IIQQ")


def check_file(data: bytes) -> bool:
    """Check one input; returns whether it was accepted. Raises what is a failure."""
    try:
        program = loads(data, resolve=False)
    except BytecodeError as error:
        check_refusal(error)
        return False
    assert dumps(program) == data, "accepted, but not what dumps writes"
    text = to_text(program)
    assert dumps(from_text(text)) == data, "the text form lost something"
    return True


def check_refusal(error: BytecodeError) -> None:
    """A refusal says where and why."""
    assert error.section and error.reason and str(error), f"a refusal without place or reason: {error!r}"


def check_text(text: str) -> bool:
    """Check one text; returns whether it was accepted. Raises what is a failure."""
    try:
        program = from_text(text)
    except BytecodeError as error:
        check_refusal(error)
        return False
    if find_defects(program):
        return False
    try:
        data = dumps(program)
    except BytecodeError:
        return False
    assert dumps(loads(data, resolve=False)) == data
    assert dumps(from_text(to_text(program))) == data
    return True


def sections(data: bytes) -> list[tuple[int, bytes]]:
    """Kind and contents of a well-formed file's sections."""
    count = HEADER.unpack_from(data)[3]
    entries = [ENTRY.unpack_from(data, HEADER.size + i * ENTRY.size) for i in range(count)]
    return [(kind, data[offset : offset + length]) for kind, _, offset, length in entries]


def assemble(parts: list[tuple[int, bytes]]) -> bytes:
    """A file of these sections, with right offsets and checksums."""
    at = HEADER.size + ENTRY.size * len(parts) + 4
    header = HEADER.pack(b"\x89MSIR\r\n\x1a", 1, 0, len(parts))
    body = b""
    for kind, content in parts:
        padding = bytes(-at % 64) if kind == 7 else b""
        body += padding + content
        at += len(padding)
        header += ENTRY.pack(kind, zlib.crc32(content), at, len(content))
        at += len(content)
    return header + struct.pack("<I", zlib.crc32(header)) + body


def mutate(r: random.Random, data: bytes) -> bytes:
    """Change some bytes: flips, interesting values, insertions, deletions, repetitions."""
    out = bytearray(data)
    for _ in range(r.choice([1, 1, 1, 2, 4, 16])):
        at = r.randrange(len(out) + 1)
        kind = r.randrange(6)
        if kind == 0 and out:
            out[at % len(out)] ^= 1 << r.randrange(8)
        elif kind == 1 and out:
            out[at % len(out)] = r.choice([0, 1, 2, 127, 128, 255, r.randrange(256)])
        elif kind == 2:
            out[at:at] = bytes(r.choices(range(256), k=r.randrange(1, 5)))
        elif kind == 3:
            del out[at : at + r.randrange(1, 9)]
        elif kind == 4:
            # A number of the largest kind, where a count may be.
            out[at:at] = b"\xff" * r.randrange(1, 10) + b"\x01"
        else:
            start = r.randrange(len(out) + 1)
            out[at:at] = out[start : start + r.randrange(1, 30)]
    return bytes(out)


def mutate_inside(r: random.Random, data: bytes) -> bytes:
    """Change one section and give the file right checksums, so that the inner parsers see the change."""
    parts = sections(data)
    index = r.randrange(len(parts))
    kind, content = parts[index]
    parts[index] = kind, mutate(r, content)
    if r.random() < 0.05:
        del parts[r.randrange(len(parts))]
    return assemble(parts)


def mutate_text(r: random.Random, text: str) -> str:
    """Change some characters, words or lines."""
    for _ in range(r.choice([1, 1, 2, 5])):
        lines = text.split("\n")
        at = r.randrange(len(lines))
        kind = r.randrange(5)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, r.choice(lines))
        elif kind == 2:
            words = lines[at].split(" ")
            words[r.randrange(len(words))] = r.choice(r.choice(lines).split(" "))
            lines[at] = " ".join(words)
        elif kind == 3:
            place = r.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + r.choice("%$#@;:,()[]{}'\"\\.=0x9-é\x00*/< ") + lines[at][place:]
        else:
            place = r.randrange(len(lines[at]) + 1)
            lines[at] = lines[at][:place] + lines[at][place + 1 :]
        text = "\n".join(lines)
    return text


def corpus(count: int = 12) -> list[bytes]:
    """Well-formed files of several sizes."""
    return [dumps(generate(seed, size)) for seed, size in zip(range(count), (3, 10, 30) * count, strict=False)]


def inputs(r: random.Random, seeds: list[bytes]) -> Iterator[tuple[str, bytes | str]]:
    """An endless row of inputs: ("file", bytes) or ("text", str)."""
    texts = [to_text(loads(data, resolve=False)) for data in seeds]
    while True:
        kind = r.random()
        index = r.randrange(len(seeds))
        if kind < 0.1:
            yield "file", mutate(r, seeds[index])
        elif kind < 0.7:
            yield "file", mutate_inside(r, seeds[index])
        elif kind < 0.95:
            yield "text", mutate_text(r, texts[index])
        else:
            made = dumps(generate(r.randrange(1 << 32), r.choice([3, 10, 40])))
            yield "file", made
            # New shapes of input become seeds for more.
            if len(seeds) < 200:
                seeds.append(made)
                texts.append(to_text(loads(made, resolve=False)))


def run(seconds: float, seed: int, *, report: bool = False) -> tuple[int, int]:
    """Fuzz for some seconds; returns how many inputs were tried and how many accepted. Raises on the first failure."""
    tried = accepted = 0
    terminal = sys.stderr.isatty()
    start = last = time.monotonic()
    for kind, value in inputs(random.Random(seed), corpus()):
        began = time.monotonic()
        try:
            good = check_file(value) if isinstance(value, bytes) else check_text(value)
            took = time.monotonic() - began
            assert took < SLOW_SECONDS, f"took {took:.1f} s"
        except BaseException as error:
            raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
            path = Path(tempfile.mkstemp(prefix="tiercel-fuzz-", suffix=f".{kind}")[1])
            path.write_bytes(raw)
            error.add_note(f"input {tried} of seed {seed}, a {kind}, is in {path}")
            raise
        tried += 1
        accepted += good
        now = time.monotonic()
        if report and now - last >= (1 if terminal else 10):
            last = now
            line = f"{now - start:6.0f} s, {tried} inputs, {accepted} accepted"
            print(f"\r{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)
        if now - start >= seconds:
            break
    if report and terminal:
        print(file=sys.stderr)
    return tried, accepted


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Feed damaged programs to the loader and the assembler.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time; it is printed")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", file=sys.stderr)
    tried, accepted = run(options.seconds, seed, report=True)
    print(f"{tried} inputs, {accepted} accepted, none failed")


if __name__ == "__main__":
    main()
