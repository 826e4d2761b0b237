"""The documentation is whole: links lead somewhere, settings are described, and the README keeps its form and runs."""

import ast
import importlib
import importlib.util
import re
import tomllib
import typing
from pathlib import Path

import pytest
import yaml

import monotau
from monotau.config.presets import PRESETS
from monotau.config.schema import KINDS, Config

ROOT = Path(monotau.__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
GENERATED = {"index.md", "settings.md", "contributing.md", "changelog.md"}
"""Pages that the site makes."""


def prose(text: str) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    words = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading.strip()).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose(page.read_text()), flags=re.MULTILINE)}


def broken(page: Path, text: str) -> list[str]:
    """Relative links of a page that lead nowhere."""
    found = []
    for target in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        if not place.exists() or (anchor and anchor not in anchors(place)):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert broken(page, page.read_text()) == []


def test_a_broken_link_is_found():
    page = ROOT / "docs" / "ndqfn.md"
    text = "[a](nowhere.md) [b](#the-unit-of-returns) [c](#no-such) [d](https://arxiv.org) [`e`](atari.md#protocols)"
    assert broken(page, text) == ["nowhere.md", "#no-such"]


def test_each_page_is_in_the_navigation():
    text = re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text())

    def pages(entry: object) -> set[str]:
        if isinstance(entry, str):
            return {entry}
        inner = entry.values() if isinstance(entry, dict) else entry
        return set().union(*(pages(each) for each in inner))

    written = {page.relative_to(ROOT / "docs").as_posix() for page in PAGES if "docs" in page.parts}
    assert pages(yaml.safe_load(text)["nav"]) == written | GENERATED


def test_each_preset_is_on_the_page_of_algorithms():
    text = (ROOT / "docs" / "algorithms" / "index.md").read_text()
    assert [name for name in PRESETS if f"`{name}`" not in text] == []


def reference() -> typing.Any:
    """The module that writes the settings reference, which is no part of the package."""
    spec = importlib.util.spec_from_file_location("settings_reference", ROOT / "docs" / "settings_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_setting_is_described():
    sections = list(reference().sections())
    silent = [f"{heading}: {row.name}" for heading, _, rows in sections for row in rows if not row.text]
    assert silent == []
    parts = sum(len(table) for table in KINDS.values())
    plain = [hint for hint in typing.get_type_hints(Config).values() if isinstance(hint, type) and hint not in KINDS]
    assert len(sections) == 1 + parts + sum(hasattr(hint, "__dataclass_fields__") for hint in plain)


def test_the_reference_has_types_defaults_and_texts():
    page = reference().render()
    assert "| `n_step` | int | `3` |" in page
    assert "| `head.anchor` | `mean` or `median` or `lowest` |" in page
    assert "| `replay.alpha` | float | `0.6` |" in page
    assert "## Profiles" in page
    assert "| `lr`, `learning_rate` | `optimiser.learning_rate` |" in page


README = (ROOT / "README.md").read_text()


def test_the_readme_is_short():
    assert len(README.splitlines()) < 120
    cells = [cell for line in README.splitlines() if line.startswith("|") for cell in line.strip("|").split("|")]
    assert [cell for cell in cells if len(cell.split()) > 15] == []


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(block.splitlines()) == 8
    names: dict[str, typing.Any] = {}
    exec(block.replace("20_000", "100"), names)  # noqa: S102
    assert names["agent"].steps == 100
    assert monotau.Agent.load("my-agent").actions == 2


def test_the_dockerfile_copies_what_exists_and_installs_extras_that_exist():
    text = (ROOT / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.+) \S+$", text, flags=re.MULTILINE) for word in line.split()]
    assert "src" in copied
    assert all((ROOT / name).exists() for name in copied)
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert kept == {*copied}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = re.findall(r"^ARG EXTRAS=(.+)$", text, flags=re.MULTILINE)
    assert {*wanted.split(",")} == extras.keys() - {"dev", "docs", "mlflow", "peers", "trackio", "wandb"}


def test_the_project_names_its_paper_and_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert cited["references"][0]["url"] == "https://arxiv.org/abs/2105.06696"
    assert f"## {cited['version']}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.py")), ids=lambda path: path.name)
def test_scripts_of_the_pages_import_what_exists(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("monotau"):
            module = importlib.import_module(str(node.module))
            assert all(hasattr(module, alias.name) for alias in node.names), f"{path.name}: {node.module}"
