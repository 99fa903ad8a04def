"""Every option that more than one command takes, defined once: name, default and help."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fractions import Fraction

    from kvcap.formats.base import ReadOptions
    from kvcap.models import ModelBytes, ModelBytesOptions
    from kvcap.replay import ReplayOptions
    from kvcap.tokenize import TokenizeOptions


def whole_number(least: int) -> Callable[[str], int]:
    """Return a parser of an option's whole number, at least ``least``."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"is {text!r}, expected a whole number from {least}")
        return value

    return parse


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how logs are read; :func:`read_options` collects them."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--input-format",
        metavar="NAME",
        help="how to read the log, as `kvcap formats` lists them (default: detected from the content)",
    )
    group.add_argument(
        "--block-size",
        "--page-size",
        dest="block_size",
        type=whole_number(1),
        metavar="TOKENS",
        help="tokens per block: 64 by default for token ids; for hash ids only where a record declares "
        "none, since a declared size wins",
    )
    group.add_argument(
        "--pool", metavar="COLUMN", help="one cache per value of this column (default: one cache)"
    )
    group.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="COLUMN",
        help="carry this scalar column of the log along; may be given several times",
    )
    group.add_argument(
        "--skip-bad",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="leave out up to N bad records and count them (default: %(default)s)",
    )
    group.add_argument(
        "--max-requests",
        type=whole_number(1),
        metavar="N",
        help="stop after N requests, for a first look (default: all)",
    )
    group.add_argument(
        "--session-mode",
        choices=["cumulative", "delta"],
        help="whether the prompt of a session's later row repeats the earlier ones or only adds to them; "
        "asked for where a log can mean both",
    )
    group.add_argument(
        "--timestamp-unit",
        choices=["s", "ms", "us", "ns"],
        help="unit of numeric timestamps (default: detected)",
    )
    group.add_argument(
        "--sort-by-time",
        action="store_true",
        help="order requests by timestamp, stably (default: file order)",
    )
    group.add_argument(
        "--threads",
        type=whole_number(1),
        metavar="N",
        help="workers that read and parse (default: one per core)",
    )


def read_options(args: argparse.Namespace) -> ReadOptions:
    """Return what :func:`add_reading_options` collected."""
    from kvcap.formats.base import ReadOptions

    return ReadOptions(
        input_format=args.input_format,
        block_size=args.block_size,
        pool=args.pool,
        keep=tuple(args.keep),
        skip_bad=args.skip_bad,
        max_requests=args.max_requests,
        session_mode=args.session_mode,
        timestamp_unit=args.timestamp_unit,
        sort_by_time=args.sort_by_time,
        threads=args.threads,
    )


def add_tokenizer_options(parser: argparse.ArgumentParser) -> None:
    """Add what turns request texts into token ids; :func:`tokenize_options` collects them."""
    group = parser.add_argument_group("tokenizer", "for logs that hold texts")
    group.add_argument(
        "--tokenizer",
        metavar="DIR_OR_ID",
        help="model directory or hub id; with a running engine, the name of the model that it serves",
    )
    group.add_argument(
        "--tokenize-backend",
        choices=["huggingface", "engine", "sglang", "vllm"],
        help="who renders and tokenizes (default: huggingface; engine with --engine-url)",
    )
    group.add_argument(
        "--engine-url",
        metavar="URL",
        help="a running vLLM or SGLang server whose /tokenize is asked; its API key is taken from "
        "KVCAP_ENGINE_API_KEY",
    )
    group.add_argument(
        "--tokenize-workers",
        type=whole_number(1),
        default=4,
        metavar="N",
        help="prompts in work at once, 1 is serial; ids and order are the same for any N "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--chat-template", metavar="FILE", help="Jinja template in place of the model's own chat template"
    )
    group.add_argument(
        "--tool-call-parser", metavar="NAME", help="parser of tool calls, for the sglang backend"
    )
    group.add_argument(
        "--multimodal",
        choices=["refuse", "placeholder"],
        default="refuse",
        help="images, audio and the like: refuse the request, or count a short placeholder for each "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--trust-remote-code", action="store_true", help="run code that comes with the tokenizer"
    )


def tokenize_options(args: argparse.Namespace) -> TokenizeOptions:
    """Return what :func:`add_tokenizer_options` collected, and ``--skip-bad``.

    Raises
    ------
    UsageError
        If the backend lacks what it needs, or is given what it cannot use.
    """
    from kvcap.tokenize import TokenizeOptions

    return TokenizeOptions(
        tokenizer=args.tokenizer,
        backend=args.tokenize_backend or ("huggingface" if args.engine_url is None else "engine"),
        chat_template=args.chat_template,
        engine_url=args.engine_url,
        tool_call_parser=args.tool_call_parser,
        multimodal=args.multimodal,
        trust_remote_code=args.trust_remote_code,
        workers=args.tokenize_workers,
        skip_bad=args.skip_bad,
    )


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Add what says how a trace is replayed; :func:`replay_options` collects them."""
    group = parser.add_argument_group("replay")
    group.add_argument(
        "--kv-bytes-per-token",
        metavar="BYTES",
        help="bytes of one token's keys and values, may be decimal (default: answers in blocks and tokens)",
    )
    group.add_argument(
        "--coarsen",
        type=whole_number(1),
        default=1,
        metavar="M",
        help="make M consecutive blocks one (default: %(default)s)",
    )
    group.add_argument(
        "--target-hit-rate-percent",
        default="99",
        metavar="P",
        help="share of its own ceiling that a request must reach, above 0 to 100 (default: %(default)s)",
    )
    group.add_argument(
        "--warm-up-percent",
        default="0",
        metavar="P",
        help="share of the requests, from the first, that only fill the cache, 0 to 100, as 20 or 20%% "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--touch-order",
        choices=["tail-first", "head-first"],
        default="tail-first",
        help="tail-first evicts leaves first, as engines do; head-first is plain LRU front to back "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--partial-block",
        choices=["drop", "keep"],
        help="whether an incomplete last block counts as a block (default: drop for token ids, keep for "
        "hash ids)",
    )


def replay_options(args: argparse.Namespace) -> ReplayOptions:
    """Return what :func:`add_replay_options` collected.

    Raises
    ------
    UsageError
        If a number is not what its option expects.
    """
    from functools import partial

    from kvcap.replay import ReplayOptions, engine_options
    from kvcap.units import parse_percent

    engine = getattr(args, "engine", None)
    make = ReplayOptions if engine is None else partial(engine_options, engine)
    return make(
        kv_bytes_per_token=_bytes_per_token(args),
        model_bytes=_model_bytes(args),
        estimate_tokens=args.estimate_tokens,
        block_size=args.block_size,
        coarsen=args.coarsen,
        touch_order=args.touch_order,
        target=parse_percent(args.target_hit_rate_percent, "--target-hit-rate-percent", zero_allowed=False),
        warm_up=parse_percent(args.warm_up_percent, "--warm-up-percent", zero_allowed=True),
        max_capacity=getattr(args, "max_capacity", None),
        **_given_rules(args),
    )


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """Add what is simulated capacity by capacity, and by which rules; :func:`replay_options` collects it."""
    group = parser.add_argument_group("policies and engines")
    group.add_argument(
        "--policies",
        metavar="LIST",
        help="also simulate these at every capacity: comma list of lru, fifo, optimal and sglang-lru "
        "(default: none; with --engine its own)",
    )
    group.add_argument(
        "--engine",
        choices=["vllm", "sglang", "lmcache", "mooncake"],
        help="predict this engine: sets --partial-block, --policies and the options below as it has them; "
        "what is given beside it wins",
    )
    group.add_argument(
        "--compute-last-token",
        action=argparse.BooleanOptionalAction,
        help="one token of every prompt has to be computed, so its last block may not hit",
    )
    group.add_argument(
        "--output-blocks",
        choices=["on", "off"],
        help="whether generated tokens enter the cache: from output_ids where the log has them, else from "
        "output_length as blocks that no other request knows (default: off)",
    )
    group.add_argument(
        "--chunk-tokens",
        type=whole_number(1),
        metavar="N",
        help="make blocks into chunks of N tokens (default: blocks as they are)",
    )
    group.add_argument(
        "--capacity-factor",
        metavar="SHARE",
        help="share of each capacity that holds data, above 0 to 1 (default: 1)",
    )
    group.add_argument(
        "--reserve-blocks",
        type=whole_number(0),
        metavar="N",
        help="blocks of each capacity that running requests hold for other than cached data, about one for "
        "each request in flight; hits without this reserve are given as the bound (default: 0)",
    )
    group.add_argument(
        "--oversize",
        choices=["keep", "drop"],
        help="drop takes a request that is larger than a capacity out of the stream at that capacity "
        "(default: keep)",
    )
    group.add_argument(
        "--omit-underfilled",
        action="store_true",
        help="leave out capacities that the warm-up requests do not fill (default: mark them)",
    )
    group.add_argument(
        "--request-hits",
        action="store_true",
        help="with --out: also keep every request's hits by policy and capacity",
    )


def _given_rules(args: argparse.Namespace) -> dict[str, Any]:
    """Return the rules that were given, which win over those of an engine; some commands take few of them."""
    from kvcap.units import parse_number

    if not hasattr(args, "policies"):
        return {"partial_block": args.partial_block}
    factor = args.capacity_factor
    rules = {
        "partial_block": args.partial_block,
        "policies": None if args.policies is None else _policies(args.policies),
        "compute_last_token": args.compute_last_token,
        "output_blocks": None if args.output_blocks is None else args.output_blocks == "on",
        "chunk_tokens": args.chunk_tokens,
        "capacity_factor": None if factor is None else parse_number(factor, "--capacity-factor"),
        "reserve_blocks": args.reserve_blocks,
        "oversize": args.oversize,
    }
    given = {name: value for name, value in rules.items() if value is not None}
    return {"capacities": args.capacities, "request_hits": args.request_hits, **given}


def _policies(text: str) -> tuple[str, ...]:
    from kvcap.errors import UsageError

    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise UsageError("--policies is empty, expected names such as lru,fifo,optimal")
    return names


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add what turns tokens into bytes; :func:`model_bytes_options` collects the deployment."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model",
        metavar="MODEL",
        help="take bytes per token from this model: a name that `kvcap models` lists, or a config.json",
    )
    group.add_argument(
        "--estimate-tokens",
        type=whole_number(1),
        metavar="N",
        help="length at which a model that is not linear in tokens is taken (default: the mean input length)",
    )
    group.add_argument(
        "--calibrate",
        metavar="LINE",
        help="take bytes per token from start-up lines of vLLM or SGLang",
    )
    add_deployment_options(group)


def add_deployment_options(group: argparse._ActionsContainer) -> None:
    """Add how a model is deployed: precisions, layout, parallelism, and where its facts come from."""
    group.add_argument(
        "--kv-precision", metavar="NAME", help="bf16, fp8, fp4 or mxfp8 (default: the model's, else bf16)"
    )
    group.add_argument(
        "--indexer-precision",
        metavar="NAME",
        help="of an indexer's keys: bf16, fp8 or fp4 (default: the model's, else as the KV cache)",
    )
    group.add_argument(
        "--state-precision",
        metavar="NAME",
        help="of recurrent states: fp32 or bf16 (default: the model's)",
    )
    group.add_argument(
        "--include-draft-kv-cache", action="store_true", help="add the layers that draft tokens (MTP)"
    )
    group.add_argument(
        "--include-state",
        action="store_true",
        help="count one recurrent state and the replayed windows of every sequence",
    )
    group.add_argument(
        "--layout",
        choices=["logical", "sglang", "vllm"],
        default="logical",
        help="logical counts elements; the others what that engine's memory pool takes, scales included "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--tp",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="tensor-parallel ranks (default: %(default)s)",
    )
    group.add_argument(
        "--pp", type=whole_number(1), default=1, metavar="N", help="pipeline stages (default: %(default)s)"
    )
    group.add_argument(
        "--dp-attention",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="attention replicas among the tensor-parallel ranks, each with a cache of its own "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--scope",
        choices=["rank", "replica"],
        default="rank",
        help="whose bytes: those on one rank, or on all ranks of a replica together (default: %(default)s)",
    )
    group.add_argument(
        "--assume",
        metavar="KIND",
        help="take a config.json as this kind of attention in spite of fields that are not understood",
    )
    group.add_argument(
        "--models-file", metavar="FILE", help="more models, in the form of the catalog; they come first"
    )


def model_bytes_options(args: argparse.Namespace) -> ModelBytesOptions:
    """Return what :func:`add_deployment_options` collected.

    Raises
    ------
    UsageError
        If a precision is unknown or the parallel sizes do not divide.
    """
    from kvcap.models import ModelBytesOptions

    return ModelBytesOptions(
        kv_precision=args.kv_precision,
        indexer_precision=args.indexer_precision,
        state_precision=args.state_precision,
        include_draft_kv_cache=args.include_draft_kv_cache,
        include_state=args.include_state,
        layout=args.layout,
        tp=args.tp,
        pp=args.pp,
        dp_attention=args.dp_attention,
        scope=args.scope,
    )


def _bytes_per_token(args: argparse.Namespace) -> Fraction | None:
    """Return the bytes per token that were given or calibrated; at most one source may speak."""
    from kvcap.errors import UsageError

    sources = {
        "--kv-bytes-per-token": args.kv_bytes_per_token,
        "--model": args.model,
        "--calibrate": args.calibrate,
    }
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)} both say the bytes per token, expected one of them")
    if args.calibrate is not None:
        from kvcap.models import calibrate

        return calibrate(args.calibrate)
    if args.kv_bytes_per_token is not None:
        from kvcap.units import parse_number

        return parse_number(args.kv_bytes_per_token, "--kv-bytes-per-token")
    return None


def _model_bytes(args: argparse.Namespace) -> ModelBytes | None:
    if args.model is None:
        return None
    from kvcap.models import model_bytes, resolve_model

    model = resolve_model(args.model, models_file=args.models_file, assume=args.assume)
    return model_bytes(model, model_bytes_options(args))


def add_capacities(parser: argparse.ArgumentParser) -> None:
    """Add ``--capacities``; its default is that of the analysis layer."""
    parser.add_argument(
        "--capacities",
        metavar="LIST",
        help="comma list of sizes such as 640GiB,2TiB,5000blocks,2.5Mtokens, or pow2 for 1GiB, 2GiB, ... "
        "16TiB (default: 100GiB,200GiB,400GiB,800GiB,1TiB,2TiB,4TiB,6TiB,8TiB,12TiB,16TiB,24TiB,32TiB,"
        "64TiB; a power-of-two grid in blocks without bytes per token)",
    )


def add_max_capacity(parser: argparse.ArgumentParser) -> None:
    """Add ``--max-capacity``; :func:`replay_options` takes it."""
    parser.add_argument(
        "--max-capacity",
        metavar="SIZE",
        help="largest capacity of interest, such as 64TiB: bounds memory, exact up to it (default: all)",
    )


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add ``--force``."""
    parser.add_argument("--force", action="store_true", help="overwrite an existing output")


def add_quiet(parser: argparse.ArgumentParser) -> None:
    """Add ``--quiet``."""
    parser.add_argument("--quiet", action="store_true", help="no progress and no notices on stderr")


def add_output(parser: argparse.ArgumentParser, what: str, *, required: bool = False) -> None:
    """Add ``-o``."""
    parser.add_argument("-o", "--output", metavar="FILE", required=required, help=what)
