#include "loader/gguf_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/ordered_json.h"
#include "formats/format.h"
#include "loader/file_text.h"
#include "loader/gguf.h"
#include "loader/gguf_scales.h"
#include "loader/gguf_tokenizer.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// Appends the tensors of one file (or part) whose image is `image`.
Result<void> append_tensors(ModelFiles& model, const GgufFile& parsed, std::span<const uint8_t> image, size_t file,
                            const std::string& path) {
  for (const GgufTensor& source : parsed.tensors) {
    if (source.bytes == 0) continue;  // without elements: nothing can use it
    StoredTensor stored;
    stored.name = source.name;
    stored.type_name = source.type->name;
    stored.file = file;
    stored.offset = source.offset;
    stored.tensor.format = find_format_gguf(static_cast<int>(source.type->id));
    stored.tensor.rank = source.rank;
    stored.tensor.dims = source.dims;
    stored.tensor.data = image.data() + source.offset;
    stored.tensor.bytes = static_cast<int64_t>(source.bytes);
    if (!model.tensor_index.emplace(stored.name, model.tensors.size()).second) {
      return Error::corrupt(fmt::format("{}: tensor {} at offset {}: another part of the split file also contains it",
                                        path, quoted_name(stored.name), stored.offset));
    }
    model.tensors.push_back(std::move(stored));
  }
  return {};
}

void read_generation(const GgufMetadata& metadata, GenerationDefaults& generation) {
  generation.temperature = metadata.number("general.sampling.temp");
  generation.top_p = metadata.number("general.sampling.top_p");
  generation.min_p = metadata.number("general.sampling.min_p");
  generation.repetition_penalty = metadata.number("general.sampling.penalty_repeat");
  generation.top_k = metadata.integer("general.sampling.top_k");
}

// All non-tensor data of the model; in a split file it is in the first part.
Result<void> take_metadata(ModelFiles& model, GgufMetadata& metadata, const std::string& path) {
  if (!metadata.has("general.architecture")) {
    return Error::corrupt(fmt::format("{}: metadata key 'general.architecture' is missing", path));
  }
  std::optional<std::string> architecture = metadata.text("general.architecture");
  if (!architecture)
    return Error::corrupt(fmt::format("{}: metadata key 'general.architecture': is not a string", path));
  model.architecture = *architecture;
  MILLRACE_TRY(model.tokenizer, read_gguf_tokenizer(metadata, path));
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.values->items()) {
    if (!value.is_string() || !std::string_view(key).starts_with(kTemplate)) continue;
    std::string_view rest = std::string_view(key).substr(kTemplate.size());
    if (rest.empty()) model.chat_template = value.get<std::string>();
    if (rest.size() > 1 && rest[0] == '.') model.named_templates.emplace(rest.substr(1), value.get<std::string>());
  }
  read_generation(metadata, model.generation);
  model.config = std::move(metadata.values);
  return {};
}

// The parts of NAME-00002-of-00003.gguf.
struct SplitName {
  std::string prefix;  // path up to the first number's dash
  uint64_t part = 0;   // counted from 1
  uint64_t parts = 0;

  std::string path(uint64_t wanted) const { return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, wanted, parts); }
};

std::optional<SplitName> parse_split_name(std::string_view path) {
  constexpr std::string_view kShape = "-00000-of-00000.gguf";  // 0 stands for any digit
  if (path.size() <= kShape.size()) return std::nullopt;
  std::string_view tail = path.substr(path.size() - kShape.size());
  for (size_t i = 0; i < kShape.size(); ++i) {
    bool digit = std::isdigit(static_cast<unsigned char>(tail[i])) != 0;
    if (kShape[i] == '0' ? !digit : tail[i] != kShape[i]) return std::nullopt;
  }
  auto number = [&](size_t at) {
    uint64_t value = 0;
    for (char digit : tail.substr(at, 5)) value = value * 10 + static_cast<uint64_t>(digit - '0');
    return value;
  };
  return SplitName{std::string(path.substr(0, path.size() - kShape.size())), number(1), number(10)};
}

// The number of parts according to the file; 1 if it is not split.
Result<uint64_t> split_count(const GgufMetadata& metadata, const std::string& path) {
  if (!metadata.has("split.count")) return uint64_t{1};
  std::optional<uint64_t> count = metadata.unsigned_value("split.count");
  if (!count || *count > 65535) {
    return Error::corrupt(fmt::format("{}: metadata key 'split.count': must be a number from 0 to 65535", path));
  }
  return std::max<uint64_t>(*count, 1);
}

Result<void> check_part(const GgufMetadata& metadata, uint64_t part, uint64_t parts, const std::string& path) {
  MILLRACE_TRY(uint64_t count, split_count(metadata, path));
  if (count != parts) {
    return Error::corrupt(
        fmt::format("{}: metadata key 'split.count' is {}, but the file's name says {}", path, count, parts));
  }
  std::optional<uint64_t> number = metadata.unsigned_value("split.no");
  if (!number || *number != part - 1) {
    return Error::corrupt(
        fmt::format("{}: metadata key 'split.no' must be {} in part {} of {}", path, part - 1, part, parts));
  }
  return {};
}

Result<void> open_parts(ModelFiles& model, const SplitName& name) {
  std::optional<uint64_t> expected;
  uint64_t tensors = 0;  // with those that have no elements
  for (uint64_t part = 1; part <= name.parts; ++part) {
    std::string path = name.path(part);
    MILLRACE_TRY(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
    MILLRACE_TRY(GgufFile parsed, parse_gguf(file->bytes(), path));
    MILLRACE_TRY_VOID(check_part(parsed.metadata, part, name.parts, path));
    MILLRACE_TRY_VOID(append_tensors(model, parsed, file->bytes(), model.files.size(), path));
    model.files.push_back(std::move(file));
    tensors += parsed.tensors.size();
    if (part > 1) continue;
    expected = parsed.metadata.unsigned_value("split.tensors.count");
    MILLRACE_TRY_VOID(take_metadata(model, parsed.metadata, path));
  }
  if (expected && *expected != tensors) {
    return Error::corrupt(
        fmt::format("{}: metadata key 'split.tensors.count' is {}, but the {} parts contain {} tensors", name.path(1),
                    *expected, name.parts, tensors));
  }
  return {};
}

}  // namespace

Result<ModelFiles> open_gguf_image(std::span<const uint8_t> image, const std::string& name) {
  MILLRACE_TRY(GgufFile parsed, parse_gguf(image, name));
  MILLRACE_TRY(uint64_t parts, split_count(parsed.metadata, name));
  if (parts > 1)
    return Error::corrupt(fmt::format("{}: is one of {} parts; an in-memory image must not be split", name, parts));
  ModelFiles model;
  model.path = name;
  MILLRACE_TRY_VOID(append_tensors(model, parsed, image, 0, name));
  MILLRACE_TRY_VOID(attach_gguf_scales(model));
  MILLRACE_TRY_VOID(take_metadata(model, parsed.metadata, name));
  return model;
}

Result<ModelFiles> open_gguf(const std::string& path) {
  MILLRACE_TRY(std::shared_ptr<const MappedFile> file, MappedFile::open(path));
  MILLRACE_TRY(GgufFile parsed, parse_gguf(file->bytes(), path));
  MILLRACE_TRY(uint64_t parts, split_count(parsed.metadata, path));
  ModelFiles model;
  model.path = path;
  if (parts > 1) {
    std::optional<SplitName> name = parse_split_name(path);
    if (!name || name->parts != parts) {
      return Error::corrupt(
          fmt::format("{}: is one of {} parts; name it NAME-00001-of-{:05}.gguf and put the others next to it", path,
                      parts, parts));
    }
    MILLRACE_TRY_VOID(open_parts(model, *name));
    MILLRACE_TRY_VOID(attach_gguf_scales(model));
    return model;
  }
  MILLRACE_TRY_VOID(append_tensors(model, parsed, file->bytes(), 0, path));
  model.files.push_back(std::move(file));
  MILLRACE_TRY_VOID(attach_gguf_scales(model));
  MILLRACE_TRY_VOID(take_metadata(model, parsed.metadata, path));
  return model;
}

}  // namespace millrace
