// The output of a compression: what it would be, its metadata, and the file.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

#include "base/cpu.h"
#include "base/ordered_json.h"
#include "base/version.h"
#include "compress/compressor.h"
#include "compress/output/preview.h"
#include "compress/output/table_format.h"
#include "models/convert/gguf_keys.h"
#include "models/convert/matrix_scales.h"

namespace millrace {
namespace {

std::string joined(const std::vector<std::string>& texts) { return fmt::format("{}", fmt::join(texts, " ")); }

int64_t count_values(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

// Of everything that blocks depend on in the input's files.
std::string hash_of_input(const ModelFiles& files) {
  XXH3_state_t* const state = XXH3_createState();
  XXH3_128bits_reset(state);
  const auto add = [&](const void* data, size_t bytes) { XXH3_128bits_update(state, data, bytes); };
  const std::string config =
      files.config ? files.config->dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) : "";
  add(config.data(), config.size());
  for (const StoredTensor& stored : files.tensors) {
    const std::string head = fmt::format("{} {} {}", stored.name, stored.type_name, fmt::join(stored.tensor.dims, ","));
    add(head.data(), head.size());
    add(stored.tensor.data, static_cast<size_t>(stored.tensor.bytes));
    add(stored.scales.values.data(), stored.scales.values.size() * sizeof(stored.scales.values[0]));
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state);
  XXH3_freeState(state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

Result<void> Compressor::open_state() {
  RunState::Identity identity = {{"version", kVersionText},
                                 {"input", hash_of_input(input_.files)},
                                 {"passes", joined(report_.passes)},
                                 {"keep", joined(report_.keep)},
                                 {"table", options_.table}};
  MILLRACE_TRY(const Isa isa, select_isa());
  identity.emplace_back("instruction set", isa_name(isa));
  if (calibration_) {
    identity.emplace_back("calibration text", calibration_->text_hash());
    identity.emplace_back("context", std::to_string(calibration_->context()));
    identity.emplace_back("windows", std::to_string(calibration_->windows()));
    identity.emplace_back("held-out windows", std::to_string(calibration_->held_out_windows()));
  }
  MILLRACE_TRY(state_, RunState::open(RunState::folder_of(options_.output), identity));
  return {};
}

// Bytes of the tensor with its parts.
Result<int64_t> Compressor::preview_tensor(const TensorWork& work) {
  const OutputTensor& tensor = plan_.tensors[work.tensor];
  int64_t bytes = 0;
  for (const LinearId& id : work.ids()) {
    PassMatrix matrix = MatrixWork::shell(tensor, work, id);
    CompressedMatrix one{.name = matrix.name, .rows = matrix.rows, .cols = matrix.cols};
    for (const NamedPass& pass : passes_) {
      PassPreview row;
      if (keeps_from(*pass.pass, work)) {
        row = preview_left(kept_row(work).why);
      } else {
        MILLRACE_TRY(row, pass.pass->preview(matrix));
      }
      one.estimated |= row.estimate;
      one.passes.emplace_back(pass.text, PassRow{row.action, row.why, {}});
    }
    one.bytes = preview_bytes(matrix);
    one.format = MatrixWork::format_name(matrix);
    bytes += one.bytes;
    report_.matrices.push_back(std::move(one));
  }
  return bytes;
}

// The report of a run that writes nothing.
Result<CompressReport> Compressor::preview() {
  count_input();
  for (const OutputTensor& tensor : plan_.tensors) report_.output_bytes += tensor.bytes();
  if (!passes_.front().pass->structural())
    for (const TensorWork& work : works_) {
      MILLRACE_TRY(const int64_t bytes, preview_tensor(work));
      report_.output_bytes += bytes - plan_.tensors[work.tensor].bytes();
    }
  count_table();
  note_idle_passes();
  if (accounts_) report_.memory = accounts_->list();
  return std::move(report_);
}

// A pass that left every matrix alone did nothing, which its options or the input explain: its most frequent reason.
void Compressor::note_idle_passes() {
  for (size_t pass = 0; pass < passes_.size() && !report_.matrices.empty(); ++pass) {
    std::map<std::string, int64_t> reasons;
    const auto left = [&](const CompressedMatrix& matrix) {
      if (pass >= matrix.passes.size() || matrix.passes[pass].second.action != "left") return false;
      ++reasons[matrix.passes[pass].second.why];
      return true;
    };
    if (!std::ranges::all_of(report_.matrices, left)) continue;
    const auto most = std::ranges::max_element(reasons, {}, [](const auto& reason) { return reason.second; });
    report_.idle.push_back(fmt::format("--pass {}: changed none of {} matrices: {}", passes_[pass].text,
                                       report_.matrices.size(), most->first));
  }
}

// Fills the report's figures of the embedding table.
void Compressor::count_table() {
  const auto at = find_table(plan_);
  if (!at) return;
  const OutputTensor& tensor = plan_.tensors[*at];
  TableCost& table = report_.table;
  table = {.name = tensor.name,
           .format = std::string(tensor.format->name),
           .bytes = tensor.bytes(),
           .tied = is_head_tied(plan_)};
  if (!rounded_table_) return;
  table.rounded_format = rounded_table_->name;
  table.rounded_bytes =
      tensor.bytes() / tensor.format->row_bytes(tensor.dims.back()) * rounded_table_->row_bytes(tensor.dims.back());
}

// What the report says of all tensors.
void Compressor::count_input() {
  for (const OutputTensor& tensor : plan_.tensors) {
    report_.weights += count_values(tensor.dims);
    for (const SourceTensor& part : tensor.parts)
      if (part.stored && !passes_.front().pass->structural())
        report_.input_bytes += part.stored->tensor.format->row_bytes(part.rows * part.cols);
  }
}

Result<CompressReport> Compressor::finish() {
  count_input();
  set_metadata();
  MILLRACE_TRY_VOID(write());
  if (state_) state_->remove();
  std::error_code ignored;
  if (const std::string left = RunState::folder_of(options_.output); !state_ && std::filesystem::exists(left, ignored))
    report_.notes.push_back(
        fmt::format("{} was left by a stopped run and is not used; --resume continues one, and "
                    "otherwise it can be removed",
                    left));
  count_table();
  note_idle_passes();
  report_.memory = accounts_->list();
  return std::move(report_);
}

void Compressor::set_metadata() {
  std::vector<std::string> all;  // those of the input, too
  if (input_.is_gguf())
    if (const auto before = input_.files.config->find("millrace.compress.passes");
        before != input_.files.config->end() && before->is_array())
      for (const auto& one : *before)
        if (one.is_string()) all.push_back(one.get<std::string>());
  all.insert(all.end(), report_.passes.begin(), report_.passes.end());
  plan_.writer.set_strings("millrace.compress.passes", all);
  if (calibration_) {
    plan_.writer.set_string("millrace.compress.calibration_xxh3_128", report_.calibration_hash);
    plan_.writer.set_u64("millrace.compress.calibration_tokens", static_cast<uint64_t>(report_.calibration_tokens));
  }
  if (!report_.keep.empty()) plan_.writer.set_strings("millrace.compress.keep", report_.keep);
}

Result<void> Compressor::write() {
  outputs_.resize(plan_.tensors.size());
  // Not of matrices that a pass has rounded, or stored in parts.
  scale_matrices(plan_.tensors, *threads_, [&](size_t i) { return outputs_[i].size == 0 && !factored_.contains(i); });
  std::map<std::string_view, int64_t> values;  // of matrices, by format
  for (size_t i = 0; i < plan_.tensors.size(); ++i) {
    const OutputTensor& tensor = plan_.tensors[i];
    if (factored_.contains(i)) continue;
    report_.output_bytes += outputs_[i].size == 0 ? tensor.bytes() : outputs_[i].size;
    const Format* format = tensor.format;
    std::vector<int64_t> dims = tensor.dims;
    if (const auto indices = index_bytes_.find(i); indices != index_bytes_.end()) {
      format = &codebook_indices();
      dims.back() = indices->second;
    }
    if (dims.size() > 1) values[format->name] += count_values(tensor.dims);
    plan_.writer.add_tensor(tensor.name, format, std::move(dims), [&, i](uint8_t* to, int64_t) -> Result<void> {
      return outputs_[i].size == 0 ? tensor.produce(to, *threads_) : store_.copy(outputs_[i], to);
    });
  }
  for (const auto& [part, bytes] : parts_)
    if (part.of_factored && part.dims.size() > 1) values[part.format->name] += count_values(part.dims);
  set_file_type(plan_.writer, values);
  for (const StoredPart& one : parts_)
    plan_.writer.add_tensor(one.part.name, one.part.format, one.part.dims,
                            [&](uint8_t* to, int64_t) { return store_.copy(one.bytes, to); });
  return plan_.writer.write(options_.output, [this](int64_t done, int64_t total) {
    show(static_cast<double>(done) / static_cast<double>(std::max<int64_t>(1, total)), "writing");
  });
}

}  // namespace millrace
