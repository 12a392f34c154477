#include "prompt/infill_prompt.h"

#include <algorithm>

#include "base/work_limits.h"
#include "run/language_model.h"

namespace millrace {
namespace {

// Qwen-coder and Granite; StarCoder and SantaCoder; DeepSeek-coder; CodeLlama; GLM.
constexpr std::string_view kPrefixes[] = {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>",   "<｜fim▁begin｜>",
                                          "▁<PRE>",         "<PRE>",        "<|code_prefix|>"};
constexpr std::string_view kSuffixes[] = {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>",   "<｜fim▁hole｜>",
                                          "▁<SUF>",         "<SUF>",        "<|code_suffix|>"};
constexpr std::string_view kMiddles[] = {"<|fim_middle|>", "<fim_middle>", "<fim-middle>",   "<｜fim▁end｜>",
                                         "▁<MID>",         "<MID>",        "<|code_middle|>"};
constexpr std::string_view kRepositories[] = {"<|fim_repo|>", "<|repo_name|>", "<repo_name>", "<reponame>",
                                              "<fim-repo>"};
constexpr std::string_view kFiles[] = {"<|file_sep|>", "<file_sep>", "<filename>"};

constexpr const char* kProject = "project\n";
constexpr const char* kThisFile = "file\n";
constexpr const char* kBetweenFiles = "\n\n--- snippet ---\n\n";

void find_spelling(const std::string& token, TokenId id, std::span<const std::string_view> spellings,
                   std::optional<TokenId>& out) {
  if (!out && std::ranges::find(spellings, token) != spellings.end()) out = id;
}

void append(std::vector<TokenId>& out, const std::vector<TokenId>& more) {
  out.insert(out.end(), more.begin(), more.end());
}

}  // namespace

Result<InfillTokens> find_infill_tokens(const TokenizerSpec& spec) {
  std::optional<TokenId> prefix = spec.fim_prefix, suffix = spec.fim_suffix, middle = spec.fim_middle;
  InfillTokens out;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string& token = spec.tokens[i];
    if (token.size() < 5 || token.size() > 32 || token.back() != '>') continue;  // most tokens
    const auto id = static_cast<TokenId>(i);
    find_spelling(token, id, kPrefixes, prefix);
    find_spelling(token, id, kSuffixes, suffix);
    find_spelling(token, id, kMiddles, middle);
    find_spelling(token, id, kRepositories, out.repository);
    find_spelling(token, id, kFiles, out.file);
  }
  if (!prefix || !suffix || !middle)
    return Error::unsupported(
        "infill: this model has no tokens for the text before, after and in the middle, so it was not trained to fill "
        "in; use a coder model that was");
  out.prefix = *prefix;
  out.suffix = *suffix;
  out.middle = *middle;
  return out;
}

Result<InfillPrompt> infill_prompt(const LanguageModel& model, const std::vector<TokenId>& before,
                                   const InfillText& text, int64_t most_tokens) {
  const Tokenizer* tokenizer = model.parts().tokenizer.get();
  if (!tokenizer) return Error::unsupported("infill: the model has no tokenizer");
  MILLRACE_TRY(const InfillTokens special, find_infill_tokens(tokenizer->spec()));
  const auto encode = [&](const std::string& part) {
    return tokenizer->encode(part, {.add_special = false, .parse_special = false});
  };

  std::vector<TokenId> files;
  if (!text.files.empty()) {
    if (special.file && special.repository) {
      files.push_back(*special.repository);
      append(files, encode(kProject));
    }
    for (const InfillFile& file : text.files) {
      if (special.file) files.push_back(*special.file);
      append(files, encode(special.file ? file.name + "\n" : kBetweenFiles));
      append(files, encode(file.text));
    }
    if (special.file) files.push_back(*special.file);
    append(files, encode(special.file ? kThisFile : kBetweenFiles));
  }

  std::vector<TokenId> rest = {special.prefix};
  append(rest, before);
  if (!text.begun.empty()) append(rest, encode(text.begun));
  rest.push_back(special.suffix);
  append(rest, encode(text.suffix));
  rest.push_back(special.middle);

  MILLRACE_TRY_VOID(check_work());  // the tokens may be incomplete
  InfillPrompt out;
  const TokenizerSpec& spec = tokenizer->spec();
  if (spec.add_bos && spec.bos) out.tokens.push_back(*spec.bos);
  const auto room = std::max<int64_t>(0, most_tokens - static_cast<int64_t>(out.tokens.size() + rest.size()));
  out.dropped_tokens = std::max<int64_t>(0, static_cast<int64_t>(files.size()) - room);
  out.tokens.insert(out.tokens.end(), files.begin() + static_cast<ptrdiff_t>(out.dropped_tokens), files.end());
  append(out.tokens, rest);
  return out;
}

}  // namespace millrace
