"""What surrounds the interpreter in a running program: the profile, the ledger, and what is told about both.

Read in this order: `scan` (one look at a value), `profile` (Signatures and learned ranges), `infer` (what they mean for
each instruction), `ledger` (what did not run as hoped), `context` (the machine, which feeds both from the interpreter's
hooks), `report` and `render` (`explain` and `stats`), `memory` (what all of it weighs).
"""

from tiercel.vm.context import Machine, machine
from tiercel.vm.ledger import Entry, Ledger, Line

__all__ = ["Entry", "Ledger", "Line", "Machine", "machine"]
