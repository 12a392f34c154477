// MedusaRunner: Medusa's heads over the hidden state of the token before a stream's last one. A run has one pick for
// each head, in order (DraftRun::picks). Needs no keys and values of its own.
#pragma once

#include "models/draft_heads/medusa_heads.h"
#include "run/feature_plane.h"
#include "run/loaded_draft_model.h"
#include "sampling/row.h"
#include "tensor/aligned_buffer.h"

namespace millrace {

class MedusaRunner final : public LoadedDraftModel {
 public:
  explicit MedusaRunner(std::unique_ptr<MedusaHeads> heads) : heads_(std::move(heads)) {}

  std::vector<KvLayer> layers() const override { return {FeaturePlane::layer(heads_->width())}; }
  int64_t memory(const Sizes& sizes, int threads, const KvLayout& layout) const override;
  Result<void> start(ModelRunner& target, int64_t first_layer, const Sizes& sizes) override;
  bool keeps() const override { return true; }
  void keep() override;
  Result<std::string> identity() override { return heads_->identity(); }
  int64_t weight_bytes() const override { return heads_->bytes(); }
  void run(std::span<DraftRun> runs) override;

 private:
  std::unique_ptr<MedusaHeads> heads_;
  ModelRunner* target_ = nullptr;
  FeaturePlane plane_;
  AlignedBuffer hidden_;           // [stream, width]
  AlignedBuffer logits_;           // [stream, vocab], of one head
  AlignedBuffer scratch_;          // scratch of the heads
  std::vector<SamplingRow> rows_;  // [worker]
};

}  // namespace millrace
