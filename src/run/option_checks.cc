#include "run/option_checks.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "attention/pattern_layers.h"
#include "models/forward_switches.h"
#include "run/evictor_check.h"
#include "run/kv_places.h"
#include "speculate/drafter.h"

namespace millrace {
namespace {

std::string drafter_label(const EngineOptions& options) {
  return "drafter " + options.drafter.substr(0, options.drafter.find(':'));
}

// A pattern's own layers are counted from the model's in the pool.
Result<void> check_drafter_layers(const EngineOptions& options) {
  MILLRACE_TRY(const ForwardSwitches switches, make_forward_switches(options.kernels));
  if (pattern_layer_sets(switches.attention.pattern) == 0) return {};
  return Error::unsupported(fmt::format(
      "attention {}: does not go with a drafter that stores keys or states of its own; use one without, such as ngram, "
      "or none",
      switches.attention.pattern->text()));
}

}  // namespace

Result<void> check_recurrent(const EngineOptions& options) {
  if (has_store(options))
    return Error::unsupported("KV store: the model has recurrent layers, whose prefixes are not stored; omit it");
  MILLRACE_TRY(const auto second, drafter_model(options.drafter));
  if (second)
    return Error::unsupported(
        drafter_label(options) +
        ": the model has recurrent layers, whose blocks have no keys for a second model; use ngram");
  MILLRACE_TRY(const bool trees, drafts_trees(options.drafter));
  if (trees)
    return Error::unsupported(
        "drafter: the model has recurrent layers, whose state is of one chain of tokens; use a drafter of chains, such "
        "as ngram without branches");
  return {};
}

Result<void> check_codec(const EngineOptions& options) {
  MILLRACE_TRY(const auto second, drafter_model(options.drafter));
  if (second)
    return Error::unsupported(
        fmt::format("{}: KV format {} encodes whole blocks of one model; use a format of rows, such as f16",
                    drafter_label(options), options.kv_format));
  MILLRACE_TRY(const auto self, drafter_skips(options.drafter));
  if (self)
    return Error::unsupported(fmt::format(
        "drafter self: KV format {} encodes whole blocks, in which a draft's keys cannot be replaced; use a "
        "format of rows, such as f16",
        options.kv_format));
  MILLRACE_TRY(const bool trees, drafts_trees(options.drafter));
  if (!trees) return {};
  return Error::unsupported(
      fmt::format("drafter: KV format {} encodes whole blocks, in which tokens of a tree cannot move; use a drafter of "
                  "chains, such as ngram without branches, or a format of rows, such as f16",
                  options.kv_format));
}

Result<void> check_pattern_drafter(const EngineOptions& options) {
  MILLRACE_TRY(const bool trees, drafts_trees(options.drafter));
  if (!trees) return {};
  return Error::unsupported(
      "attention: a pattern does not go with a drafter of trees; use one of chains, such as ngram without branches, or "
      "none");
}

Result<void> check_all_layers(const EngineOptions& options, const KvLayout& layout, int64_t own_layers,
                              int64_t context) {
  if (std::ssize(layout.layers) != own_layers) MILLRACE_TRY_VOID(check_drafter_layers(options));
  if (layout.by_layer) {
    MILLRACE_TRY(const auto rule, make_eviction_rule(options.evictor));
    MILLRACE_TRY(const ForwardSwitches switches, make_forward_switches(options.kernels));
    MILLRACE_TRY_VOID(check_evictor_pattern(*rule, switches.attention.pattern, layout));
    MILLRACE_TRY_VOID(check_layer_blocks(options, *rule, layout, own_layers, context));
  }
  return layout.check();
}

}  // namespace millrace
