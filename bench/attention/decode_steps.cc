// Steps that decode streams which began together, and so fill their blocks of the KV cache in the same steps: what a KV
// format that encodes whole blocks costs the step in which they are full. Formats take turns; processor time of the
// whole process, on one thread, in memory that other streams have used: new pages would count too.
//
//   decode_steps MODEL [STREAMS [ROUNDS [FORMAT...]]]
//
// For each format: the median step; how many times longer a step takes that fills blocks than those around it, the
// median of all such steps; and the median step beside that of the first format.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/philox.h"
#include "engine/engine_core.h"
#include "run/language_model.h"

namespace millrace {
namespace {

constexpr int64_t kPrompt = 256, kSteps = 272;
constexpr int64_t kEach = 64;    // a multiple of the tokens of a block
constexpr int64_t kAround = 10;  // steps on each side, none of which fills blocks of any format

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double at_share(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}

struct Times {
  std::vector<double> steps, full;  // full: beside the steps around them
};

Request request_of(int64_t seed, int64_t prompt, int64_t tokens, int64_t vocab) {
  Request request;
  for (int64_t i = 0; i < prompt; ++i)
    request.prompt.push_back(static_cast<TokenId>(
        philox_uniform(static_cast<uint64_t>(seed), 9, static_cast<uint64_t>(i)) * static_cast<double>(vocab)));
  request.max_tokens = tokens;
  request.ignore_eos = true;
  return request;
}

Result<void> run(const std::shared_ptr<const LanguageModel>& model, const std::string& format, int64_t streams,
                 Times& times) {
  EngineOptions options;
  options.threads = 1;
  options.kv_format = format;
  options.max_streams = streams;
  options.batch_tokens = streams * kPrompt;  // all prompts in one step
  options.context = kPrompt + kSteps + 64;
  options.kv_tokens = streams * options.context;
  options.prefix_cache = false;
  options.drafter = "";
  MILLRACE_TRY(auto core, EngineCore::create(model, options));
  std::vector<TokenEvent> events;
  const auto add = [&](int64_t first, int64_t prompt, int64_t steps) -> Result<void> {
    for (int64_t i = first; i < first + streams; ++i)
      MILLRACE_TRY_VOID(core->add(static_cast<RequestId>(i), request_of(i, prompt, steps, model->info().vocab)));
    return {};
  };
  MILLRACE_TRY_VOID(add(1, options.context - 2, 1));
  while (!core->idle()) core->step(events);
  MILLRACE_TRY_VOID(add(streams + 1, kPrompt, kSteps + 2));
  core->step(events);
  std::vector<double> own;
  for (int64_t step = 0; step < kSteps; ++step) {
    events.clear();
    const double begin = processor_seconds();
    core->step(events);
    own.push_back(processor_seconds() - begin);
    if (std::ssize(events) != streams) return Error::internal(fmt::format("step {}: not all streams ran", step));
  }
  times.steps.insert(times.steps.end(), own.begin(), own.end());
  for (int64_t step = kEach - 1; step + kAround < kSteps; step += kEach) {
    std::vector<double> around(own.begin() + step - kAround, own.begin() + step);
    around.insert(around.end(), own.begin() + step + 1, own.begin() + step + 1 + kAround);
    times.full.push_back(own[static_cast<size_t>(step)] / at_share(around, 0.5));
  }
  return {};
}

Result<int> measure(int count, char** arguments) {
  if (count < 2) {
    fmt::print(stderr, "usage: decode_steps MODEL [STREAMS [ROUNDS [FORMAT...]]]\n");
    return 2;
  }
  const int64_t streams = count > 2 ? std::atoll(arguments[2]) : 16, rounds = count > 3 ? std::atoll(arguments[3]) : 5;
  std::vector<std::string> formats(arguments + std::min(count, 4), arguments + count);
  if (formats.empty())
    formats = {"f16", "kivi", "kivi:bits=4", "flexgen_kv", "atom_kv", "quarot_kv", "turboquant", "kvquant"};
  MILLRACE_TRY(const auto model, LanguageModel::load(arguments[1], {.threads = 1, .context = kPrompt + kSteps + 64}));
  std::map<std::string, Times> all;
  for (int64_t round = 0; round < rounds; ++round)
    for (const std::string& format : formats) MILLRACE_TRY_VOID(run(model, format, streams, all[format]));
  fmt::print("{:<14} {:>9} {:>16} {:>20}\n", "KV format", "median ms", "full, times", "median, to the first");
  const double first = at_share(all[formats.front()].steps, 0.5);
  for (const std::string& format : formats) {
    const double median = at_share(all[format].steps, 0.5), full = at_share(all[format].full, 0.5);
    fmt::print("{:<14} {:9.3f} {:16.3f} {:20.3f}\n", format, 1e3 * median, full, median / first);
  }
  return 0;
}

}  // namespace
}  // namespace millrace

int main(int count, char** arguments) {
  const auto code = millrace::measure(count, arguments);
  if (code.ok()) return *code;
  fmt::print(stderr, "decode_steps: {}\n", code.error().message);
  return 1;
}
