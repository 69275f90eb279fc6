"""What each problem that `everlog verify` can report means. docs/reference/damage.md is generated from it."""

from __future__ import annotations

MEANINGS = {
    "unreadable": "the bytes at this position are no event",
    "header_changed": "the header is not in its canonical form",
    "payload_changed": "the payload is not the one that the header commits to, or not canonical",
    "signature_missing": "the origin of an event is a key, and the event is not signed",
    "signature_invalid": "the key of an event's origin did not sign it in this log",
    "signature_unexpected": "an event carries a signature, and its origin is not a key",
    "group_changed": "events that were recorded together are not as they were: one of them was changed",
    "payload_missing": "an event of this log's own has no payload any more",
    "chain_broken": "the event does not follow the one before it of its origin",
    "sequence_gap": "a stream's numbers have a hole",
    "position_missing": "neither an event nor a purge accounts for a position",
    "out_of_order": "a position comes twice, or after a greater one",
    "purge_disagrees": (
        "the purge records name another number of removed events than there are, or an event was purged in an "
        "older format, above the head that the log had when it was upgraded"
    ),
    "id_twice": "two events have the same id",
    "log_cut_off": "the last event that was recorded is gone",
    "checkpoint_differs": (
        "the log does not continue the checkpoint of `verify --checkpoint`: an event was changed, removed or "
        "moved since"
    ),
    "state_disagrees": "the remembered end of a chain is another event than the one there",
    "index_disagrees": "the columns of a row disagree with its header",
    "trigger_missing": "a trigger that refuses to rewrite history, or a table, is gone",
    "schema_changed": "a table or trigger is not as it was made, or somebody added one",
    "database_damaged": "SQLite's own check found something",
    "identity_changed": "an SQLite log's id, origin, epoch or time of making is not as it was made",
    "line_unreadable": (
        "a line of a day file is no event: its file, its number and the reason are reported; it stays as it "
        "is, and reads stop there"
    ),
    "conflict_marker": (
        "a line of a day file was left by a merge that nobody finished: delete that line, both sides stay"
    ),
    "crlf": "the lines of a day file end with a carriage return: `everlog git install`, then remove them",
    "id_conflict": "a line of a day file has the id of another event; it is left out",
    "purged_came_back": (
        "a line of a day file holds an event that was purged here; it is not read, and the next write removes "
        "its bytes"
    ),
    "foreign_file": "a file beside the day files has their ending and not their name; it is not read",
    "notes_damaged": (
        "lines of `local/notes.jsonl`, or a note about a fork or a verdict, cannot be read or are gone. If no "
        "backup has them: `everlog index rebuild --accept-missing`"
    ),
    "segment_missing": "a segment file is not there",
    "segment_head_damaged": "the first bytes of a segment file are not what was written, or it is empty",
    "segment_unreadable": "a packed segment cannot be read",
    "segment_exchanged": "a segment is not the one that the next one follows",
    "segment_cut": "a segment ends before it did: whole writes are gone from its end",
    "mark_lost": (
        "the last segment lost the mark of its clean end, in which no event was; the next write puts it back"
    ),
    "damaged_bytes": "bytes of a segment are no frame any more: which, and which positions were in them",
    "manifest_damaged": "`log.json` of a segments log is not what was written",
    "stale_writer": "a frame was written by a writer that another one had replaced",
}
