#include "bench_speculate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "base/ordered_json.h"
#include "base/philox.h"
#include "compare/suite_text.h"
#include "draft_decisions.h"
#include "engine/engine_core.h"
#include "interrupt.h"
#include "progress.h"
#include "run/chat_prompt.h"
#include "run/cpu_executor.h"
#include "step_timer.h"

namespace millrace {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

using BenchClock = std::chrono::steady_clock;
using Answers = std::map<RequestId, std::vector<TokenId>>;

constexpr int64_t kRequestsPerStream = 2;  // of a round
constexpr int64_t kPhrase = 24;            // tokens of a made-up prompt's phrase
constexpr int kTimedSteps = 5;             // of each kind, for the costs of steps

// Drafts the tokens that plain decoding gave, each right with probability `accept`, and a wrong one otherwise.
class OracleDrafter final : public TextDrafter {
 public:
  OracleDrafter(const Answers& plain, double accept, int64_t vocab) : plain_(plain), accept_(accept), vocab_(vocab) {}
  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    const auto answer = plain_.find(request_of(stream.id));
    if (answer == plain_.end()) return;
    const auto first = static_cast<size_t>(stream.generated());
    for (size_t at = first; at < std::min(answer->second.size(), first + static_cast<size_t>(most)); ++at) {
      const TokenId right = answer->second[at];
      const bool wrong = philox_uniform(11, stream.id, at) >= accept_;
      out.tokens.push_back(wrong ? static_cast<TokenId>((right + 1) % vocab_) : right);
    }
  }

 private:
  const Answers& plain_;
  double accept_;
  int64_t vocab_;
};

struct Oracle {
  double accept = 0;
  int64_t k = 0;

  // Tokens of a pass, where each drafted token is right with this probability: Leviathan et al., 2023, equation 1.
  double tokens_per_pass() const {
    return accept >= 1 ? static_cast<double>(k + 1) : (1 - std::pow(accept, static_cast<double>(k + 1))) / (1 - accept);
  }
};

// Null: the drafter is another one.
Result<std::unique_ptr<Oracle>> parse_oracle(const std::string& text) {
  if (text != "oracle" && !text.starts_with("oracle:")) return std::unique_ptr<Oracle>();
  const std::vector<OptionSpec> specs = {
      {"accept", OptionSpec::Type::number, "0.8", 0, 1, "share of drafted tokens that are right"},
      {"k", OptionSpec::Type::integer, "4", 1, 64, "tokens of a draft"}};
  MILLRACE_TRY(const auto values, parse_options(text.size() > 7 ? text.substr(7) : "", specs));
  return std::make_unique<Oracle>(Oracle{values.number("accept"), values.integer("k")});
}

// One way to decode, with what it measured.
struct Variant {
  std::string name;
  std::unique_ptr<Oracle> oracle;
  std::unique_ptr<EngineCore> core;
  EngineStats before;                                     // those of the first round, which warms up, are not counted
  double seconds = 0;                                     // of all other rounds
  std::vector<double> tokens_per_s, decode_tokens_per_s;  // by round
};

struct Round {
  Answers answers;
  int64_t tokens = 0, decoded = 0;  // in all steps, and in steps that only decode
  double seconds = 0, decode_seconds = 0;
};

Result<std::unique_ptr<EngineCore>> make_core(const std::shared_ptr<const LanguageModel>& model,
                                              const SpeculationPlan& plan, int64_t streams, int64_t longest,
                                              const Variant& variant, const Answers& plain) {
  constexpr int64_t kSpareBlocks = 5;
  EngineOptions options;
  options.threads = plan.threads;
  options.batch_tokens = plan.batch_tokens;
  options.context = longest;
  options.max_streams = streams;
  options.kv_tokens = streams * (longest + kSpareBlocks * options.block_tokens);
  options.prefix_cache = false;
  options.draft_length = plan.draft_length;
  if (variant.oracle) {
    options.drafter = fmt::format("ngram:k={}", variant.oracle->k);  // for the sizes of the executor
  } else if (variant.name != "plain") {
    options.drafter = variant.name;
  }
  MILLRACE_TRY(auto executor, CpuExecutor::create(model, options));
  std::unique_ptr<Drafter> drafter;
  if (variant.oracle)
    drafter = text_drafter({.longest = variant.oracle->k},
                           std::make_unique<OracleDrafter>(plain, variant.oracle->accept, model->info().vocab));
  return EngineCore::create(std::move(executor), options, nullptr, nullptr, std::move(drafter));
}

Result<Round> run_round(EngineCore& core, const std::vector<Request>& requests, RequestId first) {
  Round round;
  std::vector<TokenEvent> events;
  for (size_t i = 0; i < requests.size(); ++i) MILLRACE_TRY_VOID(core.add(first + i, requests[i]));
  while (!core.idle()) {
    if (interrupted()) return Error::cancelled("bench: interrupted");
    events.clear();
    const auto start = BenchClock::now();
    const StepPlan& step = core.step(events);
    const double seconds = std::chrono::duration<double>(BenchClock::now() - start).count();
    const bool decodes = std::ranges::all_of(
        step.chunks, [](const PlannedChunk& chunk) { return chunk.first > 0 && chunk.own() == 1 && chunk.sample; });
    int64_t tokens = 0;
    for (const TokenEvent& event : events) {
      if (event.finish == FinishReason::error) return event.error;
      if (event.token < 0) continue;
      round.answers[event.request].push_back(event.token);
      ++tokens;
    }
    round.seconds += seconds;
    round.tokens += tokens;
    round.decode_seconds += decodes ? seconds : 0;
    round.decoded += decodes ? tokens : 0;
  }
  return round;
}

// The requests of a round; each round has others, so that no drafter has seen their texts.
Result<std::vector<Request>> requests_of(const LanguageModel& model, const SpeculationPlan& plan,
                                         const std::vector<nlohmann::ordered_json>& lines, int64_t streams,
                                         int64_t round, bool whole) {
  std::vector<Request> out;
  for (int64_t i = 0; i < streams * kRequestsPerStream; ++i) {
    const auto index = static_cast<uint64_t>(round * streams * kRequestsPerStream + i);
    Request request;
    request.sampling.temperature = 0;
    request.max_tokens = plan.generate;
    request.ignore_eos = lines.empty() || whole;
    if (lines.empty()) {
      for (int64_t at = 0; at < plan.prompt; ++at)
        request.prompt.push_back(static_cast<TokenId>(philox_uniform(3, index, static_cast<uint64_t>(at % kPhrase)) *
                                                      static_cast<double>(model.info().vocab)));
    } else {
      const auto& line = lines[index % lines.size()];
      if (line.contains("messages")) {
        MILLRACE_TRY(const std::string text, chat_text(model, line["messages"], true));
        MILLRACE_TRY(request.prompt, encode_chat(model, text));
      } else {
        MILLRACE_TRY(const std::string text, text_field(line, "prompt", plan.prompts));
        MILLRACE_TRY(request.prompt, model.encode(text, true, false));
      }
    }
    out.push_back(std::move(request));
  }
  return out;
}

// How much longer a step of 1 + k tokens takes than one of a single token, both in turns, of one stream.
Result<double> step_ratio(const std::shared_ptr<const LanguageModel>& model, const SpeculationPlan& plan, int64_t k) {
  EngineOptions options;
  options.threads = plan.threads;
  options.max_streams = 1;
  options.context = plan.prompt + plan.generate + k + 1;
  options.batch_tokens = plan.batch_tokens;
  options.drafter = fmt::format("ngram:k={}", k);
  MILLRACE_TRY(auto timer, StepTimer::create(model, options, {options.context, options.context}));
  const int64_t depth = plan.prompt + plan.generate / 2;
  std::vector<double> ratios;
  for (int i = 0; i <= kTimedSteps; ++i) {
    MILLRACE_TRY(const double one, timer->run({{0, depth, 1, true}}));
    MILLRACE_TRY(const double many, timer->run({{0, depth, k + 1, true, k}}));
    if (i > 0) ratios.push_back(many / one);
  }
  return median(ratios);
}

nlohmann::ordered_json record_of(const Variant& variant, const Variant& plain, int64_t streams,
                                 std::span<const double> step_ratios, bool automatic) {
  const EngineStats now = variant.core->stats();
  const EngineStats& before = variant.before;
  const auto drafted = static_cast<double>(now.drafted_tokens - before.drafted_tokens),
             accepted = static_cast<double>(now.accepted_tokens - before.accepted_tokens),
             generated = static_cast<double>(now.generated_tokens - before.generated_tokens),
             drafts = static_cast<double>(now.drafts - before.drafts);
  std::vector<double> all, decode;
  for (size_t i = 0; i < variant.tokens_per_s.size(); ++i) {
    all.push_back(variant.tokens_per_s[i] / plain.tokens_per_s[i]);
    decode.push_back(variant.decode_tokens_per_s[i] / plain.decode_tokens_per_s[i]);
  }
  nlohmann::ordered_json out = {{"drafter", variant.name},
                                {"streams", streams},
                                {"tokens_per_s", generated / variant.seconds},
                                {"decode_tokens_per_s", median(variant.decode_tokens_per_s)},
                                {"speedup", median(all)},
                                {"decode_speedup", median(decode)},
                                {"lowest", std::ranges::min(decode)},
                                {"highest", std::ranges::max(decode)},
                                {"acceptance", drafted > 0 ? accepted / drafted : 0},
                                {"tokens_per_pass", generated / (generated - accepted)},
                                {"draft_length", drafts > 0 ? drafted / drafts : 0},
                                {"draft_share", (now.draft_seconds - before.draft_seconds) / variant.seconds}};
  if (automatic) out["auto"] = draft_decisions_json(decisions_since(before.draft_decisions, now.draft_decisions));
  if (!variant.oracle) return out;
  const double ratio = median({step_ratios.begin(), step_ratios.end()});
  out["step_ratio"] = ratio;
  out["formula"] = variant.oracle->tokens_per_pass() / ratio;
  return out;
}

void print_header() {
  fmt::print(
      "| drafter | streams | tokens/s | speed-up | of decoding (lowest to highest) | acceptance | tokens a pass | "
      "verified of a draft | drafting, share of the time |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n");
}

void print_row(const nlohmann::ordered_json& r) {
  const auto at = [&](const char* name) { return r.at(name).get<double>(); };
  fmt::print("| {} | {} | {:.1f} | {:.2f} | {:.2f} ({:.2f} to {:.2f}) | {:.0f} % | {:.2f} | {:.1f} | {:.1f} % |\n",
             r.at("drafter").get<std::string>(), r.at("streams").get<int64_t>(), at("tokens_per_s"), at("speedup"),
             at("decode_speedup"), at("lowest"), at("highest"), 100 * at("acceptance"), at("tokens_per_pass"),
             at("draft_length"), 100 * at("draft_share"));
}

// Under the table.
void print_formula(const nlohmann::ordered_json& r) {
  const auto at = [&](const char* name) { return r.at(name).get<double>(); };
  fmt::print(
      "\n{}: the formula expects {:.2f}, as a step with the draft takes {:.2f} times as long as one of a single token; "
      "measured: {:.2f}\n",
      r.at("drafter").get<std::string>(), at("formula"), at("step_ratio"), at("decode_speedup"));
}

// Under the table, where `--draft-length auto` has not verified every draft: how often, and why.
void print_decisions(const nlohmann::ordered_json& r) {
  const auto& decided = r.at("auto");
  const auto steps = [&](const char* name) { return decided.at(name).get<int64_t>(); };
  if (steps("declined_steps") + steps("trial_steps") == 0) return;
  fmt::print("\n{}, {} streams: drafts were verified in {} steps, in {} further ones for a trial, and in {} not: {}\n",
             r.at("drafter").get<std::string>(), r.at("streams").get<int64_t>(), steps("chosen_steps"),
             steps("trial_steps"), steps("declined_steps"), decided.at("reason").get<std::string>());
}

// Plain decoding and each drafter in turns, `plan.repetitions` rounds after one that warms up.
Result<nlohmann::ordered_json> measure_streams(const std::shared_ptr<const LanguageModel>& model,
                                               const SpeculationPlan& plan,
                                               const std::vector<nlohmann::ordered_json>& lines, int64_t streams) {
  std::vector<Variant> variants(1 + plan.drafters.size());
  variants[0].name = "plain";
  for (size_t i = 0; i < plan.drafters.size(); ++i) {
    variants[i + 1].name = plan.drafters[i];
    auto oracle = parse_oracle(plan.drafters[i]);
    if (!oracle.ok()) return Error::user(fmt::format("--speculate {}: {}", plan.drafters[i], oracle.error().message));
    variants[i + 1].oracle = std::move(*oracle);
  }
  const bool whole = std::ranges::any_of(variants, [](const Variant& variant) { return variant.oracle != nullptr; });
  std::vector<std::vector<Request>> rounds;
  int64_t longest = 1;
  for (int64_t round = 0; round <= plan.repetitions; ++round) {
    MILLRACE_TRY(auto requests, requests_of(*model, plan, lines, streams, round, whole));
    for (const Request& request : requests) longest = std::max(longest, std::ssize(request.prompt) + plan.generate + 1);
    rounds.push_back(std::move(requests));
  }
  Answers plain;
  for (Variant& variant : variants) {
    MILLRACE_TRY(variant.core, make_core(model, plan, streams, longest, variant, plain));
  }
  std::map<size_t, std::vector<double>> step_ratios;
  ProgressBar bar(fmt::format("{} streams", streams));
  RequestId first = 1;
  for (size_t round = 0; round < rounds.size(); ++round) {
    for (size_t i = 0; i < variants.size(); ++i) {
      Variant& variant = variants[i];
      if (round == 1) variant.before = variant.core->stats();
      MILLRACE_TRY(Round done, run_round(*variant.core, rounds[round], first));
      if (i == 0) {
        plain = std::move(done.answers);
      } else if (done.answers != plain) {
        return Error::internal(fmt::format("bench: {} changed an answer", variant.name));
      }
      bar.update(static_cast<double>(round * variants.size() + i + 1) /
                 static_cast<double>(rounds.size() * variants.size()));
      if (round == 0) continue;
      variant.seconds += done.seconds;
      variant.tokens_per_s.push_back(static_cast<double>(done.tokens) / done.seconds);
      variant.decode_tokens_per_s.push_back(static_cast<double>(done.decoded) / std::max(1e-9, done.decode_seconds));
      if (variant.oracle) {
        MILLRACE_TRY(const double ratio, step_ratio(model, plan, variant.oracle->k));
        step_ratios[i].push_back(ratio);
      }
    }
    first += rounds[round].size();
  }
  auto out = nlohmann::ordered_json::array();
  for (size_t i = 0; i < variants.size(); ++i)
    out.push_back(record_of(variants[i], variants[0], streams, step_ratios[i], i > 0 && plan.draft_length == "auto"));
  return out;
}

}  // namespace

Result<int> run_bench_speculate(const std::shared_ptr<const LanguageModel>& model, const SpeculationPlan& plan) {
  std::vector<nlohmann::ordered_json> lines;
  if (!plan.prompts.empty()) {
    MILLRACE_TRY(lines, read_json_lines(plan.prompts));
    if (lines.empty()) return Error::user(fmt::format("{}: has no prompts", plan.prompts));
  }
  catch_interrupts();
  auto all = nlohmann::ordered_json::array();
  if (plan.output == "md") print_header();
  for (const int64_t streams : plan.streams) {
    MILLRACE_TRY(const auto records, measure_streams(model, plan, lines, streams));
    for (const auto& record : records) {
      if (plan.output == "md") print_row(record);
      all.push_back(record);
    }
  }
  for (const auto& record : all)
    if (plan.output == "md" && record.contains("formula")) print_formula(record);
  for (const auto& record : all)
    if (plan.output == "md" && record.contains("auto")) print_decisions(record);
  if (plan.output == "json") fmt::print("{}\n", all.dump(1));
  return 0;
}

}  // namespace millrace
