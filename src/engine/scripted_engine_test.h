// An engine over a scripted executor (scripted_executor_test.h), step by step.
#pragma once

#include <cctype>
#include <memory>
#include <string>
#include <vector>

#include "engine/scripted_executor_test.h"

namespace millrace::testing {

// Blocks of 4 tokens, steps of 16, streams of 64 at most.
inline EngineOptions scripted_options(int64_t blocks, int64_t streams = 4) {
  EngineOptions o;
  o.context = 64;
  o.block_tokens = 4;
  o.kv_tokens = 4 * blocks;
  o.max_streams = streams;
  o.batch_tokens = 16;
  o.queue = 100;
  return o;
}

// Tokens first, first + 1, ...; ends after `answer` tokens.
inline Request scripted_request(TokenId first, int64_t prompt, int64_t answer) {
  Request request;
  for (int64_t i = 0; i < prompt; ++i) request.prompt.push_back(first + static_cast<TokenId>(i));
  request.max_tokens = request.known_tokens = answer;
  request.sampling.seed = static_cast<uint64_t>(first) / 1000;
  return request;
}

class ScriptedEngine {
 public:
  explicit ScriptedEngine(const EngineOptions& options, std::unique_ptr<SchedulerPolicy> policy = nullptr,
                          Script given = {}, std::unique_ptr<Drafter> drafter = nullptr)
      : script(std::move(given)) {
    auto executor = std::make_unique<ScriptedExecutor>(script, clock, options);
    pool = &executor->home().kv();
    auto made = EngineCore::create(std::move(executor), options, &clock, std::move(policy), std::move(drafter));
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    if (made.ok()) core = std::move(*made);
  }

  void add(RequestId id, const Request& request) {
    const auto added = core->add(id, request);
    EXPECT_TRUE(added.ok()) << (added.ok() ? "" : added.error().message);
  }
  // One step: its plan as text.
  std::string step() {
    events.clear();
    const std::string plan = with_answers(core->step(events).to_string());
    const auto blocks = core->check_blocks();
    EXPECT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
    all.insert(all.end(), events.begin(), events.end());
    return plan;
  }
  // Steps until idle, at most `most` times: each step's plan, and the streams after it.
  std::vector<std::string> watch(int most = 1000) {
    std::vector<std::string> lines;
    for (int i = 0; i < most && !core->idle(); ++i) {
      std::string plan = step();
      lines.push_back(plan + " | " + streams());
    }
    return lines;
  }
  int run() {
    int count = 0;
    for (; count < 1000 && !core->idle(); ++count) step();
    EXPECT_TRUE(core->idle());
    return count;
  }
  // Each stream as ID[.ANSWER] PHASE computed/tokens blocks, +cached, !preemptions.
  std::string streams() {
    static constexpr const char* kPhases[] = {"waits", "runs", "held", "leaves", "away", "loads", "looks"};
    std::string out;
    for (const auto& s : core->snapshot().streams)
      out += fmt::format("{}{}{} {} {}/{} {}{}{}", out.empty() ? "" : ", ", s.request,
                         s.answer ? fmt::format(".{}", s.answer) : "", kPhases[static_cast<size_t>(s.phase)],
                         s.computed_tokens, s.prompt_tokens + s.generated_tokens, s.blocks,
                         s.cached_tokens ? fmt::format(" +{}", s.cached_tokens) : "",
                         s.preemptions ? fmt::format(" !{}", s.preemptions) : "");
    return out;
  }
  // For each block: how many streams hold it, and c if the prefix index holds it too.
  std::string blocks() {
    std::string out;
    for (const auto& run : core->snapshot().cells)
      for (int64_t i = 0; i < run.count; ++i)
        out += fmt::format("{}{}{}", out.empty() ? "" : " ", run.streams, run.cached ? "c" : "");
    return out;
  }
  // The counters of moved and computed tokens.
  std::string figures() const {
    const EngineStats s = core->stats();
    return fmt::format("steps {} prompt {} cached {} generated {} preempted {} again {} out {} in {}", s.steps,
                       s.prompt_tokens, s.cached_tokens, s.generated_tokens, s.preemptions, s.recomputed_tokens,
                       s.swapped_out_tokens, s.swapped_in_tokens);
  }

  // Stream ids as REQUEST.ANSWER.
  static std::string with_answers(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
      size_t end = i;
      while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]))) ++end;
      if (end == i) {
        out += text[i++];
        continue;
      }
      const RequestId id = std::stoull(text.substr(i, end - i));
      out += fmt::format("{}{}", request_of(id), answer_of(id) ? fmt::format(".{}", answer_of(id)) : "");
      i = end;
    }
    return out;
  }

  Script script;
  ManualClock clock;
  KvPool* pool = nullptr;  // the executor's
  std::unique_ptr<EngineCore> core;
  std::vector<TokenEvent> events, all;  // those of the last step, and all
};

using Lines = std::vector<std::string>;

}  // namespace millrace::testing
