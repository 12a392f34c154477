#include "models/convert/task_adapters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "models/config_reader.h"

namespace millrace {
namespace {

constexpr std::string_view kOriginal = ".parametrizations.weight.original";
constexpr int64_t kMaxAdapterRank = 4096;

struct TaskAdapters {
  int64_t tasks = 0, index = 0;  // number of tasks, and the place of the chosen one
  int64_t rank = 0;
  double scale = 1;
};

Result<TaskAdapters> find_task(ConfigReader& config, const std::string& task) {
  const std::vector<std::string> names = config.texts_or_empty("lora_adaptations");
  if (names.empty())
    return Error::user(fmt::format("--task {}: {} has no adapters of tasks (lora_adaptations)", task, config.source()));
  const auto found = std::ranges::find(names, task);
  if (found == names.end())
    return Error::user(fmt::format("--task {}: unknown; {} has {}", task, config.source(), fmt::join(names, ", ")));
  TaskAdapters out{.tasks = std::ssize(names), .index = found - names.begin()};
  out.rank = config.count("lora_rank", 1, kMaxAdapterRank);
  out.scale = config.number_or("lora_alpha", 1.0) / static_cast<double>(out.rank);
  MILLRACE_TRY_VOID(config.status());
  return out;
}

// The chosen task's matrix [rows, cols] of a stack of all tasks.
Result<std::vector<float>> matrix_of(const ModelFiles& files, const std::string& name, const TaskAdapters& adapters,
                                     int64_t rows, int64_t cols) {
  const StoredTensor* stored = files.find(name);
  if (!stored) return Error::corrupt(fmt::format("{}: tensor {} is missing", files.path, name));
  const Tensor& tensor = stored->tensor;
  if (!tensor.format || tensor.format->block_values != 1)
    return Error::unsupported(fmt::format("{}: tensor {} has type {}", files.path, name, stored->type_name));
  if (tensor.rank != 3 || tensor.dims[0] != adapters.tasks || tensor.dims[1] != rows || tensor.dims[2] != cols)
    return Error::corrupt(
        fmt::format("{}: tensor {} must have shape [{}, {}, {}]", files.path, name, adapters.tasks, rows, cols));
  MILLRACE_TRY_VOID(check_tensor_finite(files, *stored));
  std::vector<float> values(static_cast<size_t>(rows * cols));
  tensor.format->decode(tensor.data + adapters.index * tensor.format->row_bytes(rows * cols), values.data(),
                        rows * cols);
  return values;
}

// Adds scale times left [rows, rank] times right [rank, cols] to the matrix. Returns false if it has no adapters.
Result<bool> merge(ModelFiles& files, StoredTensor& stored, const TaskAdapters& adapters) {
  Tensor& tensor = stored.tensor;
  const int64_t rows = tensor.rows(), cols = tensor.cols();
  if (!tensor.format || tensor.format->block_values != 1 || tensor.rank != 2)
    return Error::unsupported(fmt::format("{}: tensor {} has type {}", files.path, stored.name, stored.type_name));
  const std::string base = stored.name.substr(0, stored.name.size() - std::string_view("original").size()) + "0.lora_";
  const bool table = stored.name.find("_embeddings.") != std::string::npos;
  if (!files.find(base + "A")) return false;
  MILLRACE_TRY(const auto left, matrix_of(files, base + (table ? "A" : "B"), adapters, rows, adapters.rank));
  MILLRACE_TRY(const auto right, matrix_of(files, base + (table ? "B" : "A"), adapters, adapters.rank, cols));
  MILLRACE_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(rows * cols * 4, "matrices with adapters"));
  auto* out = reinterpret_cast<float*>(buffer.data());
  for (int64_t row = 0; row < rows; ++row, out += cols) {
    tensor.format->decode(tensor.data + row * tensor.format->row_bytes(cols), out, cols);
    for (int64_t col = 0; col < cols; ++col) {
      double sum = 0;
      for (int64_t r = 0; r < adapters.rank; ++r)
        sum += static_cast<double>(left[static_cast<size_t>(row * adapters.rank + r)]) *
               static_cast<double>(right[static_cast<size_t>(r * cols + col)]);
      out[col] = static_cast<float>(static_cast<double>(out[col]) + adapters.scale * sum);
    }
  }
  tensor.format = find_format("f32");
  tensor.data = buffer.data();
  tensor.bytes = rows * cols * 4;
  stored.type_name = "F32";
  files.buffers.push_back(std::make_shared<const AlignedBuffer>(std::move(buffer)));
  return true;
}

}  // namespace

Result<std::string> merge_task_adapters(ModelFiles& files, const std::string& task) {
  if (files.kind != ModelFiles::Kind::huggingface)
    return Error::user(
        fmt::format("--task {}: {} is no folder, and only folders hold adapters of tasks", task, files.path));
  ConfigReader config(*files.config, files.path + "/config.json");
  MILLRACE_TRY(const TaskAdapters adapters, find_task(config, task));
  bool found = false;
  for (StoredTensor& stored : files.tensors) {
    if (!stored.name.ends_with(kOriginal)) continue;
    MILLRACE_TRY(const bool merged, merge(files, stored, adapters));
    found |= merged;
  }
  if (!found)
    return Error::corrupt(fmt::format(
        "{}: --task {}: the weights have no adapters (X.parametrizations.weight.0.lora_A)", files.path, task));
  ConfigReader prefixes = config.object("task_instructions");
  const std::string prefix = prefixes.text_or(task, "");
  MILLRACE_TRY_VOID(prefixes.status());
  return prefix;
}

}  // namespace millrace
