"""How logs are read, with the defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from kvcap.errors import UsageError
from kvcap.option_fields import HIDDEN, option, whole_number

SessionMode = Literal["cumulative", "delta"]
ConversationReading = Literal["turns", "whole"]
TimestampUnit = Literal["s", "ms", "us", "ns"]
Order = Literal["auto", "time", "file"]
TimestampIs = Literal["start", "end"]


def _path(flag: str, what: str) -> Any:
    text = f"the field, as usage.cached, that holds {what} (default: as the log's kind has it)"
    return option(None, text, flag, metavar="PATH")


def namespace_columns(text: str, name: str) -> tuple[str, ...]:
    """Return the columns that make a namespace, none at all for ``none``."""
    columns = () if text == "none" else tuple(part.strip() for part in text.split(","))
    if not all(columns):
        raise UsageError(f"{name} is {text!r}, expected columns such as model,cache_salt, or none")
    return columns


@dataclass(frozen=True)
class FieldOptions:
    """Paths of fields (``usage.cached``) that say what a column holds; None where the reader knows.

    Parameters
    ----------
    body
        The request body: an object, JSON text, or text that is the prompt. Of a list (``data[].payload``)
        each item is a request.
    session, time, model, output
        Session, time of arrival, model, and generated tokens.
    cached
        Prompt tokens that were served from a cache.
    instance
        Who served the request.
    queue, ttft, duration
        Time from arrival to the end of waiting, to the first token and to the end.
    duration_unit
        Unit of these three; None detects it.
    timestamp_is
        ``end`` for logs that are stamped when a request ends: its duration is taken off.
    """

    body: str | None = option(
        None,
        "the request body at this path, as request.body: an object, JSON text, or the prompt; data[].payload "
        "makes a request of each item of a list (default: as the log's kind has it)",
        "--body-field",
        metavar="PATH",
    )
    session: str | None = _path("--session-field", "the session")
    time: str | None = _path("--time-field", "the time")
    model: str | None = _path("--model-field", "the model")
    output: str | None = _path("--output-field", "the number of generated tokens")
    cached: str | None = _path("--cached-field", "how many prompt tokens came from a cache")
    instance: str | None = _path("--instance-field", "who served the request")
    queue: str | None = _path("--queue-field", "the time from arrival to the end of waiting")
    ttft: str | None = _path("--ttft-field", "the time from arrival to the first token")
    duration: str | None = _path("--duration-field", "the time from arrival to the end")
    duration_unit: TimestampUnit | None = option(
        None,
        "unit of the queue, ttft and duration fields (default: detected)",
        choices=get_args(TimestampUnit),
    )
    timestamp_is: TimestampIs = option(
        "start",
        "end for logs that are stamped when a request ends: its duration is taken off, and requests are put "
        "in the order of their arrival (default: {default})",
        choices=get_args(TimestampIs),
    )


@dataclass(frozen=True)
class ReadOptions:
    """How to read logs.

    Parameters
    ----------
    input_format
        A name that ``kvcap formats`` lists; None detects it from the content.
    block_size
        Tokens per block for hash ids whose record declares none. A declared size wins, with a notice.
    pool
        Column whose values name the pools; None puts all requests in one.
    namespace
        Columns whose values must agree, besides tokens, for two prefixes to be the same; none of them makes
        all requests one world. None takes the model, adapter, salt and extra key that the log has.
    keep
        Scalar columns of the source to carry along.
    skip_bad
        How many bad records are left out and counted before one stops the run.
    max_requests
        Stop after so many requests.
    max_request_tokens
        The most tokens, or ids, that one request may have, read or generated.
    session_mode
        How to read sessions (Mooncake's, AIPerf's messages) that could mean two things.
    conversations
        How to read stored conversations: a request per assistant turn, or one per record.
    timestamp_unit
        Unit of numeric timestamps; None detects it.
    order
        ``auto`` keeps each file as it stands, merges files that overlap by time, and reads a log that runs
        backwards forwards; ``time`` orders requests by timestamp, stably; ``file`` keeps the order given.
    sort_by_time
        Another way to say that ``order`` is ``time``.
    drop_repeats
        Whether files with the same bytes, and requests with the same id and time, are taken once.
    fields
        Where the log says what; a field that is named here wins over what its kind has.
    threads
        Threads that read and replay; None takes one per core.
    """

    input_format: str | None = option(
        None,
        "how to read the log, as `kvcap formats` lists them (default: detected from the content)",
        metavar="NAME",
    )
    block_size: int | None = option(
        None,
        "tokens per block: 64 by default for token ids; for hash ids only where a record declares none, "
        "since a declared size wins",
        "--block-size",
        "--page-size",
        metavar="TOKENS",
        parse=whole_number(1),
    )
    pool: str | None = option(
        None, "one cache per value of this column (default: one cache)", metavar="COLUMN"
    )
    namespace: tuple[str, ...] | None = option(
        None,
        "what besides tokens must agree for blocks to be shared inside a cache: columns of the log, or none "
        "for one world (default: model, adapter, cache salt and extra key, where the log has them)",
        metavar="COLUMN,...",
        parse=namespace_columns,
    )
    keep: tuple[str, ...] = option(
        (),
        "carry this scalar column of the log along; may be given several times",
        metavar="COLUMN",
        form="repeated",
    )
    skip_bad: int = option(
        0,
        "leave out up to N bad records and count them (default: {default})",
        metavar="N",
        parse=whole_number(0),
    )
    max_requests: int | None = option(
        None, "stop after N requests, for a first look (default: all)", metavar="N", parse=whole_number(1)
    )
    max_request_tokens: int = option(
        1 << 24,
        "most tokens, or ids, of one request; a record that says more is wrong (default: {default})",
        metavar="N",
        parse=whole_number(1),
    )
    session_mode: SessionMode | None = option(
        None,
        "whether the prompt of a session's later row repeats the earlier ones or only adds to them; asked "
        "for where a log can mean both",
        choices=get_args(SessionMode),
    )
    conversations: ConversationReading | None = option(
        None,
        "whether each assistant turn of a stored conversation is a request of all before it, or each "
        "record one; asked for where a log can mean both",
        choices=get_args(ConversationReading),
    )
    timestamp_unit: TimestampUnit | None = option(
        None, "unit of numeric timestamps (default: detected)", choices=get_args(TimestampUnit)
    )
    order: Order = option(
        "auto",
        "auto keeps each file as it stands, merges files that overlap by time (but for sessions and server "
        "logs, whose records join those before them) and reads a log that runs backwards forwards; time puts "
        "all requests in order; file keeps the order given (default: {default})",
        choices=get_args(Order),
    )
    sort_by_time: bool = option(False, HIDDEN)
    drop_repeats: bool = option(
        False,
        "take a file with the same bytes, or a request with the same id and time, once (default: counted)",
    )
    fields: FieldOptions = field(default_factory=FieldOptions)
    threads: int | None = option(
        None, "threads that read and replay (default: one per core)", metavar="N", parse=whole_number(1)
    )

    @property
    def by_time(self) -> bool:
        """Whether all requests are put in the order of time."""
        return self.sort_by_time or self.order == "time"
