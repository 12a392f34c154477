#include "loader/hf_weights.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "formats/format.h"
#include "loader/file_text.h"
#include "loader/json_check.h"
#include "loader/safetensors.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr size_t kMaxIndexBytes = size_t{256} << 20;
constexpr size_t kMaxIndexKeys = size_t{1} << 20;
constexpr size_t kMaxShards = 65536;

StoredTensor stored_tensor(const SafetensorsTensor& source, const MappedFile& file, size_t file_index) {
  StoredTensor stored;
  stored.name = source.name;
  stored.type_name = source.dtype;
  stored.file = file_index;
  stored.offset = source.offset;
  stored.tensor.rank = std::min(source.rank, 4);
  stored.tensor.dims = source.dims;
  stored.tensor.data = file.bytes().data() + source.offset;
  stored.tensor.bytes = static_cast<int64_t>(source.bytes);
  if (source.rank > 4) {
    stored.type_name += fmt::format(" of {} dimensions", source.rank);
  } else {
    stored.tensor.format = find_format_safetensors(source.dtype);
  }
  return stored;
}

// Appends the tensors of one file; with `wanted`, only those that it maps to this shard.
using WeightMap = std::map<std::string, std::string, std::less<>>;  // tensor -> shard
Result<void> append_file(ModelFiles& model, const fs::path& path, const WeightMap* wanted) {
  MILLRACE_TRY(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  MILLRACE_TRY(std::vector<SafetensorsTensor> tensors, parse_safetensors(file->bytes(), path));
  for (const SafetensorsTensor& tensor : tensors) {
    if (wanted) {
      auto entry = wanted->find(tensor.name);
      if (entry == wanted->end() || entry->second != path.filename()) continue;
    }
    model.tensor_index.emplace(tensor.name, model.tensors.size());
    model.tensors.push_back(stored_tensor(tensor, *file, model.files.size()));
  }
  model.files.push_back(std::move(file));
  return {};
}

Result<WeightMap> read_index(const fs::path& path) {
  MILLRACE_TRY(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  JsonLimits limits{.bytes = kMaxIndexBytes, .depth = 16, .keys = kMaxIndexKeys, .refuse_duplicates = true};
  MILLRACE_TRY_VOID(check_json_object(text, path, limits));
  auto index = parse_json<nlohmann::json>(text);  // sorted keys: fast for many
  auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return Error::corrupt(fmt::format("{}: key 'weight_map' must be an object", path.string()));
  }
  WeightMap wanted;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string()) {
      return Error::corrupt(fmt::format("{}: tensor {}: its shard is not a string", path.string(), quoted_name(name)));
    }
    const auto& shard_name = shard.get_ref<const std::string&>();
    bool plain = !shard_name.empty() && shard_name != "." && shard_name != ".." &&
                 shard_name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
    if (!plain) {
      return Error::corrupt(fmt::format("{}: tensor {}: shard {} is not the name of a file in the same folder",
                                        path.string(), quoted_name(name), quoted_name(shard_name)));
    }
    wanted.emplace(name, shard_name);
  }
  return wanted;
}

Result<void> append_shards(ModelFiles& model, const fs::path& index_path) {
  MILLRACE_TRY(WeightMap wanted, read_index(index_path));
  std::map<std::string, bool> shards;
  for (const auto& [name, shard] : wanted) shards.emplace(shard, true);
  if (shards.size() > kMaxShards) {
    return Error::corrupt(
        fmt::format("{}: names {} shards; at most {} are allowed", index_path.string(), shards.size(), kMaxShards));
  }
  for (const auto& [shard, used] : shards) {
    MILLRACE_TRY_VOID(append_file(model, index_path.parent_path() / shard, &wanted));
  }
  for (const auto& [name, shard] : wanted) {
    if (!model.find(name)) {
      return Error::corrupt(fmt::format("{}: tensor {} is not in its shard {}", index_path.string(), quoted_name(name),
                                        quoted_name(shard)));
    }
  }
  return {};
}

// The only .safetensors file of a folder, whatever its name.
Result<fs::path> find_only_file(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  bool other = false;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const fs::path& path = entry->path();
    if (path.extension() == ".safetensors") found.push_back(path);
    std::string name = path.filename();
    other = other || name.starts_with("pytorch_model") || name.ends_with(".pth") || name.ends_with(".pt");
  }
  if (error) return Error::corrupt(fmt::format("{}: cannot list the folder: {}", folder.string(), error.message()));
  if (found.size() == 1) return found[0];
  if (found.empty() && other) {
    return Error::unsupported(
        fmt::format("{}: PyTorch pickle weights are not supported; convert them to safetensors", folder.string()));
  }
  return Error::corrupt(fmt::format("{}: contains {} .safetensors files and no model.safetensors.index.json",
                                    folder.string(), found.size()));
}

// --- FP8 scales ---

struct BlockSize {
  int64_t rows = 128, cols = 128;
};

Result<BlockSize> weight_block_size(const Json& config) {
  BlockSize size;
  auto quantization = config.find("quantization_config");
  if (quantization == config.end() || !quantization->is_object()) return size;
  auto block = quantization->find("weight_block_size");
  if (block == quantization->end() || block->is_null()) return size;
  bool pair =
      block->is_array() && block->size() == 2 && (*block)[0].is_number_unsigned() && (*block)[1].is_number_unsigned();
  uint64_t rows = pair ? (*block)[0].get<uint64_t>() : 0, cols = pair ? (*block)[1].get<uint64_t>() : 0;
  if (rows < 1 || rows > 65536 || cols < 1 || cols > 65536) {
    return Error::corrupt("config.json: key 'quantization_config.weight_block_size' must be two sizes from 1 to 65536");
  }
  return BlockSize{static_cast<int64_t>(rows), static_cast<int64_t>(cols)};
}

Result<void> attach(const ModelFiles& model, StoredTensor& matrix, const StoredTensor& scale, BlockSize block) {
  int64_t rows = matrix.tensor.rows(), cols = matrix.tensor.cols();
  int64_t have = scale.tensor.values();
  auto blocks = [](int64_t size, int64_t of) { return size / of + (size % of != 0); };
  bool blocked = scale.tensor.rank == 2 && scale.tensor.dims[0] == blocks(rows, block.rows) &&
                 scale.tensor.dims[1] == blocks(cols, block.cols);
  if (blocked) {
    matrix.scales.block_rows = block.rows;
    matrix.scales.block_cols = block.cols;
  } else if (have == 1 || (have == rows && (scale.tensor.rank == 1 || scale.tensor.dims[0] == rows))) {
    matrix.scales.block_rows = have == 1 ? rows : 1;
    matrix.scales.block_cols = cols;
  } else {
    return Error::corrupt(fmt::format(
        "{}: tensor {} at offset {}: its shape fits neither a scale, one a row, nor {} x {} blocks of the {} x {} "
        "matrix",
        model.files[scale.file]->path(), quoted_name(scale.name), scale.offset, block.rows, block.cols, rows, cols));
  }
  MILLRACE_TRY(matrix.scales.values, read_scales(model, scale));
  return {};
}

}  // namespace

Result<std::vector<float>> read_scales(const ModelFiles& model, const StoredTensor& stored) {
  const Format* format = stored.tensor.format;
  bool plain = format && (stored.type_name == "F32" || stored.type_name == "F16" || stored.type_name == "BF16");
  if (!plain) {
    return Error::unsupported(fmt::format("{}: tensor {} at offset {}: scales of type {} are not supported",
                                          model.files[stored.file]->path(), quoted_name(stored.name), stored.offset,
                                          stored.type_name));
  }
  std::vector<float> values(static_cast<size_t>(stored.tensor.values()));
  format->decode(stored.tensor.data, values.data(), stored.tensor.values());
  for (float value : values) {
    if (!std::isfinite(value)) {
      return Error::corrupt(
          fmt::format("{}: tensor {} at offset {}: a scale is not finite (NaN or infinite); the file is damaged",
                      model.files[stored.file]->path(), quoted_name(stored.name), stored.offset));
    }
  }
  return values;
}

void remove_tensors(ModelFiles& model, const std::vector<bool>& absorbed) {
  std::vector<StoredTensor> kept;
  model.tensor_index.clear();
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    if (absorbed[i]) continue;
    model.tensor_index.emplace(model.tensors[i].name, kept.size());
    kept.push_back(std::move(model.tensors[i]));
  }
  model.tensors = std::move(kept);
}

Result<void> attach_fp8_scales(ModelFiles& model, const Json& config) {
  MILLRACE_TRY(BlockSize block, weight_block_size(config));
  std::vector<bool> absorbed(model.tensors.size(), false);
  for (StoredTensor& matrix : model.tensors) {
    if (matrix.type_name != "F8_E4M3" || matrix.tensor.rank != 2 || matrix.tensor.values() == 0) continue;
    for (const char* suffix : {"_scale_inv", "_scale"}) {
      auto found = model.tensor_index.find(matrix.name + suffix);
      if (found == model.tensor_index.end()) continue;
      MILLRACE_TRY_VOID(attach(model, matrix, model.tensors[found->second], block));
      absorbed[found->second] = true;
      break;
    }
    // Of inputs that are rounded to FP8; not to be mistaken for a weight part, which has a value for each column.
    if (!matrix.name.ends_with(".weight")) continue;
    const auto inputs = model.tensor_index.find(matrix.name.substr(0, matrix.name.size() - 6) + "input_scale");
    if (inputs != model.tensor_index.end() && model.tensors[inputs->second].tensor.values() == 1)
      absorbed[inputs->second] = true;
  }
  remove_tensors(model, absorbed);
  return {};
}

Result<void> open_safetensors_weights(ModelFiles& model, const fs::path& path) {
  std::error_code ignored;
  if (path.extension() == ".json") return append_shards(model, path);
  fs::path folder = fs::is_directory(path, ignored) ? path : path.parent_path();
  fs::path single = folder / "model.safetensors";
  fs::path index = folder / "model.safetensors.index.json";
  bool given_file = !fs::is_directory(path, ignored);
  bool shard = given_file && path.filename().string().find("-of-") != std::string::npos;
  if (given_file && !(shard && fs::exists(index, ignored))) return append_file(model, path, nullptr);
  if (!given_file && fs::exists(single, ignored)) return append_file(model, single, nullptr);
  if (fs::exists(index, ignored)) return append_shards(model, index);
  MILLRACE_TRY(fs::path only, find_only_file(folder));
  return append_file(model, only, nullptr);
}

}  // namespace millrace
