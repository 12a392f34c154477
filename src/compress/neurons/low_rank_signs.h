// The reduced-rank ridge regression of neuron_fit.h.
#pragma once

#include "compress/neurons/neuron_samples.h"
#include "models/neurons/neuron_file.h"

namespace millrace {

// Sets profile.a and profile.b from the first `tokens` samples. Deterministic for any number of threads. Errors:
// resource, internal (the moments are not positive definite).
Result<void> fit_low_rank_signs(const LayerSamples& samples, int64_t tokens, int64_t width, int64_t hidden,
                                int64_t rank, double damping, const KernelTable& table, ThreadPool& pool,
                                NeuronProfile& profile);

}  // namespace millrace
