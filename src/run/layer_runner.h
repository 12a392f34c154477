// LayerRunner: a draft layer (models/draft_heads/draft_layer.h) over the engine's KV blocks. Slot s of its keys and
// values belongs to token s with the feature of token s - 1, so blocks depend on no token behind them. If a run with
// `draws` has drafted a token, or draws behind it, the token's slot holds the feature that the layer predicts. The next
// run finds it there, and the pass of the engine's model overwrites it. A layer without features has no such plane.
#pragma once

#include <optional>

#include "models/draft_heads/draft_layer.h"
#include "run/feature_plane.h"
#include "run/loaded_draft_model.h"
#include "sampling/row.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

class LayerRunner final : public LoadedDraftModel {
 public:
  explicit LayerRunner(std::unique_ptr<DraftLayer> layer) : layer_(std::move(layer)) {}
  ~LayerRunner() override;

  std::vector<KvLayer> layers() const override;
  int64_t memory(const Sizes& sizes, int threads, const KvLayout& layout) const override;
  Result<void> start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) override;
  bool keeps() const override { return layer_->reads_features(); }
  void keep() override;
  Result<std::string> identity() override { return layer_->identity(); }
  int64_t weight_bytes() const override { return layer_->bytes(); }
  void run(std::span<DraftRun> runs) override;

 private:
  // For a layer that joins them: copies the residual streams of the engine's model, [tokens, 3, width].
  struct Taps final : ForwardObserver {
    void residual(int64_t layer, const float* rows, int64_t tokens, int64_t width) override;
    std::array<int64_t, 3> layers = {};
    AlignedBuffer rows;
  };
  struct Draw {
    DraftRun* run = nullptr;
    int64_t row = 0;    // row of logits of its first pick
    int64_t token = 0;  // its first token in the batch
    int64_t first = 0;  // ... of the stream
  };

  ForwardLimits limits(const Sizes& sizes) const;
  void add(DraftRun& run);
  void add_crossing(std::span<const DraftRun> runs);
  void run_layer(std::span<const DraftRun> runs);
  void draw(const Draw& draw, int worker);
  std::span<float> target_logits(int64_t row, int worker);

  std::unique_ptr<DraftLayer> layer_;
  ModelRunner* target_ = nullptr;
  std::optional<ForwardContext> context_;
  FeaturePlane plane_;
  Taps taps_;
  Batch batch_, crossing_;
  AlignedBuffer features_;         // [token, width]: what the pass reads, or what is kept
  AlignedBuffer scratch_;          // scratch of the layer
  AlignedBuffer mapped_;           // [worker, vocab] where the layer has a vocabulary of its own
  std::vector<SamplingRow> rows_;  // [worker]
  std::vector<Draw> drawing_;
};

}  // namespace millrace
