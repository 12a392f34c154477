// EnginePlan: what an engine's options name, constructed once: its drafter, evictor, formats, places and the others.
// The compatibility facts, the memory plan, the executor and the engine's loop take the plan, so no member's text is
// read twice. A plan is for one engine: EngineCore takes the drafter, the acceptance and the policy out of it.
//
//   EngineOptions -> EnginePlan::create() -> an executor's create() -> EngineCore::create()
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "context/document_context.h"
#include "kv/kv_formats.h"
#include "kv/prefix_evictor.h"
#include "kv/token_evictor.h"
#include "millrace/options.h"
#include "models/forward_switches.h"
#include "run/plan/kv_places.h"
#include "schedule/policy.h"
#include "speculate/acceptance.h"
#include "speculate/drafter.h"

namespace millrace {

class LanguageModel;

struct EnginePlan {
  // Reads the options for an engine whose kernels are `kernels`. Errors: user (an unknown member, an option), corrupt
  // (a member's file). A KV format that the kernels lack is no error here: formats.keys is null then.
  static Result<EnginePlan> create(const EngineOptions& options, const KernelTable& kernels);
  // Variant for an engine of this model, with the options of attention patterns that its file carries.
  static Result<EnginePlan> create(const EngineOptions& options, const LanguageModel& model);

  int64_t longest_draft() const { return drafter ? drafter->longest() : 0; }  // tokens

  EngineOptions options;                             // sizes and switches; the texts of members are kept for messages
  std::unique_ptr<Drafter> drafter;                  // null: none
  std::unique_ptr<Acceptance> acceptance;            // never null
  std::unique_ptr<SchedulerPolicy> policy;           // never null
  std::shared_ptr<const EvictionRule> evictor;       // for requests that name none; null: they keep all keys
  std::shared_ptr<const DocumentContext> documents;  // for requests that name none; null: as any other token
  KvFormats formats;
  KvPoolMode pool = KvPoolMode::paged;
  ForwardSwitches switches;
  std::optional<ChosenTier> tier;                 // for preempted streams; without one they are computed again
  std::optional<KeyStreamOptions> key_stream;     // for running streams; without one all keys are in memory
  std::optional<ChosenStore> store;               // for blocks that the prefix cache evicts
  const PrefixEvictor* prefix_evictor = nullptr;  // null: the name is unknown, an error only with a prefix cache
};

}  // namespace millrace
