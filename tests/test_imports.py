"""Imports point one way, and `import tiercel` stays light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "tiercel"

# Packages whose import is slow or large, and the parts of ours that may import them at all.
HEAVY = {
    "llvmlite": {"codegen", "hotpath", "tools"},
    "scipy_openblas32": {"codegen", "compiler", "hotpath", "tools"},
    "rich": {"config", "tools", "api", "vm"},
    "torch": {"frontend", "tools"},
    "onnx": {"frontend", "tools"},
    "onnxruntime": {"tools"},
    "jax": {"tools"},
    "numba": {"tools"},
    "matplotlib": {"tools"},
    "scipy": set(),
}


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over the package below `folder`, with the project's contract."""
    code = "import sys; from importlinter.cli import lint_imports_command as run; run()"
    command = [sys.executable, "-c", code, str(ROOT / "pyproject.toml"), "--no-cache"]
    env = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=env, cwd=folder)


def test_packages_import_only_those_below_them():
    done = lint_imports(PACKAGE.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"errors.py": "import tiercel.vm\n"}, "tiercel.errors is not allowed to import tiercel.vm"),
        ({"errors.py": "def f():\n    from tiercel import vm\n"}, "tiercel.errors is not allowed to import tiercel.vm"),
        ({"dtypes.py": "import tiercel.config\n"}, "tiercel.dtypes is not allowed to import tiercel.config"),
        (
            {"frontend.py": "import tiercel.ops\n", "ops.py": ""},
            "tiercel.frontend is not allowed to import tiercel.ops",
        ),
        ({"misplaced.py": ""}, "misplaced"),
        ({}, None),
    ],
)
def test_the_contract_notices(tmp_path, files, complaint):
    package = tmp_path / "tiercel"
    package.mkdir()
    for name in ("__init__.py", "errors.py", "dtypes.py", "config.py", "vm.py"):
        (package / name).write_text("")
    for name, text in files.items():
        (package / name).write_text(text)
    done = lint_imports(tmp_path)
    if complaint is None:
        assert done.returncode == 0, done.stdout
    else:
        assert done.returncode == 1, done.stdout
        assert complaint in done.stdout


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_packages_are_imported_only_where_they_belong(path):
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    misplaced = {name for name in imported_packages(path) & set(HEAVY) if part not in HEAVY[name]}
    assert not misplaced, f"{part} imports {misplaced}"


def test_import_tiercel_loads_nothing_heavy():
    code = f"import tiercel, sys; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_module_says_what_it_is(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not tree.body or ast.get_docstring(tree), f"{path} has no module docstring"
