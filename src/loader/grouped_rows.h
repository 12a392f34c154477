// Stored matrices that interleave the rows of several matrices, group by group:
//
//   InternLM2's wqkv            [ query heads of KV head 0 | its key head | its value head ]
//                               [ query heads of KV head 1 | ...
//   Qwen3-Next's in_proj_qkvz   [ query head 0 | key head 0 | value heads that read it | their gates ]
//                               [ query head 1 | ...
//
// unpack_grouped_rows() separates the matrices when a folder is opened, so that architectures, conversion and
// compression see each matrix under a separate name. A conversion that writes such a folder interleaves the rows again
// (models/convert/grouped_outputs.h). Both use the same description: GroupedRows, from one function per architecture in
// grouped_rows.cc.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// One interleaved matrix of every layer. A bias of the same name has the same layout.
struct GroupedRows {
  struct Part {
    // Name of the separated matrix; replaces GroupedRows::name. Adjacent parts of equal name form one matrix: the first
    // part's rows of all groups, then the next part's rows.
    std::string name;
    int64_t rows = 0;  // number of the part's rows in each group
  };
  std::string name;  // end of the tensor's name, without .weight: "attention.wqkv"
  int64_t groups = 0;
  std::vector<Part> parts;  // in the order of a group's rows

  int64_t group_rows() const;
};

// Returns the interleaved matrices of folders with this class or model type in config.json; empty: none. Errors:
// corrupt (invalid sizes in config.json).
Result<std::vector<GroupedRows>> grouped_rows(std::string_view architecture, const nlohmann::ordered_json& config);

// Replaces the interleaved tensors by copies of their parts. Errors: corrupt (wrong number of rows), unsupported (a
// format whose rows cannot be moved), resource.
Result<void> unpack_grouped_rows(ModelFiles& model, const nlohmann::ordered_json& config);

}  // namespace millrace
