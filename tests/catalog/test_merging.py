from __future__ import annotations

import pickle

import msgspec
import pytest

from everlog.catalog.catalog import Catalog
from everlog.catalog.merging import MERGES
from everlog.errors import SchemaBroken


class Tagged(msgspec.Struct):
    tag: str


class TaggedAgain(msgspec.Struct):
    tag: str
    by: str = ""


@pytest.mark.parametrize("merge", MERGES)
def test_a_type_merges_as_it_declares_wherever_its_catalog_goes(merge: str) -> None:
    catalog, other, later = Catalog(), Catalog(), Catalog()
    catalog.event("door.tagged", merge=merge)(Tagged)
    other.include(catalog)
    assert later.include_later(["door.tagged"], lambda: catalog)
    for each in (catalog, other, later, pickle.loads(pickle.dumps(catalog))):
        assert each.merge_of("door.tagged") == merge
    assert other.merge_of("door.painted") == ""


def test_a_type_merges_in_one_way() -> None:
    catalog, other = Catalog(), Catalog()
    catalog.event("door.tagged", merge="union")(Tagged)
    with pytest.raises(SchemaBroken, match="merge = 'counter' and merge = 'union'"):
        catalog.event("door.tagged", version=2, merge="counter")(TaggedAgain)
    catalog.event("door.tagged", version=2)(TaggedAgain)  # a later version need not repeat it
    assert catalog.merge_of("door.tagged") == "union"
    other.event("door.tagged", merge="keep-both")(Tagged)
    with pytest.raises(SchemaBroken, match="keep-both"):
        catalog.include(other)


def test_a_way_to_merge_that_does_not_exist_is_refused() -> None:
    with pytest.raises(SchemaBroken, match="'largest'"):
        Catalog().event("door.tagged", merge="largest")
