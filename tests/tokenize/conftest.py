from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kvcap.formats.base import ReadReport
from kvcap.schema import trace_schema

TEMPLATES = Path(__file__).parent / "templates"

CORPUS = [
    "You are a helpful assistant. Book, modify or cancel the reservation of a user.",
    'The flight is delayed: {"flight": "HAT017", "date": "2024-05-15", "seats": [1, 22, 333]}',
    "<|im_start|>user\nPlease cancel my booking!<|im_end|>\n",
    "naïve café, 東京, emoji 🙂 and   several    blanks\n\n\tand tabs",
] * 8


class TextTrace:
    """Request texts as a trace, a few to a batch."""

    kind = "request_json"
    chained = False

    def __init__(
        self,
        bodies: Sequence[object],
        *,
        timestamps: Sequence[datetime | None] | None = None,
        input_lengths: Sequence[int | None] | None = None,
        kept: dict[str, Sequence[Any]] | None = None,
        rows_per_batch: int = 3,
    ) -> None:
        self._kept = kept or {}
        fields = tuple(pa.field(name, pa.array(values).type) for name, values in self._kept.items())
        self.schema = trace_schema("request_json", fields)
        self.report = ReadReport("openai", ("log.jsonl",))
        self.closed = False
        count = len(bodies)
        texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
        columns: dict[str, Sequence[Any]] = {
            "request_id": range(count),
            "timestamp": timestamps or [None] * count,
            "input_length": input_lengths or [None] * count,
            "output_length": [7] * count,
            "request_json": texts,
            "source_file": ["log.jsonl"] * count,
            "source_line": [10 * (index + 1) for index in range(count)],
            **self._kept,
        }
        arrays = [pa.array(columns.get(field.name, [None] * count), type=field.type) for field in self.schema]
        self._table = pa.Table.from_arrays(arrays, schema=self.schema)
        self._rows_per_batch = rows_per_batch

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in self._table.to_batches(max_chunksize=self._rows_per_batch):
            self.report.records += batch.num_rows
            self.report.requests += batch.num_rows
            yield batch

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="session")
def text_trace() -> type[TextTrace]:
    return TextTrace


@pytest.fixture(scope="session")
def template() -> Callable[[str], str]:
    return lambda name: (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def tokenizer_dir(tmp_path_factory: pytest.TempPathFactory, template: Callable[[str], str]) -> Path:
    """A byte-level BPE as models have them, trained on a few lines, with ChatML tokens and template."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    tokenizer.add_tokens(
        [tokenizers.AddedToken(token, special=True, normalized=False) for token in special]
        + [tokenizers.AddedToken("<tool_call>", special=False, normalized=True)]
    )
    bos = tokenizer.token_to_id("<|endoftext|>")
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", bos)]
    )
    directory = tmp_path_factory.mktemp("model")
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|endoftext|>",
        "eos_token": {"__type": "AddedToken", "content": "<|im_end|>"},
        "unk_token": None,
        "chat_template": template("chatml_thinking"),
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)


@pytest.fixture(scope="session")
def engine_model_dir(tokenizer_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer beside the smallest configuration that engines know."""
    directory = tmp_path_factory.mktemp("engine") / "model"
    shutil.copytree(tokenizer_dir, directory)
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 512,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
    }
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    # For this model type, transformers takes the splits from its class and not from the file: let them agree.
    path = directory / "tokenizer.json"
    tokenizer = json.loads(path.read_text(encoding="utf-8"))
    split = {"type": "Split", "pattern": {"Regex": QWEN2_SPLIT}, "behavior": "Isolated", "invert": False}
    tokenizer["pre_tokenizer"]["use_regex"] = False
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, tokenizer["pre_tokenizer"]]}
    path.write_text(json.dumps(tokenizer), encoding="utf-8")
    return directory
