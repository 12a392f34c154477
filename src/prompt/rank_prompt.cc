#include "prompt/rank_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/ordered_json.h"
#include "base/work_limits.h"
#include "loader/model_folder.h"
#include "models/ranking_head.h"
#include "run/language_model.h"
#include "text/template/chat_messages.h"
#include "text/unicode.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kQuery = "{query}", kDocument = "{document}", kInstruction = "{instruction}";
constexpr const char* kTemplate = "rerank";

// In one pass, so that {document} in a query is not replaced.
std::string filled(std::string_view words, std::initializer_list<std::pair<std::string_view, std::string_view>> texts) {
  std::string out;
  while (!words.empty()) {
    const auto* place = std::ranges::find_if(texts, [&](const auto& one) { return words.starts_with(one.first); });
    out += place == texts.end() ? words.substr(0, 1) : place->second;
    words.remove_prefix(place == texts.end() ? 1 : place->first.size());
  }
  return out;
}

}  // namespace

bool states_pooling(const ModelFiles& files) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (files.kind == ModelFiles::Kind::huggingface)
    return fs::exists(model_folder(files.path) / "1_Pooling" / "config.json", ignored);
  const auto found = files.config->find(files.architecture + ".pooling_type");
  return found != files.config->end() && *found != kRankPooling;
}

Result<RankPrompt> RankPrompt::create(const LanguageModel& model, const RankRecipe* recipe, std::string instruction) {
  const auto& parts = model.parts();
  if (!parts.tokenizer)
    return Error::unsupported(
        fmt::format("{}: no tokenizer in the model's files, and so no pairs of texts", parts.files->path));
  RankPrompt prompt(model);
  if (recipe) {
    prompt.words_ = recipe->words;
    prompt.instruction_ = instruction.empty() ? recipe->instruction : std::move(instruction);
    return prompt;
  }
  if (!instruction.empty())
    return Error::user(
        fmt::format("instruction: {} is asked without one; serve the model with --ranker, which has a "
                    "place for it",
                    parts.files->path));
  const auto& named = parts.files->named_templates;
  const auto found = named.find(kTemplate);
  if (found == named.end()) return prompt;
  if (found->second.find(kQuery) != std::string::npos && found->second.find(kDocument) != std::string::npos) {
    prompt.words_ = found->second;
    return prompt;
  }
  auto parsed = ChatTemplate::parse(found->second);
  if (!parsed.ok()) return Error{parsed.error().kind, "chat template \"rerank\": " + parsed.error().message};
  prompt.jinja_ = std::move(*parsed);
  return prompt;
}

Result<std::string> RankPrompt::fill(std::string_view query, std::string_view document) const {
  if (!jinja_) return filled(words_, {{kQuery, query}, {kDocument, document}, {kInstruction, instruction_}});
  const Json variables = {{"query", query}, {"document", document}};
  MILLRACE_TRY(const Json context, chat_context(Json::array({{{"role", "query"}, {"content", query}},
                                                             {{"role", "document"}, {"content", document}}}),
                                                {.extra = &variables}));
  const WorkLimits& limits = work_limits();
  return jinja_->render(context, {.now_unix_seconds = {}, .cancelled = limits.cancelled, .until = limits.until});
}

Result<std::vector<TokenId>> RankPrompt::tokens(std::string_view query, std::string_view document) const {
  if (jinja_ || !words_.empty()) {
    MILLRACE_TRY(const std::string text, fill(query, document));
    return model_->encode(text, /*add_special=*/false, /*parse_special=*/true);
  }
  const Tokenizer& tokenizer = *model_->parts().tokenizer;
  const TokenizerSpec& spec = tokenizer.spec();
  // Converters of ModernBERT ask for a second separator, which its pairs do not have.
  const bool second = spec.add_sep && model_->parts().files->architecture != "modern-bert";
  const bool wordpiece = spec.kind == "wordpiece";  // [CLS] query [SEP] document [SEP]
  const auto& begin = wordpiece && spec.cls ? spec.cls : spec.bos;
  const auto& end = (wordpiece && spec.sep) || !spec.eos ? spec.sep : spec.eos;
  std::vector<TokenId> out;
  const auto add = [&](bool wanted, const std::optional<TokenId>& token) {
    if (wanted && token) out.push_back(*token);
  };
  const auto add_text = [&](std::string_view text) {
    const auto some = tokenizer.encode(text, {.add_special = false, .parse_special = true});
    out.insert(out.end(), some.begin(), some.end());
  };
  add(spec.add_bos, begin);
  add_text(query);
  add(wordpiece || spec.add_eos, end);
  add(!wordpiece && second, spec.sep);
  add_text(document);
  add(wordpiece || spec.add_eos, end);
  MILLRACE_TRY_VOID(check_work());  // they may be incomplete
  return out;
}

Result<RankPrompt::Cut> RankPrompt::cut(std::string_view query, std::string_view document, int64_t most,
                                        int64_t most_own) const {
  const Tokenizer& tokenizer = *model_->parts().tokenizer;
  const auto own = tokenizer.encode(document, {.add_special = false, .parse_special = true});
  const auto all = static_cast<int64_t>(own.size());
  for (int64_t keep = std::min(all, most_own);;) {
    std::string text(document);
    if (keep < all) {
      text = tokenizer.decode({own.begin(), own.begin() + keep});
      text.resize(text.size() - incomplete_utf8_suffix(text));
    }
    MILLRACE_TRY(auto pair, tokens(query, text));
    MILLRACE_TRY_VOID(check_work());
    const int64_t over = static_cast<int64_t>(pair.size()) - most;
    if (over <= 0) return Cut{std::move(pair), keep < all};
    if (keep == 0)
      return Error::user(
          fmt::format("the query and its template alone have {} tokens, more than {}", pair.size(), most));
    keep -= std::min(keep, over);
  }
}

}  // namespace millrace
