"""The campaign's figures as the page tests/chaos/RESULTS.md."""

import importlib.util
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from chaos.layer import Result, figure

HERE = Path(__file__).resolve().parent


class Finding(NamedTuple):
    """A fault of the product that the harness found: a fixed case of tests/chaos/corpus/."""

    case: str
    layer: str
    wrong: str


def findings() -> list[Finding]:
    """Every case of the corpus says which layer found it, and what was wrong."""
    return [_finding(path) for path in sorted((HERE / "corpus").glob("test_*.py"))]


def _finding(path: Path) -> Finding:
    spec = importlib.util.spec_from_file_location(f"corpus_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Finding(path.name, module.LAYER, module.WRONG)


def write_report(results: list[Result], minutes: float, seed: int) -> str:
    """The page, in Markdown."""
    return "\n".join([*_head(minutes, seed), *_table(results), *_caught(results), *_found(), ""])


def _head(minutes: float, seed: int) -> Iterator[str]:
    kernel = platform.release().split("-")[0]
    yield "# The last full campaign"
    yield ""
    yield (
        f"`python tests/chaos/campaign.py --minutes {minutes:g} --seed {seed}` at {_commit()}: {os.cpu_count()} cores, "
        f"Linux {kernel}, Python {platform.python_version()}. What the layers are stands in [README](README.md)."
    )
    yield ""


def _commit() -> str:
    git = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    return git.stdout.strip() or "an unknown commit"


def _table(results: list[Result]) -> Iterator[str]:
    yield "| layer | what was covered | |"
    yield "| --- | --- | ---: |"
    for result in results:
        yield f"| **{result.layer}** | seconds | {result.seconds:.0f} |"
        for what, number in result.counts.items():
            yield f"| | {what} | {figure(number)} |"
        yield f"| | **violations** | **{len(result.violations)}** |"
    yield ""
    for result in results:
        for violation in result.violations:
            yield f"- {result.layer}: {violation.what}: `{violation.replay}`"
        for what in result.left_out:
            yield f"- {result.layer}, left out: {what}"
    yield ""


def _caught(results: list[Result]) -> Iterator[str]:
    rows = [row for result in results for row in result.caught_by.items()]
    if not rows:
        return
    yield "## Mutations"
    yield ""
    yield "Each takes one protection away from the product; the test that caught it first."
    yield ""
    yield "| taken away | caught by |"
    yield "| --- | --- |"
    for taken, test in rows:
        yield f"| {taken} | `{test}` |"
    yield ""


def _found() -> Iterator[str]:
    yield "## What the harness found"
    yield ""
    yield "Each is mended, and kept as a fixed case in [corpus/](corpus/)."
    yield ""
    yield "| case | found by | what was wrong |"
    yield "| --- | --- | --- |"
    for finding in findings():
        yield f"| `{finding.case}` | {finding.layer} | {finding.wrong} |"
