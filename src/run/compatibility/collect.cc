#include "run/compatibility/collect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "attention/dynamic_pattern.h"
#include "attention/pattern_layers.h"
#include "models/mixers/mixer.h"
#include "run/compatibility/rules.h"
#include "run/documents/own_stream.h"
#include "run/drafting/models/loader.h"
#include "run/plan/window_blocks.h"

namespace millrace {
namespace {

using namespace facts;

std::string member_name(std::string_view text) { return std::string(text.substr(0, text.find(':'))); }

bool sees_window(int64_t window, int64_t context) { return window > 0 && window < context; }

// The blocks that an engine has for its layers, and what they do without.
void add_tables(const EnginePlan& plan, const std::vector<KvLayer>& layers, int64_t context, Facts& facts) {
  const EvictionRule* rule = plan.evictor.get();
  const int64_t drafts = plan.longest_draft();
  const std::string engine = "this engine", evictor = rule ? fmt::format("evictor {}", rule->text) : "";
  const bool by_layer = rule && rule->by_layer(), by_head = rule && rule->by_head();
  const int64_t heads = layers.empty() ? 0 : layers.front().kv_heads;
  facts.add_if(by_layer, kLayerTables, evictor);
  facts.add_if(!by_layer, kSharedTables, engine);
  facts.add_if(!by_layer || (!by_head && heads > 1), kSharedHeads, engine);
  facts.add_if(by_head && heads > 1, kHeadTables, engine);
  facts.add_if(!rule && facts.has(kWindows), kWindowsTogether, engine);
  const EngineOptions& options = plan.options;
  KvLayout layout = plan.formats.layout(options.block_tokens, layers, drafts);
  const int64_t step = std::max(options.batch_tokens, options.max_streams) + drafts;
  if (!by_layer) split_window_blocks(layout, plan, context, step);
  facts.add_if(rule && !layout.windows.empty(), kEvictedWindows, evictor);
  facts.add_if(!rule && !layout.windows.empty(), kWindowTables, engine);
  const bool gives_back = layout.window > 0 || !layout.windows.empty();
  facts.add_if(!rule && gives_back, kDroppedWindows, engine);
  facts.add_if(!gives_back, kNoWindowTables, engine);
  if (plan.pool != KvPoolMode::virtual_ranges) return;
  facts.add(kVirtualPool, "KV pool virtual");
  const AttentionPattern* pattern = plan.switches.attention.pattern;
  KvLayout pages = plan.formats.layout(options.block_tokens, layers, drafts);
  const bool whole =
      pattern && add_pattern_layers(pages, pattern, context).ok() && pages.use_whole_pages(sysconf(_SC_PAGESIZE)).ok();
  facts.add_if(whole && pattern->block() % pages.block_tokens != 0, kWidePages, "KV pool virtual");
}

void add_places(const EnginePlan& plan, Facts& facts) {
  if (plan.tier) facts.add(kTier, plan.tier->label);
  facts.add_if(plan.key_stream.has_value(), kStreamsKeys, "KV tier disk");
  if (!plan.store) return;
  facts.add(kStore, plan.store->label);
  facts.add_if(plan.store->label != kSsdStoreLabel, kStoreElsewhere, plan.store->label);
  facts.add_if(fetched_fraction(*plan.store) < 1, kFetchesPart, plan.store->label + " that fetches a part");
}

// Which blocks are important is observed where prompts share blocks.
void add_importance(const EnginePlan& plan, Facts& facts) {
  const auto raw = [](const auto& codec) { return codec && codec->residual() > 0; };
  if (!plan.options.prefix_cache || raw(plan.formats.codec) || raw(plan.formats.window_codec)) return;
  facts.add_if(plan.prefix_evictor && (plan.prefix_evictor->needs & kNeedsAttentionMass), kBlockImportance,
               "prefix evictor " + plan.options.prefix_evict);
  if (plan.store && by_importance(*plan.store))
    facts.add(kBlockImportance, plan.store->label + " in order of importance");
}

// The engine's context, and whether documents beside a codec have rows.
void add_engine_context(const EnginePlan& plan, Facts& facts) {
  const DocumentContext* context = plan.documents.get();
  const std::string name = "context " + member_name(plan.options.document_context);
  facts.add_if(context, kContext, name);
  facts.add_if(context && context->encoder(), kEncoder, name);
  if (!plan.formats.encodes()) return;
  const std::string codec = "KV format " + plan.options.kv_format;
  facts.add_if(facts.has(kPatternRows), kEncodesBesideRows, codec);
  facts.add_if(!context || context->encoder(), kNoDocumentRows, codec);
}

}  // namespace

void add_drafter(const Drafter& drafter, const std::string& text, Facts& facts) {
  const std::string who = text.empty() ? "this drafter" : "drafter " + member_name(text);
  const DraftModelLoader* model = draft_model_loader(&drafter);
  facts.add(kDrafts, who);
  facts.add_if(drafter.trees(), kDraftsTrees, who);
  if (!model) return;
  facts.add_if(model->second, kDraftModel, who);
  facts.add_if(model->hidden_states, kReadsHiddenStates, who);
  facts.add_if(!model->second, kSkipsLayers, who);
  facts.add_if(model->hidden_rows, kHiddenRows, who);
  facts.add_if(model->layers, kDrafterLayers, who);
}

void add_draft_windows(std::span<const KvLayer> layers, int64_t context, const std::string& text, Facts& facts) {
  const bool windows =
      std::ranges::any_of(layers, [&](const KvLayer& layer) { return sees_window(layer.window, context); });
  facts.add_if(windows, kDraftWindows, "drafter " + member_name(text));
}

void add_draft_heads(std::span<const KvLayer> layers, const KvFormats& formats, const std::string& text, Facts& facts) {
  if (formats.codec || !formats.keys) return;
  const Format& values = formats.values ? *formats.values : *formats.keys;
  const bool partial = std::ranges::any_of(layers, [&](const KvLayer& layer) {
    return layer.head_dim % formats.keys->block_values != 0 || layer.head_dim % values.block_values != 0;
  });
  facts.add_if(partial, kDraftHeads, "drafter " + member_name(text));
}

void add_evictor(const EvictionRule& rule, Facts& facts) {
  const std::string who = "evictor " + rule.text;
  facts.add(kEvicts, who);
  facts.add_if(rule.moves_keys(), kMovesKeys, who);
  facts.add_if(rule.evictor->gated(), kHidesKeys, who);
  facts.add_if(rule.evictor->gate() == TokenGate::pairs, kPairGates, who);
  facts.add_if(rule.evictor->gate() == TokenGate::selection, kSelectionGates, who);
  facts.add_if(rule.evictor->needs_sums(), kObservesMass, who);
  facts.add_if(rule.by_layer() && !rule.by_head(), kLayerBudgets, who);
  facts.add_if(rule.by_head(), kHeadBudgets, who);
}

void add_exit(const ExitGate* gate, Facts& facts) {
  if (gate) facts.add(kExits, "exit " + gate->text());
}

void add_kv_format(const KvFormats& formats, const std::string& text, Facts& facts) {
  const std::string who = "KV format " + text;
  const KvCodec* codec = formats.codec.get();
  facts.add_if(formats.encodes(), kEncodes, who);
  facts.add_if(codec, kEncodesMost, who);
  const bool blocks =
      formats.keys && (formats.keys->block_values > 1 || (formats.values && formats.values->block_values > 1));
  facts.add_if(!codec && blocks, kRowBlocks, who);
  facts.add_if(codec && (codec->before_rope() || codec->sink_tokens() > 0), kEncodesUnrotated, who);
  facts.add_if(codec && codec->residual() > 0, kRawTail, who);
  facts.add_if(!codec && formats.residual_below > 0, kResiduals, who);
  facts.add_if(!codec && formats.values && formats.values != formats.keys, kTwoFormats, who);
  facts.add_if(formats.window_keys, kWindowFormats, who);
}

void add_switches(const ForwardSwitches& switches, Facts& facts) {
  facts.add_if(switches.attention.unify, kUnifiedMax, "kernel unified_max");
  facts.add_if(switches.npu != nullptr, kInt8Copies, "kernel npu");
  facts.add_if(switches.workers != nullptr, kWorkers, "kernel fastdecode");
  facts.add_if(switches.workers && switches.workers->batches > 1, kTwoBatches, "kernel fastdecode:batches=2");
  const AttentionPattern* pattern = switches.attention.pattern;
  if (!pattern) return;
  const std::string who = "attention " + pattern->text();
  const DynamicPattern* dynamic = dynamic_pattern(pattern);
  const bool rows = pattern_layer_sets(pattern) > 0;
  facts.add(kPattern, who);
  facts.add_if(rows, kPatternRows, who);
  facts.add_if(rows && (!dynamic || pattern->phase() != PatternPhase::decode), kPromptRows, who);
  facts.add_if(dynamic && dynamic->line_blocks() > 0, kFindsLines, who);
  facts.add_if(dynamic && dynamic->sums().kept > 0, kSumsAttention, who);
  facts.add_if(rows && diffusing_pattern(pattern), kHops, who);
}

void add_layers(std::span<const KvLayer> layers, int64_t context, Facts& facts) {
  const std::string who = "this model";
  const auto any = [&](const auto& holds) { return std::ranges::any_of(layers, holds); };
  const auto windowed = [&](const KvLayer& layer) { return sees_window(layer.window, context); };
  facts.add_if(any([](const KvLayer& layer) { return layer.state_values > 0; }), kRecurrent, who);
  facts.add_if(any([](const KvLayer& layer) { return layer.values_in_keys; }), kLatent, who);
  facts.add_if(any(windowed), kWindows, who);
  facts.add_if(!layers.empty() && std::ranges::all_of(layers, windowed), kOnlyWindows, who);
  const auto unequal = [&](const KvLayer& layer) {
    return layer.kv_heads != layers.front().kv_heads || layer.head_dim != layers.front().head_dim ||
           layer.values_in_keys != layers.front().values_in_keys;
  };
  facts.add_if(any(unequal), kUnequalHeads, who);
}

void add_model(const ArchSpec& spec, int64_t context, Facts& facts) {
  const std::string who = "this model";
  add_layers(layer_states(spec), context, facts);
  facts.add_if(spec.learned_positions, kLearnedPositions, who);
  facts.add_if(spec.attention_sinks, kSinks, who);
  facts.add_if(shares_keys(spec), kSharedKeys, who);
  facts.add_if(spec.layer_input > 0, kLayerInputs, who);
  facts.add_if(spec.streams > 1, kStreams, who);
  facts.add_if(spec.encoder, kWholeTexts, "this model, an encoder");
  facts.add_if(spec.gates.dims == 0, kNoPairGates, who);
  facts.add_if(!spec.gates.selects, kNoSelectionGates, who);
}

void add_engine(const EnginePlan& plan, const std::vector<KvLayer>& layers, int64_t context, Facts& facts) {
  if (plan.drafter) add_drafter(*plan.drafter, plan.options.drafter, facts);
  add_kv_format(plan.formats, plan.options.kv_format, facts);
  add_switches(plan.switches, facts);
  add_tables(plan, layers, context, facts);
  add_places(plan, facts);
  add_importance(plan, facts);
  add_engine_context(plan, facts);
}

Result<void> resolve_engine(const EnginePlan& plan, Facts facts) {
  if (plan.evictor) add_evictor(*plan.evictor, facts);
  add_exit(plan.switches.exit.get(), facts);
  return resolve(facts);
}

Result<void> resolve_pass(const ArchSpec& spec, const KvFormats& formats, const std::string& kv_format,
                          const ForwardSwitches& switches, const EvictionRule* rule, int64_t context) {
  Facts facts;
  add_model(spec, context, facts);
  add_kv_format(formats, kv_format, facts);
  add_switches(switches, facts);
  if (rule) add_evictor(*rule, facts);
  add_exit(switches.exit.get(), facts);
  if (switches.exit) MILLRACE_TRY_VOID(switches.exit->check(spec.layer_count()));
  facts.add_if(rule && rule->by_layer(), kLayerTables, rule ? "evictor " + rule->text : "");
  facts.add_if(!facts.has(kWindows), kNoWindowTables, "this model");
  return resolve(facts);
}

// KV heads of the first layer; a list of budgets is for layers with equal heads.
Result<void> check_budgets(const EvictionRule& rule, const ArchSpec& spec) {
  const std::vector<KvLayer> layers = layer_states(spec);
  return rule.evictor->check_layers(spec.layer_count(), layers.empty() ? 0 : layers.front().kv_heads);
}

void add_request(const Request& request, Facts& facts) {
  const SamplingOptions& s = request.sampling;
  const bool penalties =
      s.repetition_penalty != 1 || s.frequency_penalty != 0 || s.presence_penalty != 0 || s.dry_multiplier != 0;
  facts.add_if(request.beams > 1, kBeams, "beam search");
  facts.add_if(request.n > 1 || request.best_of > 1 || request.beams > 1, kSeveralAnswers, "more than one answer");
  facts.add_if(request.reader != nullptr, kReader, "a reader of the prompt");
  facts.add_if(request.constraint.kind != Constraint::Kind::none, kConstraint, "a constraint");
  facts.add_if(request.thinking.tokens >= 0, kThinkingBudget, "a thinking budget");
  facts.add_if(!request.stop.empty(), kStopStrings, "a stop string");
  facts.add_if(penalties || !request.bad_words.empty() || !s.logit_bias.empty() || !s.banned_tokens.empty() ||
                   !s.allowed_tokens.empty(),
               kChangedLogits, "penalties, biases, banned or allowed tokens");
  // Rows that stand in for a context's links are no obstacle.
  const bool apart = facts.has(kDocumentsApart);
  facts.add_if(!apart && !request.embeddings.empty(), kRowsForTokens, "rows in place of tokens");
  if (!apart || !request.reader) return;
  for (int64_t i = 0, end = request.documents.back().end; i < end; ++i)
    if (request.reader->wants(i)) {
      facts.add(kReadsDocuments, fmt::format("a reader of position {} of documents that end at {}", i, end));
      return;
    }
}

void add_apart(const Request& request, const std::string& name, Facts& facts) {
  facts.add(kDocumentsApart, "context " + member_name(name));
  facts.add_if(!request.embeddings.empty(), kRowsForTokens, "rows in place of tokens");
}

void add_parts(const ContextPlan& plan, const std::string& name, Facts& facts) {
  const std::string who = "context " + member_name(name);
  const auto any = [&](const auto& holds) { return std::ranges::any_of(plan.parts, holds); };
  facts.add(kDocumentsApart, who);
  facts.add_if(any([](const ContextPart& part) { return part.fresh_share > 0; }), kRefreshesShare, who);
  facts.add_if(any([](const ContextPart& part) { return tokens_before(part) < 0; }), kSeesBetween, who);
  facts.add_if(!plan.sees.empty(), kWeighsDocuments, who);
  facts.add_if(plan.moved != 0, kSharedPositions, who);
}

void add_encoded(const std::string& name, Facts& facts) {
  facts.add(kDocumentsEncoded, "context " + member_name(name));
}

}  // namespace millrace
