"""The documents say what is so: the command line's page is current, links lead somewhere, examples run."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest

from avo.cli import VERBS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")


@cache
def made(name: str = "make_cli") -> str:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page: str = module.page()
    return page


def test_the_page_of_the_command_line_is_current() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == made(), "run python docs/make_cli.py"


def test_the_page_of_settings_statuses_and_tables_is_current() -> None:
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert page == made("make_reference"), "run python docs/make_reference.py"


def test_every_page_is_on_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/**/*.md"):
        if "skill" not in page.parts:
            assert f": {page.relative_to(ROOT / 'docs')}\n" in site, f"{page.name} is not in the nav of mkdocs.yml"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_documented_with_an_example(verb: str) -> None:
    page = made()
    section = page.split(f"\n## avo {verb}\n", 1)[1].split("\n## ", 1)[0]
    assert f"Usage: avo {verb}" in section and f"Example: avo {verb}" in " ".join(section.split())
    assert f"`avo {verb}" in README, "the table of verbs in README.md names it"
    assert max(map(len, section.splitlines())) <= 80


def test_every_readers_verb_takes_json() -> None:
    page = made()
    for verb in VERBS:
        section = page.split(f"\n## avo {verb}\n", 1)[1].split("\n## ", 1)[0]
        if verb not in ("evolve", "export", "fmt", "init", "mcp"):  # these write
            assert "--json" in section, verb


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_within_the_repository_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if "://" not in link and not link.startswith("mailto:"):
            assert (page.parent / link).exists(), f"{page.name} links to {link}, which is not there"


def test_the_first_screen_has_the_two_commands() -> None:
    first = README.splitlines()[:25]
    assert any(line.startswith("make demo") for line in first) and any(line.startswith("make test") for line in first)
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in re.findall(r"\bmake ([a-z-]+)", README):
        assert re.search(rf"^{command}:", targets, flags=re.M), f"README names make {command}, the Makefile does not"


def test_every_command_in_the_readme_is_one() -> None:
    for line in re.findall(r"`(avo [a-z][^`]*)`", README):
        words = shlex.split(line.replace("[", "").replace("]", ""))
        assert words[1].rstrip(",") in VERBS, line


def test_the_licence_and_its_companions_are_there() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence and "END OF TERMS AND CONDITIONS" in licence
    notices = (ROOT / "THIRD_PARTY_NOTICES.md").read_text(encoding="utf-8").lower()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[(.*?)^\]", project, flags=re.M | re.S)
    assert block is not None
    names = {"torch": "pytorch"}
    for package in re.findall(r'"([a-z]+)[>;=]', block[1]):
        assert names.get(package, package) in notices, f"{package} is not in THIRD_PARTY_NOTICES.md"


def test_changelog_entries_are_short() -> None:
    entries = re.findall(r"^- (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)
    assert entries and all(len(e.split()) <= 32 for e in entries)


def test_the_ci_script_is_sound_bash() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111, ".ci/run has to be executable"
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_the_readme_leads_to_every_page() -> None:
    for page in ROOT.glob("docs/*.md"):
        assert f"(docs/{page.name})" in README, f"README.md does not link docs/{page.name}"
