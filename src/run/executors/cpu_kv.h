// CpuKv: the keys and values of an engine on this machine: its runner's pool, the memory tier and the stores of its
// options. Engine thread only.
#pragma once

#include "models/model_runner.h"
#include "run/drafting/loaded_draft_model.h"
#include "run/executors/kv_home.h"
#include "run/executors/streamed_keys.h"
#include "run/language_model.h"

namespace millrace {

// Passes a layer on before its keys are read.
struct KeysReady final : ForwardObserver {
  std::function<void(int64_t layer)> wait;
  void before_attention(int64_t layer) override { wait(layer); }
};

class CpuKv final : public KvHome {
 public:
  // `draft`: the model of the drafter; null: it has none. `streamed`: null: all keys are in memory. All outlive the
  // object.
  CpuKv(const LanguageModel& model, ModelRunner& runner, LoadedDraftModel* draft, const StreamedKeys* streamed)
      : KvHome(runner.kv()), model_(model), runner_(runner), draft_(draft), streamed_(streamed) {}

  Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) override;
  Result<std::unique_ptr<KvTier>> make_swap(const ChosenTier& chosen) override;
  Result<std::unique_ptr<PrefixStore>> make_store(const ChosenStore& chosen) override;
  Result<std::string> kv_identity() override;
  bool before_attention(std::function<void(int64_t)> ready) override;
  KeyStreamStats key_stream() const override { return streamed_ ? streamed_->stats() : KeyStreamStats(); }
  void move_keys(std::span<const BlockId> blocks, int64_t slot, int64_t count, int64_t positions) override;
  void compact_encoded(const KeptSlots& slots) override;
  void keys_changed(std::span<const BlockId> blocks, int64_t begin, int64_t end) override;

 private:
  const LanguageModel& model_;
  ModelRunner& runner_;
  LoadedDraftModel* draft_;
  const StreamedKeys* streamed_;
  KeysReady keys_ready_;
};

}  // namespace millrace
