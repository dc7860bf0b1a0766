"""Trials that are made side by side: a wait of one is work of another."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_In = TypeVar("_In")
_Out = TypeVar("_Out")

SIDE_BY_SIDE = 4


def each(trial: Callable[[_In], _Out], inputs: Iterable[_In]) -> list[_Out]:
    """What `trial` gave for each; the first failure, in the order of the inputs, is raised."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        return list(pool.map(trial, inputs))
