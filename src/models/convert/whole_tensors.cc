#include "models/convert/whole_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "formats/format.h"
#include "models/unknown/tensor_kinds.h"

namespace millrace {
namespace {

// A whole stored tensor.
OutputTensor whole_tensor(const ConversionInput& input, const StoredTensor& stored, const std::string& name,
                          FormatChoice& formats) {
  SourceTensor source;
  source.name = name;
  source.rows = stored.tensor.rows();
  source.cols = stored.tensor.cols();
  source.is_vector = stored.tensor.rank <= 1;
  source.files = &input.files;
  source.stored = &stored;
  OutputTensor tensor;
  tensor.name = name;
  tensor.dims.assign(stored.tensor.dims.begin(), stored.tensor.dims.begin() + std::max(1, stored.tensor.rank));
  tensor.format = formats.choose(source, name, source.cols, special_matrix(name));
  tensor.parts.push_back(std::move(source));
  return tensor;
}

}  // namespace

Result<std::vector<OutputTensor>> same_tensors(const ConversionInput& input, FormatChoice& formats,
                                               ConvertReport& report) {
  std::vector<OutputTensor> out;
  for (const StoredTensor& stored : input.files.tensors) {
    const bool integer = stored.type_name.starts_with("I") && !stored.type_name.starts_with("IQ");
    if (!stored.tensor.format && (integer || stored.type_name == "BOOL" || stored.type_name.starts_with("U"))) {
      report.left_out.push_back(stored.name);  // counters and masks
      continue;
    }
    if (!stored.tensor.format || stored.tensor.cols() % stored.tensor.format->block_values != 0) {
      return Error::unsupported(
          fmt::format("{}: tensor {} has type {}", input.files.path, stored.name, stored.type_name));
    }
    out.push_back(whole_tensor(input, stored, stored.name, formats));
  }
  return out;
}

Result<std::vector<OutputTensor>> renamed_tensors(const ConversionInput& input, FormatChoice& formats,
                                                  ConvertReport& report) {
  std::vector<OutputTensor> out;
  for (const StoredTensor& stored : input.files.tensors) {
    const std::string name = canonical_name(*input.arch, stored.name);
    if (name.empty()) {
      if (!is_derived_tensor(stored.name)) report.left_out.push_back(stored.name);
      continue;
    }
    if (!stored.tensor.format || stored.tensor.cols() % stored.tensor.format->block_values != 0)
      return Error::unsupported(
          fmt::format("{}: tensor {} has type {}", input.files.path, stored.name, stored.type_name));
    out.push_back(whole_tensor(input, stored, name, formats));
  }
  return out;
}

}  // namespace millrace
