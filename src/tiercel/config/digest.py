"""BLAKE2b without OpenSSL: `hashlib` loads all of it, three and a half megabytes of the user's process."""

from __future__ import annotations

try:
    from _blake2 import blake2b
except ImportError:  # not this CPython
    from hashlib import blake2b

__all__ = ["blake2b"]
