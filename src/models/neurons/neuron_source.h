// NeuronSource: a weight source whose dense MLPs are computed neuron by neuron (neuron_mlp.h), and whose other weights
// stay in memory. llm_in_flash and powerinfer are policies over it: which neurons have memory.
#pragma once

#include <functional>
#include <memory>

#include "models/neurons/neuron_mlp.h"
#include "models/weight_source.h"
#include "models/weight_units/unit_store.h"

namespace millrace {

// The memory of a source.
struct NeuronPlan {
  int64_t kept = 0;  // bytes of weights outside the MLPs' neurons, of tables, predictors and reads
  int64_t room = 0;  // bytes for neurons, in addition to one layer's
  int64_t all = 0;   // bytes of all neurons
  int64_t slot = 0;  // bytes of one
  bool predicts = false;
};

// Opens the file that the option `file` names, and checks the option `predictor`. Errors: user, corrupt, resource.
Result<NeuronFile> open_neuron_file(const OptionValues& options);

// Moves what is not read by neuron to places.others, and divides the limit. Errors: user, resource (too little memory).
Result<NeuronPlan> plan_neurons(const NeuronFile& file, WeightPlaces& places, const OptionValues& options,
                                int64_t limit);

// The record's function `memory`.
Result<int64_t> neuron_memory(const WeightPlaces& places, const OptionValues& options, int64_t limit);

// Creates the source, the member `name`. `choose` gives the store's slots and hot neurons.
using NeuronChoice = std::function<NeuronStore::Options(const NeuronFile& file, const NeuronPlan& plan)>;
Result<PlacedWeights> make_neuron_source(std::string name, WeightFile file, WeightPlaces places,
                                         const OptionValues& options, int64_t memory, const NeuronChoice& choose);

// Options that both sources have.
std::vector<OptionSpec> with_neuron_options(std::vector<OptionSpec> own);

}  // namespace millrace
