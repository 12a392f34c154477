// Options that several passes have, and the reasons for which those that change inputs leave a matrix alone.
#pragma once

#include <string>
#include <vector>

#include "compress/pass.h"

namespace millrace {

// Format of the option "format"; null if it is empty. Errors: user.
Result<const Format*> stored_format(const OptionValues& options);

// Numbers to which inputs are rounded while the model runs (tensor/weight_parts.h).
struct InputFormat {
  InputSegment number;  // without columns; no bits: inputs are not rounded
  int64_t group = 0;    // columns with one scale a token; 0: all

  bool rounds() const { return number.exponent_bits + number.mantissa_bits > 0; }
  InputSegment segment(int64_t columns) const;
  // One segment for all columns, or none.
  std::vector<InputSegment> rounding(int64_t columns) const;
};

// Reads the options "inputs" (none, int2 to int8, e2m1, e4m3 ...), "input_group" and "clip". Errors: user.
Result<InputFormat> input_format(const OptionValues& options);

// Why a pass that changes a matrix's inputs leaves it alone; empty: it need not.
std::string keeps_its_inputs(const PassMatrix& matrix);

// W T^-1 of all rows, for the matrix's input change.
void store_rows(PassMatrix& matrix, ThreadPool& pool);

}  // namespace millrace
