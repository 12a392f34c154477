// Neuron files of test models, with predictors whose scores are simple numbers. For tests.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/arch.h"
#include "models/neurons/neuron_file.h"

namespace millrace::testing {

// Writes the neuron file of a GGUF model. `rank` above 0: predictors that read the first `rank` values of x; neuron n
// expects to be active if value n % rank is positive.
inline void write_test_neurons(const std::string& model, const std::string& path, int64_t rank) {
  auto files = open_model_files(model);
  ASSERT_TRUE(files.ok()) << files.error().message;
  auto spec = read_arch_spec(*files);
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  auto shape = neuron_shape(*files, *spec);
  ASSERT_TRUE(shape.ok()) << shape.error().message;
  std::vector<NeuronProfile> layers(static_cast<size_t>(shape->layers));
  for (NeuronProfile& layer : layers) {
    const auto hidden = static_cast<size_t>(shape->hidden), width = static_cast<size_t>(shape->width);
    for (size_t n = 0; n < hidden; ++n) layer.active.push_back(static_cast<uint32_t>(n * 37 % 101));
    layer.thresholds.assign(hidden, 0.0f);
    layer.a.assign(static_cast<size_t>(rank) * width, 0.0f);
    layer.b.assign(static_cast<size_t>(rank) * hidden, 0.0f);
    for (size_t k = 0; k < static_cast<size_t>(rank); ++k) layer.a[k * width + k] = 1.0f;
    for (size_t n = 0; rank > 0 && n < hidden; ++n)
      layer.b[n * static_cast<size_t>(rank) + n % static_cast<size_t>(rank)] = 1.0f;
  }
  const auto written = write_neuron_file(path, *files, *spec, layers, 1000);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

}  // namespace millrace::testing
