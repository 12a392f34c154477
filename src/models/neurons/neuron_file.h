// The neuron file: a model's dense MLPs by neuron, made by `millrace offload-train` from a GGUF model. A neuron is a
// row of the gate, a row of the up matrix and a column of the down matrix. They are stored together (row-column
// bundling: Alizadeh et al., 2023, "LLM in a flash"), so that one read brings a whole neuron.
//
//   | prelude, one page | tables of layer 0 | tables of layer 1 | ... | bundles of layer 0 | bundles of layer 1 | ... |
//                                                                    at multiples of 4 KiB
//
//   tables   f32 thresholds[hidden] | u32 active[hidden] | u32 gate_hashes[hidden] | u32 hashes[hidden]
//            | f32 scales[hidden / 32][width]                            only if the down matrix is q8_0
//            | f16 a[rank][width] | f16 b[hidden][rank]                  only if rank > 0
//   bundle   gate row, as stored (only of gated MLPs) | up row, as stored | down column: f32, f16, or the levels of
//   q8_0
//            each part padded to 4 bytes
//
// The predictor of a layer computes b (a x) for the MLP's input x (its low rank is the paper's); a neuron is predicted
// to be active if its value is greater than its threshold. `active` counts the tokens of the text for which the neuron
// was active, of `tokens`.
//
// Everything is little-endian and frozen; a change requires a new kNeuronFileVersion. All sizes are bounded by the
// file's size before anything is allocated. The prelude has a hash of itself and of the tables. `gate_hashes` has one
// of each bundle's gate row, `hashes` one of the other parts, so that either can be read alone; they are compared
// whenever a bundle is read.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/format.h"
#include "loader/model_files.h"
#include "models/arch_spec.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

inline constexpr uint32_t kNeuronFileVersion = 1;
inline constexpr int64_t kNeuronPage = 4096;  // reads begin and end at multiples of it
inline constexpr int64_t kMaxPredictorRank = 4096;

struct NeuronShape {
  int64_t layers = 0, width = 0, hidden = 0;
  int64_t rank = 0;  // rank of the predictors; 0: there are none
  bool gated = true;
  const Format* gate = nullptr;  // null: not gated
  const Format* up = nullptr;
  const Format* down = nullptr;  // f32, f16 or q8_0

  bool down_has_scales() const;
  // Bytes and offsets in a bundle.
  int64_t gate_bytes() const;
  int64_t up_at() const;
  int64_t up_bytes() const;
  int64_t down_at() const;
  int64_t bundle_bytes() const;
  int64_t layer_bytes() const;  // bundles of a layer, in whole pages
  int64_t table_bytes() const;  // bytes of a layer's tables
};

uint32_t bundle_hash(const uint8_t* data, int64_t bytes);

// A layer's tables; views.
struct NeuronTables {
  std::span<const float> thresholds;              // [hidden]
  std::span<const uint32_t> active;               // [hidden]
  std::span<const uint32_t> gate_hashes, hashes;  // [hidden]
  std::span<const float> scales;                  // [hidden / 32][width]; empty: the down matrix has no scales
  const uint8_t* a = nullptr;                     // f16 [rank][width]; null: no predictor
  const uint8_t* b = nullptr;                     // f16 [hidden][rank]
};

class NeuronFile {
 public:
  // Reads the tables; bundles stay on the disk. Errors: user (the file cannot be opened), corrupt (damaged, cut off, of
  // another version), resource.
  static Result<NeuronFile> open(const std::string& path);
  NeuronFile(NeuronFile&& other) noexcept;
  NeuronFile& operator=(NeuronFile&&) = delete;
  ~NeuronFile();

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }
  const NeuronShape& shape() const { return shape_; }
  // A hash of the tables, and so of the predictors.
  uint64_t tables_hash() const { return tables_hash_; }
  int64_t tokens() const { return tokens_; }  // tokens of the text that the file was trained with
  int64_t bundle_at(int64_t layer, int64_t neuron) const {
    return bundles_at_ + layer * shape_.layer_bytes() + neuron * shape_.bundle_bytes();
  }
  NeuronTables tables(int64_t layer) const;
  int64_t table_bytes() const { return tables_.bytes(); }
  // Checks that the file was made from this model. Errors: user (another model).
  Result<void> check_model(const ModelFiles& files, const ArchSpec& spec) const;

 private:
  NeuronFile() = default;
  Result<void> read_tables(int64_t bytes);

  std::string path_;
  int fd_ = -1;
  NeuronShape shape_;
  int64_t tokens_ = 0, bundles_at_ = 0;
  uint64_t identity_ = 0, tables_hash_ = 0;
  AlignedBuffer tables_;
};

// The result of training for a layer.
struct NeuronProfile {
  std::vector<uint32_t> active;   // [hidden]
  std::vector<float> thresholds;  // [hidden]
  std::vector<float> a, b;        // [rank][width], [hidden][rank]; empty: no predictor
};

// Checks that a model's MLPs can be computed by neuron, and returns their shape, without predictors. Errors:
// unsupported; each says what to do.
Result<NeuronShape> neuron_shape(const ModelFiles& files, const ArchSpec& spec);

// Writes the file. `layers`: one profile for each of the model's layers; all or none have a predictor. Errors: those of
// neuron_shape(), resource (the disk is full, the folder cannot be written).
Result<void> write_neuron_file(const std::string& path, const ModelFiles& files, const ArchSpec& spec,
                               std::span<const NeuronProfile> layers, int64_t tokens);

}  // namespace millrace
