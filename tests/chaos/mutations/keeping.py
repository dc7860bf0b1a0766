"""What collecting, sealing, places and locks keep safe taken away."""

from chaos.mutations.mutation import Mutation

KEEPING = (
    Mutation(
        name="snapshot_before_its_frontier",
        file="daemon/upkeep.py",
        old=(
            "        await self._owner.durable(captured.frontier.ordinal)\n"
            "        if memory.synced.ordinal < captured.frontier.ordinal:"
        ),
        new="        if False:",
        protects="A snapshot gets its name when its frontier is synced.",
        tests=("tests/chaos/mutations/test_missed.py::test_a_snapshot_of_what_is_not_synced_yet_has_no_name",),
    ),
    Mutation(
        name="sealed_not_compared",
        file="journal/sealer.py",
        old="            _compare(file, index, target)\n",
        new="",
        protects="A sealed segment is read back before the rotated file is unlinked.",
        tests=("tests/journal/test_sealer.py::test_a_write_that_the_disk_changes_is_found_before_it_gets_its_name",),
    ),
    Mutation(
        name="standing_copy_not_compared",
        file="journal/sealer.py",
        old="        return read_index(file, target, store).stream == stream.digest()",
        new="        return True",
        protects="A sealed file that has the name already is compared.",
        tests=("tests/journal/test_sealer.py::test_a_different_file_in_its_place_is_set_aside_and_sealed_again",),
    ),
    Mutation(
        name="collected_by_one_generation",
        file="daemon/upkeep.py",
        old="        return min((base or GENESIS).ordinal for base in self._generations)",
        new="        return max((base or GENESIS).ordinal for base in self._generations)",
        protects="Nothing is collected before both snapshots are past it.",
        tests=("tests/daemon/test_retention.py::test_collection_waits_for_both_snapshots_and_they_are_written_for_it",),
    ),
    Mutation(
        name="newest_file_collected",
        file="journal/collection.py",
        old="segment.last <= base and segment is not newest, view.settled)",
        new="segment.last <= base, view.settled)",
        protects="The newest file that holds a record is never collected.",
        tests=(
            "tests/journal/test_collection.py::test_whole_files_at_or_below_base_may_go_oldest_first_but_never_the_newest_with_a_record",
        ),
    ),
    Mutation(
        name="evicted_before_durable",
        file="daemon/host.py",
        old="        self.record_own([own_body(self._environment.now_ms(), RelayEvicted(through))])\n",
        new=(
            "        self.record_own([own_body(self._environment.now_ms(), RelayEvicted(through))])\n"
            "        self.memory.durable = Durable.of(self.memory.state)\n"
            "        self.memory.raise_base()\n"
        ),
        protects="Bounded retention drops nothing before it is durably said.",
        tests=(
            "tests/chaos/mutations/test_missed.py::test_what_an_eviction_drops_is_served_until_the_eviction_is_synced",
        ),
    ),
    Mutation(
        name="acknowledged_answered_before_written",
        file="daemon/acknowledging.py",
        old=(
            "        through = acknowledgements.cursor_of(consumer)\n"
            "        self._enqueue(reply, lambda: reply.answer(Acknowledged(reply.id, through, "
            "self._memory.retained)))"
        ),
        new=(
            "        through = acknowledgements.cursor_of(consumer)\n"
            "        reply.answer(Acknowledged(reply.id, through, self._memory.retained))\n"
            "        self._enqueue(reply, lambda: None)"
        ),
        protects="An acknowledgement is on disk before it is answered.",
        tests=("tests/daemon/test_durable_answers.py::test_acknowledgements_are_answered_when_their_file_is_synced",),
    ),
    Mutation(
        name="directory_not_proven",
        file="journal/writer.py",
        old="        if not self._relay.still_there() or not self._journal.still_there():",
        new="        if False:",
        protects="A group is answered only while its directory is at its place.",
        tests=("tests/journal/test_writer.py::test_nothing_is_answered_into_a_relay_that_is_gone_from_its_path",),
    ),
    Mutation(
        name="active_file_not_proven",
        file="journal/writer.py",
        old="        return named is not None and named[0] == self._active.identity",
        new="        return True",
        protects="A group is answered only while active.log is the file it was written to.",
        tests=("tests/journal/test_writer.py::test_nothing_is_answered_into_a_relay_that_is_gone_from_its_path",),
    ),
    Mutation(
        name="acknowledgements_place_not_proven",
        file="daemon/acknowledging.py",
        old="        prove_place(self._relay)\n",
        new="",
        protects="An acknowledgement is answered only while the relay's directory is at its place.",
        tests=("tests/daemon/test_hosting.py::test_nothing_is_answered_of_a_relay_that_was_moved_away",),
    ),
    Mutation(
        name="made_place_not_proven",
        file="daemon/relay_files.py",
        old="        if not self._relays.still_there():\n            gone =",
        new="        if False:\n            gone =",
        protects="A relay is answered as made only while the state directory is at its place.",
        tests=(
            "tests/daemon/test_process.py::test_a_state_directory_taken_away_ends_it_with_74_and_nothing_is_answered_into_it",
        ),
    ),
    Mutation(
        name="idle_stays",
        file="journal/writer.py",
        old="        if not self._may_be_idle:",
        new="        if True:",
        protects="`idle` is removed before the first write.",
        tests=("tests/journal/test_writer.py::test_idle_is_gone_and_synced_before_the_first_write",),
    ),
    Mutation(
        name="two_daemons",
        file="daemon/state_lock.py",
        old="    if not state.lock():",
        new="    if False:",
        protects="One daemon per state directory.",
        tests=(
            "tests/daemon/test_process.py::test_a_second_daemon_on_one_state_directory_refuses_names_the_holder_and_leaves_the_socket",
        ),
    ),
    Mutation(
        name="two_openers",
        file="daemon/relay_files.py",
        old="    if not relay.lock():",
        new="    if False:",
        protects="A relay that an offline tool mends is not opened.",
        tests=(
            "tests/daemon/test_passing_faults.py::test_a_relay_locked_by_another_is_unavailable_and_served_when_it_is_given_back",
        ),
    ),
    Mutation(
        name="living_socket_taken",
        file="daemon/listener.py",
        old="    if _somebody_answers(path):",
        new="    if False:",
        protects="A socket at which somebody answers is not taken over.",
        tests=("tests/daemon/test_listener.py::test_a_live_server_at_the_path_is_left_alone",),
    ),
    Mutation(
        name="foreign_socket_unlinked",
        file="daemon/listener.py",
        old="            if _identity(self.path) == self._identity:",
        new="            if True:",
        protects="Only our own socket is unlinked at the end.",
        tests=("tests/daemon/test_listener.py::test_a_path_that_is_somebody_elses_by_now_is_not_removed_at_the_end",),
    ),
    Mutation(
        name="gone_state_directory",
        file="daemon/relay_files.py",
        old="            self._environment.state_gone.set()",
        new="            pass",
        protects="A daemon whose state directory is gone ends with status 74.",
        tests=(
            "tests/daemon/test_process.py::test_a_state_directory_taken_away_ends_it_with_74_and_nothing_is_answered_into_it",
        ),
    ),
    Mutation(
        name="descriptor_reserve",
        file="journal/real_storage.py",
        old="                if error.errno not in _NO_DESCRIPTOR or not self._give_up():",
        new="                if True:",
        protects="Storage still opens files when clients have used up the descriptors.",
        tests=(
            "tests/journal/test_storage.py::test_storage_opens_from_its_reserve_when_clients_used_up_the_descriptors",
        ),
    ),
    Mutation(
        name="accepting_ends_without_descriptors",
        file="daemon/listener.py",
        old="                if error.errno not in _OUT_OF:",
        new="                if True:",
        protects="A daemon out of descriptors goes on accepting when some are free.",
        tests=(
            "tests/daemon/test_process.py::test_descriptors_used_up_by_clients_leave_storage_its_own_and_it_recovers",
        ),
    ),
)
