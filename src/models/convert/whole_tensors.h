// The tensors of an output that are an input's, whole and with its values: under the same names, or under GGUF's.
#pragma once

#include <vector>

#include "models/convert/conversion.h"
#include "models/convert/format_choice.h"

namespace millrace {

// All tensors under their own names, in the formats that `formats` chooses. Integers and masks are left out, which
// `report` tells. Errors: unsupported (a type without a format).
Result<std::vector<OutputTensor>> same_tensors(const ConversionInput& input, FormatChoice& formats,
                                               ConvertReport& report);

// The tensors of a folder under their canonical names (Arch::same_tensors). Those without one are left out, which
// `report` tells. Errors: as same_tensors().
Result<std::vector<OutputTensor>> renamed_tensors(const ConversionInput& input, FormatChoice& formats,
                                                  ConvertReport& report);

}  // namespace millrace
