"""Bounds taken away, and what is done at them."""

from chaos.mutations.mutation import Mutation

BOUNDS = (
    Mutation(
        name="frame_length",
        file="protocol/frame.py",
        old="    if length > FRAME_BYTES_MAX:\n        message = (",
        new="    if False:\n        message = (",
        protects="A frame longer than the bound is refused from its length alone.",
        tests=("tests/protocol/test_frame.py::test_a_length_over_the_limit_is_too_large_from_four_bytes_alone",),
    ),
    Mutation(
        name="frame_nesting",
        file="protocol/value.py",
        old="        if depth > NESTING_MAX:",
        new="        if False:",
        protects="Values are nested at most 64 deep.",
        tests=("tests/protocol/test_value.py::test_more_than_64_levels_are_refused_whatever_their_number",),
    ),
    Mutation(
        name="frame_containers",
        file="protocol/value.py",
        old="    if len(encoded) > CONTAINERS_MAX and holds_too_many_containers(encoded):",
        new="    if False:",
        protects="A frame holds a bounded number of maps and arrays.",
        tests=("tests/protocol/test_value.py::test_more_containers_are_refused_before_they_cost_anything",),
    ),
    Mutation(
        name="event_size",
        file="relay/recording.py",
        old="    if len(body) <= EVENT_BODY_BYTES_MAX:",
        new="    if True:",
        protects="An event larger than the bound is refused.",
        tests=(
            "tests/daemon/test_operations.py::test_an_event_of_exactly_2_mib_is_recorded_and_one_more_byte_is_too_large",
        ),
    ),
    Mutation(
        name="frame_plain_bound",
        file="journal/frames.py",
        old="    if not 1 <= plain_size <= FRAME_PLAIN_BYTES_MAX:",
        new="    if False:",
        protects="Nothing larger than a frame can be is expanded.",
        tests=("tests/journal/test_sealed.py::test_what_is_not_just_the_one_frame_promised_is_refused",),
    ),
    Mutation(
        name="index_size",
        file="journal/sealed.py",
        old="    if not _AROUND_INDEX_BYTES < whole <= min(size, INDEX_BYTES_MAX):",
        new="    if not _AROUND_INDEX_BYTES < whole:",
        protects="An index is no larger than its file and its bound.",
        tests=("tests/journal/test_sealed.py::test_a_size_of_the_index_beyond_its_bound_is_not_read",),
    ),
    Mutation(
        name="memory_by_claim",
        file="journal/real_storage.py",
        old="            part = os.pread(self._descriptor, min(size, _READ_BYTES_MAX), offset)",
        new="            part = os.pread(self._descriptor, size, offset)",
        protects="A size from the disk allocates no more than the file has.",
        tests=(
            "tests/journal/test_storage.py::test_a_read_larger_than_one_call_takes_is_whole_and_an_absurd_one_takes_no_memory",
        ),
    ),
    Mutation(
        name="requests_in_flight",
        file="daemon/connection.py",
        old="            or len(self._in_flight) - self.waiting - self._held >= self._settings.in_flight\n",
        new="",
        protects="A connection has a bounded number of requests in flight.",
        tests=(
            "tests/daemon/test_bounds.py::test_past_the_bound_of_requests_in_flight_the_connection_is_read_no_further",
        ),
    ),
    Mutation(
        name="bytes_in_flight",
        file="daemon/connection.py",
        old="            or self._in_flight_bytes - self._held_bytes >= self._settings.in_flight_bytes\n",
        new="",
        protects="A connection has bounded bytes in flight.",
        tests=(
            "tests/daemon/test_bounds.py::test_past_the_bound_of_bytes_in_flight_the_connection_is_read_no_further",
        ),
    ),
    Mutation(
        name="waiting_requests",
        file="daemon/reply.py",
        old="            if connection.waiting >= connection.waiting_max:",
        new="            if False:",
        protects="A bounded number of a connection's requests wait.",
        tests=(
            "tests/daemon/test_waiting.py::test_waiting_requests_past_the_bound_are_overloaded_and_the_others_wait_on",
        ),
    ),
    Mutation(
        name="unread_answers",
        file="daemon/connection.py",
        old="        return self._unsent > CONGESTED_BYTES or self.reads >= READS_MAX",
        new="        return False",
        protects="A connection that does not take its answers is read no further.",
        tests=("tests/daemon/test_bounds.py::test_live_events_are_not_kept_for_a_reader_that_does_not_read",),
    ),
    Mutation(
        name="pages_together",
        file="daemon/connection.py",
        old="        if self._outbox.pages_bytes > PAGES_BYTES:",
        new="        if False:",
        protects="All slow readers together hold bounded memory.",
        tests=(
            "tests/daemon/test_bounds.py::test_while_many_do_not_take_what_they_are_owed_one_that_does_is_served_without_a_pause",
        ),
    ),
    Mutation(
        name="events_that_wait",
        file="daemon/host.py",
        old="        if self._pending_bytes + reply.size > bound:",
        new="        if False:",
        protects="Events that wait for the disk are bounded.",
        tests=(
            "tests/daemon/test_bounds.py::test_past_the_bound_of_events_that_wait_for_the_disk_recording_is_overloaded",
        ),
    ),
    Mutation(
        name="connections",
        file="daemon/server.py",
        old="        if len(self._connections) >= bound:",
        new="        if False:",
        protects="The number of connections is bounded.",
        tests=("tests/daemon/test_bounds.py::test_connections_past_the_bound_are_told_and_closed",),
    ),
    Mutation(
        name="hello_deadline",
        file="daemon/connection.py",
        old="        self._hello_until = trio.current_time() + HELLO_SECONDS_MAX",
        new="        pass",
        protects="A connection without hello is closed.",
        tests=("tests/daemon/test_bounds.py::test_without_hello_a_connection_ends_after_10_seconds",),
    ),
    Mutation(
        name="frame_deadline",
        file="daemon/connection.py",
        old="                self._complete_until = trio.current_time() + FRAME_SECONDS_MAX",
        new="                pass",
        protects="A frame that does not come to an end closes its connection.",
        tests=(
            "tests/daemon/test_bounds.py::test_a_frame_that_is_not_complete_30_seconds_after_its_first_byte_ends_the_connection",
        ),
    ),
)
