"""The values users hold: tensors, parameters, constants, and hints about their shapes.

In: arrays, lists, scalars, torch and DLPack tensors; annotations. Out: `Tensor` and `Parameter` objects over versioned
`Storage`; compiled checks of hints. Nothing here knows of programs running: the interpreter and the compiler see
`_array`, `storage_of` and `frozen_state`.
"""

from __future__ import annotations

from tiercel.values.check import Checker
from tiercel.values.example import example
from tiercel.values.hints import specs_of
from tiercel.values.parameter import Parameter, constant, frozen_state
from tiercel.values.ragged import Ragged, ragged
from tiercel.values.spec import DimSpec, TensorSpec, dim, spec
from tiercel.values.storage import Storage
from tiercel.values.tensor import Tensor, adopt, from_dlpack, storage_of, unwrap

__all__ = [
    "Checker",
    "DimSpec",
    "Parameter",
    "Ragged",
    "Storage",
    "Tensor",
    "TensorSpec",
    "adopt",
    "constant",
    "dim",
    "example",
    "from_dlpack",
    "frozen_state",
    "ragged",
    "spec",
    "specs_of",
    "storage_of",
    "unwrap",
]
