"""What follows from a failed write or sync changed, and what an answer waits for."""

from chaos.mutations.mutation import Mutation

FAILING = (
    Mutation(
        name="answered_before_durable",
        file="daemon/output_commit.py",
        old="        if ordinal <= self.synced:",
        new="        if True:",
        protects="Nothing is answered before what it depends on is durable.",
        tests=(
            "tests/daemon/test_durable_answers.py::test_nothing_leaves_before_its_ordinal_is_synced_and_all_leave_in_order",
        ),
    ),
    Mutation(
        name="duplicate_answered_before_durable",
        file="daemon/host.py",
        old="        self.memory.output.hold(last.ordinal, reply, decision.respond(first, last))",
        new=(
            "        self.memory.output.hold(last.ordinal if decision.bodies else 0, reply, "
            "decision.respond(first, last))"
        ),
        protects="A duplicate waits for the sync of what it repeats.",
        tests=("tests/daemon/test_durable_answers.py::test_a_repeat_that_came_while_the_first_waits_shares_its_fate",),
    ),
    Mutation(
        name="refusal_answered_before_durable",
        file="daemon/host.py",
        old=(
            "        except RelaydError as error:\n"
            "            self.memory.output.hold(self.memory.state.frontier.ordinal, reply, error)"
        ),
        new="        except RelaydError as error:\n            reply.refuse(error)",
        protects="A refusal waits for the sync of what it was decided at.",
        tests=("tests/daemon/test_durable_answers.py::test_while_the_sync_runs_nothing_that_depends_on_it_leaves",),
    ),
    Mutation(
        name="shown_before_durable",
        file="daemon/memory.py",
        old="        return History(self.base, self.synced)",
        new="        return History(self.base, self.state.frontier)",
        protects="Nothing is shown before it is durable.",
        tests=("tests/daemon/test_durable_answers.py::test_while_the_sync_runs_nothing_that_depends_on_it_leaves",),
    ),
    Mutation(
        name="answered_though_failed",
        file="daemon/host.py",
        old="        self.memory.output.fail(error)",
        new="        self.memory.output.advance(self.memory.state.frontier.ordinal)",
        protects="What waits for a sync shares its failure.",
        tests=(
            "tests/daemon/test_storage_faults.py::test_everything_decided_after_a_sync_that_fails_shares_its_failure",
        ),
    ),
    Mutation(
        name="producers_kept_after_failure",
        file="daemon/host.py",
        old="        state = opened.state\n        self.name",
        new=(
            "        state = opened.state\n"
            "        state.producers = vars(environment).setdefault(opened.name, state.producers)\n"
            "        self.name"
        ),
        protects="What a relay remembers of producers is dropped where it could not be written.",
        tests=(
            "tests/daemon/test_storage_faults.py::test_everything_decided_after_a_sync_that_fails_shares_its_failure",
        ),
    ),
    Mutation(
        name="sync_tried_again",
        file="journal/writer.py",
        old="            raise SyncFailedError(error, self.synced_end) from error",
        new="            self._active.sync()",
        protects="A file is never synced again after a sync of it failed.",
        tests=("tests/journal/test_writer.py::test_each_call_of_commit_failed_in_turn",),
    ),
    Mutation(
        name="opening_sync_tried_again",
        file="recovery/settling.py",
        old=(
            "            self._synced = SyncedEnd(self._active.segment, self._x)\n"
            "            self._active.file.close()\n"
        ),
        new="            return self._active.file.sync()\n            self._active.file.close()\n",
        protects="A file is never synced again after an opening's sync of it failed.",
        tests=(
            "tests/recovery/test_opening_faults.py::test_the_writing_halfs_own_failed_sync_cuts_nothing_and_is_not_tried_again",
        ),
    ),
    Mutation(
        name="acknowledged_sync_tried_again",
        file="recovery/settling.py",
        old="                acknowledged.replace_content(self._relay, found.content)",
        new="                file.sync()",
        protects="`acknowledged` is never synced again after a sync of it failed.",
        tests=("tests/recovery/test_opening_faults.py::test_acknowledged_whose_sync_fails_is_replaced",),
    ),
    Mutation(
        name="failed_sync_forgotten",
        file="journal/writer.py",
        old="            raise SyncFailedError(error, self.synced_end) from error",
        new="            raise SyncFailedError(error) from error",
        protects="The next opening believes no byte behind the last sync that returned.",
        tests=("tests/journal/test_writer.py::test_each_call_of_commit_failed_in_turn",),
    ),
    Mutation(
        name="failed_sync_forgotten_by_entry",
        file="daemon/entry.py",
        old="            self._synced = ending.synced\n            self._open_anyway = True",
        new="            self._open_anyway = True",
        protects="The opening after a failed sync is told of it.",
        tests=(
            "tests/daemon/test_storage_faults.py::test_a_failed_sync_is_never_tried_again_and_the_relay_goes_on_in_a_fresh_file",
        ),
    ),
    Mutation(
        name="failed_opening_sync_forgotten",
        file="daemon/entry.py",
        old="                self._synced = told.synced\n",
        new="                pass\n",
        protects="The opening after one that failed is told of the failed sync too.",
        tests=(
            "tests/chaos/mutations/test_missed.py::test_an_opening_whose_own_sync_failed_is_remembered_by_the_next_one",
        ),
    ),
    Mutation(
        name="watermark_believed_after_failed_sync",
        file="recovery/reading.py",
        old="        watermark = None if found.active.synced else found.watermark",
        new="        watermark = found.watermark",
        protects="After a failed sync, what this process saw counts and not the watermark.",
        tests=("tests/recovery/test_opening_faults.py::test_what_was_synced_counts_whatever_the_watermark_says",),
    ),
    Mutation(
        name="watermark_before_sync",
        file="journal/writer.py",
        old=("            raise WriteFailedError(error) from error\n        try:\n            self._active.sync()"),
        new=(
            "            raise WriteFailedError(error) from error\n"
            "        try:\n"
            "            ahead = Watermark(self._segment, offset + GROUP_HEADER_BYTES + len(payload))\n"
            "            open_or_make(self._relay, WATERMARK).write((encode_watermark(ahead),), 0)\n"
            "            self._active.sync()"
        ),
        protects="The watermark is written after the sync that it tells of.",
        tests=(
            "tests/journal/test_writer.py::test_a_commit_is_one_write_one_sync_then_the_proof_of_its_place_then_the_watermark",
        ),
    ),
    Mutation(
        name="half_group_stays",
        file="journal/writer.py",
        old="                self._active.truncate(offset)",
        new="                pass",
        protects="After a short write, the file is cut back before the relay opens again.",
        tests=("tests/journal/test_writer.py::test_a_write_that_took_k_bytes_is_cut_back_for_every_k",),
    ),
    Mutation(
        name="dead_writer_goes_on",
        file="journal/writer.py",
        old="        if not self._alive:",
        new="        if False:",
        protects="A writer that failed writes nothing more.",
        tests=("tests/journal/test_writer.py::test_each_call_of_commit_failed_in_turn",),
    ),
    Mutation(
        name="full_disk_at_sync_only_waited_for",
        file="daemon/host.py",
        old="        full = isinstance(error, WriteFailedError) and lacks_room(error.error)",
        new="        full = lacks_room(error.error)",
        protects="A sync that found no room has failed: `storage_failed`.",
        tests=(
            "tests/daemon/test_storage_faults.py::test_a_failed_sync_is_never_tried_again_and_the_relay_goes_on_in_a_fresh_file",
        ),
    ),
    Mutation(
        name="room_not_tried",
        file="journal/probe.py",
        old="        return False\n",
        new="        return True\n",
        protects="Recording resumes only when a group's size can be written.",
        tests=(
            "tests/daemon/test_storage_faults.py::test_without_room_recording_is_storage_full_reads_go_on_and_service_resumes_by_itself",
        ),
    ),
)
