"""Decoding with a growing cache: one call is a whole sequence, a step at a time, from an empty cache.

In: `decode-attention`: queries, keys and values of n steps, (n, 3, 12, 64). `decode`: n and the first token. Out: all
outputs of the attention, or the tokens and the last logits. Each step appends to the cache and attends over all of it:
what a peer's users do about growing (concatenating, or a buffer of the final size) is their model's own matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tiercel as tc
from tiercel.tools.suite.case import Array, Call, Cannot, Case, Shape, Weights, frozen
from tiercel.tools.suite.cases.rows import gelu, layer_norm, softmax

__all__ = ["Decode", "DecodeAttention"]

HEADS = 12
HEAD = 64


def attend(q: Array, k: Array, v: Array, keys: Array, values: Array) -> Any:
    """q, k, v: (heads, 1, 64); keys, values: (heads, steps, 64). Returns the mixture, and caches one step longer."""
    keys = np.concatenate([keys, k], axis=1)
    values = np.concatenate([values, v], axis=1)
    return softmax(q @ keys.transpose(0, 2, 1) * 0.125) @ values, keys, values


class DecodeAttention(Case):
    """The attention alone."""

    name = "decode-attention"
    title = "attention of n steps with a growing cache, 12 heads of 64"
    labels = ("steps",)
    rtol = 1e-4
    calls = (300, 300)

    def shapes(self, quick: bool) -> list[Shape]:
        return [(32,), (512,)] if quick else [(16,), (64,), (256,), (512,)]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(8, 129 if quick else 513)),)

    def weights(self, rng: np.random.Generator) -> Weights:
        return {}

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        return (rng.standard_normal((*shape, 3, HEADS, 1, HEAD), dtype=np.float32),)

    def numpy(self, weights: Weights) -> Call:
        return _attention_loop(attend, lambda steps: np.zeros((HEADS, 0, HEAD), steps.dtype))

    def tiercel(self, weights: Weights) -> Call:
        """The cache is a `tc.Tensor`, which has room to grow."""
        step = tc.jit(attend)
        run = _attention_loop(step, lambda steps: tc.Tensor(np.zeros((HEADS, 0, HEAD), np.float32)))
        run.jitted = (step,)  # type: ignore[attr-defined]
        return run

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_decode

        return torch_decode.attention_loop(torch_decode.attend)

    def torch_compile(self, weights: Weights) -> Call:
        import torch

        from tiercel.tools.suite.models import torch_decode

        return torch_decode.attention_loop(torch.compile(torch_decode.attend, dynamic=True))

    onnx_inputs = (
        *((name, {}) for name in "qkv"),
        ("keys", {1: "steps"}),
        ("values", {1: "steps"}),
    )

    def onnx_module(self, weights: Weights) -> Any:
        from tiercel.tools.suite.models import torch_decode

        return torch_decode.AttendAndAppend()

    def onnx_example(self) -> tuple[Any, ...]:
        """Return NumPy inputs of the exported model: one step."""
        return (*(np.zeros((HEADS, 1, HEAD), np.float32) for _ in "qkv"), *_caches(3, 2))

    def onnxruntime(self, weights: Weights, session: Any) -> Call:
        """The cache goes out of one run and into the next, as in models with `past` inputs."""

        def step(q: Array, k: Array, v: Array, keys: Array, values: Array) -> Any:
            return session.run(None, {"q": q, "k": k, "v": v, "keys": keys, "values": values})

        return _attention_loop(step, lambda steps: np.zeros((HEADS, 0, HEAD), np.float32))

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.attention_loop()

    def jax_padded(self, weights: Weights) -> Call:
        raise Cannot("the same as jax: its cache has a fixed size already")

    def numba(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import numba_models

        return numba_models.attention_loop


def _caches(steps: int, count: int) -> tuple[Array, ...]:
    return tuple(np.zeros((HEADS, steps, HEAD), np.float32) for _ in range(count))


def _attention_loop(step: Call, empty: Call) -> Call:
    def run(steps: Array) -> Array:
        keys = values = empty(steps)
        outputs = []
        for q, k, v in steps:
            out, keys, values = step(q, k, v, keys, values)
            outputs.append(np.asarray(out))
        return np.stack(outputs)

    return run


# ---- a whole model ---------------------------------------------------------------------------------------------------

LAYERS = 2
HIDDEN = 384
WORDS = 2048
LAYER = ("s1", "t1", "w_qkv", "b_qkv", "w_o", "b_o", "s2", "t2", "w_in", "b_in", "w_out", "b_out")


def step(token: Any, caches: Any, embedding: Array, layers: Any, head: Array) -> Any:
    """One token. caches: for each layer keys and values. Returns the next token, its logits, and the new caches."""
    x = embedding[token][None]
    new = []
    for index, layer in enumerate(layers):
        keys, values = caches[index]
        s1, t1, w_qkv, b_qkv, w_o, b_o, s2, t2, w_in, b_in, w_out, b_out = layer
        qkv = (layer_norm(x, s1, t1) @ w_qkv + b_qkv).reshape(3, HIDDEN // HEAD, 1, HEAD)
        mixed, keys, values = attend(qkv[0], qkv[1], qkv[2], keys, values)
        new.append((keys, values))
        x = x + mixed.reshape(1, HIDDEN) @ w_o + b_o
        x = x + gelu(layer_norm(x, s2, t2) @ w_in + b_in) @ w_out + b_out
    logits = x @ head
    return logits[0].argmax(), logits, tuple(new)


class Decode(Case):
    """A whole model."""

    name = "decode"
    title = f"greedy decoding of n tokens, {LAYERS} layers, hidden {HIDDEN}, {WORDS} words"
    labels = ("steps",)
    rtol = 1e-3
    calls = (60, 60)

    def shapes(self, quick: bool) -> list[Shape]:
        return [(16,), (96,)] if quick else [(16,), (64,), (256,), (512,)]

    def draw(self, rng: np.random.Generator, quick: bool) -> Shape:
        return (int(rng.integers(4, 49 if quick else 257)),)

    def weights(self, rng: np.random.Generator) -> Weights:
        n = HIDDEN
        shapes = ((n,), (n,), (n, 3 * n), (3 * n,), (n, n), (n,), (n,), (n,), (n, 4 * n), (4 * n,), (4 * n, n), (n,))
        out = {
            "embedding": rng.standard_normal((WORDS, n), dtype=np.float32),
            "head": rng.standard_normal((n, WORDS), dtype=np.float32) * np.float32(n**-0.5),
        }
        for layer in range(LAYERS):
            for name, shape in zip(LAYER, shapes, strict=True):
                value = rng.standard_normal(shape, dtype=np.float32)
                value *= np.float32(shape[0] ** -0.5 if len(shape) == 2 else 0.1)
                out[f"{name}.{layer}"] = value + np.float32(name in ("s1", "s2"))
        return out

    def inputs(self, rng: np.random.Generator, shape: Shape) -> tuple[Any, ...]:
        return (shape[0], int(rng.integers(WORDS)))

    def parts(self, weights: Weights) -> tuple[Array, tuple[tuple[Array, ...], ...], Array]:
        """Return embedding, layers and head."""
        layers = tuple(tuple(weights[f"{name}.{layer}"] for name in LAYER) for layer in range(LAYERS))
        return weights["embedding"], layers, weights["head"]

    def numpy(self, weights: Weights) -> Call:
        parts = self.parts(weights)
        dtype = weights["head"].dtype
        return _greedy(lambda t, c: step(t, c, *parts), lambda: _empty(lambda a: a.astype(dtype)))

    def tiercel(self, weights: Weights) -> Call:
        """The caches are `tc.Tensor`s, which have room to grow."""
        embedding, layers, head = self.parts(frozen(weights))
        jitted = tc.jit(lambda token, caches: step(token, caches, embedding, layers, head))
        run = _greedy(jitted, lambda: _empty(tc.Tensor))
        run.jitted = (jitted,)  # type: ignore[attr-defined]
        return run

    def torch(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import torch_decode

        return torch_decode.greedy(torch_decode.Step(*self.parts(weights)))

    def torch_compile(self, weights: Weights) -> Call:
        import torch

        from tiercel.tools.suite.models import torch_decode

        return torch_decode.greedy(torch.compile(torch_decode.Step(*self.parts(weights)), dynamic=True))

    @property
    def onnx_inputs(self) -> Any:  # type: ignore[override]
        caches = [(f"{what}{i}", {1: "steps"}) for i in range(LAYERS) for what in ("keys", "values")]
        return (("token", {}), *caches)

    def onnx_module(self, weights: Weights) -> Any:
        from tiercel.tools.suite.models import torch_decode

        return torch_decode.StepAndAppend(*self.parts(weights))

    def onnx_example(self) -> tuple[Any, ...]:
        """Return NumPy inputs of the exported model: one step."""
        return (np.zeros(1, np.int64), *(np.zeros((HIDDEN // HEAD, 3, HEAD), np.float32) for _ in range(2 * LAYERS)))

    def onnxruntime(self, weights: Weights, session: Any) -> Call:
        names = [entry.name for entry in session.get_inputs()]

        def one(token: Any, caches: Any) -> Any:
            inputs = (np.array([token]), *caches)
            token, logits, *new = session.run(None, dict(zip(names, inputs, strict=True)))
            return token, logits, new

        def empty() -> list[Array]:
            return [a for pair in _empty(lambda a: a) for a in pair]

        return _greedy(one, empty)

    def jax(self, weights: Weights) -> Call:
        from tiercel.tools.suite.models import jax_models

        return jax_models.greedy(*self.parts(weights))

    def jax_padded(self, weights: Weights) -> Call:
        raise Cannot("the same as jax: its caches have a fixed size already")

    def numba(self, weights: Weights) -> Call:
        raise Cannot("models of nested weights are not written in Numba")


def _empty(make: Call) -> tuple[tuple[Any, Any], ...]:
    def nothing() -> Any:
        return make(np.zeros((HIDDEN // HEAD, 0, HEAD), np.float32))

    return tuple((nothing(), nothing()) for _ in range(LAYERS))


def _greedy(one: Call, empty: Call) -> Call:
    def run(count: int, token: Any) -> Any:
        caches = empty()
        tokens = []
        logits = None
        for _ in range(count):
            token, logits, caches = one(token, caches)
            token = int(np.asarray(token).reshape(()))
            tokens.append(token)
        return np.array(tokens), np.asarray(logits)

    return run
