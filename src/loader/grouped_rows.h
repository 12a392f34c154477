// Matrices that a folder stores with the rows of several matrices between each other, group by group:
//
//   InternLM2's wqkv            [ query heads of KV head 0 | its key head | its value head ][ query heads of KV head 1
//   | ... Qwen3-Next's in_proj_qkvz   [ query head 0 | key head 0 | value heads that read it | their gates ][ query
//   head 1 | ...
//
// Opening a folder separates them (unpack_grouped_rows()), so that architectures, conversion and compression see the
// matrices under names of their own. A conversion that writes such a folder puts their rows back
// (models/convert/grouped_outputs.h). Both read the same description, one function for each architecture in
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

// One stored matrix of every layer. A bias of the same name is laid out alike.
struct GroupedRows {
  struct Part {
    // Name of the matrix, in place of GroupedRows::name. Adjacent parts with one name are one matrix: the first part's
    // rows of all groups, then the next part's. Such a matrix is read only, and not put back.
    std::string name;
    int64_t rows = 0;  // number of its rows in each group
  };
  std::string name;  // end of the tensor's name, without .weight: "attention.wqkv"
  int64_t groups = 0;
  std::vector<Part> parts;  // in the order of a group's rows

  int64_t group_rows() const;
};

// The grouped matrices of folders with this class or model type in config.json; empty: every matrix is stored by
// itself. Errors: corrupt (sizes in config.json that cannot be).
Result<std::vector<GroupedRows>> grouped_rows(std::string_view architecture, const nlohmann::ordered_json& config);

// Replaces the tensors by copies of their parts. Errors: corrupt (another number of rows), unsupported (stored in a way
// whose rows cannot be moved), resource.
Result<void> unpack_grouped_rows(ModelFiles& model, const nlohmann::ordered_json& config);

}  // namespace millrace
