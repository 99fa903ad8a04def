"""What an answer of growth takes for granted, and how far to trust it, in sentences that go with it."""

from __future__ import annotations

from collections.abc import Iterator

from kvcap.analysis.growing.options import GrowOptions
from kvcap.analysis.growing.reading import GrowthLog
from kvcap.growth import clocks_overlap


def assumptions_of(log: GrowthLog, other: GrowthLog | None, options: GrowOptions) -> tuple[str, ...]:
    """Return what was assumed, a sentence each."""
    return (*_of_the_log(log), *_of_the_growth(options, is_sample=log.is_sample), *_of_the_added(log, other))


def _of_the_log(log: GrowthLog) -> Iterator[str]:
    if log.is_sample:
        yield (
            f"Preview: {log.trace.n_sessions:,} of {log.all_sessions:,} sessions, grown back to all of them. "
            "Ranges are 95 points / sqrt(sessions read), the largest that was measured; percentiles of "
            "required capacity need 500 sessions, and have no range."
        )
    yield f"Plain LRU, one cache; seed and log give the answer. Sessions are what grows: {_sessions(log)}."
    if log.pools > 1:
        yield f"The {log.pools:,} pools of the log are taken as one stream with one cache."
    if log.backward_requests:
        yield f"{log.backward_requests:,} requests ran backwards: all are taken in order of time."


def _sessions(log: GrowthLog) -> str:
    n_requests = log.trace.n_requests
    sessions = f"{log.trace.n_sessions:,}"
    if not log.found_sessions:
        return f"{sessions}, as the log names them"
    whose = (
        "of the log" if log.found_sessions == n_requests else f"for {log.found_sessions:,} of the requests"
    )
    return f"{sessions}, found in the prefixes {whose} since no session is named"


def _of_the_growth(options: GrowOptions, *, is_sample: bool) -> Iterator[str]:
    if any(factor > 1 for factor in options.users):
        yield (
            "Users: new sessions share with the old ones as often as those do among each other, begin at "
            "the same times of day, and bring new content at the rate that the log shows; whether new users "
            "bring new documents the log cannot tell. Measured errors: the curve within 1.4 points in the "
            "mean from half to all of a real log, 2 to 5 points on traffic that the method had not seen."
        )
        yield (
            "p99 of more users is biased low where rare shared documents set it (-28 % at four times a "
            "retrieval log); today's p99 x factor is the other bound, which is high for agents. Size for "
            "the larger one."
        )
        if options.interval and not is_sample:
            yield (
                "Ranges (nominally 95 %) are of sampling alone, from eight halves of the sessions: they do "
                "not cover what the method itself gets wrong, of p99 least of all. The back-test is shown, "
                "and corrects nothing."
            )
    if options.context:
        yield (
            "Context: what a session alone has becomes so many times as long, what sessions share stays. No "
            "range, since nothing is drawn; measured error: the curve within 0.5 points, p99 up to 5 %."
        )
    if options.faster:
        yield (
            "Faster: pauses within sessions are divided, their starts stay. No range, since nothing is "
            "drawn; measured error: the curve within 2 to 4 points."
        )
    if options.turns:
        yield (
            "Turns: new turns are like random later turns of the log; what falls after its end is dropped. "
            "No range; measured error for chats: the curve within 4 points; for agents 5 to 14, not "
            "reliable."
        )


def _of_the_added(log: GrowthLog, other: GrowthLog | None) -> Iterator[str]:
    if other is None:
        return
    clocks = (
        "by the times of both logs"
        if clocks_overlap(log.trace, other.trace)
        else "as if both logs began at the same time"
    )
    yield f"Added log: sessions {_sessions(other)}, {clocks}; the two share nothing, and all else is exact."
