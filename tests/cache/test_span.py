"""Spans against a list that is written and forgotten as the words say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from msi_engine.cache.span import columns, merge, ring, take


def read(buffer: list[int], spans: tuple[tuple[int, int], ...]) -> list[int]:
    return [x for start, stop in spans for x in buffer[start:stop]]


@given(size=st.integers(2, 12), keep=st.integers(0, 4), written=st.integers(0, 40))
def test_a_ring_is_read_oldest_first(size: int, keep: int, written: int) -> None:
    keep = min(keep, size - 1)
    buffer, index, alive = [-1] * size, 0, []
    for token in range(written):
        if index == size:
            index = keep
            # from now on each token overwrites the oldest that is not kept
        if token >= size:
            alive.remove(buffer[index])
        buffer[index] = token
        alive.append(token)
        index += 1
    assert read(buffer, ring(size, index, keep, rotated=index < written)) == alive


@given(count=st.integers(0, 30), keep=st.integers(0, 5), dropped=st.integers(0, 30))
def test_columns_leave_out_what_comes_after_the_kept(count: int, keep: int, dropped: int) -> None:
    everything = list(range(count))
    kept = everything[:keep] + everything[keep + dropped :] if dropped else everything
    assert read(everything, columns(count, keep, dropped)) == kept


spans = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted).map(tuple), max_size=4)


@given(where=spans, visible=spans)
def test_take_is_indexing_twice(
    where: list[tuple[int, int]], visible: list[tuple[int, int]]
) -> None:
    buffer = list(range(100, 110))
    laid_out = read(buffer, tuple(where))
    assert read(buffer, take(where, visible)) == read(laid_out, tuple(visible))


@given(where=spans)
def test_merge_changes_nothing_but_the_number_of_spans(where: list[tuple[int, int]]) -> None:
    buffer = list(range(10))
    assert read(buffer, merge(where)) == read(buffer, tuple(where))
