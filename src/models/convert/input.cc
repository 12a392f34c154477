// Opens the input of a conversion: model files through the loader, llama2.c checkpoints with their tokenizer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/ordered_json.h"
#include "models/convert/conversion.h"
#include "text/tokenizer_files.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A regular non-GGUF file that is named .bin, or has the magic of checkpoint version 1 or 2.
bool looks_like_checkpoint(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  char head[4] = {};
  std::ifstream(path, std::ios::binary).read(head, sizeof(head));
  const std::string_view magic(head, sizeof(head));
  if (magic == "GGUF") return false;
  return path.ends_with(".bin") || magic == "24ka";
}

// tok<vocab>.bin, or tokenizer.bin, or the only tok*.bin next to the checkpoint.
Result<std::string> find_tokenizer(const std::string& checkpoint, int64_t vocab) {
  fs::path folder = fs::path(checkpoint).parent_path();
  if (folder.empty()) folder = ".";
  std::error_code error;
  for (const std::string& name : {fmt::format("tok{}.bin", vocab), std::string("tokenizer.bin")})
    if (fs::is_regular_file(folder / name, error)) return (folder / name).string();
  std::vector<std::string> others;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.starts_with("tok") && name.ends_with(".bin")) others.push_back(entry->path());
  }
  std::ranges::sort(others);
  if (others.size() == 1) return others.front();
  if (others.empty())
    return Error::user(fmt::format(
        "{}: no tokenizer.bin or tok{}.bin next to it; give --tokenizer FILE, or --tokenizer none", checkpoint, vocab));
  return Error::user(fmt::format("{}: several tokenizers next to it; choose with --tokenizer: {}", checkpoint,
                                 fmt::join(others, ", ")));
}

Result<TokenizerSpec> read_tokenizer(const std::string& path, int64_t vocab) {
  MILLRACE_TRY(auto file, MappedFile::open(path));
  const std::string_view bytes(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  // Reads the whole vocabulary, so that another checkpoint's tokenizer is recognized by its size.
  auto spec = sniff_tokenizer_file(bytes) == "sentencepiece" ? read_sentencepiece_model(bytes)
                                                             : read_llama2c_tokenizer(bytes, 0);
  if (!spec.ok()) return Error{spec.error().kind, path + ": " + spec.error().message};
  if (static_cast<int64_t>(spec->tokens.size()) != vocab) {
    return Error::corrupt(fmt::format("{}: has {} tokens, the checkpoint {}; give the matching one with --tokenizer",
                                      path, spec->tokens.size(), vocab));
  }
  return spec;
}

ArchSpec spec_of(const Llama2cCheckpoint& checkpoint, const std::string& path) {
  ArchSpec spec;
  spec.arch = "llama";
  spec.name = fs::path(path).stem();
  spec.vocab = checkpoint.vocab;
  spec.context = checkpoint.context;
  spec.width = checkpoint.dim;
  spec.heads = checkpoint.heads;
  spec.kv_heads = checkpoint.kv_heads;
  spec.head_dim = checkpoint.head_dim();
  spec.hidden = checkpoint.ffn;
  spec.norm_eps = checkpoint.norm_epsilon;
  spec.rope_style = RopeStyle::interleaved;
  RopeSpec rope;
  rope.rotated = spec.head_dim;
  rope.theta = checkpoint.rope_base;
  spec.ropes = {rope};
  spec.layers.assign(static_cast<size_t>(checkpoint.layers), LayerSpec{});
  spec.attention_scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  return spec;
}

}  // namespace

std::vector<std::string> ConversionInput::paths() const {
  std::vector<std::string> out = {files.path};
  for (const auto& file : files.files) out.push_back(file->path());
  return out;
}

Result<ConversionInput> open_conversion_input(const std::string& path, const std::string& tokenizer,
                                              const ModelOpener& open) {
  ConversionInput input;
  if (!looks_like_checkpoint(path)) {
    if (!tokenizer.empty())
      return Error::user("--tokenizer: is only for llama2.c checkpoints; other models include theirs");
    MILLRACE_TRY(input.files, open(path));
    MILLRACE_TRY(input.spec, read_arch_spec(input.files));
    input.arch = find_arch(input.files);
    return input;
  }
  MILLRACE_TRY(input.checkpoint, read_llama2c(path));
  input.files.path = path;
  input.files.architecture = "llama";
  input.spec = spec_of(*input.checkpoint, path);
  input.arch = find_arch(input.files);
  std::string chosen = tokenizer;
  if (chosen == "none") return input;
  if (chosen.empty()) {
    MILLRACE_TRY(chosen, find_tokenizer(path, input.checkpoint->vocab));
  }
  MILLRACE_TRY(input.files.tokenizer, read_tokenizer(chosen, input.checkpoint->vocab));
  return input;
}

}  // namespace millrace
