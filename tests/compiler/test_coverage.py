"""Every operator has machine code or says why not."""

from __future__ import annotations

import pytest

from tests.compiler.regions import RegionBuilder, Runner
from tiercel.compiler.coverage import compiled_form, describe
from tiercel.compiler.elementwise import NotLowered
from tiercel.compiler.refusals import REASONS
from tiercel.operators import ALL


def test_every_operator_is_compiled_or_says_why_not():
    compiled = {name for name in ALL if compiled_form(name)}
    assert compiled | set(REASONS) == set(ALL)
    assert not compiled & set(REASONS)
    assert set(describe()) == set(ALL)


def test_the_reason_stands_in_the_refusal():
    b = RegionBuilder("refused")
    with pytest.raises(NotLowered, match="gcd has no machine code: no code has been written for it"):
        Runner(b.region(b.apply("gcd", b.input("x", ("N",), "int32"), b.input("y", ("N",), "int32"))))
