"""The foundation's figures as the table that is kept in bench/RESULTS.md."""

from collections.abc import Mapping

_ABOUT = """# Figures

Written by `python bench/foundation.py` (`make bench`). What is compared: the same payload bytes (about 300, log-like),
every batch synced before it is answered; SQLite works in the measuring process (WAL, `synchronous=FULL`), relayd in a
process of its own, over its socket. Rounds alternate; a ratio is of one pair, and the median is quoted.
"""

_SPEED = (
    ("batches", "durable batches of 256, one at a time", "0.25"),
    ("pipelined", "the same through the idempotent producer, pipelined", "–"),
    ("replay", "whole replay, every digest verified", "0.4"),
)


def table(results: Mapping[str, Mapping[str, object]]) -> str:
    """The figures in Markdown."""
    machine = results["machine"]
    versions = "relayd {relayd} at {commit}, CPython {python}, SQLite {sqlite}, Linux {kernel}, {cores} cores."
    return "\n".join(
        (_ABOUT, versions.format(**machine), "", *_speed(results["throughput"]), "", *_history(results["history"]), "")
    )


def _speed(speed: Mapping[str, object]) -> list[str]:
    lines = [
        "| what | relayd, events/s | SQLite, events/s | ratio (min to max) | to reach |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for key, what, target in _SPEED:
        found = speed[key]
        assert isinstance(found, dict), "each measurement has its figures"
        rates = f"{found['relayd_events_per_second']:,} | {found['sqlite_events_per_second']:,}"
        ratio = f"{found['ratio_median']} ({found['ratio_min']} to {found['ratio_max']})"
        lines.append(f"| {what} | {rates} | {ratio} | {target} |")
    return lines


def _history(past: Mapping[str, object]) -> list[str]:
    size = f"{past['history_mib']} MiB of records, {past['history_events']:,} events, {past['history_disk_mib']} MiB"
    starts = f"{past['start_seconds_median']} s and {past['short_start_seconds_median']} s"
    rows = (
        ("history of the long relay", f"{size} on disk", "–"),
        (f"exec to first page after SIGKILL: long history, and {past['short_history_mib']} MiB", starts, "–"),
        ("ratio of the two", past["start_ratio_median"], "1.2"),
        ("memory after the first answer", f"{past['rss_mib_after_first_answer']} MiB", "80 MiB"),
        ("memory while one reader replays it, at most", f"{past['rss_mib_one_reader_max']} MiB", "80 MiB"),
        ("memory while ten readers replay it, at most", f"{past['rss_mib_ten_readers_max']} MiB", "flat"),
    )
    lines = ["| what | figure | to reach |", "| --- | ---: | ---: |"]
    return lines + [f"| {what} | {figure} | {target} |" for what, figure, target in rows]
