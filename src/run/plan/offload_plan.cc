#include "run/plan/offload_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/choose.h"
#include "base/memory.h"
#include "models/arch.h"
#include "models/known_costs.h"
#include "models/model_builder.h"

namespace millrace {
namespace {

// The share of what is left next to the weights that weights may fill, if all are in memory: keys and values get the
// remaining part.
constexpr double kResidentShare = 0.9;

PlannedSource plan_source(const Registry<WeightSourceMember>::Entry& entry, const WeightQuestion& asked) {
  PlannedSource out{.name = entry.info.name};
  auto forecast = entry.member.predict(asked);
  if (!forecast.ok()) {
    out.refusal = forecast.error().message;
    return out;
  }
  out.forecast = *std::move(forecast);
  out.weights = out.name + (out.forecast.options.empty() ? "" : ":" + out.forecast.options);
  const OffloadWork& work = asked.work;
  const int64_t block = out.forecast.block > 0 ? std::min(out.forecast.block, work.streams) : work.streams;
  const auto streams = static_cast<double>(block);
  const double blocks = std::ceil(static_cast<double>(work.streams) / streams);
  const double passes = std::ceil(streams * static_cast<double>(work.prompt) / static_cast<double>(work.chunk));
  out.decode_tokens_per_second = streams / out.forecast.decode_seconds;
  out.prefill_tokens_per_second = static_cast<double>(work.chunk) / out.forecast.prefill_seconds;
  out.seconds = blocks * (passes * out.forecast.prefill_seconds +
                          static_cast<double>(work.generated) * out.forecast.decode_seconds);
  return out;
}

}  // namespace

std::string OffloadPlan::reason() const {
  const PlannedSource& chosen = sources[*best];
  const std::string what = chosen.name == "resident"
                               ? fmt::format("all weights ({}) fit", format_bytes(weight_bytes))
                               : fmt::format("the weights need {}, and may have {}", format_bytes(weight_bytes),
                                             format_bytes(resident_limit));
  return fmt::format("weights={}: {}; {} {:.3g} tokens/s", chosen.name, what,
                     costs.measured ? "predicted" : "estimated", chosen.decode_tokens_per_second);
}

Result<OffloadSubject> offload_subject(const std::shared_ptr<const ModelFiles>& files, const KernelTable& kernels,
                                       int threads) {
  MILLRACE_TRY(const ArchSpec spec, read_arch_spec(*files));
  MILLRACE_TRY(ModelBuilder::Sizes sizes, ModelBuilder::measure(files, *find_arch(*files), spec, kernels, threads));
  return OffloadSubject{.places = std::move(sizes.places),
                        .others = sizes.others,
                        .costs_key = costs_key(sizes.packed_bytes, kernels.isa, threads)};
}

OffloadPlan plan_offload(const OffloadSubject& subject, int64_t left, const OffloadWork& work) {
  const int64_t beside = std::max<int64_t>(0, left - subject.others);
  OffloadPlan plan{.weight_bytes = subject.places.bytes(),
                   .limit = ModelBuilder::Sizes{.others = subject.others}.limit(left),
                   .resident_limit = static_cast<int64_t>(kResidentShare * static_cast<double>(beside)),
                   .costs = subject.places.costs};
  for (const auto& entry : weight_sources().entries()) {
    if (!entry.member.predict) continue;
    const auto options = parse_options("", entry.info.options);
    if (!options.ok()) continue;  // a member without defaults cannot be chosen
    const int64_t limit = entry.member.from_file ? plan.limit : plan.resident_limit;
    plan.sources.push_back(plan_source(entry, {subject.places, *options, limit, work}));
  }
  for (size_t i = 0; i < plan.sources.size(); ++i) {
    const PlannedSource& one = plan.sources[i];
    if (one.refusal.empty() && (!plan.best || one.seconds < plan.sources[*plan.best].seconds)) plan.best = i;
  }
  return plan;
}

Result<ChosenWeights> choose_weights(const std::shared_ptr<const ModelFiles>& files, const KernelTable& kernels,
                                     const MemoryAccounts& accounts, const std::string& packed_cache, int threads) {
  // Models that share a budget wait until others have left.
  if (accounts.budget() == 0 || accounts.shares() || packed_cache.empty() || files->files.empty())
    return ChosenWeights{};
  MILLRACE_TRY(OffloadSubject subject, offload_subject(files, kernels, threads));
  const auto fits = [&] {
    const double beside = static_cast<double>(accounts.left() - subject.others);
    return static_cast<double>(subject.places.bytes()) <= kResidentShare * beside;
  };
  if (fits()) return ChosenWeights{};
  subject.places.costs = known_costs(packed_cache, subject.costs_key, files->files.front()->path(), threads);
  OffloadWork work;
  work.cached_bytes = std::max<int64_t>(0, available_memory().bytes - accounts.budget());
  const OffloadPlan plan = plan_offload(subject, accounts.left(), work);
  if (!plan.best) return ChosenWeights{};  // loading says what is missing
  return ChosenWeights{plan.sources[*plan.best].weights, plan.reason()};
}

}  // namespace millrace
