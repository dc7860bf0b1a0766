"""What is decided of requests and cursors changed."""

from chaos.mutations.mutation import Mutation

REQUESTS = (
    Mutation(
        name="duplicates_stored",
        file="relay/recording.py",
        old="    return expected - sequence\n",
        new="    return 0\n",
        protects="What a producer sends again is not stored again.",
        tests=(
            "tests/relay/test_producers.py::test_a_repeat_is_a_duplicate_with_the_cursor_of_the_producers_last_event",
        ),
    ),
    Mutation(
        name="hole_in_sequence",
        file="relay/recording.py",
        old="    if sequence > expected:",
        new="    if False:",
        protects="A producer's sequences have no hole.",
        tests=("tests/relay/test_producers.py::test_a_hole_in_a_sequence_is_refused_with_the_one_expected",),
    ),
    Mutation(
        name="producer_not_remembered",
        file="relay/fold.py",
        old="        _mark(state.producers, run.producer.name, ProducerMark(run.producer.sequence, last))",
        new="        pass",
        protects="The fold remembers where each producer stands.",
        tests=("tests/relay/test_fold.py::test_an_applications_event_moves_the_frontier_and_its_producer",),
    ),
    Mutation(
        name="last_ordinals",
        file="relay/decide.py",
        old="    if state.frontier.ordinal + len(recording.bodies) > ORDINAL_MAX:",
        new="    if False:",
        protects="The last ordinal is never given out.",
        tests=(
            "tests/relay/test_recording_refusals.py::test_a_relay_that_has_given_out_its_last_ordinal_is_exhausted",
        ),
    ),
    Mutation(
        name="cursor_ahead",
        file="protocol/cursor.py",
        old="    if cursor.ordinal > latest.ordinal:",
        new="    if False:",
        protects="A cursor ahead of the history is refused.",
        tests=("tests/protocol/test_plan_resume.py::test_row_2_a_cursor_past_the_latest_is_ahead_and_never_clamped",),
    ),
    Mutation(
        name="cursor_of_another_history",
        file="protocol/cursor.py",
        old="    if known and cursor.digest != found.digest:",
        new="    if False:",
        protects="A cursor of another history is refused.",
        tests=(
            "tests/protocol/test_plan_resume.py::test_row_3_a_digest_that_differs_from_the_one_found_is_another_history",
        ),
    ),
    Mutation(
        name="eviction_unsaid",
        file="protocol/cursor.py",
        old="    if below or (evicted.ordinal > 0 and without_its_digest):",
        new="    if False:",
        protects="A reader is told of events that are gone.",
        tests=(
            "tests/protocol/test_plan_resume.py::test_row_5_below_what_is_evicted_or_there_without_its_digest_is_a_gap",
        ),
    ),
    Mutation(
        name="acknowledged_backwards",
        file="relay/acknowledged.py",
        old="        highest = least if least.ordinal > self.acknowledged.ordinal else self.acknowledged",
        new="        highest = least",
        protects="What is acknowledged never moves back.",
        tests=(
            "tests/relay/test_acknowledgements.py::test_a_new_consumer_further_back_is_kept_where_it_says_and_acknowledged_does_not_move_back",
        ),
    ),
    Mutation(
        name="duplicate_keys",
        file="protocol/value.py",
        old="    if not same and count_keys(encoded) != _count_held(value):",
        new="    if False:",
        protects="A key comes once in a map.",
        tests=("tests/protocol/test_value.py::test_a_refusal_names_the_key_that_came_twice",),
    ),
    Mutation(
        name="extensions",
        file="protocol/value.py",
        old="        elif kind not in _SCALARS:",
        new="        elif False:",
        protects="Extensions are refused.",
        tests=("tests/protocol/test_value.py::test_a_value_that_has_no_json_form_or_two_meanings_is_refused",),
    ),
    Mutation(
        name="part_of_a_frame_dropped",
        file="daemon/connection.py",
        old="                outgoing[0] = memoryview(first)[sent:]\n",
        new="                outgoing.popleft()\n",
        protects="A frame that was sent in part is sent to its end.",
        tests=("tests/daemon/test_bounds.py::test_a_slow_reader_gets_every_page_whole_and_in_its_own_time",),
    ),
    Mutation(
        name="half_a_frame_then_another",
        file="client/alink.py",
        old=(
            "            except BaseException:\n"
            "                self._pending.pop(request.id, None)\n"
            "                self.end()\n"
            "                raise\n"
            "        return pending"
        ),
        new=(
            "            except BaseException:\n"
            "                self._pending.pop(request.id, None)\n"
            "                raise\n"
            "        return pending"
        ),
        protects="A client that was cancelled in the middle of a frame sends nothing behind it.",
        tests=(
            "tests/client/test_async.py::test_cancelled_in_the_middle_of_a_frame_the_connection_ends_and_others_go_on",
        ),
    ),
    Mutation(
        name="same_id_in_flight",
        file="daemon/connection.py",
        old="        if request.id in self._in_flight:\n            text",
        new="        if False:\n            text",
        protects="An id that is in flight is refused, and the first request goes on.",
        tests=("tests/daemon/test_frames.py::test_an_id_in_flight_is_refused_under_id_0_and_the_first_goes_on",),
    ),
    Mutation(
        name="hello_not_required",
        file="daemon/connection.py",
        old="            case _ if not self._welcomed:",
        new="            case _ if False:",
        protects="Nothing comes before hello.",
        tests=("tests/daemon/test_operations.py::test_hello_comes_first_and_once",),
    ),
    Mutation(
        name="tail_with_a_hole",
        file="journal/tail.py",
        old="        if first != self._last + 1:",
        new="        if False:",
        protects="No page from memory has a hole.",
        tests=("tests/journal/test_tail.py::test_a_hole_empties_what_lies_before_it",),
    ),
)
