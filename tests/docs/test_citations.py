"""What comments, docstrings, messages and pages cite is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")])
SOURCES = sorted([*ROOT.glob("relayd/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/*.py")])
SOURCES = [source for source in SOURCES if source != Path(__file__)]

# docs/reference/journal.md, "Opening", 1 to 5, and "Offline tools": a page, then titles in straight quotes.
CITED_PAGE = re.compile(r"docs/[a-z_/-]+\.md")
CITED_TITLES = re.compile(
    r'(docs/[a-z_/-]+\.md)((?:`?,(?: and)?\s+(?:#\s+)?"[^"\n]+"(?: and "[^"\n]+")*(?:, [0-9][0-9 to-]*)?)+)'
)
LINK = re.compile(r"\[[^\]\[]+\]\(([^)\s]+)\)")
# [journal](journal.md), "Record" and (["Bounds"]): a link, then a title of the page that it leads to.
LINKED_TITLE = re.compile(r'\[[^\]\[]+\]\(([^)\s#]+\.md)\),\s+"([^"\n]+)"')


def titles(page):
    """The titles of a page, without marks."""
    lines = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE).splitlines()
    return {line.lstrip("#").strip().replace("*reload*", "").strip() for line in lines if line.startswith("#")}


def relative(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.mark.parametrize("source", SOURCES, ids=relative(SOURCES))
def test_every_page_and_title_that_code_cites_exists(source):
    text = source.read_text()
    assert [page for page in CITED_PAGE.findall(text) if not (ROOT / page).is_file()] == []
    cited = [(page, title) for page, rest in CITED_TITLES.findall(text) for title in re.findall(r'"([^"\n]+)"', rest)]
    assert [(page, title) for page, title in cited if title not in titles(ROOT / page)] == []


def test_citations_with_titles_are_found_at_all():
    """Guards the pattern above: if it found nothing, everything would pass."""
    text = (ROOT / "relayd/recovery/judged.py").read_text()
    assert [re.findall(r'"([^"]+)"', rest) for _, rest in CITED_TITLES.findall(text)] == [["Opening", "Offline tools"]]


@pytest.mark.parametrize("page", PAGES, ids=relative(PAGES))
def test_every_link_of_a_page_leads_to_a_file(page):
    targets = [target.partition("#")[0] for target in LINK.findall(page.read_text())]
    inside = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    assert [target for target in inside if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=relative(PAGES))
def test_every_title_cited_beside_a_link_exists(page):
    cited = LINKED_TITLE.findall(page.read_text())
    assert [(target, title) for target, title in cited if title not in titles(page.parent / target)] == []


@pytest.mark.parametrize("page", PAGES, ids=relative(PAGES))
def test_a_page_names_no_place_of_one_machine(page):
    assert re.findall(r"(?<![\w.~])/(?:work|tmp|root|opt)/\S*", page.read_text()) == []


def test_every_reference_page_can_be_reached_from_the_readme():
    reached, to_read = set(), [ROOT / "README.md"]
    while to_read:
        page = to_read.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [target.partition("#")[0] for target in LINK.findall(page.read_text())]
        to_read += [
            (page.parent / target).resolve() for target in targets if target.endswith(".md") and ":" not in target
        ]
    assert {page for page in PAGES if "docs" in page.parts} <= reached
