#include "compress/output/run_state.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "base/pending_file.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using StateJson = nlohmann::ordered_json;

constexpr std::string_view kBlockMagic = "millrace block 1";
constexpr size_t kChecksumBytes = 16;

Error disk_error(const std::string& path) {
  return Error::resource(fmt::format("{}: cannot write: {}", path, std::strerror(errno)));
}

// JSON has no numbers that are not finite.
StateJson number_json(double value) { return std::isfinite(value) ? StateJson(value) : StateJson(nullptr); }
double number_of(const StateJson& json) { return json.is_null() ? std::nan("") : json.get<double>(); }

StateJson matrix_json(const CompressedMatrix& matrix) {
  StateJson passes = StateJson::array();
  for (const auto& [text, row] : matrix.passes) {
    StateJson figures = StateJson::array();
    for (const auto& [name, value] : row.figures) figures.push_back({name, number_json(value)});
    passes.push_back({text, row.action, row.why, figures});
  }
  StateJson errors = StateJson::array();
  for (double error : {matrix.zeros, matrix.output_error, matrix.rounded_output_error, matrix.held_out_error,
                       matrix.rounded_held_out_error, matrix.weighted_error})
    errors.push_back(number_json(error));
  return {{"name", matrix.name},     {"rows", matrix.rows},   {"cols", matrix.cols},
          {"format", matrix.format}, {"bytes", matrix.bytes}, {"seen", {matrix.calibration_rows, matrix.held_out_rows}},
          {"errors", errors},        {"passes", passes}};
}

CompressedMatrix matrix_of(const StateJson& json) {
  CompressedMatrix out;
  out.name = json.at("name").get<std::string>();
  out.rows = json.at("rows").get<int64_t>();
  out.cols = json.at("cols").get<int64_t>();
  out.format = json.at("format").get<std::string>();
  out.bytes = json.at("bytes").get<int64_t>();
  out.calibration_rows = json.at("seen").at(0).get<int64_t>();
  out.held_out_rows = json.at("seen").at(1).get<int64_t>();
  size_t next = 0;
  for (double* error : {&out.zeros, &out.output_error, &out.rounded_output_error, &out.held_out_error,
                        &out.rounded_held_out_error, &out.weighted_error})
    *error = number_of(json.at("errors").at(next++));
  for (const StateJson& pass : json.at("passes")) {
    PassRow row{pass.at(1).get<std::string>(), pass.at(2).get<std::string>(), {}};
    for (const StateJson& figure : pass.at(3))
      row.figures.emplace_back(figure.at(0).get<std::string>(), number_of(figure.at(1)));
    out.passes.emplace_back(pass.at(0).get<std::string>(), std::move(row));
  }
  return out;
}

std::vector<uint8_t> checksum_of(std::span<const char> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return {canonical.digest, canonical.digest + kChecksumBytes};
}

// What follows the head: bytes one after the other.
class StateBytes {
 public:
  explicit StateBytes(std::span<const char> bytes) : rest_(bytes) {}

  bool take(const StateJson& size, std::vector<uint8_t>& out) {
    const auto bytes = size.get<uint64_t>();
    if (bytes > rest_.size()) return false;
    out.assign(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(bytes));
    rest_ = rest_.subspan(bytes);
    return true;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::span<const char> rest_;
};

std::optional<std::vector<TensorResult>> tensors_of(const StateJson& head, StateBytes bytes) {
  std::vector<TensorResult> out;
  for (const StateJson& json : head) {
    TensorResult one;
    one.tensor = json.at("tensor").get<size_t>();
    one.factored = json.at("factored").get<bool>();
    one.index_bytes = json.at("index_bytes").get<int64_t>();
    if (!bytes.take(json.at("bytes"), one.bytes)) return {};
    for (const StateJson& stored : json.at("parts")) {
      PartTensor part{stored.at("name").get<std::string>(),
                      find_format(stored.at("format").get<std::string>()),
                      stored.at("dims").get<std::vector<int64_t>>(),
                      {},
                      stored.at("of_factored").get<bool>()};
      if (!part.format || !bytes.take(stored.at("bytes"), part.bytes)) return {};
      one.parts.push_back(std::move(part));
    }
    for (const StateJson& matrix : json.at("matrices")) one.matrices.push_back(matrix_of(matrix));
    out.push_back(std::move(one));
  }
  if (!bytes.empty()) return {};
  return out;
}

std::string identity_text(const RunState::Identity& identity) {
  StateJson out;
  for (const auto& [what, value] : identity) out[what] = value;
  return out.dump(2, ' ', false, StateJson::error_handler_t::replace) + "\n";
}

Result<void> write_file(const std::string& path, std::span<const char> bytes) {
  PendingFile file(path);
  if (!file.created() || !file.write(bytes.data(), std::ssize(bytes), 0) || !file.commit()) return disk_error(path);
  return {};
}

std::optional<std::string> read_file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Result<void> check_identity(const std::string& folder, const std::string& text, const RunState::Identity& identity) {
  const StateJson stored = parse_json(text);
  if (!stored.is_object())
    return Error::corrupt(fmt::format("{0}/run.json: is damaged; remove {0} to begin again", folder));
  for (const auto& [what, value] : identity) {
    const auto found = stored.find(what);
    const std::string before = found != stored.end() && found->is_string() ? found->get<std::string>() : "";
    if (before != value)
      return Error::user(fmt::format(
          "--resume: {} was left by a run of another kind: {} was '{}' and is '{}'; run it as before, or remove the "
          "folder to begin again",
          folder, what, before, value));
  }
  return {};
}

}  // namespace

Result<RunState> RunState::open(std::string folder, const Identity& identity) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (fs::exists(status) && !fs::is_directory(status))
    return Error::user(fmt::format("{}: is not a folder, and finished blocks belong there; move it away", folder));
  if (!fs::exists(status) && !fs::create_directory(folder, error))
    return Error::resource(fmt::format("{}: cannot create: {}", folder, error.message()));
  RunState state(folder);
  if (const auto stored = read_file_bytes(folder + "/run.json")) {
    MILLRACE_TRY_VOID(check_identity(folder, *stored, identity));
    return state;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error))
    if (!entry.path().string().ends_with(".partial"))  // of a run that was killed while it wrote
      return Error::user(
          fmt::format("{}: has files but no run.json, so it was not left by a compression; move it away", folder));
  MILLRACE_TRY_VOID(write_file(folder + "/run.json", identity_text(identity)));
  return state;
}

std::string RunState::file_of(int64_t block) const { return fmt::format("{}/block-{}", folder_, block); }

std::optional<std::vector<TensorResult>> RunState::read(int64_t block) const {
  const auto file = read_file_bytes(file_of(block));
  const size_t least = kBlockMagic.size() + sizeof(uint64_t) + kChecksumBytes;
  if (!file || file->size() < least || !file->starts_with(kBlockMagic)) return {};
  const std::span<const char> all(file->data(), file->size() - kChecksumBytes);
  const std::vector<uint8_t> sum = checksum_of(all);
  if (std::memcmp(sum.data(), file->data() + all.size(), kChecksumBytes) != 0) return {};
  uint64_t head_bytes = 0;
  std::memcpy(&head_bytes, file->data() + kBlockMagic.size(), sizeof(head_bytes));
  const std::span<const char> rest = all.subspan(kBlockMagic.size() + sizeof(head_bytes));
  if (head_bytes > rest.size()) return {};
  try {
    const StateJson head = parse_json({rest.data(), head_bytes});
    return tensors_of(head, StateBytes(rest.subspan(head_bytes)));
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

Result<void> RunState::write(int64_t block, const std::vector<TensorResult>& tensors) const {
  StateJson head = StateJson::array();
  for (const TensorResult& one : tensors) {
    StateJson parts = StateJson::array(), matrices = StateJson::array();
    for (const PartTensor& part : one.parts)
      parts.push_back({{"name", part.name},
                       {"format", part.format->name},
                       {"dims", part.dims},
                       {"of_factored", part.of_factored},
                       {"bytes", part.bytes.size()}});
    for (const CompressedMatrix& matrix : one.matrices) matrices.push_back(matrix_json(matrix));
    head.push_back({{"tensor", one.tensor},
                    {"factored", one.factored},
                    {"index_bytes", one.index_bytes},
                    {"bytes", one.bytes.size()},
                    {"parts", std::move(parts)},
                    {"matrices", std::move(matrices)}});
  }
  const std::string text = head.dump(-1, ' ', false, StateJson::error_handler_t::replace);
  const uint64_t head_bytes = text.size();
  std::string file(kBlockMagic);
  file.append(reinterpret_cast<const char*>(&head_bytes), sizeof(head_bytes));
  file += text;
  const auto append = [&](const std::vector<uint8_t>& bytes) {
    file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (const TensorResult& one : tensors) {
    append(one.bytes);
    for (const PartTensor& part : one.parts) append(part.bytes);
  }
  append(checksum_of(file));
  return write_file(file_of(block), file);
}

void RunState::remove() const {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace millrace
