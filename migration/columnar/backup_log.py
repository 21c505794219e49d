"""Reads the log of a backup, in a directory or in a bucket."""

from __future__ import annotations

from kvcq.backup import choose_by_id, open_place
from kvcq.errors import BackupError
from migration.columnar.errors import LogLayoutError
from migration.columnar.log_layout import LogLayout, Segment


def backup_layout(url: str, backup_id: str | None = None) -> LogLayout:
    """The log of a backup at `url`, by default the newest. Its last segment may be shorter than the
    others. Raises LogLayoutError."""
    try:
        place = open_place(url)
        backup = choose_by_id(place, backup_id)
    except BackupError as error:
        raise LogLayoutError(str(error)) from error
    base = place.url.rstrip("/")
    segments = tuple(
        Segment(f"{base}/{file.name}", start)
        for start, file in zip(
            range(backup.start_offset, backup.end_offset, backup.segment_bytes),
            backup.segments,
            strict=False,  # an empty log has an empty file
        )
    )
    return LogLayout(segments, backup.segment_bytes, backup.start_offset, backup.end_offset)
