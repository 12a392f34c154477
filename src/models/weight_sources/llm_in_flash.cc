// LLM in a flash (Alizadeh et al., 2023): the neurons of the MLPs are read from the disk as tokens use them; all other
// weights stay in memory. Each layer keeps the neurons that the last tokens used (the sliding window), in a matrix that
// is allocated once (models/neurons/neuron_store.h).
//
// Without predictors the gates stay in memory, too, and answers do not change. With predictors only the neurons that
// are expected to be active are read, and answers change.
#include "models/neurons/neuron_source.h"
#include "models/weight_sources/records.h"

namespace millrace {
namespace {

Result<PlacedWeights> flash_source(WeightFile file, WeightPlaces places, const OptionValues& options, int64_t memory) {
  return make_neuron_source(
      "llm_in_flash", std::move(file), std::move(places), options, memory,
      [&](const NeuronFile& neurons, const NeuronPlan& plan) {
        return NeuronStore::Options{
            .window = options.integer("window"),
            .slots = std::min(neurons.shape().hidden, plan.room / plan.slot / neurons.shape().layers)};
      });
}

}  // namespace

const WeightSourceMember kFlashWeights = {
    .from_file = true, .checks_reads = true, .memory = neuron_memory, .make = flash_source};

}  // namespace millrace
