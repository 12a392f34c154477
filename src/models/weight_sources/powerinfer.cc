// PowerInfer (Song et al., 2023): the neurons that a text used most often, as many as the memory holds, stay in memory;
// the cold ones are read from the disk when a token uses them, and leave again. Which ones are hot is an integer
// program over the frequencies of the neuron file (models/neurons/neuron_placement.h). If all fit, nothing is read:
// then the source computes the sparse products of an MLP in memory.
//
// The paper's second place is a GPU; here it is the disk.
#include <algorithm>

#include "models/neurons/neuron_placement.h"
#include "models/neurons/neuron_source.h"
#include "models/weight_sources/records.h"

namespace millrace {
namespace {

Result<PlacedWeights> powerinfer_source(WeightFile file, WeightPlaces places, const OptionValues& options,
                                        int64_t memory) {
  return make_neuron_source(
      "powerinfer", std::move(file), std::move(places), options, memory,
      [&](const NeuronFile& neurons, const NeuronPlan& plan) {
        std::vector<std::span<const uint32_t>> active;
        for (int64_t l = 0; l < neurons.shape().layers; ++l) active.push_back(neurons.tables(l).active);
        return NeuronStore::Options{
            .hot =
                place_neurons(active, plan.room / plan.slot, options.integer("group"), options.integer("least")).hot};
      });
}

}  // namespace

const WeightSourceMember kPowerInferWeights = {
    .from_file = true, .checks_reads = true, .memory = neuron_memory, .make = powerinfer_source};

}  // namespace millrace
