// Predicts what each source of weights would do with a model in a given memory, and how fast: for `millrace offload
// plan`, and for the choice of LoadOptions::weights "auto". A member predicts its own speed
// (WeightSourceMember::predict).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/memory_accounts.h"
#include "kernels/kernel_table.h"
#include "loader/model_files.h"
#include "models/weight_source.h"

namespace millrace {

struct PlannedSource {
  std::string name;
  std::string weights;  // NAME[:key=value,...], as --use weights takes it
  std::string refusal;  // why it cannot run in this memory; "": it can
  WeightForecast forecast;
  double decode_tokens_per_second = 0;  // tokens of all streams together
  double prefill_tokens_per_second = 0;
  double seconds = 0;  // for the whole work
};

struct OffloadPlan {
  std::vector<PlannedSource> sources;  // in the order of the registry
  int64_t weight_bytes = 0;            // bytes of the packed weights
  int64_t limit = 0;                   // bytes that weights may have, if some are read
  int64_t resident_limit = 0;          // bytes that weights may have, if all are in memory
  OffloadCosts costs;
  std::optional<size_t> best;  // the source that takes the least time; empty: none can run

  // "weights=stream: ...", one line: what was chosen and why. `best` is not empty.
  std::string reason() const;
};

// Everything that a plan needs to know of a model, without packing it.
struct OffloadSubject {
  WeightPlaces places;    // with costs
  int64_t others = 0;     // bytes next to the packed weights (ModelBuilder::Sizes)
  std::string costs_key;  // key of stored costs
};
// Errors: those of loading.
Result<OffloadSubject> offload_subject(const std::shared_ptr<const ModelFiles>& files, const KernelTable& kernels,
                                       int threads);

// `left`: bytes that the model and its engine may have.
OffloadPlan plan_offload(const OffloadSubject& subject, int64_t left, const OffloadWork& work);

// The source for a model in what is left of a budget: resident if all weights fit. The reason is "" then.
struct ChosenWeights {
  std::string weights = "resident";
  std::string reason = {};
};
// `packed_cache`: the file that a source would read; "": there is none, so weights are resident. Errors: those of
// loading.
Result<ChosenWeights> choose_weights(const std::shared_ptr<const ModelFiles>& files, const KernelTable& kernels,
                                     const MemoryAccounts& accounts, const std::string& packed_cache, int threads);

}  // namespace millrace
