#include "run/plan/engine_plan.h"

#include <algorithm>

#include "run/language_model.h"
#include "run/plan/stored_pattern.h"

namespace millrace {

Result<EnginePlan> EnginePlan::create(const EngineOptions& options, const KernelTable& kernels) {
  EnginePlan plan;
  plan.options = options;
  MILLRACE_TRY(plan.evictor, make_eviction_rule(options.evictor));
  MILLRACE_TRY(plan.documents, make_document_context(options.document_context));
  MILLRACE_TRY(plan.policy, make_policy(options.policy));
  if (!options.drafter.empty()) {
    MILLRACE_TRY(plan.drafter, make_drafter(options.drafter));
  }
  MILLRACE_TRY(plan.acceptance, make_acceptance(options.acceptance));
  MILLRACE_TRY(plan.formats, find_kv_formats(options.kv_format, kernels));
  MILLRACE_TRY(plan.pool, find_kv_pool_mode(options.kv_pool));
  MILLRACE_TRY(plan.switches, make_forward_switches(options.kernels));
  if (!options.kv_tier.empty()) {
    MILLRACE_TRY(ChosenTier tier, choose_tier(options.kv_tier));
    if (tier.member.stream) {
      MILLRACE_TRY(plan.key_stream, tier.member.stream(tier.options));
    } else {
      plan.tier = std::move(tier);
    }
  }
  if (!options.kv_store.empty()) {
    MILLRACE_TRY(plan.store, choose_store(options.kv_store));
  }
  plan.prefix_evictor = find_prefix_evictor(options.prefix_evict);
  return plan;
}

Result<EnginePlan> EnginePlan::create(const EngineOptions& options, const LanguageModel& model) {
  EngineOptions own = options;
  own.kernels = with_stored_patterns(*model.parts().files, std::move(own.kernels));
  if (const Model& encoder = *model.parts().model; encoder.spec().encoder) {
    // A text runs in one step, and leaves nothing behind that another text could use.
    own.prefix_cache = false;
    if (own.drafter_if_possible) own.drafter.clear();
    own.batch_tokens = std::max(own.batch_tokens, own.context > 0 ? own.context : encoder.context());
  }
  return create(own, model.parts().kernels);
}

}  // namespace millrace
