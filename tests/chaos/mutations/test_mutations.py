"""The list of mutations fits the source, and running one tells caught from missed."""

from collections import Counter

import pytest
from chaos.layer import Budget, Result
from chaos.mutations.copies import REPOSITORY, copy_repository, temporary_place
from chaos.mutations.every import MUTATIONS
from chaos.mutations.mutation import Mutation
from chaos.mutations.run import Campaign

FAST = "tests/journal/test_watermark.py"


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_every_mutation_still_changes_the_source_and_names_tests_that_are_there(mutation):
    mutation.applied_to((REPOSITORY / "relayd" / mutation.file).read_text())
    assert mutation.tests
    assert not mutation.missing_tests(REPOSITORY)


def test_there_are_many_and_no_two_are_the_same():
    names = Counter(mutation.name for mutation in MUTATIONS)
    edits = Counter((mutation.file, mutation.old, mutation.new) for mutation in MUTATIONS)
    assert len(MUTATIONS) >= 25
    assert set(names.values()) == set(edits.values()) == {1}


def run_one(mutation: Mutation, monkeypatch) -> Result:
    monkeypatch.setattr("chaos.mutations.run.ALL", (FAST,))
    result = Result(layer="mutations", seed=1)
    Campaign([mutation], Budget(120, 1), result).run()
    return result


def test_a_test_that_fails_catches_it(monkeypatch):
    crc = next(mutation for mutation in MUTATIONS if mutation.name == "watermark_crc")
    result = run_one(crc, monkeypatch)
    (caught_by,) = result.caught_by.values()
    assert caught_by.startswith(FAST + "::")
    assert not result.violations
    assert result.counts == {"mutations": 1, "caught": 1}


def test_one_that_no_test_notices_is_missed(monkeypatch):
    harmless = Mutation(
        "harmless", "journal/watermark.py", "_ZERO: Final = bytes(4)", "_ZERO: Final = 4 * b'\\0'", "", (FAST,)
    )
    result = run_one(harmless, monkeypatch)
    (violation,) = result.violations
    assert violation.what.startswith("MISSED harmless")
    assert violation.replay.endswith("--only harmless")
    assert not result.caught_by


def test_a_source_that_is_no_python_any_more_or_the_same_is_no_mutation():
    source = "x = 1\ny = 2\n"
    for old, new in (("x = 1", "x ="), ("z", "1"), (" = ", "  = "), ("y", "y ")):
        with pytest.raises(ValueError, match="broken"):
            Mutation("broken", "a.py", old, new, "", ()).applied_to(source)


def test_a_copy_imports_its_own_relayd():
    with temporary_place() as place:
        copy = copy_repository(place / "o")
        copy.prove_imported()
        (place / "o/relayd/__init__.py").unlink()
        (place / "o/relayd").rename(place / "o/elsewhere")
        with pytest.raises(AssertionError, match="another relayd"):
            copy.prove_imported()
