"""These tests run on the disk."""

from __future__ import annotations

from tests.places import on_disk as tmp_path

__all__ = ["tmp_path"]
