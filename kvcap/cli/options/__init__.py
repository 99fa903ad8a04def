"""Every option that more than one command takes, defined once: name, default and help."""

from kvcap.cli.options.model import add_deployment_options, add_model_options, model_bytes_options
from kvcap.cli.options.output import add_force, add_format, add_output, add_quiet
from kvcap.cli.options.reading import add_reading_options, read_options
from kvcap.cli.options.replay import (
    add_capacities,
    add_policy_options,
    add_replay_options,
    replay_options,
)
from kvcap.cli.options.tokenizer import add_tokenizer_options, tokenize_options
from kvcap.cli.options.values import whole_number

__all__ = [
    "add_capacities",
    "add_deployment_options",
    "add_force",
    "add_format",
    "add_model_options",
    "add_output",
    "add_policy_options",
    "add_quiet",
    "add_reading_options",
    "add_replay_options",
    "add_tokenizer_options",
    "model_bytes_options",
    "read_options",
    "replay_options",
    "tokenize_options",
    "whole_number",
]
