// Collects the facts of what takes part in an engine and in a request (facts.h). Members state facts through what they
// are: their interfaces and records have no other code for it.
#pragma once

#include "attention/pattern.h"
#include "context/document_context.h"
#include "kv/kv_formats.h"
#include "kv/token_evictor.h"
#include "millrace/options.h"
#include "millrace/request.h"
#include "models/arch_spec.h"
#include "models/forward_switches.h"
#include "run/compatibility/facts.h"
#include "speculate/drafter.h"

namespace millrace {

// `text`: as the options name the member.
void add_drafter(const Drafter& drafter, const std::string& text, Facts& facts);
void add_evictor(const EvictionRule& rule, Facts& facts);
// `gate`: null states nothing.
void add_exit(const ExitGate* gate, Facts& facts);
void add_kv_format(const KvFormats& formats, const std::string& text, Facts& facts);
void add_switches(const ForwardSwitches& switches, Facts& facts);
// A model for streams of at most `context` tokens.
void add_model(const ArchSpec& spec, int64_t context, Facts& facts);
// States the facts of what a model's streams keep; also used where no model is known.
void add_layers(std::span<const KvLayer> layers, int64_t context, Facts& facts);
// A draft model, whose layers share the blocks of the engine's.
void add_draft_windows(const ArchSpec& spec, int64_t context, const std::string& text, Facts& facts);

// What an engine of these options is made of. `layers`: of its model, which add_model() or add_layers() has stated.
// Errors: user (a member that cannot be made).
struct EngineMembers {
  const EngineOptions& options;
  const KvFormats& formats;
  const std::vector<KvLayer>& layers;
  int64_t context = 0;
};
Result<void> add_engine(const EngineMembers& members, Facts& facts);
// With the evictor and the exit gate that the options name, of requests that name none. `facts` of the engine. Errors:
// user, and those of resolve().
Result<void> resolve_engine(const EngineOptions& options, Facts facts);
// Passes of a model without an engine. `rule`: null is none. Errors: those of resolve().
Result<void> resolve_pass(const ArchSpec& spec, const KvFormats& formats, const std::string& kv_format,
                          const ForwardSwitches& switches, const EvictionRule* rule, int64_t context);
// An evictor with a list of budgets has one for each layer or KV head of the model. Errors: user.
Result<void> check_budgets(const EvictionRule& rule, const ArchSpec& spec);

// The request itself, without what it names: its evictor and its context are added by add_evictor(), add_parts() and
// add_encoded().
void add_request(const Request& request, Facts& facts);
// Its documents are computed apart by the context `name`, which does not know its own rows in place of tokens yet; its
// plan of the documents; or they are read by the engine's encoder.
void add_apart(const Request& request, const std::string& name, Facts& facts);
void add_parts(const ContextPlan& plan, const std::string& name, Facts& facts);
void add_encoded(const std::string& name, Facts& facts);

}  // namespace millrace
