"""A trace of texts, read as a trace of token ids."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcap._version import __version__
from kvcap.errors import EmptyTraceError, RecordError, UsageError
from kvcap.formats.base import MAX_EXAMPLES, ReadReport, Trace
from kvcap.schema import PAYLOAD_COLUMNS, REQUEST_COLUMNS, TOKEN_IDS, TraceKind, trace_schema
from kvcap.tokenize.backends import Backend, create_backend
from kvcap.tokenize.options import TokenizeOptions
from kvcap.tokenize.ordered import ordered_map
from kvcap.tokenize.prompts import ChatPrompt, Prompt, PromptSource, TextPrompt, TokenIds, TokenPrompt
from kvcap.tokenize.requests import prompts_of

BATCH_TOKENS: Final = 2_000_000
"""Token ids after which a batch is handed on."""

_DRIVING: Final = frozenset(("workers", "engine_timeout_s", "engine_retries", "skip_bad"))
"""Options that do not touch the ids."""


def tokenize_trace(
    trace: Trace, options: TokenizeOptions, create: Callable[[TokenizeOptions], Backend] = create_backend
) -> TokenizedTrace:
    """Return a trace of request texts as the trace of their token ids.

    Parameters
    ----------
    trace
        Requests of kind ``request_json``. It is closed with the trace that is returned.
    options
        Which tokenizer, and how it is driven.
    create
        Loads the backend.

    Returns
    -------
    TokenizedTrace
        Requests of kind ``token_ids`` in the same order, numbered anew: a body with several prompts is
        several requests. ``input_length`` is the number of ids. Ids and order do not depend on
        ``options.workers``.

    Raises
    ------
    UsageError
        If the trace holds no texts, or the tokenizer cannot be loaded.
    MissingExtraError
        If the backend's packages are not installed.
    """
    if trace.kind != "request_json":
        raise UsageError(f"the log holds {trace.kind}, expected request texts: there is nothing to tokenize")
    return TokenizedTrace(trace, options, create(options))


def prompts_of_ids(trace: Trace, skip_bad: int = 0) -> TokenizedTrace:
    """Return a trace of request bodies whose prompts are token ids already, which no tokenizer has to make.

    Parameters
    ----------
    trace
        Requests of kind ``request_json``. It is closed with the trace that is returned.
    skip_bad
        How many bad requests, those of the reader included, are left out before one stops the run.
    """
    # What is no text would need a tokenizer as well, and that is what there is to say.
    options = TokenizeOptions(tokenizer="", multimodal="placeholder", workers=1, skip_bad=skip_bad)
    return TokenizedTrace(trace, options, _NoTokenizer())


class _NoTokenizer:
    """Says what a prompt of text needs."""

    def encode(self, prompt: ChatPrompt | TextPrompt) -> TokenIds:
        raise UsageError("this log holds text: give --tokenizer to replay it, or run `kvcap tokenize` first")

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True)
class _Row:
    """One request on its way in."""

    batch: pa.RecordBatch
    index: int

    def value(self, name: str) -> object:
        return self.batch.column(name)[self.index].as_py()

    def source(self) -> PromptSource:
        return PromptSource(str(self.value("source_file")), int(str(self.value("source_line"))))


@dataclass(frozen=True)
class _Tokenized:
    """What one body came to: ids per prompt, how many media stand as placeholders, what was not trusted."""

    prompts: list[TokenIds]
    media: int
    untrusted_template: bool


@dataclass
class _Account:
    """What tokenizing adds to the reader's account."""

    more_requests: int = 0
    bad: list[str] = field(default_factory=list)
    bad_records: int = 0
    media: int = 0
    media_requests: int = 0
    untrusted_templates: int = 0
    counted: int = 0
    differing: int = 0
    first_difference: str = ""
    clipped: int = 0


@dataclass
class _Pending:
    """Requests of one incoming batch that wait to be handed on."""

    batch: pa.RecordBatch
    rows: list[int] = field(default_factory=list)
    alone: list[bool] = field(default_factory=list)
    ids: list[TokenIds] = field(default_factory=list)
    tokens: int = 0


class TokenizedTrace:
    """A trace of token ids that are made while it is read; see :func:`tokenize_trace`.

    Parameters
    ----------
    trace
        The texts.
    options
        How they are tokenized.
    backend
        Who tokenizes them.
    """

    kind: TraceKind = "token_ids"
    chained = False

    def __init__(self, trace: Trace, options: TokenizeOptions, backend: Backend) -> None:
        self._trace = trace
        self._options = options
        self._backend = backend
        payload = len(REQUEST_COLUMNS) + len(PAYLOAD_COLUMNS["request_json"])
        self._kept = tuple(trace.schema)[payload:]
        self.schema: pa.Schema = trace_schema("token_ids", self._kept)
        self.report = ReadReport(trace.report.format_name, trace.report.sources)
        self._account = _Account()
        self._requests = 0

    def batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield the requests in replay order; may be called once.

        Raises
        ------
        RecordError
            If a request cannot be rendered or tokenized, and more so than ``skip_bad`` allows.
        EmptyTraceError
            If none is left.
        """
        # An error leaves this frame in a traceback: workers must not wait for the collector to be stopped.
        with closing(ordered_map(self._tokenize, self._rows(), self._options.workers)) as results:
            yield from self._batched(results)

    def _batched(self, results: Iterable[tuple[_Row, Callable[[], _Tokenized]]]) -> Iterator[pa.RecordBatch]:
        pending: _Pending | None = None
        for row, result in results:
            if pending is None or pending.batch is not row.batch or pending.tokens >= BATCH_TOKENS:
                if pending is not None and pending.ids:
                    yield self._flush(pending)
                pending = _Pending(row.batch)
            try:
                tokenized = result()
            except RecordError as error:
                self._leave_out(error)
            else:
                self._take(row, tokenized, pending)
        if pending is not None and pending.ids:
            yield self._flush(pending)
        self._finish()

    def provenance(self) -> dict[str, Any]:
        """Return how the ids came about: version, tokenizer, counts and notices."""
        given = asdict(self._options)
        return {
            "kvcap_version": __version__,
            "tokenize_options": {name: value for name, value in given.items() if name not in _DRIVING},
            "report": asdict(self.report),
        }

    def close(self) -> None:
        """Release the files, the workers and the backend."""
        self._trace.close()
        self._backend.close()

    def _rows(self) -> Iterator[_Row]:
        for batch in self._trace.batches():
            for index in range(batch.num_rows):
                yield _Row(batch, index)

    def _tokenize(self, row: _Row) -> _Tokenized:
        timestamp = row.value("timestamp")
        sent = timestamp.replace(tzinfo=timezone.utc) if isinstance(timestamp, datetime) else None
        prompts = prompts_of(
            str(row.value("request_json")),
            row.source(),
            sent,
            self._options.multimodal,
            trust_chat_template=self._options.trust_request_chat_template,
        )
        chats = [prompt for prompt in prompts if isinstance(prompt, ChatPrompt)]
        return _Tokenized(
            [self._encode(prompt) for prompt in prompts],
            sum(prompt.media for prompt in chats),
            any(prompt.untrusted_template for prompt in chats),
        )

    def _encode(self, prompt: Prompt) -> TokenIds:
        return prompt.token_ids if isinstance(prompt, TokenPrompt) else self._backend.encode(prompt)

    def _leave_out(self, error: RecordError) -> None:
        account = self._account
        if self._trace.report.bad_records + account.bad_records >= self._options.skip_bad:
            raise error
        account.bad_records += 1
        account.bad.append(str(error))

    def _take(self, row: _Row, tokenized: _Tokenized, pending: _Pending) -> None:
        account = self._account
        count = len(tokenized.prompts)
        account.more_requests += count - 1
        account.media += tokenized.media
        account.media_requests += tokenized.media > 0
        account.untrusted_templates += tokenized.untrusted_template
        if count == 1:
            self._compare_length(row, tokenized.prompts[0].size)
        pending.rows.extend([row.index] * count)
        pending.alone.extend([count == 1] * count)
        pending.ids.extend(tokenized.prompts)
        pending.tokens += sum(ids.size for ids in tokenized.prompts)

    def _compare_length(self, row: _Row, length: int) -> None:
        """Compare with the prompt tokens that the log itself counted: a wrong tokenizer shows here."""
        logged = row.value("input_length")
        if logged is None:
            return
        account = self._account
        account.counted += 1
        if logged != length:
            account.differing += 1
            if not account.first_difference:
                source = row.source()
                account.first_difference = (
                    f"{source.file}:{source.line} says {logged}, tokenized are {length}"
                )

    def _flush(self, pending: _Pending) -> pa.RecordBatch:
        count = len(pending.ids)
        taken = pending.batch.take(pa.array(pending.rows, type=pa.int64()))
        lengths = np.fromiter((ids.size for ids in pending.ids), dtype=np.int64, count=count)
        columns = {name: taken.column(name) for name in taken.schema.names}
        columns["request_id"] = pa.array(np.arange(self._requests, self._requests + count, dtype=np.int64))
        columns["input_length"] = pa.array(lengths)
        columns["token_ids"] = _id_lists(pending.ids, lengths)
        columns["output_ids"] = pa.nulls(count, TOKEN_IDS)
        # The log counts one answer and hit for all prompts of a body; whose share is whose, it does not say.
        alone = pa.array(pending.alone)
        for name in ("output_length", "observed_cached_tokens"):
            columns[name] = pc.if_else(alone, columns[name], None)
        cached = columns["observed_cached_tokens"]
        over = pc.greater(cached, columns["input_length"])
        self._account.clipped += pc.sum(over).as_py() or 0
        columns["observed_cached_tokens"] = pc.if_else(over, columns["input_length"], cached)
        self._requests += count
        self._update_report()
        return pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)

    def _update_report(self) -> None:
        read, account, report = self._trace.report, self._account, self.report
        report.records = read.records + account.more_requests
        report.requests = self._requests
        report.skipped = dict(read.skipped)
        report.bad_records = read.bad_records + account.bad_records
        report.bad_examples = (read.bad_examples + account.bad)[:MAX_EXAMPLES]
        report.backward_timestamps = read.backward_timestamps
        report.largest_step_back_us = read.largest_step_back_us
        report.clipped_cached_tokens = read.clipped_cached_tokens + account.clipped
        for notice in read.notices:
            report.notice(notice)

    def _finish(self) -> None:
        self._update_report()
        account, report = self._account, self.report
        if account.media:
            report.notice(
                f"{account.media:,} images and the like in {account.media_requests:,} requests count as a "
                "placeholder each: the tokens that an engine makes of them are missing"
            )
        if account.untrusted_templates:
            report.notice(
                f"{account.untrusted_templates:,} requests bring a chat template of their own, in place of "
                "which the model's is used, as engines do; --trust-request-chat-template uses theirs"
            )
        if account.differing:
            report.notice(
                f"{account.differing:,} of {account.counted:,} prompts have another length than the log "
                f"counted ({account.first_difference}): is it the right tokenizer?"
            )
        if self._requests == 0:
            raise EmptyTraceError(
                report.sources[0] if report.sources else report.format_name,
                f"holds no request that can be tokenized in {report.records:,} records",
            )


def _id_lists(ids: Sequence[TokenIds], lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Array:
    offsets = np.zeros(len(ids) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.concatenate(ids)), type=TOKEN_IDS)
