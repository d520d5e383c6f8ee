"""Methods, properties, `super`, private names, data classes, named tuples."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tests.frontend.corpus.support import add, case, ramp


class Base:
    scale = 2

    def __init__(self, x):
        self.x = x
        self.__hidden = x

    def value(self, k=1):
        return self.x * k

    @property
    def doubled(self):
        return self.x * 2


class Model(Base):
    def __init__(self, x):
        super().__init__(x)
        self.__hidden = -x
        self.calls = 0

    def value(self, k=1):
        return super().value(k) + 1

    def forward(self, v):
        self.calls += 1
        return v * self.x + self.value(k=2) * self.scale

    def private(self, __arg=3):
        __local = self.__hidden
        self.__other = __local + __arg
        return self.__other, __local, self._Base__hidden

    def private_in_closure(self):
        __k = 5
        return (lambda: (__k, self.__hidden))(), [__k for __x in range(2)]

    def super_in_nested(self):
        def inner():
            return super(Model, self).value(3)

        return inner()

    def class_cell(self):
        return __class__.__name__, isinstance(self, __class__)

    def properties(self):
        return self.doubled, self.T, type(self).scale

    @property
    def T(self):
        return "not a transpose"

    def sum(self, axis=None):
        return "not a reduction", axis

    def calls_own_sum(self):
        return self.sum(axis=1)

    def __call__(self, v):
        return self.forward(v)

    def uses_instance_call(self, v):
        return self(v)

    def chained_attributes(self):
        self.child = Model(self.x + 1)
        self.child.child = self
        return self.child.child.child.x, self.child.value()

    def super_attribute_missing(self):
        return super().nothing


for _name in [
    n
    for n, v in vars(Model).items()
    if callable(v) and n not in ("__init__", "T", "forward", "sum", "value", "__call__", "uses_instance_call")
]:
    add(vars(Model)[_name], (Model(3),), native=_name != "chained_attributes")
for _method in (Model.value, Model.forward, Model.__call__, Model.uses_instance_call):
    add(_method, (Model(3), 4), (Model(ramp(3)), ramp(3)))


class Pair(NamedTuple):
    first: object
    second: object


@dataclass
class Config:
    rate: float
    names: list


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@case((Pair(1, 2),), (Pair(ramp(2), [1]),))
def named_tuple(p):
    a, b = p
    return p.first, p[1], a, len(p), p._replace(first=b)


@case((1, 2), native=False)
def makes_named_tuple(a, b):
    return Pair(a, second=b)


@case((Config(0.5, ["a"]),), native=False)
def data_class(c):
    c.rate *= 2
    c.names.append("b")
    return replace(c, rate=1), Config(1, c.names)


@case(({"a": [ramp(2), {"b": (ramp(3), 1)}]},))
def nested_arguments(tree):
    tree["a"][1]["b"][0][0] = 7
    tree["c"] = tree["a"][0] * 2
    return {"out": [tree["a"][0], tree["c"]], "t": tree["a"][1]["b"]}


@case((Colour.RED,), (Colour.BLUE,))
def enumeration(c):
    return c is Colour.RED, c == Colour.BLUE, c.name


@case((Model(2), 3))
def calls_methods(m, v):
    return m.forward(v), m.calls, m(v), m.sum(axis=0), m.T, Model.value(m, 5)


class Tagged(np.ndarray):
    def __array_finalize__(self, obj):
        self.tag = getattr(obj, "tag", "new")

    def sum(self, *args, **kwargs):
        return "summed", super().sum(*args, **kwargs)


@case((np.ma.masked_array([1.0, 2.0], [True, False]),), (ramp(2, 2).view(Tagged),))
def subclasses(a):
    return a * 2, a.sum(), a.T, a + a


@case((Model(1),), native=False)
def setattr_and_getattr(m):
    setattr(m, "y", 5)
    return getattr(m, "y"), getattr(m, "nothing", None), hasattr(m, "x")


class Slotted:
    __slots__ = ("a",)


@case((Slotted(),))
def slots(s):
    s.a = 1
    s.b = 2


class Descriptor:
    def __get__(self, instance, owner):
        return ("got", instance is not None)

    def __set__(self, instance, value):
        raise AttributeError("read-only")


class WithDescriptor:
    d = Descriptor()


@case((WithDescriptor(),))
def descriptors(w):
    x = w.d
    w.d = 5
    return x
