#include "run/cpu_kv.h"

#include <utility>

#include "kv/tiers/memory_tier.h"
#include "run/evictor_check.h"
#include "run/kv_identity.h"
#include "run/kv_places.h"

namespace millrace {

Result<std::unique_ptr<KvTier>> CpuKv::make_tier(int64_t tokens) { return make_memory_tier(kv(), tokens); }

Result<std::unique_ptr<KvTier>> CpuKv::make_swap(const EngineOptions& options) {
  MILLRACE_TRY(const auto tier, chosen_tier(options));
  return tier.member.make(kv(), tier.options);
}

Result<std::unique_ptr<PrefixStore>> CpuKv::make_store(const EngineOptions& options) {
  if (kv().by_layer()) return Error::unsupported(kBlocksByLayer);
  if (kv().groups() > 1)
    return Error::unsupported(
        "KV store: keeps blocks of all layers, and with an evictor the layers of this model that see a window have "
        "blocks of their own; omit one of the two");
  MILLRACE_TRY(std::string identity, kv_identity());
  MILLRACE_TRY(const auto store, chosen_store(options));
  if (options.kv_ssd_fetch < 1 && runner_.limits().switches.pattern)
    return Error::unsupported("KV store: not with an attention pattern; fetch all of a prompt's blocks");
  for (const ArchSpec* spec : specs_with_draft(model_, draft_))
    for (const auto& layer : spec->layers)
      if (options.kv_ssd_fetch < 1 && layer.window > 0)
        return Error::unsupported("KV store: this model has layers that see a window; fetch all of a prompt's blocks");
  return store.member.make(kv(), std::move(identity), store.options);
}

// The probe's pass is no step: hooks must not see it.
Result<std::string> CpuKv::kv_identity() {
  if (kv().by_layer()) return Error::unsupported(kBlocksByLayer);
  if (kv().groups() > 1 && kv().evicts())
    return Error::unsupported(
        "KV file: with an evictor, layers with a window have blocks of their own; start the engine without one");
  if (kv().groups() > 1)
    return Error::unsupported(
        "KV file: layers with a window keep only the newest blocks; keep all of them (--keep-window-keys)");
  runner_.start();
  const ForwardHooks hooks = std::exchange(runner_.hooks(), ForwardHooks());
  auto identity = millrace::kv_identity(model_, runner_);
  runner_.hooks() = hooks;
  if (features_ && identity.ok()) return *identity + features_->identity();
  if (!draft_) return identity;
  MILLRACE_TRY(std::string own, std::move(identity));
  MILLRACE_TRY(const std::string second, millrace::kv_identity(draft_->model(), draft_->runner()));
  return own + "draft " + second;
}

bool CpuKv::before_attention(std::function<void(int64_t)> ready) {
  runner_.hooks().remove(keys_ready_);
  keys_ready_.wait = std::move(ready);
  if (keys_ready_.wait) runner_.hooks().add(keys_ready_);
  return true;
}

void CpuKv::move_keys(std::span<const BlockId> blocks, int64_t slot, int64_t count, int64_t positions) {
  runner_.move_keys(blocks, slot, count, positions);
}

void CpuKv::keys_changed(std::span<const BlockId> blocks, int64_t begin, int64_t end) {
  runner_.renew_summaries(blocks, begin, end);
}

void CpuKv::compact_encoded(const KeptSlots& slots) { runner_.compact_encoded(slots); }

}  // namespace millrace
