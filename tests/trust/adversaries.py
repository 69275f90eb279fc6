"""The named attacks, by what they attack. `test_adversary_table.py` counts them, and checks that each is there.

A name alone is an attack of `test_adversaries.py` or a lie of `test_false_heads.py`; the others are tests, by file.
"""

from __future__ import annotations

ADMISSION = "tests/log/admit/test_removals.py::"
COMMUNITY = "tests/programs/community/test_standing.py::"
EXCHANGE = "tests/sync/test_exchange.py::"
HEADS = "tests/trust/test_false_heads.py::"
HERE = "tests/trust/test_adversaries.py::"
HTTP = "tests/sync/carriers/test_http.py::"
PAYLOADS = "tests/sync/test_hostile_payloads.py::"
PURGES = "tests/sync/test_purges.py::"
REQUESTS = "tests/sync/carriers/test_http_signatures.py::"
SIGNED = "tests/sync/test_signed.py::"
TAKEN = "tests/log/admit/test_taken_ids.py::"

TABLE: dict[str, list[str]] = {
    "keys": [
        "a_key_of_small_order",
        "a_key_in_a_second_encoding",
        "a_key_that_is_no_point",
        "a_key_in_another_spelling",
        "an_origin_that_only_looks_like_a_key",
        "an_event_of_a_stranger",
        "a_succession_without_the_successor",
    ],
    "malleated signatures": [
        "a_signature_with_a_greater_s",
        "a_signature_with_another_point",
        "a_signature_of_zeros",
        "a_signature_that_was_cut",
        "a_signature_of_a_megabyte",
        "a_signature_by_another_key",
        "a_signature_of_an_older_group",
        "a_signature_under_the_name_of_an_unsigned_origin",
        "a_group_with_a_wrong_count",
        "a_group_with_a_wrong_first_number",
        "a_group_of_another_origin",
        "groups_without_events_or_with_a_billion",
        "a_proof_with_a_count_of_a_billion",
        HERE + "test_groups_that_overlap_are_stored_once",
    ],
    "stripped signatures": [
        "a_signature_that_was_removed",
        "a_path_that_was_removed",
        "a_path_of_another_event",
        "a_path_with_a_thousand_hashes",
        SIGNED + "test_an_event_without_its_signature_is_refused",
    ],
    "canonical twins": [
        "a_payload_that_looks_the_same",
        "a_payload_with_one_member_more",
        "another_spelling_of_a_known_id",
        "numbers_that_json_does_not_have",
        "half_a_character",
        "a_time_in_another_zone_or_in_none",
        HERE + "test_a_twin_in_another_form_of_a_number_is_the_same_event",
    ],
    "changed content": [
        "a_changed_payload",
        "a_changed_salt",
        "a_changed_author",
        "a_changed_stream",
        "names_that_no_log_makes",
        "hashes_of_another_length",
        "a_version_that_does_not_exist",
    ],
    "ids of others": [
        "the_id_of_another_author_afterwards",
        "the_id_of_another_author_beforehand",
        "the_id_of_another_number_of_the_same_key",
        "the_ids_of_members_under_a_name_of_nobody",
        TAKEN + "test_in_one_batch_the_signed_event_has_its_id",
        TAKEN + "test_what_waits_of_a_stranger_decides_nothing",
    ],
    "replay": [
        "an_event_that_was_signed_for_another_log",
        HERE + "test_an_event_that_was_sent_for_another_log_is_named",
        HERE + "test_a_purged_event_never_comes_back",
        REQUESTS + "test_a_request_of_a_peer_is_answered_once",
        REQUESTS + "test_a_request_for_another_node_cannot_be_passed_on",
        REQUESTS + "test_an_old_request_is_refused",
    ],
    "back-dating": [
        HERE + "test_an_old_clock_helps_no_revoked_member",
        HERE + "test_nobody_else_creates_the_community_with_an_older_clock",
        COMMUNITY + "test_an_invitation_expires_by_the_time_that_the_join_claims",
    ],
    "far numbers and forks": [
        "a_number_a_billion_ahead",
        "numbers_that_do_not_exist",
        "a_chain_with_a_hole",
        "an_event_that_does_not_follow_its_chain",
        "a_second_first_event",
        "an_event_of_this_log_that_it_never_made",
    ],
    "forged purges and erasures": [
        "a_removed_payload",
        "a_forged_erasure",
        "records_of_removals_by_a_stranger",
        "records_of_removals_behind_a_hole",
        ADMISSION + "test_a_record_beyond_a_hole_takes_no_payload_of_others",
        ADMISSION + "test_a_record_beyond_a_hole_brings_no_stub_of_others",
        ADMISSION + "test_a_record_at_or_after_a_fork_removes_nothing",
        ADMISSION + "test_a_hostile_relay_does_not_keep_a_payload_from_a_node",
        PURGES + "test_a_stub_without_a_record_or_with_a_wrong_proof_is_not_taken",
        PURGES + "test_a_purge_that_nobody_signed_removes_nothing",
        PURGES + "test_an_erasure_that_nobody_signed_takes_no_payload_of_a_key",
        PURGES + "test_a_record_that_lists_records_of_removals_is_not_followed",
        PURGES + "test_who_passes_a_stub_on_cannot_have_it_take_the_id_of_another_event",
        COMMUNITY + "test_only_the_purges_of_admins_are_followed",
        COMMUNITY + "test_only_admins_state_that_a_payload_was_erased",
    ],
    "made-up payloads": [
        PAYLOADS + "test_what_a_member_makes_up_harms_nobody",
        PAYLOADS + "test_acts_that_an_admin_makes_up_harm_nobody",
    ],
    "hostile clocks": [
        "a_clock_far_ahead",
        "a_clock_at_its_end",
        "clocks_that_do_not_exist",
        "an_id_from_the_future",
        HERE + "test_a_clock_is_not_carried_away_in_steps",
        PURGES + "test_who_passes_a_stub_on_cannot_raise_the_clock",
    ],
    "mutual revocation, and rights": [
        HERE + "test_two_admins_who_revoke_each_other_end_the_same_way_everywhere",
        HERE + "test_a_member_who_speaks_as_another_is_not_heard",
    ],
    "invitations": [
        COMMUNITY + "test_an_invitation_works_once",
        COMMUNITY + "test_an_invitation_is_for_one_key",
        COMMUNITY + "test_a_withdrawn_invitation_binds_also_those_who_joined_before",
    ],
    "bombs": [
        "a_payload_of_a_thousand_levels",
        HTTP + "test_a_hostile_request_is_refused_and_others_are_served",
        HTTP + "test_what_is_refused_takes_little_memory_and_time",
        HTTP + "test_endless_chunks_end_at_the_size_of_a_message",
        HTTP + "test_a_sender_that_trickles_is_cut_off",
        EXCHANGE + "test_a_hostile_message_is_refused_quickly",
    ],
    "false heads": [
        "ends_that_are_far_ahead",
        "ends_that_are_behind",
        "other_hashes_at_the_same_ends",
        "numbers_beyond_a_hole_that_nobody_has",
        "heads_that_are_equal_to_those_of_the_node_that_asks",
        "a_count_without_origins",
        "an_equal_fingerprint_with_other_ends",
        "a_chain_of_a_key_that_does_not_exist",
        "a_fork_of_an_honest_node_that_nobody_signed",
        HEADS + "test_heads_of_another_log_are_refused",
    ],
}
