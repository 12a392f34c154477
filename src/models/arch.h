// Arch: the declaration of an architecture family, one file each in models/arch/. Tensors are requested by their
// canonical name, which is GGUF's ("blk.3.attn_q.weight"); a member maps it to the Hugging Face name.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "loader/model_files.h"
#include "models/arch_spec.h"
#include "models/config_reader.h"

namespace millrace {

// A rule: canonical name -> Hugging Face name. In both, {l} is the layer and {e} the expert; a leading ^ means that
// Hugging Face stores the matrix transposed (Conv1D).
struct TensorName {
  std::string_view canonical;
  std::string_view huggingface;
};

struct GgufName {
  std::string_view canonical;
  std::string_view stored;
};

// A factor of rows of a matrix. Entries of the same tensor stand one behind the other, for one part of its rows after
// the other.
struct RowFactor {
  std::string_view tensor;  // canonical name; of a layer's tensor, the part behind "blk.N."
  int64_t rows = 0;         // 0: all rows
  double factor = 1.0;
};

struct Arch {
  std::string_view name;                      // GGUF's general.architecture
  std::vector<std::string_view> huggingface;  // class names in config.json's architectures
  std::string_view huggingface_type;          // config.json's model_type; used if no class is named
  // Returns true if a folder of one of these classes belongs to this family. Null: the family takes the folders that no
  // other family claims.
  bool (*claims)(const nlohmann::ordered_json& config) = nullptr;
  std::string_view summary;
  std::string_view paper;
  RopeStyle gguf_rope = RopeStyle::half;  // GGUF stores llama's Q and K rows permuted for interleaved pairs
  HiddenActivation activation = HiddenActivation::silu;  // for files that name no activation
  // true: the family's files have the common fields. Otherwise the function below reads all fields.
  bool common_gguf = true;
  bool common_huggingface = true;
  bool sizes_by_layer = false;  // GGUF files may list KV heads and widths of MLPs by layer
  // Called after the common fields are filled; either may be null.
  void (*read_gguf)(ConfigReader& meta, ArchSpec& spec) = nullptr;
  void (*read_huggingface)(ConfigReader& config, ArchSpec& spec) = nullptr;
  // Fields of the family's files that no reader needs, though their names look as if they changed numbers
  // (models/arch/unread_fields.h).
  std::vector<std::string_view> harmless_fields = {};
  std::vector<TensorName> names = {};  // in addition to, and before, the common ones
  // Canonical name -> the name in the family's GGUF files, where they differ.
  std::vector<GgufName> gguf_names = {};
  // For writing (models/convert/): GGUF's architecture name if that is the name of another member. This member handles
  // the GGUF files whose spec `takes` accepts, and the member of that name handles all others.
  std::string_view gguf_name = {};
  bool (*takes)(const ArchSpec& spec) = nullptr;
  // Tensors of GGUF files have the values and shapes of the folder's, under canonical names.
  bool same_tensors = false;
  // Returns the factors of a folder's config.json that the family's GGUF files have in their matrices, and sets the
  // spec's own to those of such a file. Null: there are none.
  std::vector<RowFactor> (*take_factors)(ConfigReader& config, ArchSpec& spec) = nullptr;
  // Folders hold the experts of a layer as two tensors, of which one has the rows of each gate and up matrix.
  bool stacked_experts = false;
  // false: models/convert/ does not write the family's GGUF files as folders.
  bool gguf_to_folder = true;
  // Fields that the common writers do not cover; keys of `meta` have no prefix. Either may be null.
  void (*write_gguf)(const ArchSpec& spec, nlohmann::ordered_json& meta) = nullptr;
  void (*write_huggingface)(const ArchSpec& spec, nlohmann::ordered_json& config) = nullptr;
};

const Registry<const Arch*>& archs();
const Arch* find_arch(const ModelFiles& files);  // null if unknown

// Reads and checks the whole spec. Errors: unsupported (unknown architecture or feature, named), corrupt (a key).
Result<ArchSpec> read_arch_spec(const ModelFiles& files);
// Reads a file as if it were of the family `arch`: for files of unknown architectures, whose metadata keys must begin
// with the family's name. `unread`: output, fields that may change numbers and that the family does not read.
Result<ArchSpec> read_arch_spec_as(const ModelFiles& files, const Arch& arch, std::vector<std::string>& unread);

// All keys of a GGUF file, or the fields of a config.json that describe the language model.
nlohmann::ordered_json model_fields(const ModelFiles& files);

std::span<const TensorName> common_tensor_names();
// The Hugging Face name of a canonical tensor name, empty if there is none.
std::string huggingface_name(const Arch& arch, std::string_view canonical);
// The canonical name of a tensor of a folder, empty if the family has none; those of multimodal folders, which have
// "language_model." before or behind "model.", too.
std::string canonical_name(const Arch& arch, std::string_view huggingface);
// The name of a canonical tensor name in GGUF files.
std::string gguf_tensor_name(const Arch& arch, std::string_view canonical);

}  // namespace millrace
