// Conversion into folders that store several matrices as one, group by group: the inverse of unpack_grouped_rows().
#pragma once

#include <span>
#include <vector>

#include "loader/grouped_rows.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// Replaces the outputs named after the parts of a layout by one output with their rows in the layout's order, in the
// first part's place and format. Outputs without parts of a layout stay as they are.
void pack_grouped_rows(std::span<const GroupedRows> layouts, std::vector<OutputTensor>& outputs);

}  // namespace millrace
