// `millrace bench --calibrate`: which way products of a model's shapes are faster on this machine, in tiles or as
// vector products, by the number of tokens.
#pragma once

#include "kernels/shape_table.h"
#include "run/language_model.h"

namespace millrace {

// Measures the shapes whose kernel has two ways, one row each. Both ways are timed in turns, each on another matrix of
// the shape, so that weights are read from memory. Takes about `seconds`. Errors: resource.
Result<ShapeTable> measure_shapes(const LanguageModel& model, ThreadPool& pool, double seconds);

}  // namespace millrace
