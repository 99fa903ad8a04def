"""The logs that people hold: what each is read as, or what its owner hears.

One list for the test that reads a sample of each and for the table in ``kvcap/formats/README.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Held:
    """A kind of log, its sample, and what comes of it.

    Parameters
    ----------
    what
        As its owner calls it.
    sample
        File name in the folder of samples.
    kind
        What it is read as, with the number of requests; None where it is refused.
    says
        A part of the refusal, from which on it says what to do.
    block_size
        ``--block-size`` of the sample, where its records declare none.
    conversations
        ``--conversations``, where it is asked for.
    """

    what: str
    sample: str
    kind: str | None = None
    requests: int = 0
    says: str = ""
    block_size: int | None = None
    conversations: Any = None


def _read(what: str, sample: str, kind: str, requests: int, **more: Any) -> Held:
    return Held(what, sample, kind, requests, **more)


def _refused(what: str, sample: str, says: str) -> Held:
    return Held(what, sample, says=says)


_LOG_INSTEAD = "log of each request its body"
_LENGTHS = "log hash_ids, token ids or the text"
_ASKED = "say which with --conversations turns"

HELD = (
    _refused(
        "Claude Code projects, older, without usage", "real_claude_code_simonw.jsonl", "export them anew"
    ),
    _read("Codex rollouts", "real_codex_rollout_redacted.jsonl", "codex", 2),
    _read("pi sessions", "real_pi_usage_471_calls.jsonl.gz", "pi", 471),
    _read("pi sessions, version 3", "pi_session.jsonl", "pi", 1),
    _read("Gemini CLI sessions", "real_gemini_cli_tokenaudit.json", "gemini-cli", 1),
    _read("Gemini CLI sessions, several calls", "gemini_cli_session.json", "gemini-cli", 2),
    _read("OpenHands trajectories", "real_openhands_traj.json", "openhands", 1),
    _read("OpenHands output.jsonl", "real_openhands_output.jsonl", "openhands", 6),
    _read("OpenHands completion logs", "openhands_as_is.jsonl", "openhands-completions", 1),
    _read("OpenHands completion logs with tools", "openhands_tools_top.jsonl", "openhands-completions", 1),
    _refused("SWE-agent trajectories, cut", "real_sweagent.traj", "is the file whole"),
    _read("mini-swe-agent trajectories", "mini_swe_v1.traj.json", "mini-swe-agent", 2),
    _read("mini-swe-agent, bare lists", "real_mini_swe_test.traj.json", "message-list", 1),
    _read("Cline api_conversation_history", "cline_api_history.json", "message-list", 1),
    _refused("Cline HTTP cassettes", "real_cline_fixture.json", _LOG_INSTEAD),
    _read("SWE-agent trajectory data sets", "nebius_swe_agent.jsonl", "swe-trajectories", 4),
    _read("SFT messages, turn by turn", "sft_messages.jsonl", "openai-requests", 6, conversations="turns"),
    _refused("SFT messages", "sft_messages.parquet", _ASKED),
    _refused("SWE-smith, messages as JSON text", "swe_smith.jsonl", _ASKED),
    _read("ATIF with token ids", "atif.json", "atif-token-ids", 1),
    _refused("Kimi CLI context", "kimi_context.jsonl", "read that with --conversations turns"),
    _read("Inspect AI logs", "inspect_eval.json", "inspect", 1),
    _refused("tau2 voice simulations", "real_tau2_sim.json", _LOG_INSTEAD),
    _read("claude-trace", "claude_trace.jsonl", "request-body", 2),
    _read("Anthropic Messages bodies", "anthropic_messages.jsonl", "openai-requests", 3),
    _read("Anthropic, system as text", "anthropic_messages_str_system.jsonl", "openai-requests", 3),
    _read("Anthropic, against the OpenAI shape", "anthropic_vs.jsonl", "openai-requests", 3),
    _read("Anthropic message batches", "anthropic_batch.jsonl", "anthropic-batch", 3),
    _read("bodies that create batches", "anthropic_batch_requests.json", "anthropic-batches", 3),
    _read("Gemini bodies", "gemini_generate.jsonl", "openai-requests", 3),
    _read("Gemini batches", "gemini_batch.jsonl", "gemini-batch", 3),
    _read("Vertex AI batches", "vertex_batch.jsonl", "gemini-batch", 3),
    _read("Bedrock invocation logs", "bedrock_invoke.jsonl", "bedrock", 2),
    _read("Databricks inference tables", "databricks_inference_table.jsonl", "databricks", 3),
    _read("Databricks, Parquet", "databricks.parquet", "databricks", 3),
    _read("Azure API Management", "azure_apim_llm.jsonl", "azure-apim", 3),
    _read("OpenAI Responses bodies", "openai_responses.jsonl", "openai-requests", 3),
    _read("OpenAI chat bodies with tools", "openai_with_tools.jsonl", "openai-requests", 3),
    _refused("chat bodies that end with an answer", "chat_last_assistant.jsonl", _ASKED),
    _refused("OpenAI stored completions", "openai_stored_completions.json", "fetch the messages of each"),
    _read("Langfuse traces", "real_langfuse_trace.json", "langfuse-trace", 2),
    _read("Langfuse observations", "langfuse_observations.jsonl", "langfuse", 2),
    _read("LangSmith runs", "langsmith_runs.jsonl", "langsmith", 2),
    _read("LangSmith runs, plain messages", "langsmith_runs_plain.jsonl", "langsmith", 3),
    _read("Helicone requests", "helicone_requests.jsonl", "helicone", 2),
    _read("OpenInference spans, OTLP", "openinference_otlp.jsonl", "otel", 2),
    _read("Phoenix spans", "phoenix_spans.jsonl", "phoenix", 2),
    _read("OpenLLMetry before 2026", "openllmetry_otlp.jsonl", "otel", 2),
    _read("OpenLLMetry with an operation", "openllmetry_with_operation.jsonl", "otel", 2),
    _read("OpenTelemetry, two answers in a message", "otel_two_in_one.jsonl", "otel", 1),
    _read("OpenTelemetry, two messages", "otel_two_messages.jsonl", "otel", 1),
    _read("OpenTelemetry, reasoning", "otel_reasoning_part.jsonl", "otel", 1),
    _read("OpenTelemetry and OpenInference in one", "otel_then_openinference.jsonl", "otel", 4),
    _refused(
        "OpenTelemetry events of messages", "otel_events_semconv_old.jsonl", "capture gen_ai.input.messages"
    ),
    _read("MLflow traces", "mlflow_trace.json", "mlflow", 1),
    _read("Weave calls", "weave_calls.jsonl", "weave", 3),
    _read("LiteLLM, mixed calls", "litellm_mixed.jsonl", "litellm", 6),
    _read("LiteLLM, Anthropic calls", "litellm_anthropic.jsonl", "litellm", 2),
    _read("LiteLLM spend logs with messages", "litellm_spendlogs_messages.jsonl", "litellm", 3),
    _read("LiteLLM spend logs, stored bodies", "litellm_spendlogs_stored.jsonl", "litellm", 2),
    _refused("LiteLLM spend logs without", "litellm_spendlogs_off.jsonl", "Set store_prompts_in_spend_logs"),
    _refused("LiteLLM, redacted", "litellm_redacted.jsonl", "log prompts without redaction"),
    _refused("LiteLLM, cut", "litellm_truncated.jsonl", "raise MAX_STRING_LENGTH_PROMPT_IN_DB"),
    _refused("OpenRouter activity", "openrouter_activity.csv", _LENGTHS),
    _read("vLLM lines with prompts", "real_vllm_0.7_chat_text_only.log", "vllm-text", 1),
    _read("vLLM lines with ids", "vllm_0.6.log", "vllm", 3),
    _read("vLLM lines whose prompt looks like ids", "vllm_text_with_bracket.log", "vllm", 1),
    _refused("vLLM lines of INFO alone", "vllm_0.11_info.log", "log with VLLM_LOGGING_LEVEL=DEBUG"),
    _refused("vllm bench --save-detailed", "vllm_bench_detailed.json", _LENGTHS),
    _read("vllm bench, custom data sets", "vllm_custom.jsonl", "openai-requests", 3),
    _refused("SGLang dumps", "sglang_dump.pkl", "with the engine's own Python"),
    _refused("SGLang crash dumps", "sglang_crash_dump.pkl", "with the engine's own Python"),
    _refused("TGI logs", "tgi_log.jsonl", _LOG_INSTEAD),
    _refused("llama.cpp logs", "llamacpp.log", "log requests there, or at a gateway"),
    _read("llama.cpp /slots", "llamacpp_slots.json", "openai-requests", 1),
    _refused("Ollama logs", "ollama.log", "log requests there, or at a gateway"),
    _refused("TensorRT-LLM logs", "trtllm.log", "log requests there, or at a gateway"),
    _refused("TensorRT-LLM iteration statistics", "trtllm_iteration_stats.json", _LOG_INSTEAD),
    _read("AIPerf, whole histories", "aiperf_cumulative.jsonl", "openai-requests", 3),
    _read("AIPerf, forked conversations", "aiperf_dag.jsonl", "aiperf-turns", 2),
    _read("AIPerf, multi turn", "aiperf_multi_turn.jsonl", "aiperf-turns", 6),
    _read("AIPerf, random pool", "aiperf_random_pool.jsonl", "aiperf-single-turn", 3),
    _read("AIPerf, single turn", "aiperf_single_turn.jsonl", "aiperf-single-turn", 3),
    _read("AIPerf, single turn with a type", "aiperf_single_turn_typed.jsonl", "aiperf-single-turn", 3),
    _read("AIPerf, payloads", "aiperf_mooncake_payload.jsonl", "aiperf-payload", 3),
    _read("AIPerf inputs.json", "aiperf_inputs.json", "aiperf-inputs", 4),
    _read("GenAI-Perf inputs.json", "genai_perf_inputs.json", "genai-perf-inputs", 3),
    _refused("AIPerf profile_export", "aiperf_profile_export.jsonl", _LOG_INSTEAD),
    _read("AIPerf inference-day", "inference_day.jsonl", "mooncake-sessions", 3, block_size=512),
    _read("Baseten traces", "baseten.jsonl", "baseten", 3),
    _read("Baseten traces, Parquet", "baseten.parquet", "baseten", 3),
    _read("text in Parquet beside lists of numbers", "p2.parquet", "openai-requests", 3),
    _read("Exgentic sessions", "exgentic.jsonl", "exgentic", 3),
    _read("inference-perf reports", "inference_perf_per_request.json", "inference-perf", 3),
    _refused("guidellm reports", "real_guidellm_report.json", _LOG_INSTEAD),
    _read("ShareGPT", "sharegpt.json", "sharegpt", 6),
    _read("ShareGPT on one line", "sharegpt_oneline.json", "sharegpt", 6),
    _read("LMSYS, Parquet", "lmsys.parquet", "chat-conversations", 4),
    _refused("OpenAssistant trees", "oasst_trees.jsonl", "read them with --conversations turns"),
    _refused("OpenAssistant messages", "oasst_messages.jsonl", "read them with --conversations turns"),
    _read("verl rollouts", "verl_rollout.jsonl", "verl", 3),
    _read("Mooncake traces", "real_mooncake_conversation.jsonl", "mooncake", 3, block_size=512),
    _read("ServeGen, content hashes", "servegen_offline_hash.jsonl", "hash-ids", 6, block_size=16),
    _refused("ServeGen, lengths", "servegen_offline_stat.jsonl", _LENGTHS),
    _refused("ServeGen trace.csv", "real_servegen_trace.csv", "expected a first line that names them"),
    _refused("Azure traces", "real_azure2023_code.csv", _LENGTHS),
    _refused("Vidur traces", "real_vidur_splitwise.csv", _LENGTHS),
    _refused("LMCache multi-round CSV", "lmcache_multi_round.csv", _LENGTHS),
    _read("a request_json column, Parquet", "request_json.parquet", "request-json", 3),
    _read("a list over many lines", "multiline_array_openai.json", "openai-requests", 3),
    _read("a list of ids on one line", "oneline_array_mooncake.json", "mooncake", 3, block_size=512),
    _read("a list of lists of token ids", "oneline_array_of_lists.json", "token-ids", 3),
    _read("a list of bodies on one line", "oneline_array_openai.json", "openai-requests", 3),
    _read("a list of token ids on one line", "oneline_array_token_ids.json", "token-ids", 3),
    _read("a document with data", "oneline_object_data.json", "openai-requests", 3),
)


def markdown(text: str) -> str:
    """Return the table for the page beside the readers."""
    rows = ["| log | read as, or what its owner hears |", "|---|---|"]
    for held in HELD:
        option = f" with `--conversations {held.conversations}`" if held.conversations else ""
        outcome = f"`{held.kind}`{option}" if held.kind else f"refused: *... {held.says} ...*"
        rows.append(f"| {held.what} | {outcome} |")
    return "\n".join(rows) + "\n"
