"""What was chosen on this machine, as a program reads it before its first compile: plain data, nothing heavy loaded.

In: the folder and key of `store`. Out: by product, the plain form of a choice with what was measured. Damaged: nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

__all__ = ["MAX_WINNERS", "forget_all", "read_winners", "winners_path"]

MAX_WINNERS: Final = 500
"""Products whose choice is kept."""


def winners_path(folder: Path, key: str) -> Path:
    """The file."""
    return folder / f"tuned-{key}.json"


def read_winners(folder: Path, key: str, report: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """By product, see `session.Tuned.to_data`; empty where there is none, or the file is damaged, which is reported."""
    path = winners_path(folder, key)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        winners = found["winners"]
        if found["format"] != 1 or not all(isinstance(w, dict) and "choice" in w for w in winners.values()):
            raise ValueError
    except FileNotFoundError:
        return {}
    except OSError as error:
        report(f"{path} cannot be read: {error.strerror}")
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        report(f"{path} is damaged: what was chosen is not used")
        return {}
    return dict(winners)


def forget_all(folder: Path) -> int:
    """Remove what was measured and chosen, for every machine and version; how many products had a choice.

    Raises:
        OSError: a file cannot be removed.
    """
    count = 0
    for path in sorted(folder.glob("tuned-*.json")):
        count += len(read_winners(folder, path.stem.removeprefix("tuned-"), lambda message: None))
        path.unlink(missing_ok=True)
    for path in sorted(folder.glob("tuning-*.json")):
        path.unlink(missing_ok=True)
    return count
