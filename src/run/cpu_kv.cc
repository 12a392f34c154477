#include "run/cpu_kv.h"

#include <utility>

#include "kv/tiers/memory_tier.h"
#include "run/kv_identity.h"

namespace millrace {

Result<std::unique_ptr<KvTier>> CpuKv::make_tier(int64_t tokens) { return make_memory_tier(kv(), tokens); }

Result<std::unique_ptr<KvTier>> CpuKv::make_swap(const ChosenTier& chosen) {
  return chosen.member.make(kv(), chosen.options);
}

Result<std::unique_ptr<PrefixStore>> CpuKv::make_store(const ChosenStore& chosen) {
  MILLRACE_TRY(std::string identity, kv_identity());
  return chosen.member.make(kv(), std::move(identity), chosen.options);
}

// The probe's pass is no step: hooks must not see it.
Result<std::string> CpuKv::kv_identity() {
  runner_.start();
  const ForwardHooks hooks = std::exchange(runner_.hooks(), ForwardHooks());
  auto identity = millrace::kv_identity(model_, runner_);
  runner_.hooks() = hooks;
  if (!draft_) return identity;
  MILLRACE_TRY(const std::string own, std::move(identity));
  MILLRACE_TRY(const std::string second, draft_->identity());
  return own + second;
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
