"""The page about settings, rendered from the table: what a person can set, how, and what happens then."""

from __future__ import annotations

from tiercel.config.kinds import LEDGER_KINDS
from tiercel.config.settings import ALIASES, ROWS

__all__ = ["render"]

_HEAD = """\
# Settings

`tc.config.show()` prints every setting, its value and where it came from. From the weakest to the strongest, a value
comes from

1. the default,
2. the environment variable, read at the first use (`tc.config.reload()` reads again; a bad value is a warning),
3. `tc.set_context(name=value)`, for the whole process,
4. `with tc.context(name=value): ...`, for a block of code in this thread or asyncio task,
5. the options of one function, such as `tc.jit(level="O1")`.

Settings are read at the next call, whatever the order of decorating and setting. A name that does not exist and a value
that is not accepted raise an error that says what is accepted. `tc.config.reset()` undoes `set_context`.

| setting | default | environment | meaning | accepts |
|---|---|---|---|---|
"""


def render() -> str:
    """Return `docs/settings.md`."""
    lines = []
    for row in ROWS:
        variables = ", ".join(f"`{name}`" for name in row.env)
        default = row.kind.show(row.default)
        lines.append(
            f"| `{row.name}` | {default} | {variables} | {row.help} | {row.kind.accepts.replace('|', '/')} |\n"
        )
    aliases = ", ".join(f"`{alias}` for `{name}`" for alias, name in ALIASES.items())
    tail = (
        f"\nAccepted spellings: {aliases}.\n\n"
        f"`strict` takes ledger kinds: {', '.join(f'`{kind}`' for kind in LEDGER_KINDS)}.\n\n"
        "The lines that `log` asks for go to stderr. Tiercel logs through the standard logger `tiercel` and installs\n"
        "no handler unless `log` is set: a program with logging of its own leaves `log` off and configures that\n"
        "logger.\n"
    )
    return _HEAD + "".join(lines) + tail
