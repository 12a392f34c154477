// The engine's model with look-ahead tokens, for the drafter pass.
#include <fmt/format.h>

#include "run/draft_models/loader.h"
#include "run/lookahead_runner.h"

namespace millrace {
namespace {

Result<std::unique_ptr<LoadedDraftModel>> load_pass(const OptionValues& options, const DraftModelHost& host) {
  const LanguageModel::Parts& parts = host.target.parts();
  const std::string& path = options.text("model");
  auto tokens = LookaheadTokens::load(path, parts.model->spec(), parts.accounts);
  if (!tokens.ok()) return draft_model_error("pass", tokens.error());
  if (tokens->count() < options.integer("k"))
    return Error::user(fmt::format("drafter pass: k: {} look-ahead tokens wanted, {} has {}", options.integer("k"),
                                   path, tokens->count()));
  return std::unique_ptr<LoadedDraftModel>(std::make_unique<LookaheadRunner>(std::move(*tokens)));
}

}  // namespace

extern const DraftModelLoader kPassDraftModel = {
    .name = "pass", .load = load_pass, .layers = false, .hidden_states = true, .whole_passes = true};

}  // namespace millrace
