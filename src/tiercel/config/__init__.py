"""Settings: what they are (`settings`), what they accept (`kinds`), which layer gives the value (`layers`).

`set_context(...)` sets them for the process, `with context(...)` for a block, `TIERCEL_*` variables from outside;
`current()` reads them, `show()` prints them with their origin. `log` writes the lines that the setting `log` asks for.
"""

from tiercel.config.kinds import LEDGER_KINDS
from tiercel.config.layers import context, current, get_context, overrides, reload, reset, set_context
from tiercel.config.log import logger
from tiercel.config.report import Row, show, table
from tiercel.config.settings import ALIASES, SETTINGS, Level, Policy, Setting, Settings

__all__ = [
    "ALIASES",
    "LEDGER_KINDS",
    "SETTINGS",
    "Level",
    "Policy",
    "Row",
    "Setting",
    "Settings",
    "context",
    "current",
    "get_context",
    "logger",
    "overrides",
    "reload",
    "reset",
    "set_context",
    "show",
    "table",
]
