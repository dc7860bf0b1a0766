"""Syncs of files taken away, each in turn: bytes that are counted on are then in the page cache only."""

from chaos.mutations.mutation import Mutation

FILE_SYNCS = (
    Mutation(
        name="group_not_synced",
        file="journal/writer.py",
        old="            self._active.sync()\n",
        new="            pass\n",
        protects="A group's sync before it is answered and shown.",
        tests=(
            "tests/journal/test_writer.py::test_a_commit_is_one_write_one_sync_then_the_proof_of_its_place_then_the_watermark",
        ),
    ),
    Mutation(
        name="opening_rewrite_not_synced",
        file="recovery/settling.py",
        old=("        self._rewritten_bytes = self._x - start\n        self._sync_active()\n"),
        new="        self._rewritten_bytes = self._x - start\n",
        protects="The sync of what an opening wrote over itself.",
        tests=(
            "tests/recovery/test_opening_faults.py::test_without_room_the_rewrite_is_done_all_the_same_and_reads_are_served",
        ),
    ),
    Mutation(
        name="opening_does_not_rewrite",
        file="recovery/settling.py",
        old="        self._active.file.write((memoryview(self._content)[start : self._x],), start)\n",
        new="",
        protects="Writing over itself what may be in the page cache only.",
        tests=(
            "tests/recovery/test_opening_faults.py::test_without_room_the_rewrite_is_done_all_the_same_and_reads_are_served",
        ),
    ),
    Mutation(
        name="opening_trusts_whole_file",
        file="recovery/settling.py",
        old=("watermark.segment == header.segment else 0\n        if start == self._x and self._cut_is_synced:"),
        new=("watermark.segment == header.segment else self._x\n        if start == self._x and self._cut_is_synced:"),
        protects="Without a watermark of this segment, all of it is written over itself.",
        tests=("tests/recovery/test_opening_evidence.py::test_a_watermark_of_another_segment_spares_no_rewrite",),
    ),
    Mutation(
        name="torn_cut_not_synced",
        file="recovery/settling.py",
        old=("            file.truncate(self._x)\n            self._sync_active()\n"),
        new="            file.truncate(self._x)\n",
        protects="The sync of a cut of torn bytes.",
        tests=("tests/recovery/test_opening_faults.py::test_torn_bytes_are_on_disk_elsewhere_before_they_are_cut",),
    ),
    Mutation(
        name="snapshot_not_synced",
        file="recovery/snapshot.py",
        old="        file.sync()\n",
        new="        pass\n",
        protects="A snapshot's sync before it gets its name.",
        tests=(
            "tests/recovery/test_checked_files.py::test_a_generation_is_synced_before_its_name_and_the_name_before_anything_else",
        ),
    ),
    Mutation(
        name="sealed_not_synced",
        file="journal/sealer.py",
        old="            file.sync()\n",
        new="",
        protects="A sealed segment's sync before the rotated file is unlinked.",
        tests=("tests/journal/test_sealer.py::test_every_step_is_on_disk_before_the_next_depends_on_it",),
    ),
    Mutation(
        name="fresh_segment_not_synced",
        file="journal/active.py",
        old="        file.sync()\n",
        new="        pass\n",
        protects="The sync of a fresh active.log before it gets its name.",
        tests=(
            "tests/journal/test_active.py::test_a_fresh_active_log_is_synced_before_it_has_its_name_and_its_name_before_it_is_used",
        ),
    ),
    Mutation(
        name="successor_not_synced",
        file="recovery/settling.py",
        old=(
            "            file.write((content,), 0)\n"
            "            file.sync()\n"
            "        except OSError:\n"
            "            drop_prepared"
        ),
        new=("            file.write((content,), 0)\n        except OSError:\n            drop_prepared"),
        protects="The sync of the file that takes the place of an active.log whose sync failed.",
        tests=("tests/recovery/test_opening_faults.py::test_where_its_successor_fails_too_the_next_opening_knows_it",),
    ),
    Mutation(
        name="quarantine_copy_not_synced",
        file="recovery/quarantine.py",
        old="        file.sync()\n",
        new="",
        protects="The sync of a copy in quarantine before its original is cut or unlinked.",
        tests=("tests/recovery/test_opening_faults.py::test_torn_bytes_are_on_disk_elsewhere_before_they_are_cut",),
    ),
    Mutation(
        name="acknowledged_not_synced",
        file="recovery/acknowledged.py",
        old="        file.sync()\n",
        new="        pass\n",
        protects="The sync of acknowledgements before they are answered.",
        tests=(
            "tests/recovery/test_checked_files.py::test_acknowledged_is_synced_before_its_name_and_the_name_before_the_answer",
        ),
    ),
    Mutation(
        name="acknowledged_rewrite_not_synced",
        file="recovery/settling.py",
        old=("            try:\n                file.sync()\n            except OSError:\n                # As with"),
        new=("            try:\n                pass\n            except OSError:\n                # As with"),
        protects="The sync of `acknowledged` written over itself by an opening.",
        tests=(
            "tests/recovery/test_opening_faults.py::test_without_room_the_rewrite_is_done_all_the_same_and_reads_are_served",
        ),
    ),
    Mutation(
        name="first_event_not_synced",
        file="recovery/making.py",
        old="        file.sync()\n",
        new="",
        protects="The sync of a relay's first event before the relay has its name.",
        tests=(
            "tests/recovery/test_making.py::test_everything_is_synced_before_the_name_and_the_name_before_the_answer",
        ),
    ),
    Mutation(
        name="probe_not_synced",
        file="journal/probe.py",
        old="            file.sync()\n",
        new="",
        protects="Room counts only where it can be synced.",
        tests=(
            "tests/daemon/test_storage_faults.py::test_the_probe_is_as_large_as_what_did_not_fit_and_leaves_nothing",
        ),
    ),
    Mutation(
        name="no_sync_reaches_files",
        file="journal/real_storage.py",
        old="        os.fdatasync(self._descriptor)\n",
        new="        pass\n",
        protects="The system call behind every sync of a file.",
        tests=("tests/chaos/mutations/test_missed.py::test_the_sync_of_a_file_is_the_systems_and_so_is_its_failure",),
    ),
    Mutation(
        name="salvage_lost_event_not_synced",
        file="recovery/salvage_steps.py",
        old="            file.write((header, records), SEGMENT_HEADER_BYTES)\n            file.sync()\n",
        new="            file.write((header, records), SEGMENT_HEADER_BYTES)\n",
        protects="The sync of `relay.lost` before the segment that salvage writes gets its name.",
        tests=(
            "tests/chaos/mutations/test_missed.py::test_the_event_that_says_what_salvage_gave_up_is_synced_before_its_file_has_its_name",
        ),
    ),
)
