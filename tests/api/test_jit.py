"""`tc.jit`: what it takes, and that what it returns behaves as the function itself."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
import linecache
import os
import pickle
import subprocess
import sys
import textwrap
import types
import warnings

import numpy as np
import pytest

import tiercel as tc
from tests.api import targets
from tiercel.api import is_jitted, state_of

X = np.arange(6.0).reshape(2, 3)
W = np.arange(12.0).reshape(3, 4)


# ---- kinds of things -------------------------------------------------------------------------------------------------


def test_function():
    assert np.array_equal(targets.scaled(X, offset=1), X * 2 + 1)
    tc.testing.check(targets.scaled, (X,), tc.testing.arguments(X, 3, offset=2), (X, 1, 2, 3), ())


def test_decorator_with_arguments():
    @tc.jit(level="O1", strict=False)
    def f(x):
        return x + 1

    assert f(1) == 2
    assert is_jitted(f)


def test_jit_of_jit_is_itself():
    assert tc.jit(targets.scaled) is targets.scaled


def test_settings_given_later_add_to_those_before():
    first = tc.jit(level="O1")(targets.helper)
    second = tc.jit(first, strict=True)
    assert second is not first
    assert second.__wrapped__ is targets.helper
    assert state_of(second).settings().level == "O1"
    assert state_of(second).settings().strict is True


@pytest.mark.parametrize("name", ["class_first", "class_second", "static_first", "static_second"])
def test_class_and_static_methods_in_either_order(name):
    expected = X * 3.0 if name.startswith("class") else X + 1
    assert np.array_equal(getattr(targets.Model, name)(X), expected)
    assert np.array_equal(getattr(targets.Model(W), name)(X), expected)
    assert getattr(targets.Model, name).program is not None


def test_methods_and_properties():
    model = targets.Model(W)
    assert np.array_equal(model.method(X), X @ W)
    assert np.array_equal(targets.Model.method(model, X), X @ W)
    assert model.total == model.total_second == W.sum()
    assert model.cached == W.mean()
    assert "cached" in vars(model)
    assert model.method.explain().name == "Model.method"
    with pytest.raises(AttributeError):
        model.total = 3


def test_kernels_are_shared_by_instances():
    before = targets.Model.method.stats()["calls"]
    targets.Model(W).method(X)
    targets.Model(W).method(X)
    assert targets.Model.method.stats()["calls"] == before + 2


def test_lambda():
    f = tc.jit(lambda x, k=2: x**k)
    assert f(3) == 9
    assert f.__name__ == "<lambda>"


def test_partial():
    f = tc.jit(functools.partial(targets.helper, X))
    assert isinstance(f, functools.partial)
    assert np.array_equal(f(), targets.helper(X))
    assert f.stats()["calls"] == 1
    assert state_of(f).name == "helper"


def test_bound_method_and_callable_object():
    model = targets.Model(W)
    bound = tc.jit(model.__call__)
    assert np.array_equal(bound(X), model(X))
    instance = tc.jit(model)
    assert np.array_equal(instance(X), model(X))
    assert instance.program is not None


def test_c_function_runs_as_python_and_says_so():
    with pytest.warns(tc.TiercelPerformanceWarning, match="not written in Python"):
        f = tc.jit(np.sin)
    assert np.array_equal(f(X), np.sin(X))
    assert f.program is None
    assert "not written in Python" in str(f.explain())


def test_class_is_refused():
    with pytest.raises(TypeError, match="takes functions, got the class Model; decorate its methods"):
        tc.jit(targets.Model)


def test_nonsense_is_refused():
    with pytest.raises(TypeError, match="takes functions, got int 3"):
        tc.jit(3)


def test_unknown_setting_is_refused():
    with pytest.raises(tc.ConfigError):
        tc.jit(level="O9")(targets.helper)


def test_generators_and_coroutines_stay_what_they_are():
    with pytest.warns(tc.TiercelPerformanceWarning, match="generator"):

        @tc.jit
        def numbers(n):
            yield from range(n)

    with pytest.warns(tc.TiercelPerformanceWarning, match="coroutine"):

        @tc.jit
        async def answer():
            return 42

    assert inspect.isgeneratorfunction(numbers)
    assert list(numbers(3)) == [0, 1, 2]
    assert inspect.iscoroutinefunction(answer)
    assert asyncio.run(answer()) == 42
    assert numbers.explain().reason is not None


def test_reason_is_said_once_at_the_user_s_line():
    def uses_locals(x):
        return locals()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        f = tc.jit(uses_locals)
        tc.jit(uses_locals)
        assert f(3) == {"x": 3}
    found = [w for w in caught if w.category is tc.TiercelPerformanceWarning]
    assert len(found) == 1
    assert found[0].filename == __file__
    assert "locals()" in linecache.getline(__file__, found[0].lineno)


# ---- manners ---------------------------------------------------------------------------------------------------------


def test_metadata():
    f = targets.scaled
    assert type(f) is types.FunctionType
    assert f.__name__ == "scaled"
    assert f.__qualname__ == "scaled"
    assert f.__module__ == "tests.api.targets"
    assert f.__doc__ == "Scale and shift."
    assert f.__defaults__ is f.__wrapped__.__defaults__
    assert f.__kwdefaults__ == {"offset": 0.0}
    assert str(inspect.signature(f)) == "(x, factor=2.0, *, offset=0.0)"
    assert f.__signature__ == inspect.signature(f.__wrapped__)
    assert inspect.getsource(f).startswith("@tc.jit\ndef scaled")
    assert inspect.getsourcefile(inspect.unwrap(f)) == targets.__file__


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"nope": 2}), ((1,), {"x": 2}), ((1,), {"offset": 1, "factor": 2, "q": 1})],
)
def test_wrong_calls_raise_python_s_words(args, kwargs):
    with pytest.raises(TypeError) as expected:
        targets.scaled.__wrapped__(*args, **kwargs)
    with pytest.raises(TypeError) as actual:
        targets.scaled(*args, **kwargs)
    assert str(actual.value) == str(expected.value)


def test_pickle_and_copies_by_qualified_name():
    for thing in (targets.scaled, targets.Model.method, targets.Model.static_first):
        assert pickle.loads(pickle.dumps(thing)) is thing
        assert copy.deepcopy(thing) is thing
        assert copy.copy(thing) is thing
    model = targets.Model(W)
    assert np.array_equal(pickle.loads(pickle.dumps(model.method))(X), X @ W)


def test_lambdas_pickle_as_badly_as_in_python():
    plain = lambda x: x + 1
    with pytest.raises(Exception) as expected:
        pickle.dumps(plain)
    with pytest.raises(type(expected.value)):
        pickle.dumps(tc.jit(plain))


def test_redefinition_runs_the_new_code():
    """As a notebook cell that is run again."""
    results = []
    for value in (1, 2):
        name = f"<ipython-input-{value}-abc>"
        source = f"import tiercel as tc\n@tc.jit\ndef cell(x):\n    return x + {value}\n"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        space: dict[str, object] = {"__name__": "__main__"}
        exec(compile(source, name, "exec"), space)
        results.append(space["cell"](10))
        assert space["cell"].program is not None
    assert results == [11, 12]


def test_closures_and_globals_are_seen_not_frozen():
    factor = 2

    @tc.jit
    def f(x):
        return x * factor

    assert f(3) == 6
    factor = 5
    assert f(3) == 15


def test_nested_functions_share_one_capture():
    def make(k):
        @tc.jit
        def inner(x):
            return x + k

        return inner

    one, two = make(1), make(2)
    assert (one(1), two(1)) == (2, 3)
    assert one.program is two.program


def test_helpers_are_captured():
    targets.with_helper(X)
    assert set(targets.with_helper.programs) == {"with_helper", "helper"}
    assert len(targets.with_helper.programs) == 2
    assert "tanh" in str(targets.with_helper.programs)
    assert targets.with_helper.programs["helper"].functions[0].name == "helper"


def test_jitted_callees_are_frames():
    before = targets.jitted_inner.stats()["calls"]
    targets.jitted_outer(X)
    assert targets.jitted_inner.stats()["calls"] == before + 2
    assert targets.jitted_inner.stats()["python_calls"] == 0


def test_callees_with_settings_of_their_own_keep_them():
    @tc.jit(strict=True)
    def careful(x):
        return sorted([x, 1], key=lambda v: -v)

    @tc.jit
    def caller(x):
        return careful(x)

    if any(i.opcode == "CallPy" for i in careful.program.functions[0].instructions):
        with pytest.raises(tc.StrictError):
            caller(3)
    else:
        assert caller(3) == [3, 1]


def deep_recursion(n):
    return 0 if n == 0 else 1 + deep_recursion(n - 1)


@pytest.mark.parametrize("settings", [{}, {"level": "O1"}])
def test_recursion_takes_no_python_stack(settings, monkeypatch):
    f = tc.jit(deep_recursion, **settings)
    monkeypatch.setitem(globals(), "deep_recursion", f)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(12_000)
    try:
        assert f(10_000) == 10_000
    finally:
        sys.setrecursionlimit(limit)


def test_static_call_method_takes_no_object():
    class Odd:
        @staticmethod
        def __call__(x):
            return x

    odd = Odd()

    @tc.jit
    def f(x):
        return odd(x)

    assert f(3) == 3


def test_lru_cache_stays_one():
    @tc.jit
    @functools.lru_cache(maxsize=5)
    def f(n):
        return n + 1

    assert (f(1), f(1)) == (2, 2)
    assert f.cache_info().hits == 1
    assert f.cache_parameters()["maxsize"] == 5
    assert is_jitted(f.__wrapped__)


def test_known_helpers_are_captured_when_decorating():
    from tiercel.api import captures

    def inner(x):
        return x + 1

    def outer(x):
        return inner(x) * 2

    @tc.jit
    def f(x):
        return outer(x)

    for known in (inner, outer):
        assert captures._captured[id(known.__code__)][1].program is not None
    assert f(1) == 4


def test_captured_code_goes_with_its_function():
    import gc

    from tiercel.api import captures

    def cell(number):
        name = f"<ipython-input-{number}-def>"
        source = f"def g(x):\n    def inner(y):\n        return y + {number}\n    return inner(x)\n"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        space: dict[str, object] = {"__name__": "__main__"}
        exec(compile(source, name, "exec"), space)
        assert tc.jit(space["g"])(1) == number + 1
        del linecache.cache[name]

    gc.collect()
    before = len(captures._captured), len(captures._around)
    for number in range(20):
        cell(number)
    gc.collect()
    assert (len(captures._captured), len(captures._around)) <= (before[0] + 2, before[1] + 2)


def test_a_bug_of_ours_runs_the_function_as_python(monkeypatch):
    import tiercel.frontend.python as frontend

    def broken(*args, **kwargs):
        raise ZeroDivisionError("oops")

    def first(x):
        return x + 1

    monkeypatch.setattr(frontend, "capture", broken)
    with pytest.warns(tc.TiercelPerformanceWarning, match="bug in Tiercel.*report"):
        f = tc.jit(first)
    assert f(1) == 2
    with tc.context(debug=1), pytest.raises(ZeroDivisionError, match="oops"):
        tc.jit(lambda x: x)


def test_a_bug_in_decoding_runs_the_function_as_python(monkeypatch):
    from tiercel.api import captures

    def broken(*args, **kwargs):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(captures, "decode", broken)
    f = tc.jit(lambda x: x + 1)
    with pytest.warns(tc.TiercelPerformanceWarning, match="could not be decoded"):
        assert f(1) == 2
    assert f(2) == 3


def test_breakpoint_sees_the_user_s_locals(tmp_path):
    script = tmp_path / "script.py"
    body = "    secret = x * 7\n    breakpoint()\n    return secret\n"
    script.write_text(f"import tiercel as tc\n\n@tc.jit\ndef f(x):\n{body}\nprint(f(6))\n")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        input="p secret\np x\nc\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "(Pdb) 42\n(Pdb) 6\n" in done.stdout
    assert done.stdout.endswith("42\n")


def test_pdb_steps_through_the_user_s_lines(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import tiercel as tc\n\n@tc.jit\ndef f(x):\n    secret = x * 7\n    return secret\n\nprint(f(6))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "pdb", str(script)],
        input="b 6\nc\np secret\nc\nq\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "(Pdb) 42" in done.stdout


def test_disable_is_the_identity():
    code = "import os; os.environ['TIERCEL_DISABLE']='1'; import tiercel as tc; f = lambda x: x; assert tc.jit(f) is f"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_wraps_of_a_jitted_function_is_not_jitted():
    @functools.wraps(targets.scaled)
    def around(*args, **kwargs):
        return targets.scaled(*args, **kwargs)

    assert not is_jitted(around)
    assert np.array_equal(tc.jit(around)(X), X * 2)


def test_tracer_runs_the_python_function():
    lines = []

    def tracer(frame, event, argument):
        if frame.f_code is targets.scaled.__wrapped__.__code__:
            lines.append(event)
        return tracer

    before = targets.scaled.stats()["python_calls"]
    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        targets.scaled(X)
    finally:
        sys.settrace(old)
    assert "line" in lines
    assert targets.scaled.stats()["python_calls"] == before + 1


def test_coverage_sees_the_lines(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import tiercel as tc

            @tc.jit
            def f(x):
                if x > 0:
                    return 1
                return 2

            f(3)
            """
        )
    )
    coverage = [sys.executable, "-m", "coverage"]
    data = f"--data-file={tmp_path / 'data'}"
    subprocess.run([*coverage, "run", data, str(script)], check=True, timeout=60, cwd=tmp_path, capture_output=True)
    report = subprocess.run(
        [*coverage, "report", data, "-m", f"--include={script}"],
        check=True,
        timeout=60,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    ).stdout
    assert report.splitlines()[2].split()[-1] == "8"


def test_warning_of_a_jitted_function_points_at_its_caller():
    def careless(x):
        warnings.warn("look out", UserWarning, stacklevel=2)
        return x

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f = tc.jit(careless)
        f(1)
    own = [w for w in caught if w.category is UserWarning]
    assert [w.filename for w in own] == [__file__]
    assert "f(1)" in linecache.getline(__file__, own[0].lineno)


def test_level_is_read_at_each_call():
    with tc.context(level="O0"):
        assert targets.scaled(1.0) == 2.0
        assert "level O0" in str(targets.scaled.explain()) or targets.scaled.explain() is not None


def test_policy_and_settings_of_one_function():
    @tc.jit(policy=tc.Policy(hot_count=9), deterministic=True)
    def f(x):
        return x

    assert (state_of(f).settings().hot_count, state_of(f).settings().deterministic) == (9, True)
    with tc.context(hot_time_ms=3):
        assert state_of(f).settings().hot_time_ms == 3
        assert state_of(f).settings().hot_count == 9


def test_warmup_and_wait():
    @tc.jit
    def f(x):
        return x + 1

    f.warmup()
    assert f.stats()["calls"] == 0
    f.warmup(X)
    assert f.stats()["calls"] == 1
    f.warmup(tc.spec("B", 3))
    assert f.wait(timeout=0.1) is True
    assert tc.wait() is True
    assert tc.compile(f, X) is f


# ---- hints -----------------------------------------------------------------------------------------------------------


def test_broken_hint_names_it():
    @tc.jit(specs={"x": tc.spec("B", 4, dtype=np.float64), "y": tc.spec("B")})
    def f(x, y):
        return x.sum(axis=1) + y

    good = np.ones((2, 4))
    assert f(good, np.ones(2)).shape == (2,)
    with pytest.raises(tc.ShapeError, match="x"):
        f(np.ones((2, 3)), np.ones(2))
    with pytest.raises(tc.ShapeError, match="y"):
        f(good, y=np.ones(3))
    assert f.program.functions[0].parameters[0].token is not None


# ---- strict ----------------------------------------------------------------------------------------------------------


def test_strict_forbids_functions_that_run_as_python():
    def uses_locals(x):
        return locals()

    with pytest.warns(tc.TiercelPerformanceWarning):
        f = tc.jit(uses_locals, strict=True)
    with pytest.raises(tc.StrictError, match="runs as Python"):
        f(1)


def test_strict_context_forbids_python_lines():
    @tc.jit
    def f(x):
        import math

        return math.floor(x)

    assert f(2.5) == 2
    with tc.context(strict=True), pytest.raises(tc.StrictError, match="line"):
        f(2.5)
    assert f(2.5) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_goes_on(tmp_path):
    """Also if another thread was decoding when it was made."""
    code = textwrap.dedent(
        """
        import os, threading
        import tiercel as tc
        from tiercel.api import captures
        import sys
        import tiercel.interp
        module = sys.modules["tiercel.interp.decode"]
        held, release = threading.Event(), threading.Event()

        def hold():
            with captures._lock, module._lock:
                held.set()
                release.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        child = os.fork()
        if not child:
            f = tc.jit(lambda x: x + 1)
            os._exit(0 if f(1) == 2 else 1)
        release.set()
        thread.join()
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    subprocess.run([sys.executable, "-W", "ignore", str(script)], check=True, timeout=60)


def test_calling_adds_nothing_to_the_globals():
    @tc.jit
    def f(x):
        return targets.helper(x)

    before = list(globals()), list(vars(targets))
    f(X)
    assert (list(globals()), list(vars(targets))) == before
