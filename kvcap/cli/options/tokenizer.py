"""How texts become token ids."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvcap.cli.options.values import whole_number

if TYPE_CHECKING:
    from kvcap.tokenize import TokenizeOptions


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
    group.add_argument(
        "--trust-request-chat-template",
        action="store_true",
        help="render requests that bring a chat template of their own with it (default: with the model's)",
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
        trust_request_chat_template=args.trust_request_chat_template,
        workers=args.tokenize_workers,
        skip_bad=args.skip_bad,
    )
