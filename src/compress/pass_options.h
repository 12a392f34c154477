// Options that several passes share, and the reasons why passes that change inputs skip a matrix.
#pragma once

#include <string>
#include <vector>

#include "compress/pass.h"

namespace millrace {

// Returns the format of the option "format"; null if the option is empty. Errors: user.
Result<const Format*> stored_format(const OptionValues& options);

// The number format to which inputs are rounded while the model runs (tensor/weight_parts.h).
struct InputFormat {
  InputSegment number;  // its columns are not set; no bits: inputs are not rounded
  int64_t group = 0;    // number of columns that share a scale, for each token; 0: all columns

  bool rounds() const { return number.exponent_bits + number.mantissa_bits > 0; }
  InputSegment segment(int64_t columns) const;
  // Returns one segment for all columns, or none if inputs are not rounded.
  std::vector<InputSegment> rounding(int64_t columns) const;
};

// Reads the options "inputs" (none, int2 to int8, e2m1, e4m3 ...), "input_group" and "clip". Errors: user.
Result<InputFormat> input_format(const OptionValues& options);

// Returns the reason why a pass cannot change the matrix's inputs; empty: it can.
std::string keeps_its_inputs(const PassMatrix& matrix);

// Replaces all rows W by W T^-1, for the matrix's input change T.
void store_rows(PassMatrix& matrix, ThreadPool& pool);

}  // namespace millrace
