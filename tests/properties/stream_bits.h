// One stream's tokens and the exact logits behind them, under any engine options: what the property tests compare.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

#include "base/philox.h"
#include "engine/engine_core.h"
#include "isa_label.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace::testing {

inline std::string golden_model(const std::string& name) {
  return std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name + "/model.gguf";
}

// Sets the environment variable for one scope, so that a model is packed for that table.
class WithIsa {
 public:
  explicit WithIsa(Isa isa) {
    if (const char* before = std::getenv("MILLRACE_ISA")) before_ = before;
    setenv("MILLRACE_ISA", isa_name(isa).c_str(), 1);
  }
  ~WithIsa() {
    if (before_.empty())
      unsetenv("MILLRACE_ISA");
    else
      setenv("MILLRACE_ISA", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

inline std::shared_ptr<const LanguageModel> load_for(const std::string& path, Isa isa) {
  WithIsa scope(isa);
  auto model = LanguageModel::load(path, {.threads = 1, .context = 128});
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return model.ok() ? *model : nullptr;
}

inline Request make_request(int64_t seed, int64_t prompt_tokens, int64_t max_tokens, int64_t vocab) {
  Request request;
  for (int64_t i = 0; i < prompt_tokens; ++i)
    request.prompt.push_back(static_cast<TokenId>(
        philox_uniform(static_cast<uint64_t>(seed), 9, static_cast<uint64_t>(i)) * static_cast<double>(vocab)));
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.sampling.seed = static_cast<uint64_t>(seed);
  request.sampling.temperature = seed % 2 ? 0.9 : 0.0;
  request.sampling.logprobs = 0;
  return request;
}

// The results of a stream: its tokens, and the exact logits that each was chosen from.
struct Shown {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> logits;
  int64_t cached = 0;

  bool same_bits(const Shown& other) const {
    if (tokens != other.tokens || logits.size() != other.logits.size()) return false;
    for (size_t i = 0; i < logits.size(); ++i)
      if (std::memcmp(logits[i].data(), other.logits[i].data(), logits[i].size() * sizeof(float)) != 0) return false;
    return true;
  }
};

// Steps the core until it is idle. Sampling at these settings does not edit the rows it reads.
inline std::map<RequestId, Shown> run_all(EngineCore& core, int64_t vocab) {
  std::map<RequestId, Shown> shown;
  std::vector<TokenEvent> events;
  while (!core.idle()) {
    events.clear();
    const StepPlan& plan = core.step(events);
    const float* row = core.last_logits();
    for (const auto& chunk : plan.chunks) {
      if (!chunk.sample) continue;
      shown[chunk.request].logits.emplace_back(row, row + vocab);
      row += vocab;
    }
    for (const auto& event : events) {
      EXPECT_NE(event.finish, FinishReason::error) << event.error.message;
      if (event.token >= 0) shown[event.request].tokens.push_back(event.token);
      if (event.finish != FinishReason::none) shown[event.request].cached = event.timings.cached_tokens;
    }
    auto blocks = core.check_blocks();
    EXPECT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
  }
  return shown;
}

inline EngineOptions options(int threads = 1, int64_t batch_tokens = 512, int64_t block_tokens = 16) {
  EngineOptions o;
  o.threads = threads;
  o.context = 128;
  o.max_streams = 8;
  o.batch_tokens = batch_tokens;
  o.block_tokens = block_tokens;
  o.kv_tokens = 4096;
  return o;
}

// Never null: options that no engine takes end the test with an exception, whose text names the reason.
inline std::unique_ptr<EngineCore> make_core(std::shared_ptr<const LanguageModel> model, const EngineOptions& o) {
  auto core = EngineCore::create(std::move(model), o);
  if (!core.ok()) throw std::runtime_error("no engine with these options: " + core.error().message);
  return std::move(*core);
}

}  // namespace millrace::testing
