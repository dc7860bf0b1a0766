"""Reading with the async client: pages, and the events in them.

Plain iterators and not generators: one that was cancelled in the middle of waiting can be asked again.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

import anyio

from relayd.client.alink import Pending
from relayd.client.backoff import Backoff
from relayd.client.errors import ConnectionLostError
from relayd.client.events import Event, EventPage, Gap
from relayd.client.following import Following
from relayd.client.operations import Call
from relayd.protocol.errors import RelaydError
from relayd.protocol.messages import Page

if TYPE_CHECKING:
    from relayd.client.aclient import AsyncClient


class Pages:
    """Proven pages in order; see `AsyncClient.pages`. For one task at a time."""

    def __init__(self, client: "AsyncClient", following: Following) -> None:
        self._client = client
        self._following = following
        self._backoff = Backoff()
        self._call = following.next_call()
        self._ahead: Pending | None = None
        self._received: tuple[Call[Page], Page] | None = None
        self._pausing = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EventPage:
        while True:
            found = await self._next()
            if found is not None and (found.events or found.gap is not None):
                return found
            if self._call is None and self._received is None:
                raise StopAsyncIteration

    async def _next(self) -> EventPage | None:
        """The next answer's page. Whatever is awaited here may be cancelled, and goes on at the next call."""
        if self._pausing:
            await anyio.sleep(self._backoff.next_seconds())
            self._pausing = False
        following = self._following
        if self._received is None:
            if self._call is None:
                return None
            try:
                page = await self._finish(self._call)
            except RelaydError as error:
                if not self._client.reconnect and error.retryable:
                    raise
                told = following.refused(error)
                self._pausing = told is None
                self._call = following.next_call()
                return told
            self._backoff.reset()
            following.advance(page)
            self._received = self._call, page
            self._call = following.next_call()
        if self._call is not None and following.catching_up and self._ahead is None:
            # The daemon reads the next page while this one is proven and used.
            await self._begin(self._call)
        (asked, page), self._received = self._received, None
        return following.prove(asked, page)

    async def _begin(self, call: Call[Page]) -> None:
        """Sends ahead; where the connection is gone, the call is made when its answer is needed."""
        try:
            link = await self._client.connected()
            self._ahead = await link.send(call.request)
        except ConnectionLostError:
            self._ahead = None

    async def _finish(self, call: Call[Page]) -> Page:
        if self._ahead is not None:
            try:
                response = await self._ahead.wait()
            except ConnectionLostError:
                self._ahead = None
                if not self._client.reconnect:
                    raise
            else:
                self._ahead = None
                if not (self._client.reconnect and call.ends_with(response)):
                    return call.answer(response)
        return await self._client.call(call)


class Follow:
    """Events and gaps in order; see `AsyncClient.follow`. For one task at a time."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages
        self._gap: Gap | None = None
        self._events: Iterator[Event] = iter(())

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event | Gap:
        event = next(self._events, None)
        while event is None:
            page = await self._pages.__anext__()
            self._events = iter(page.events)
            if page.gap is not None:
                return page.gap
            event = next(self._events, None)
        return event
