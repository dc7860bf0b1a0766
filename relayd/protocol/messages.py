"""Requests and responses as tagged structs (docs/reference/protocol.md, "Operations").

Unknown fields are refused in requests and passed over in responses. `null` means absent. Requests carry `op` and `id`,
responses `re` and `id`.
"""

from typing import Annotated, Literal

import msgspec

from relayd.protocol.commands import CommandState, CommandType, OutcomeWord
from relayd.protocol.cursor import Cursor
from relayd.protocol.errors import ErrorResponse
from relayd.protocol.event import NIL
from relayd.protocol.kinds import Retention, StoreId
from relayd.protocol.limits import PAGE_BYTES_DEFAULT, PAGE_BYTES_MAX, REQUEST_ID_MAX, WAIT_MS_MAX

RequestId = Annotated[int, msgspec.Meta(ge=1, le=REQUEST_ID_MAX)]
RelayName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z0-9][a-z0-9._-]{0,63}\Z")]
Identity = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
CommandId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{8,128}\Z")]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=WAIT_MS_MAX)]
Oversize = Literal["refuse", "clamp"]


class Request(msgspec.Struct, tag_field="op", forbid_unknown_fields=True, omit_defaults=True):
    """What a client sends; `id` is unique among those in flight on its connection."""

    id: RequestId


class RelayRequest(Request, forbid_unknown_fields=True, omit_defaults=True):
    """A request to one relay."""

    relay: RelayName


class Hello(Request, tag="hello"):
    """The first request of every connection."""

    versions: list[int]
    client: Identity
    asker: Identity | None = None
    author: Identity | None = None
    worker: Identity | None = None


class Relays(Request, tag="relays"):
    """Lists all relays; opens none."""


class Open(RelayRequest, tag="open"):
    """Opens a relay, and makes it where `create` says so."""

    create: bool = False
    retention: Retention | None = None
    max_active: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None


class DeleteRelay(RelayRequest, tag="delete_relay"):
    """Removes a relay for good; `store` says which one is meant."""

    store: StoreId


class Status(RelayRequest, tag="status"):
    """Asks for the state of a relay; consumes nothing."""


class NewEvent(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    """An event to record: `data` is any MessagePack value with a JSON form."""

    kind: str
    data: msgspec.Raw = NIL
    command_id: str | None = None


class Export(RelayRequest, tag="export"):
    """Asks for all that a relay's events add up to; `at` and `offset` go on with an answer that came in parts."""

    at: Cursor | None = None
    offset: Annotated[int, msgspec.Meta(ge=0)] = 0


class Record(RelayRequest, tag="record"):
    """Records events, all in one group; with `producer`, numbered from `sequence`, each at most once."""

    events: list[NewEvent] = []
    producer: Identity | None = None
    sequence: int | None = None
    oversize: Oversize = "refuse"


class ConsumerPosition(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where a consumer stands, in place of a cursor."""

    consumer: Identity


Position = Cursor | Literal["earliest", "latest"] | ConsumerPosition


class Attach(RelayRequest, tag="attach"):
    """Asks for the records after a position; waits up to `wait_ms` where there are none yet."""

    after: Position
    wait_ms: Milliseconds = 0
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=PAGE_BYTES_MAX)] = PAGE_BYTES_DEFAULT
    status: bool = False


class Acknowledge(RelayRequest, tag="acknowledge"):
    """Says that `consumer` has everything through a cursor durably."""

    through: Cursor
    consumer: Identity = "controller"


class AwaitAcknowledged(RelayRequest, tag="await_acknowledged"):
    """Waits until `consumer` has acknowledged a cursor."""

    consumer: Identity
    through: Cursor
    wait_ms: Milliseconds


class ForgetConsumer(RelayRequest, tag="forget_consumer"):
    """Frees what a consumer that is gone pins."""

    consumer: Identity


class Submit(RelayRequest, tag="submit"):
    """Has a command accepted, exactly once however often it is sent."""

    command_id: CommandId
    command: msgspec.Raw


class CommandQuery(RelayRequest, tag="command"):
    """Asks what became of a command; waits for its end, or for a checkpoint's cut."""

    command_id: CommandId
    wait_ms: Milliseconds = 0


class Claim(RelayRequest, tag="claim"):
    """Asks for up to `capacity` commands to work on; waits up to `wait_ms` where there are none."""

    capacity: Annotated[int, msgspec.Meta(ge=0, le=10_000)]
    wait_ms: Milliseconds = 0


class Finish(RelayRequest, tag="finish"):
    """Says how a command that this connection holds ended."""

    command_id: CommandId
    outcome: OutcomeWord
    result: msgspec.Raw = NIL
    message: str | None = None


class CancelRequest(Request, tag="cancel_request"):
    """Takes back a request that waits."""

    request: RequestId


class Leave(Request, tag="leave"):
    """A planned goodbye of an asker."""


class Response(msgspec.Struct, tag_field="re", omit_defaults=True, gc=False):
    """What the daemon answers; `id` is the request's."""

    id: int


class Limits(msgspec.Struct, frozen=True):
    """The bounds of this daemon that a client must keep."""

    frame_bytes: int
    page_bytes: int
    event_bytes: int
    command_bytes: int
    in_flight: int
    in_flight_bytes: int


class Welcome(Response, tag="welcome"):
    """The answer to `hello`."""

    version: int
    daemon: str
    limits: Limits
    attended: list[tuple[str, int]] = []


class RelayEntry(msgspec.Struct, omit_defaults=True, frozen=True):
    """One relay of a list; what a closed relay does not say is absent."""

    relay: str
    open: bool
    latest: int | None = None
    execution: str | None = None
    disk_bytes: int | None = None


class RelayList(Response, tag="relays"):
    """All relays, in order of name."""

    relays: list[RelayEntry]


class Opened(Response, tag="opened"):
    """A relay is open."""

    relay: str
    store: StoreId
    latest: Cursor
    created: bool


class Done(Response, tag="done"):
    """Done; there is nothing to say."""


class HeldCommand(msgspec.Struct, frozen=True):
    """A command that is in flight, with its last hand-over."""

    command_id: str
    worker: str
    delivery: int


class BarrierStatus(msgspec.Struct, omit_defaults=True, frozen=True):
    """The checkpoint that is being made; with `cut` it is ready."""

    command_id: str
    cut: Cursor | None = None


class RelayStatus(msgspec.Struct, omit_defaults=True, frozen=True):
    """The state of a relay at `latest`. Times are milliseconds since 1970; `trouble` is a sentence."""

    relay: str
    store: StoreId
    execution: Literal["idle", "running", "closed", "unavailable"]
    execution_since: int
    latest: Cursor
    acknowledged: Cursor
    retained: Cursor
    evicted: Cursor
    retention: Retention
    max_active: int
    consumers: dict[str, Cursor]
    readers: int
    last_event_at: int
    disk_bytes: int
    journal_bytes: int
    floor: Cursor | None = None
    trouble: str | None = None
    active: list[str] = []
    queued: list[str] = []
    queued_count: int = 0
    in_flight: list[HeldCommand] = []
    barrier: BarrierStatus | None = None
    config: dict[str, msgspec.Raw] = {}


class StatusResponse(RelayStatus, tag_field="re", tag="status", kw_only=True, frozen=True, omit_defaults=True):
    """The answer to `status`: the fields of RelayStatus stand beside `id`."""

    id: int


class Exported(Response, tag="exported"):
    """A part of the encoded state at the frontier `at`, of `size` bytes in all."""

    at: Cursor
    size: int
    state: bytes


class Recorded(Response, tag="recorded"):
    """Events are durable: `first` to `through`. `duplicate`: all of them were there already.

    `sequence` is the producer's last; absent with a producer: the producer is not known.
    """

    first: int | None = None
    through: Cursor | None = None
    duplicate: bool = False
    sequence: int | None = None


class LostSpan(msgspec.Struct, frozen=True):
    """Ordinals `first` to `last` are lost to this reader."""

    first: int
    last: int


class Page(Response, tag="page"):
    """`records` is whole records as they are on disk. `through` is the cursor to go on from."""

    records: bytes
    count: int
    through: Cursor
    latest: Cursor
    verified: bool
    gap: LostSpan | None = None
    status: RelayStatus | None = None


class Acknowledged(Response, tag="acknowledged"):
    """Where the consumer stands now, and what the relay retains."""

    through: Cursor
    retained: Cursor


class Accepted(Response, tag="accepted"):
    """A command is accepted: `ordinal` is that of its `command.queued`."""

    command_id: str
    ordinal: int
    duplicate: bool = False


class CommandReport(Response, tag="command"):
    """What is known of a command. `result` and `message` are gone when its terminal event is."""

    command_id: str
    type: CommandType
    state: CommandState
    ordinal: int
    terminal: int | None = None
    reason: str | None = None
    message: str | None = None
    result: msgspec.Raw = NIL
    cut: Cursor | None = None


class ClaimedCommand(msgspec.Struct, frozen=True):
    """A command handed over; `delivery` counts the hand-overs, this one too."""

    command_id: str
    ordinal: int
    command: msgspec.Raw
    delivery: int


class Claimed(Response, tag="claimed"):
    """The commands that this connection holds from now on."""

    commands: list[ClaimedCommand]


class Finished(Response, tag="finished"):
    """The outcome is recorded at `ordinal`."""

    ordinal: int
    duplicate: bool = False


AnyRequest = (
    Hello
    | Relays
    | Open
    | DeleteRelay
    | Status
    | Export
    | Record
    | Attach
    | Acknowledge
    | AwaitAcknowledged
    | ForgetConsumer
    | Submit
    | CommandQuery
    | Claim
    | Finish
    | CancelRequest
    | Leave
)
AnyResponse = (
    Welcome
    | RelayList
    | Opened
    | Done
    | StatusResponse
    | Exported
    | Recorded
    | Page
    | Acknowledged
    | Accepted
    | CommandReport
    | Claimed
    | Finished
    | ErrorResponse
)
