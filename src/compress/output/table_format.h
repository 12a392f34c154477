// The number format of a tied embedding table, which is the output head too: `compress --table`. A rounding error in
// the head changes every logit, and a lookup sees the same error again. So the table keeps more bits than the layers'
// matrices, unless the user asks for the passes' own format. Pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "models/convert/conversion.h"

namespace millrace {

// Returns the index of the embedding table in the plan; empty: there is none.
std::optional<size_t> find_table(const ConversionPlan& plan);

// Returns true if the plan has no separate head, so that the embedding table is the head.
bool is_head_tied(const ConversionPlan& plan);

// Reads the value of --table: a format, or null for `same`. Errors: user (an unknown format, or one that GGUF files
// cannot have).
Result<const Format*> read_table_format(const std::string& text);

// Stores the tied embedding table of the plan in `format`, if the plan would store it in fewer bits. A table whose
// input has fewer bits than `format` keeps the format of the input. Returns the plan's former format; null: the plan is
// unchanged.
const Format* raise_table_format(const Format& format, ConversionPlan& plan);

}  // namespace millrace
