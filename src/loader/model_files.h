// ModelFiles: an opened model of any file kind. Tensors have the names of their file kind (GGUF or Hugging Face), which
// architectures (models/arch/) translate. Their data are views of mapped files.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "tensor/mapped_file.h"
#include "tensor/tensor.h"
#include "tensor/weight.h"
#include "text/tokenizer.h"

namespace millrace {

struct StoredTensor {
  std::string name;
  Tensor tensor;          // tensor.format is null when the stored type has no Format; see type_name
  std::string type_name;  // name of the stored type in the file: "Q4_K", "BF16", "I64"
  size_t file = 0;        // index into ModelFiles::files
  uint64_t offset = 0;    // in that file, for messages; safetensors data may be unaligned
  BlockScales scales;     // for FP8 checkpoints (weight_scale, weight_scale_inv), decoded
};

// Sampling defaults from generation_config.json, or from general.sampling.* of GGUF.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k;
};

struct ModelFiles {
  enum class Kind { gguf, huggingface };

  Kind kind = Kind::gguf;
  std::string path;  // as given by the user
  std::string
      architecture;  // gguf: general.architecture ("llama"); Hugging Face: architectures[0] ("LlamaForCausalLM")
  // gguf: every metadata key except the tokenizer's large arrays, flat ("llama.block_count": 16); Hugging Face:
  // config.json.
  std::shared_ptr<const nlohmann::ordered_json> config;
  std::vector<StoredTensor> tensors;                             // in file order
  std::unordered_map<std::string, size_t> tensor_index;          // name -> index into tensors
  std::optional<TokenizerSpec> tokenizer;                        // empty: not in the files
  std::string chat_template;                                     // empty: none
  std::unordered_map<std::string, std::string> named_templates;  // "tool_use", "rag" ...
  GenerationDefaults generation;
  std::vector<std::shared_ptr<const MappedFile>> files;       // keep the tensors' bytes alive
  std::vector<std::shared_ptr<const AlignedBuffer>> buffers;  // memory of tensors that were unpacked at load

  const StoredTensor* find(std::string_view name) const;  // null if absent
  // Releases the pages of mapped files in [begin, end) from this process's memory; they can still be read.
  void release(const uint8_t* begin, const uint8_t* end) const;
};

// Opens a GGUF file or any part of a split one, a Hugging Face folder, or a .safetensors file with its folder. Checks
// counts, types, names, ranges against the file's size, and overlaps. Errors: corrupt (the message has file, tensor or
// key, offset and reason), unsupported (a type or version, which the message names).
Result<ModelFiles> open_model_files(const std::string& path);

// Opens a GGUF image in memory that outlives the result (the embedded model). `name` is used in messages.
Result<ModelFiles> open_gguf_image(std::span<const uint8_t> image, const std::string& name);

// Checks one tensor for NaN or infinite scales, or values if it has no scales. Reads every byte; called when weights
// are packed, not when files are opened. Errors: corrupt; the message has file, tensor and the block's offset.
Result<void> check_tensor_finite(const ModelFiles& model, const StoredTensor& stored);
Result<void> check_finite(const ModelFiles& model);

}  // namespace millrace
