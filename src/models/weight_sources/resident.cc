// All weights are in memory all the time: passes ask nothing.
#include <fmt/format.h>

#include "base/memory_accounts.h"
#include "models/weight_sources/records.h"

namespace millrace {
namespace {

Result<WeightForecast> predict_resident(const WeightQuestion& question) {
  const OffloadCosts& costs = question.places.costs;
  const OffloadModel& model = question.places.model;
  const OffloadWork& work = question.work;
  WeightForecast out{.kept_bytes = question.places.bytes()};
  if (out.kept_bytes > question.limit)
    return Error::resource(fmt::format("the weights need {}, and may have {}", format_bytes(out.kept_bytes),
                                       format_bytes(question.limit)));
  out.decode_seconds = decode_seconds(costs, model, work.streams, work.mean_context());
  out.prefill_seconds = prefill_seconds(costs, model, work.chunk);
  return out;
}

}  // namespace

const WeightSourceMember kResidentWeights = {.predict = predict_resident};

}  // namespace millrace
