// Collects the facts of what takes part in an engine and in a request (facts.h). Members state facts through what they
// are: their interfaces and records have no other code for it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "millrace/request.h"
#include "models/arch_spec.h"
#include "run/compatibility/facts.h"
#include "run/plan/engine_plan.h"

namespace millrace {

// `text`: as the options name the member; "": nothing names it.
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
// The layers of a whole draft model, which share the blocks of the engine's.
void add_draft_windows(std::span<const KvLayer> layers, int64_t context, const std::string& text, Facts& facts);
// States whether heads of these layers do not fill the blocks of values of the engine's formats.
void add_draft_heads(std::span<const KvLayer> layers, const KvFormats& formats, const std::string& text, Facts& facts);

// The members that an engine of this plan is made of. `layers`: those of its model, which add_model() or add_layers()
// has stated.
void add_engine(const EnginePlan& plan, const std::vector<KvLayer>& layers, int64_t context, Facts& facts);
// Resolves the engine's facts with the evictor and the exit gate of requests that name none. Errors: those of
// resolve().
Result<void> resolve_engine(const EnginePlan& plan, Facts facts);
// Passes of a model without an engine. `rule`: null is none. Errors: those of resolve().
Result<void> resolve_pass(const ArchSpec& spec, const KvFormats& formats, const std::string& kv_format,
                          const ForwardSwitches& switches, const EvictionRule* rule, int64_t context);
// An evictor with a list of budgets has one for each layer or KV head of the model. Errors: user.
Result<void> check_budgets(const EvictionRule& rule, const ArchSpec& spec);

// The request itself, without what it names: its evictor and its context are added by add_evictor(), add_parts() and
// add_encoded().
void add_request(const Request& request, Facts& facts);
// Its documents are computed separately by the context `name`, which does not know its own rows in place of tokens yet;
// its plan of the documents; or they are read by the engine's encoder.
void add_apart(const Request& request, const std::string& name, Facts& facts);
void add_parts(const ContextPlan& plan, const std::string& name, Facts& facts);
void add_encoded(const std::string& name, Facts& facts);

}  // namespace millrace
