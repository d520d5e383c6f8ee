"""The cases of the suite, by name.

In: nothing. Out: `CASES`. A module here holds one family: shapes, weights, the NumPy code, and how each peer is put to
it; what peers need to be written in their own way is in `tiercel.tools.suite.models`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tiercel.tools.suite.case import Case
from tiercel.tools.suite.cases.branch import Branch, EarlyExit
from tiercel.tools.suite.cases.convolution import Pyramid
from tiercel.tools.suite.cases.decode import Decode, DecodeAttention
from tiercel.tools.suite.cases.encoder import Encoder
from tiercel.tools.suite.cases.experts import Experts
from tiercel.tools.suite.cases.recommend import Recommend
from tiercel.tools.suite.cases.recurrent import GRU, LSTM, LSTMCell, RaggedGRU, RaggedLSTM
from tiercel.tools.suite.cases.rows import Chain, GeluMLP, LayerNorm, Softmax
from tiercel.tools.suite.cases.scan import StateSpace

__all__ = ["CASES", "REGISTRY"]

# Where a child finds them.
REGISTRY: Final = f"{__name__}:CASES"

CASES: Final[Mapping[str, Case]] = {
    case.name: case
    for case in (
        LSTMCell("lstm-cell", "LSTM cell, sequences of 10 to 30", (10, 13, 20, 30), (10, 30), either=False),
        LSTMCell("lstm-cell-120", "LSTM cell, sequences of 10 or 120", (10, 120), (10, 120), either=True),
        LSTM(),
        RaggedLSTM(),
        GRU(),
        RaggedGRU(),
        Encoder(384, 1),
        Encoder(768, 1),
        Encoder(384, 6),
        Encoder(768, 6),
        DecodeAttention(),
        Decode(),
        LayerNorm(),
        Softmax(),
        GeluMLP(),
        Chain(),
        Recommend(),
        Pyramid(),
        Branch(),
        EarlyExit(),
        Experts(),
        StateSpace(),
    )
}
