"""What an answer is by protocol.md and errors.md, whatever was asked."""

from chaos.peers.rules import CODES

LIMITS = {"frame_bytes", "page_bytes", "event_bytes", "command_bytes", "in_flight", "in_flight_bytes"}
SHAPES = {
    "welcome": {"version", "daemon", "limits"}, "relays": {"relays"}, "done": set(), "recorded": set(),
    "opened": {"relay", "store", "latest", "created"}, "acknowledged": {"through", "retained"},
    "page": {"records", "count", "through", "latest", "verified"},
    "status": {
        "relay", "store", "execution", "execution_since", "latest", "acknowledged", "retained", "evicted", "readers",
        "consumers", "last_event_at", "disk_bytes", "journal_bytes", "retention",
    },
    "error": {"code", "message", "retryable"},
}  # fmt: skip
"""What each response has at least."""
DETAILS = {
    "invalid_request": {"field", "expected"}, "incompatible_protocol": {"supported"}, "not_found": {"what", "name"},
    "already_exists": {"what", "name", "differs"}, "desynchronized": {"reason", "requested", "earliest", "latest"},
    "too_large": {"limit_bytes", "size_bytes"}, "overloaded": {"bound"},
}  # fmt: skip


class WrongAnswerError(AssertionError):
    """An answer that protocol.md does not allow."""


def wrong(expected: object, answer: dict) -> WrongAnswerError:
    return WrongAnswerError(f"{expected} was expected, and the answer was {_short(answer)}")


def _short(answer: dict) -> str:
    text = str(answer)
    return text if len(text) < 600 else text[:600] + " …"


def outcome(answer: dict) -> str:
    """The code of a refusal, else the response's type."""
    return answer["code"] if answer["re"] == "error" else answer["re"]


def expect(answer: dict, *allowed: str) -> str:
    """The answer's outcome, where it is one of these."""
    found = outcome(answer)
    if found not in allowed:
        raise wrong(" or ".join(allowed), answer)
    return found


def check_shape(answer: dict) -> None:
    """An answer is one that protocol.md and errors.md know, and says little again of what was sent."""
    if not SHAPES[answer["re"]] <= answer.keys():
        raise WrongAnswerError(f"an answer without its fields: {answer}")
    if answer["re"] == "welcome" and answer["limits"].keys() < LIMITS:
        raise WrongAnswerError(f"limits are missing: {answer}")
    if answer["re"] != "error":
        return
    code = answer["code"]
    if code == "internal" or CODES[code] != answer["retryable"] or not 10 < len(answer["message"]) < 4096:
        raise WrongAnswerError(f"no such refusal: {answer}")
    detail = answer.get("detail")
    if detail is not None and not DETAILS.get(code, set()) <= detail.keys():
        raise WrongAnswerError(f"a refusal without its facts: {answer}")
