"""The Python frontend: captures functions from their source.

What has instructions of its own: arithmetic, comparisons (chained too), `and or not`, conditional expressions,
attributes, subscripts and slices, displays with and without stars, f-strings, assignment to every kind of target,
augmented assignment, `:=`, `if for while else break continue return`, list, set and dict comprehensions, generator
expressions that `any all sum list tuple set dict sorted` consume (`sum` until 3.11), `try except else finally`,
`with`, `raise`, `assert`, calls of every form, nested functions and lambdas (made from their real code objects),
closures, `del name`, `match` on constants, names and alternatives.

What CPython runs for us, outlined under the user's own file, line and function name: `import`, assignment to globals,
`del x.a` and `del x[i]`, `except*`, sequence, mapping and class patterns of `match`, generator expressions that are
not consumed at once.

What makes a function run as Python, whole: `yield`, `await`, `async`, a class body, `locals()`, `vars()`, `dir()`,
`exec`, `eval`, `breakpoint()` and `set_trace()`, looking at frames (`sys._getframe`, `warnings.warn` with a
stacklevel), source that is missing or does not match the code object, more than `CaptureOptions.instruction_limit`
instructions.
"""

from __future__ import annotations

from tiercel.frontend.python.capture import Capture, CaptureOptions, capture
from tiercel.frontend.python.lower.state import Reason
from tiercel.frontend.python.source import Source, find_source

__all__ = ["Capture", "CaptureOptions", "Reason", "Source", "capture", "find_source"]
