#include "compress_speed.h"

#include <algorithm>

#include "base/cpu.h"
#include "bench_run.h"

namespace millrace {
namespace {

constexpr int64_t kPromptTokens = 128, kGeneratedTokens = 32;
constexpr int kRounds = 5;

Result<void> add_round(const LanguageModel& model, const SpeedComparison& sizes, SpeedRounds& to) {
  BenchTest test{.threads = sizes.threads};
  const auto run = [&](int64_t prompt, int64_t generate, std::vector<double>& rates) -> Result<void> {
    test.prompt = prompt;
    test.generate = generate;
    MILLRACE_TRY(const auto results, run_bench(model, {&test, 1}, 1, true, [](double) { return true; }));
    rates.push_back(static_cast<double>(test.tokens()) * 1e9 / static_cast<double>(results[0].samples_ns[0]));
    return {};
  };
  MILLRACE_TRY_VOID(run(sizes.prompt, 0, to.prefill));
  return run(0, sizes.generate, to.decode);
}

}  // namespace

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

Result<SpeedComparison> compare_speed(const LanguageModel& before, const LanguageModel& after, int threads,
                                      const std::function<void(double)>& passed) {
  const int64_t context = std::min(before.parts().model->context(), after.parts().model->context());
  SpeedComparison out{.threads = threads > 0 ? threads : available_cores(),
                      .prompt = std::min(kPromptTokens, context),
                      .generate = std::min(kGeneratedTokens, context)};
  for (int round = 0; round < kRounds; ++round) {
    MILLRACE_TRY_VOID(add_round(before, out, out.before));
    MILLRACE_TRY_VOID(add_round(after, out, out.after));
    if (passed) passed(static_cast<double>(round + 1) / kRounds);
  }
  return out;
}

}  // namespace millrace
