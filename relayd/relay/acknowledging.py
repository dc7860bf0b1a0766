"""Whether an acknowledgement is right (docs/reference/protocol.md, "Acknowledging"). Pure."""

from relayd.protocol.cursor import Found, Gap, History, Refused, Span, plan_resume
from relayd.protocol.errors import (
    BoundDetail,
    FieldDetail,
    InvalidRequestError,
    OverloadedError,
)
from relayd.protocol.messages import Acknowledge
from relayd.relay.acknowledged import Acknowledgements
from relayd.relay.refusals import gap_error, refused_error


def needs_check(request: Acknowledge, acknowledgements: Acknowledgements) -> bool:
    """Whether the request says something new, so that its digest has to be right. Raises InvalidRequestError."""
    if request.through.digest is None:
        expected = "a cursor with its digest, as `recorded` and `page` give it"
        message = f"`acknowledge` goes through ordinal {request.through.ordinal} without a digest; it takes {expected}"
        raise InvalidRequestError(message, FieldDetail("through", expected))
    own = acknowledgements.cursor_of(request.consumer)
    if request.through == own:
        return request.consumer not in acknowledgements.consumers
    return request.through.ordinal >= own.ordinal


def check_acknowledgement(
    request: Acknowledge, history: History, found: bytes | None, acknowledgements: Acknowledgements, consumers_max: int
) -> None:
    """Refuses a cursor that is not this history's, or cannot be checked, and a consumer too many.

    `found`: the digest at the cursor's ordinal, None where it cannot be read. Raises DesynchronizedError,
    OverloadedError.
    """
    decision = plan_resume(history, request.through, Found(found))
    if isinstance(decision, Refused):
        raise refused_error(decision, request.through, history)
    if isinstance(decision, Gap):
        raise gap_error(decision, request.through)
    if found is None:
        ordinal = request.through.ordinal
        raise gap_error(Gap("unreadable", Span(ordinal, ordinal), request.through, history.latest), request.through)
    known = acknowledgements.consumers
    if request.consumer not in known and len(known) >= consumers_max:
        message = (
            f"this relay remembers {len(known)} consumers, which is the bound: `forget_consumer` those that are gone"
        )
        raise OverloadedError(message, BoundDetail("consumers"))
