"""Arguments made from what a profile remembers."""

from __future__ import annotations

import numpy as np
import pytest

import tiercel as tc
from tiercel.vm.dispatch import signature_of
from tiercel.vm.remembered import arguments_like
from tiercel.vm.scan import key_text, scan

X = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    "value",
    [
        X,
        np.asfortranarray(X),
        np.ones((2, 2), np.int8),
        np.array(2.0),
        tc.Tensor(X),
        3,
        2.5,
        True,
        None,
        "mean",
        np.float32(2),
        (X, 3),
        (X,),
        [X, 2.0],
        {"w": X, "n": 3, 4: (X, "a, b")},
    ],
    ids=lambda value: type(value).__name__,
)
def test_they_have_the_signature_of_what_was_seen(value):
    sizes: list[int] = []
    key = scan(value, sizes)
    text = key_text(key, iter(map(str, sizes)))
    made = arguments_like({0: text}, 1)
    assert made is not None, text
    assert signature_of(made[0]) == signature_of(value)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("float32[3..9, 4]{C}", (3, 4)),
        ("float32[1..9, 0..5]{C}", (9, 5)),
        ("float32[16..64 % 8]{C}", (16,)),
        ("float32[]{C}", ()),
    ],
)
def test_sizes_are_the_smallest_that_do_not_broadcast(text, shape):
    (made,) = arguments_like({0: text}, 1)
    assert made.shape == shape


@pytest.mark.parametrize(
    "text",
    ["float32[?]{C}", "float32[...]{C}", "float32[3]{strided}", "float32[3]{C}@cuda:0", "list[3] of float", "Model",
     "(int 3", "{'a': int 3, b}", "float32[100000, 100000]{C}", "nonsense[3]{C}", "", "'a\\n'"],
)  # fmt: skip
def test_what_says_too_little_gives_none(text):
    assert arguments_like({0: text}, 1) is None
    assert arguments_like({0: "int 3", 1: text}, 2) is None


def test_a_parameter_without_a_text_gives_none():
    assert arguments_like({0: "int 3"}, 2) is None
