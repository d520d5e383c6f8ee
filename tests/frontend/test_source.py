"""Finding a function's source, and refusing what is not the source of its code."""

from __future__ import annotations

import ast
import doctest
import importlib.util
import json
import linecache
import textwrap
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tiercel.errors import CaptureError
from tiercel.frontend.python.source import find_source, nested_source, same_code


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """Returns load(text): a module of its own made of a text."""
    count = 0

    def make(text: str) -> types.ModuleType:
        nonlocal count
        count += 1
        path = tmp_path / f"made_{count}.py"
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return make


def codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield const
            yield from codes(const)


@pytest.mark.parametrize("module", [json.decoder, json.encoder, textwrap, doctest, linecache])
def test_every_function_of_a_module(module: types.ModuleType) -> None:
    assert module.__file__ is not None
    top = compile(Path(module.__file__).read_text(), module.__file__, "exec", dont_inherit=True)
    found = 0
    for code in codes(top):
        if code.co_flags & 2 and (not code.co_name.startswith("<") or code.co_name == "<lambda>"):
            source = find_source(code)
            assert source.node.lineno >= code.co_firstlineno
            found += 1
    assert found > 3


def test_positions_are_those_of_the_file(load: Any) -> None:
    module = load(
        """\
        # a comment



        class A:
            class B:
                def f(self, größe):
                    return (größe +
                            1)
        """
    )
    source = find_source(module.A.B.f.__code__)
    addition = next(n for n in ast.walk(source.node) if isinstance(n, ast.BinOp))
    assert (addition.lineno, addition.col_offset, addition.end_lineno) == (8, 20, 9)
    assert source.private_class == "B"
    assert source.text.lstrip().startswith("def f(self")


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return x",
        "def f(x): return x",
        "@staticmethod\n@(lambda g:\n   g)\ndef f(\n    x,\n):\n    return (\n        x\n    )\n# behind\ny = 1",
        'def f(x):\n    """doc\nwith less indentation\n"""\n    return x\ny = 1',
        "def f(x):\n    y = '''\ntext\n'''\n    return y",
        "def f(x):\n    return x\n    def g(): pass\n    while False: x = 2",
        "def f(x):\n\n    # a comment\n\n    return x\n\n    # the end\n\ny = 1",
        "if 1:\n\tdef f(x):\n\t\treturn x",
        "if 1:\n  try:\n    def f(x):\n      return x\n  except E: pass",
        "def f(x):\n    return [\n1,\n2]\ny = 1",
        "def f(x):\n    x = 1 + \\\n2\n    return x",
        "def f(x, *a: int, b: 'str' = 5, **k) -> 'f':\n    return x",
        "import math\ndef f(x):\n    return math.sqrt(x)",
        "def f(x):\n    return f(x - 1) if x else 0",
        "def f(x):\n    class C:\n        def g(self): return __class__\n    return C",
        "from __future__ import annotations\ndef f(x: undefined):\n    def g(y: undefined): pass\n    return g",
        "def outer():\n    y = 1\n    def f(x):\n        nonlocal y\n        y += x\n        return y\n    return f\nf = outer()",
        "class A:\n    __z = 1\n    def f(self, __y=2):\n        return self.__z + __y\nf = A.f",
        "class _A:\n    def m(self):\n        def f(x):\n            return x.__y, super()\n        return f\nf = _A().m()",
        "class A:\n    def f(self): return super().f()\nf = A.f",
        "f = lambda x: x",
        "g, f = (lambda x: x), (lambda x: x + 1)",
        "fs = [lambda x: lambda: x, lambda x: 1, lambda x: 1]\nf = fs[2]",
        "f = dict(\n    a=(lambda x:\n       x),\n    b=lambda x: x\n)['a']",
        "f = (lambda x, y=(lambda: 1): y)",
        "def outer(k):\n    return lambda x: x + k\nf = outer(1)",
        "class A:\n    f = lambda self: self.__x\nf = A.f",
        "f = [lambda: i for i in range(3)][1]",
    ],
)
def test_forms(load: Any, text: str) -> None:
    module = load(text + "\n")
    function = getattr(module.f, "__func__", module.f)
    source = find_source(function.__code__, module.__dict__)
    assert isinstance(source.node, ast.FunctionDef | ast.Lambda)


def test_lambdas_on_one_line_are_told_apart(load: Any) -> None:
    module = load("fs = [lambda x: x + 1, lambda x: x + 2, lambda x: x + 1]\n")
    columns = [find_source(f.__code__).node.col_offset for f in module.fs]
    assert columns == [6, 23, 40]


def test_nested_source(load: Any) -> None:
    module = load(
        """
        def outer(x):
            y = 1

            def inner(z):
                return y + z

            return inner
        """
    )
    outer = find_source(module.outer.__code__)
    inner = module.outer(1)
    node = next(n for n in ast.walk(outer.node) if isinstance(n, ast.FunctionDef) and n.name == "inner")
    source = nested_source(outer, node, inner.__code__)
    assert source.text == "    def inner(z):\n        return y + z\n"
    assert same_code(source.code, inner.__code__)


def test_edited_file(tmp_path: Path, load: Any) -> None:
    module = load("def f(x):\n    return x + 1\n")
    find_source(module.f.__code__)
    Path(module.__file__).write_text("def f(x):\n    return x + 2  # edited\n")
    with pytest.raises(CaptureError, match="does not match its code"):
        find_source(module.f.__code__)
    Path(module.__file__).write_text("\n\ndef g(x):\n    return x + 1  # moved\n")
    with pytest.raises(CaptureError, match="does not match its code"):
        find_source(module.f.__code__)
    Path(module.__file__).write_text("")
    with pytest.raises(CaptureError, match="not available|does not match"):
        find_source(module.f.__code__)


def test_edited_lambda(load: Any) -> None:
    module = load("f = lambda x: x + 1\n")
    Path(module.__file__).write_text("f = lambda x: x + 22\n")
    with pytest.raises(CaptureError, match="does not match its code"):
        find_source(module.f.__code__)


def test_no_source() -> None:
    namespace: dict[str, Any] = {}
    exec("def f(x):\n    return x\n", namespace)
    with pytest.raises(CaptureError, match=r"no source file \(<string>\)"):
        find_source(namespace["f"].__code__)


def test_changed_code_object(load: Any) -> None:
    module = load("def f(x):\n    return x + 1\n\ndef g(x):\n    return x + 2\n")
    module.f.__code__ = module.g.__code__.replace(co_name="f", co_firstlineno=1)
    with pytest.raises(CaptureError, match="does not match its code"):
        find_source(module.f.__code__)


def test_notebook_cell() -> None:
    text = "import numpy as np\ndef f(x):\n    return np.exp(x)\n"
    name = "<ipython-input-7-abc>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    namespace: dict[str, Any] = {}
    exec(compile(text, name, "exec"), namespace)
    assert find_source(namespace["f"].__code__).text == "def f(x):\n    return np.exp(x)\n"
    # The cell is run again with another text, under another name; the old function keeps its own.
    again = text.replace("exp", "log")
    linecache.cache["<ipython-input-8-def>"] = (len(again), None, again.splitlines(True), "<ipython-input-8-def>")
    assert "exp" in find_source(namespace["f"].__code__).text


def test_doctest() -> None:
    found: list[str] = []
    example = """
    >>> def f(x):
    ...     return x + 1
    >>> record(f)
    """
    test = doctest.DocTestParser().get_doctest(
        example, {"record": lambda f: found.append(find_source(f.__code__).text)}, "a test", None, 0
    )
    doctest.DocTestRunner().run(test)
    assert found == ["def f(x):\n    return x + 1\n"]


def test_warnings_of_the_compiler_are_not_repeated(load: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = load("def f(x):\n    return x is 5, '\\d', (1)[0] if x else 0\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        find_source(module.f.__code__)


def test_filters_are_left_alone(load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They belong to all threads, and changing them makes warnings that were shown once appear again."""
    module = load("def f(x):\n    return [x, '\\n', lambda: x is None]\n")
    monkeypatch.setattr(warnings, "catch_warnings", None)
    find_source(module.f.__code__)
