// StreamedKeys: the keys and values of running streams that have no memory of their own. A pass calls it as its
// KeyStager: it reads a layer's blocks from a LayerFile into the memory of the layer's turn, and writes the blocks that
// have new tokens. While a layer computes, the blocks of the next one are read; behind the last layer, those of the
// first one, for the next step.
//
//   layer        0            1            2
//   pass         | compute 0  | compute 1  | compute 2
//   turn 0       | keys of 0  |  write 0, read 2 ->    keys of 2
//   turn 1       |  read 1 ->   keys of 1  |  write 1, read 3 ->
//
// Attention reads the same addresses in the same order as if all keys were in memory, so answers are the same, bit for
// bit. With an attention pattern, a layer reads only the blocks that its queries choose, when they have chosen.
//
// Engine thread only.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "attention/pattern.h"
#include "kv/tiers/layer_file.h"
#include "kv/tiers/places.h"
#include "millrace/engine.h"
#include "models/forward_hooks.h"
#include "models/key_stager.h"
#include "run/executors/step_input.h"

namespace millrace {

class StreamedKeys final : public KeyStager {
 public:
  // For the passes of an engine with this pattern, null for none, and context over `pool`. `pool` and `pattern` outlive
  // the object. Errors: user, resource.
  static Result<std::unique_ptr<StreamedKeys>> create(KvPool& pool, const KeyStreamOptions& options,
                                                      const AttentionPattern* pattern, int64_t context);

  void before_keys(const Batch& batch, int64_t layer) override;
  void before_attention(const AttentionInput& input) override;
  // Behind the step's pass: names the chunks of streams whose keys could not be read.
  void end_pass(const StepInput& input, StepOutput& output);

  KeyStreamStats stats() const;

 private:
  // The blocks of a turn's layer that are in its memory, or are being read into it.
  struct Turn {
    int64_t layer = -1;
    std::vector<BlockId> blocks = {};  // ascending
    LayerFile::Transfer transfer = 0;  // the last read or write
  };
  using Blocks = std::vector<BlockId>;

  StreamedKeys(KvPool& pool, std::unique_ptr<LayerFile> file, const KeyStreamOptions& options,
               const AttentionPattern* pattern, int64_t context);
  Turn& turn_of(int64_t layer) { return turns_[static_cast<size_t>(pool_.staged().turn(layer))]; }
  void begin_pass(const Batch& batch);
  // Adds the blocks of a span's slots [begin, end) that are not resident.
  void add_blocks(const Batch& batch, const BatchSpan& span, int64_t begin, int64_t end, Blocks& blocks) const;
  // Reads the blocks of a layer that are not in its memory yet.
  void bring(int64_t layer, const Blocks& blocks, bool ahead);
  void wait(int64_t layer);
  void save(int64_t layer);
  int64_t next_layer(int64_t layer) const;  // the staged layer behind it; behind the last one, the first one
  // The blocks that the queries of a layer see, with its pattern.
  const Blocks& choose(const AttentionInput& input, const AttentionPattern& pattern);
  void choose_for(const AttentionInput& input, const AttentionPattern& pattern, const BatchSpan& span, int64_t token);
  void name_unread(const StepInput& input, StepOutput& output) const;
  void forget();  // the memory of the turns then holds no layer

  KvPool& pool_;
  std::unique_ptr<LayerFile> file_;
  const bool reads_ahead_;
  const AttentionPattern* const pattern_;
  const int64_t context_;
  std::array<Turn, StagedLayers::kTurns> turns_;

  // The present pass.
  bool in_pass_ = false;
  Blocks needed_, own_, written_;  // with earlier tokens; those of needed_ that new tokens lie next to; with new tokens
  int64_t resident_ = 0;           // resident blocks with earlier tokens
  std::vector<uint8_t> saved_;     // by layer; 1: its new keys are in the file
  Blocks chosen_, missing_, failed_;
  std::vector<float> features_, scores_, work_;

  KeyStreamStats stats_;
};

}  // namespace millrace
