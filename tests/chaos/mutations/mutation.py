"""What a mutation is: one protection of relayd taken away, by one edit of its source."""

import ast
from pathlib import Path
from typing import NamedTuple


class Mutation(NamedTuple):
    """`old`, which stands in `file` (below relayd/) exactly once, becomes `new`.

    `protects`: the sentence that is no longer true then. `tests`: node ids of those that have to fail, the fastest
    first; tests/chaos/mutations/run.py runs them, and all others where they pass.
    """

    name: str
    file: str
    old: str
    new: str
    protects: str
    tests: tuple[str, ...]

    def applied_to(self, source: str) -> str:
        """The mutated source. Raises ValueError where `old` is not there exactly once, or `new` is no Python."""
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.name}: the text to be replaced is in relayd/{self.file} {count} times")
        mutated = source.replace(self.old, self.new)
        try:
            changed = ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(source))
        except SyntaxError as error:
            raise ValueError(f"{self.name}: relayd/{self.file} is no Python any more: {error}") from error
        if not changed:
            raise ValueError(f"{self.name}: it changes nothing")
        return mutated

    def missing_tests(self, repository: Path) -> list[str]:
        """Those of `tests` that are not there."""
        return [node for node in self.tests if not _is_there(repository, *node.split("::"))]


def _is_there(repository: Path, file: str, *names: str) -> bool:
    """Whether the file defines a test function, or has a class that does."""
    path = repository / file
    if not path.is_file():
        return False
    body = ast.parse(path.read_text()).body
    for name in names:
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        found = [node for node in body if isinstance(node, kinds) and node.name == name]
        if not found:
            return False
        body = found[0].body
    return True
