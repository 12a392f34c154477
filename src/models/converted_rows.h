// Packs rows of a matrix in another format than that of the model's file: decodes them with their separate scales, and
// rounds them to nearest. WeightPacker calls it, a few rows at a time, so that no second copy of the matrix exists.
// Thread-safe.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "tensor/weight.h"

namespace millrace {

// Checks that pack_converted_rows() can round `stored` to the format `to`. Errors: unsupported.
Result<void> check_convertible(const Weight& stored, const Format& to);

// Packs rows [begin, end) of `stored` as rows of `weight`, which has another format and is planned (plan_packing()).
// `begin`: a multiple of weight.kernel->row_tile. `packed`: destination of the whole matrix.
void pack_converted_rows(const Weight& stored, const Weight& weight, int64_t begin, int64_t end, uint8_t* packed);

}  // namespace millrace
