// NeuronStore: the neurons of a model's dense MLPs in memory that is smaller than all of them. Each layer has a matrix
// of slots, allocated once, one bundle each (neuron_file.h). The first slots hold neurons that always stay (hot ones,
// PowerInfer); behind them are those that the last tokens used (the sliding window of Alizadeh et al., 2023, "LLM in a
// flash"). Neurons that left the window are deleted together: the last neuron of the matrix is moved into each hole, so
// that the rows in use stay together. Neurons without a slot are read into memory that the next layer overwrites.
//
//   slots of a layer   | hot 0 | hot 1 | ... | window | window | window | free | free |
//                                               ^ deleted     | moved here
//
// Missing neurons are read from the file with many reads in flight (kv/tiers/block_io.h), past the page cache where the
// file system allows it. Reads are whole pages of 4 KiB; neighbours whose pages touch are read at once, and the bytes
// of the pages that belong to no wanted neuron are counted as wasted. Where the gate rows are in memory elsewhere, only
// the other parts of a bundle are read. Hashes are compared.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kv/tiers/block_io.h"
#include "models/neurons/neuron_file.h"
#include "models/weight_source.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

class NeuronStore {
 public:
  struct Options {
    std::vector<std::vector<int32_t>> hot;  // by layer, ascending: neurons that stay in memory
    int64_t window = 0;                     // a neuron that the last `window` tokens did not use is deleted
    int64_t slots = 0;                      // slots of each layer, in addition to those of hot neurons
    int64_t depth = 16;                     // reads in flight
    bool gates = true;                      // false: the bundles are stored without their gate rows
    // Creates the object that reads the file; null: make_block_io(). Tests let reads fail here.
    std::function<std::unique_ptr<BlockIo>(int fd, int64_t depth)> io = nullptr;
  };

  // Bytes of a slot; bytes in addition to slots, for the neurons of one layer that have none, and for reads.
  static int64_t slot_bytes(const NeuronShape& shape, bool gates);
  static int64_t fixed_bytes(const NeuronShape& shape, bool gates, int64_t depth);

  // Reads the hot neurons. `file` must outlive the store. Errors: resource, storage, internal (a read failed, or a hash
  // differs).
  static Result<std::unique_ptr<NeuronStore>> create(const NeuronFile& file, Options options);
  ~NeuronStore();
  NeuronStore(const NeuronStore&) = delete;

  // The offset in a bundle of the first byte that is stored.
  int64_t skipped() const { return skipped_; }
  // Brings neurons of a layer, ascending, into memory. Sets `at` to their bundles, from byte skipped() on, which stay
  // until the next call.
  // `tokens`: tokens of the pass that use them. Errors: internal (a read failed, or a hash differs); a later call may
  // succeed.
  Result<void> acquire(int64_t layer, std::span<const int32_t> neurons, int64_t tokens,
                       std::vector<const uint8_t*>& at);
  const WeightFigures& figures() const { return figures_; }
  // Neurons of a layer that have a slot, for tests.
  int64_t held(int64_t layer) const { return layers_[static_cast<size_t>(layer)].used; }

 private:
  struct Layer {
    AlignedBuffer slots;
    std::vector<int32_t> slot_of;    // by neuron; -1: none
    std::vector<int32_t> neuron_of;  // by slot
    std::vector<int64_t> last_used;  // by neuron: the number of tokens that the layer had run
    int64_t hot = 0, used = 0, capacity = 0;
    int64_t tokens = 0;
  };
  // Neurons that one read brings: wanted_[begin] to wanted_[end - 1].
  struct Run {
    size_t begin = 0, end = 0;
    int64_t at = 0, bytes = 0;  // in the file: whole pages
  };
  struct Wanted {
    int32_t neuron = 0;
    uint8_t* to = nullptr;
  };

  explicit NeuronStore(const NeuronFile& file) : file_(file), shape_(file.shape()) {}
  Result<void> open(Options options);
  Result<void> make_layer(int64_t layer, std::span<const int32_t> hot, int64_t slots);
  void delete_unused(Layer& layer) const;
  uint8_t* slot(Layer& layer, int64_t index) const;
  void want(int64_t layer, std::span<const int32_t> neurons);
  void forget(Layer& layer);
  void cut_runs(int64_t layer);
  Result<void> read_wanted(int64_t layer);
  std::optional<Error> take_run(int64_t layer, const Run& run, const uint8_t* data);
  Error read_error(int64_t layer, const Run& run) const;

  const NeuronFile& file_;
  const NeuronShape shape_;
  int64_t window_ = 0, skipped_ = 0, stored_ = 0, slot_bytes_ = 0;  // bytes of a bundle: left out, stored, of a slot
  int fd_ = -1;
  std::unique_ptr<BlockIo> io_;
  AlignedBuffer pages_;  // pages of the reads in flight
  AlignedBuffer spill_;  // neurons of the present layer that have no slot
  std::vector<Layer> layers_;
  std::vector<Wanted> wanted_;
  std::vector<Run> runs_;
  WeightFigures figures_;
};

}  // namespace millrace
