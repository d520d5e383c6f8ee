"""The documentation agrees with the code: generated pages, links, commands, settings, examples."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import tiercel
from tiercel.config import SETTINGS
from tiercel.tools import docs
from tiercel.tools.cli import main

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("", ".github", "docs", "tests", "examples", "benchmarks")
PAGES = sorted(page for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return re.sub(r"(?ms)^```.*?^```$", "", text)


# --- Generated pages ---


@pytest.mark.parametrize("page", docs.PAGES)
def test_generated_page_is_current(page):
    path = ROOT / "docs" / page
    assert path.exists(), f"{path} is missing; `make docs` writes it"
    assert text_of(path) == docs.render(page), f"{path} is stale; `make docs` writes it"


def test_generator_writes_names_and_checks_pages(tmp_path, capsys):
    assert docs.main(["--check", "--into", str(tmp_path)]) == 1
    assert "settings.md is stale" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert docs.main(["--into", str(tmp_path / "new")]) == 0
    assert "wrote" in capsys.readouterr().out
    assert docs.main(["--check", "--into", str(tmp_path / "new")]) == 0
    assert docs.main(["--into", str(tmp_path / "new")]) == 0
    assert capsys.readouterr().out == ""
    (tmp_path / "new" / "settings.md").write_text("old")
    assert docs.main(["--check", "--into", str(tmp_path / "new")]) == 1


def test_settings_page_lists_every_setting():
    page = text_of(ROOT / "docs" / "settings.md")
    for row in SETTINGS.values():
        assert f"| `{row.name}` |" in page
        assert all(f"`{variable}`" in page for variable in row.env)


# --- Links, commands, settings ---


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"(?m)^#+ (.*)$", without_code(text_of(page)))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@each_page
def test_relative_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(text_of(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{page.name}: no {target}"
        if anchor:
            assert anchor in anchors(linked), f"{page.name}: no heading for {target}"


@each_page
def test_make_targets_that_are_named_exist(page):
    text = text_of(page)
    named = re.findall(r"`make ([a-z]+)", text) + re.findall(r"(?m)^make ([a-z]+)", text)
    targets = set(re.findall(r"(?m)^([a-z]+):", MAKEFILE))
    assert set(named) <= targets


@each_page
def test_variables_that_are_named_exist(page):
    known = {variable for row in SETTINGS.values() for variable in row.env}
    named = set(re.findall(r"\bTIERCEL_[A-Z_]+[A-Z]\b", text_of(page)))
    assert {n for n in named - known if not n.startswith(("TIERCEL_TEST", "TIERCEL_BENCH"))} == set()


def python_blocks():
    for page in PAGES:
        for number, block in enumerate(re.findall(r"(?ms)^```python\n(.*?)^```$", text_of(page))):
            yield pytest.param(page, block, id=f"{page.relative_to(ROOT)}-{number}")


@pytest.mark.parametrize(("page", "block"), list(python_blocks()))
def test_python_examples_run(page, block, tmp_path):
    # As a user does it: from a file of its own, because capturing needs the source.
    if "tc.jit" in block and not hasattr(tiercel, "jit"):
        pytest.skip("tiercel.jit is not there yet")
    path = tmp_path / "example.py"
    path.write_text(block, encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pipeline_page_shows_what_the_stages_are(tmp_path, capsys):
    page = text_of(ROOT / "docs" / "pipeline.md")
    sources = re.findall(r"(?ms)^```python\n(.*?)^```$", page)
    recurrent = [f"float32[{sizes}]" for sizes in ("8, 5, 3", "8, 4", "3, 4", "4, 4")]
    for name, arguments, forms in (
        ("softmax", ["float32[4, 8]"], ("bytecode", "graph", "loops")),
        ("recurrent", recurrent, ("prepared",)),
    ):
        (source,) = [text for text in sources if f"def {name}(" in text]
        script = tmp_path / f"{name}.py"
        script.write_text(source, encoding="utf-8")
        command = " ".join(["tiercel", "stages", f"{name}.py:{name}", *(f'"{text}"' for text in arguments)])
        assert command in page
        for form in forms:
            assert main(["stages", f"{script}:{name}", *arguments, "--only", form]) == 0
            _, _, printed = capsys.readouterr().out.partition("\n")
            assert "```\n" + printed.strip("\n").replace(str(script), f"{name}.py") + "\n```" in page, form


# --- Architecture ---


def layers_bottom_up() -> list[str]:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))
    (contract,) = project["tool"]["importlinter"]["contracts"]
    layers = []
    for layer in reversed(contract["layers"]):
        layers += sorted((name.strip(" ()") for name in layer.split("|")), reverse=True)
    return layers


def test_architecture_walks_the_packages_in_their_order():
    headings = re.findall(r"(?m)^### `(\w+)`$", text_of(ROOT / "docs" / "architecture.md"))
    assert headings == [name for name in layers_bottom_up() if name in headings]
    package = ROOT / "src" / "tiercel"
    present = {p.stem for p in package.iterdir() if p.stem in layers_bottom_up()}
    assert present <= set(headings), "a package without a paragraph"


def test_tests_readme_names_every_folder_of_tests():
    page = text_of(ROOT / "tests" / "README.md")
    for path in (ROOT / "tests").iterdir():
        if path.name.startswith("test_") or (
            path.is_dir() and not path.name.startswith("_") and any(path.glob("*.py"))
        ):
            assert f"`{path.name}" in page, f"tests/README.md does not say what {path.name} points at"


# --- The project's own scripts ---


def test_readme_shows_the_way_in():
    first_screen = text_of(ROOT / "README.md")[:2500]
    for needed in ("pip install tiercel", "make demo", "make test", "tc.jit", "explain()"):
        assert needed in first_screen


def test_ci_script_is_executable_and_calls_make_test_first():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(script)], check=True)
    targets = re.findall(r"(?m)^make (\w+)", text_of(script))
    assert targets == ["test", "lint", "types"]


def test_make_without_a_target_lists_the_targets():
    done = subprocess.run(["make", "--no-print-directory", "-C", str(ROOT)], capture_output=True, text=True, check=True)
    listed = re.findall(r"(?m)^  (\w+) ", done.stdout)
    phony = re.search(r"(?m)^\.PHONY: (.*)$", MAKEFILE)
    assert listed == phony[1].split()


def test_make_says_what_it_needs_without_a_python(tmp_path):
    (tmp_path / "pyproject.toml").write_text("")
    command = ["make", "-f", str(ROOT / "Makefile"), "-C", str(tmp_path), "setup", "PYTHON=/no/such/python"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stdout
    assert "make PYTHON=" in done.stdout
