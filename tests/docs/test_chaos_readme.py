"""The table of tests/chaos/README.md names tests that are there."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
README = TESTS / "chaos" / "README.md"
NAMED = re.compile(r"`([a-z_/]+\.py)::(\w+)(?:\[[^`]*)?`")


def rows() -> list[str]:
    """The rows of the tables of faults."""
    page = README.read_text().partition("## Every fault and its test")[2]
    return [line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| fault", "| ---"))]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:60])
def test_each_row_names_tests_that_exist(row):
    named = NAMED.findall(row)
    assert named, "a row without a test"
    for file, name in named:
        path = TESTS / file
        path = path if path.exists() else TESTS / "chaos" / file
        assert f"def {name}(" in path.read_text(), f"{file} has no {name}"


def test_the_folders_of_the_page_are_those_there_are():
    page = README.read_text()
    folders = {path.name for path in (TESTS / "chaos").iterdir() if (path / "long.py").exists()}
    assert folders <= set(re.findall(r"\]\(([a-z_]+)/\)", page))
