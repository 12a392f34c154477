#include "models/convert/grouped_outputs.h"

#include <algorithm>

namespace millrace {
namespace {

// A bias as one value a row, so that its values can be separated.
SourceTensor by_rows(const OutputTensor& output) {
  SourceTensor source = output.parts.front();
  if (source.is_vector && source.rows == 1) std::swap(source.rows, source.cols);
  return source;
}

SourceTensor rows_of_source(const SourceTensor& source, int64_t begin, int64_t rows) {
  SourceTensor out = source;
  out.first_row += begin;
  out.rows = rows;
  return out;
}

OutputTensor pack_one(const GroupedRows& layout, const std::string& name, const std::vector<OutputTensor>& outputs,
                      const std::vector<size_t>& parts) {
  OutputTensor whole;
  whole.name = name;
  whole.format = outputs[parts.front()].format;
  whole.dims = outputs[parts.front()].dims;
  whole.dims.front() = layout.groups * layout.group_rows();
  for (int64_t group = 0; group < layout.groups; ++group) {
    int64_t before = 0;  // rows of the same matrix that belong to earlier parts
    for (size_t i = 0; i < parts.size(); ++i) {
      const int64_t rows = layout.parts[i].rows;
      before = i > 0 && parts[i] == parts[i - 1] ? before + layout.groups * layout.parts[i - 1].rows : 0;
      whole.parts.push_back(rows_of_source(by_rows(outputs[parts[i]]), before + group * rows, rows));
    }
  }
  return whole;
}

}  // namespace

void pack_grouped_rows(std::span<const GroupedRows> layouts, std::vector<OutputTensor>& outputs) {
  for (const GroupedRows& layout : layouts)
    for (size_t first = 0; first < outputs.size(); ++first)
      for (const char* kind : {".weight", ".bias"}) {
        const std::string end = "." + layout.parts.front().name + kind;
        if (!outputs[first].name.ends_with(end)) continue;
        const std::string prefix = outputs[first].name.substr(0, outputs[first].name.size() - end.size() + 1);
        std::vector<size_t> parts;
        for (const GroupedRows::Part& part : layout.parts) {
          const auto found = std::ranges::find(outputs, prefix + part.name + kind, &OutputTensor::name);
          if (found != outputs.end()) parts.push_back(static_cast<size_t>(found - outputs.begin()));
        }
        if (parts.size() != layout.parts.size()) continue;
        outputs[first] = pack_one(layout, prefix + layout.name + kind, outputs, parts);
        std::ranges::sort(parts, std::greater<>());
        parts.erase(std::ranges::unique(parts).begin(), parts.end());
        for (const size_t part : parts)
          if (part != first) outputs.erase(outputs.begin() + static_cast<ptrdiff_t>(part));
      }
}

}  // namespace millrace
