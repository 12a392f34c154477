// The report of a compression as JSON and as a table.
#pragma once

#include <optional>
#include <string>

#include "base/ordered_json.h"
#include "compress/compress.h"
#include "compress_speed.h"
#include "evaluate/model_divergence.h"
#include "terminal/text_table.h"

namespace millrace {

// Figures of the compressed model and its input, on the text of --evaluate.
struct CompressEvaluation {
  std::string text;
  ModelDivergence found;
  SpeedComparison speed;
};

nlohmann::ordered_json compress_json(const CompressReport& report, const std::optional<CompressEvaluation>& evaluation);
// `room`: for the table of matrices.
std::string compress_text(const CompressReport& report, const std::optional<CompressEvaluation>& evaluation,
                          const TableRoom& room);
// The columns of that table which a narrow terminal drops, for the help.
std::string compress_drop_order();

}  // namespace millrace
