"""Names of other programs: whatever they are, they become names of ours, and never two of them one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from everlog.core.fields import require_shape
from everlog.core.names import actor_of, kind_of, name_of

odd = st.text(alphabet=st.sampled_from("ax7~./-_: ü\0"), min_size=1, max_size=6)


@given(odd, odd)
def test_two_names_never_become_one(one: str, other: str) -> None:
    assert (name_of(one) == name_of(other)) == (one == other)


@given(odd)
def test_any_name_becomes_one_that_a_stream_and_an_actor_may_have(name: str) -> None:
    require_shape("stream", f"{kind_of(name)}/{name_of(name)}")
    require_shape("actor", actor_of(name, "agent"))
