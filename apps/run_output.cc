#include "run_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "draft_decisions.h"
#include "input.h"
#include "memory_report.h"
#include "retrieve/passages_json.h"

namespace millrace {
namespace {

nlohmann::ordered_json answer_json(const AnswerText& answer, bool ranked) {
  nlohmann::ordered_json out;
  out["tokens"] = answer.tokens;
  out["text"] = answer.text;
  out["finish_reason"] = finish_reason_name(answer.last.finish);
  if (ranked) out["score"] = answer.last.score;
  if (!answer.logprobs.empty()) out["logprobs"] = answer.logprobs;
  return out;
}

// Returns, for each position of a draft, the share of the drafts that reached it whose token was accepted there.
nlohmann::ordered_json acceptance_json(const EngineStats& stats) {
  auto out = nlohmann::ordered_json::array();
  for (size_t i = 0; i < kDraftPositions && stats.drafted_at[i] > 0; ++i)
    out.push_back(static_cast<double>(stats.accepted_at[i]) / static_cast<double>(stats.drafted_at[i]));
  return out;
}

}  // namespace

Speed measure(const RequestTimings& t, const LanguageModel& model) {
  Speed speed;
  if (t.prefill_seconds > 0)
    speed.prompt_per_second =
        static_cast<double>(t.prompt_tokens - t.cached_tokens - t.left_out_tokens) / t.prefill_seconds;
  if (t.decode_seconds > 0 && t.generated_tokens > 1)
    speed.generated_per_second = static_cast<double>(t.generated_tokens - 1) / t.decode_seconds;
  speed.gb_per_second = speed.generated_per_second * static_cast<double>(model.info().step_bytes) * 1e-9;
  return speed;
}

static nlohmann::ordered_json key_stream_json(const KeyStreamStats& keys, int64_t tokens) {
  return {{"blocks", keys.blocks},
          {"resident_blocks", keys.resident_blocks},
          {"read_bytes", keys.read_bytes},
          {"written_bytes", keys.written_bytes},
          {"read_bytes_per_token", keys.read_bytes / std::max<int64_t>(1, tokens)},
          {"layer_blocks", keys.layer_blocks},
          {"layer_blocks_read", keys.layer_blocks_read},
          {"layer_blocks_ahead", keys.layer_blocks_ahead},
          {"wait_seconds", keys.wait_seconds},
          {"failed_blocks", keys.failed_blocks}};
}

void print_json(const std::vector<TokenId>& prompt, const std::vector<AnswerText>& answers, const RunFlags& flags,
                const TokenEvent& last, const Speed& speed, const EngineStats& stats,
                const std::vector<AppliedTechnique>& applied, const std::vector<PromptEffect>& compressed,
                const std::vector<SearchHit>& sources) {
  const RequestTimings& t = last.timings;
  const bool ranked = flags.best_of > flags.answers || flags.beams > 1;
  nlohmann::ordered_json out;
  out["prompt_tokens"] = prompt;
  out.update(answer_json(answers.front(), ranked));
  if (flags.answers > 1) {
    out["answers"] = nlohmann::ordered_json::array();
    for (const AnswerText& answer : answers) out["answers"].push_back(answer_json(answer, ranked));
  }
  out["timings"] = {{"prompt_tokens", t.prompt_tokens},
                    {"cached_tokens", t.cached_tokens},
                    {"left_out_tokens", t.left_out_tokens},
                    {"kept_tokens", t.kept_tokens},
                    {"evicted_tokens", t.evicted_tokens},
                    {"evictions", t.evictions},
                    {"prompt_seconds", t.prefill_seconds},
                    {"prompt_tokens_per_second", speed.prompt_per_second},
                    {"generated_tokens", t.generated_tokens},
                    {"generated_seconds", t.decode_seconds},
                    {"generated_tokens_per_second", speed.generated_per_second},
                    {"time_to_first_token_seconds", t.first_token_seconds},
                    {"gb_per_s", speed.gb_per_second}};
  if (std::ranges::find(applied, "drafter", &AppliedTechnique::family) != applied.end()) {
    out["speculation"] = {{"drafted", stats.drafted_tokens},
                          {"accepted", stats.accepted_tokens},
                          {"target_passes", stats.generated_tokens - stats.accepted_tokens},
                          {"acceptance_by_position", acceptance_json(stats)}};  // of all answers
    if (flags.engine.options.draft_length == "auto")
      out["speculation"]["auto"] = draft_decisions_json(stats.draft_decisions);
  }
  if (stats.attention_rows > 0)
    out["attention"] = {{"rows", stats.attention_rows}, {"flat_rows", stats.flat_rows}};  // of all answers
  if (stats.key_stream.blocks > 0)
    out["key_stream"] = key_stream_json(stats.key_stream, t.prompt_tokens + t.generated_tokens);
  if (!flags.retrieve.empty()) out["sources"] = passages_json(sources);
  if (!compressed.empty()) out["prompt"] = prompt_json(compressed);
  out["memory"] = memory_json(stats.memory_budget, stats.memory);
  out["applied"] = applied_json(applied);
  for (auto& one : applied_prompts(compressed)) out["applied"].push_back(std::move(one));
  print_json_line(out);
}

void print_timings(const TokenEvent& last, const Speed& speed) {
  const RequestTimings& t = last.timings;
  fmt::print(
      stderr,
      "prompt {} tokens, {:.1f} tok/s | generated {} tokens, {:.1f} tok/s | first token {:.1f} ms | {:.2f} GB/s\n",
      t.prompt_tokens, speed.prompt_per_second, t.generated_tokens, speed.generated_per_second,
      t.first_token_seconds * 1e3, speed.gb_per_second);
}

void print_key_stream(const KeyStreamStats& keys, int64_t tokens) {
  const auto each = static_cast<double>(std::max<int64_t>(1, tokens));
  const double hits =
      keys.layer_blocks > 0
          ? 100.0 * (1.0 - static_cast<double>(keys.layer_blocks_read) / static_cast<double>(keys.layer_blocks))
          : 0.0;
  fmt::print(stderr,
             "keys in a file: {} of {} blocks | {:.2f} MB read and {:.2f} MB written a token, {:.1f} % of blocks in "
             "memory, {:.2f} s waited | {}, {} I/O\n",
             keys.blocks, keys.blocks + keys.resident_blocks, static_cast<double>(keys.read_bytes) * 1e-6 / each,
             static_cast<double>(keys.written_bytes) * 1e-6 / each, std::max(0.0, hits), keys.wait_seconds,
             keys.io_uring ? "io_uring" : "pread", keys.direct ? "direct" : "buffered");
}

void print_store(const KvStoreStats& store) {
  if (store.left_out_tokens > 0)
    fmt::print(stderr, "KV store: {} tokens left out of attention: answers are approximate\n", store.left_out_tokens);
  const bool remote = store.capacity_blocks == 0;
  const std::string blocks = remote ? fmt::format("{} blocks known", store.blocks)
                                    : fmt::format("{} of {} blocks", store.blocks, store.capacity_blocks);
  const std::string io =
      remote ? std::string(store.connected ? "connected" : "not connected")
             : fmt::format("{}, {} I/O", store.io_uring ? "io_uring" : "pread", store.direct ? "direct" : "buffered");
  fmt::print(stderr,
             "KV store: {} tokens loaded, {} faster to compute, {} failed to load | {}, {:.1f} MB read, {:.1f} MB "
             "written, {} dropped, {} corrupt | {}\n",
             store.hit_tokens, store.passed_tokens, store.failed_tokens, blocks,
             static_cast<double>(store.read_bytes) * 1e-6, static_cast<double>(store.written_bytes) * 1e-6,
             store.dropped_blocks, store.corrupt_blocks, io);
}

}  // namespace millrace
