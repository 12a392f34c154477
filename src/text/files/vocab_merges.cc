// Reads vocab.json + merges.txt (the layout of GPT-2, Qwen 2 ...).
#include <fmt/format.h>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "text/files/spec_builder.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/pre_tokenizers.h"

namespace millrace {
namespace {

using nlohmann::json;

Result<void> place_all(const json& object, const char* file, bool special, SpecBuilder& builder) {
  if (!object.is_object()) return Error::corrupt(fmt::format("{}: not a JSON object of token to id", file));
  builder.expect(object.size());
  for (const auto& [text, id] : object.items()) {
    if (!id.is_number_integer() || (id.is_number_unsigned() && id.get<uint64_t>() > INT64_MAX)) {
      return Error::corrupt(fmt::format("{}: id of token '{}' is not an integer", file, text.substr(0, 60)));
    }
    if (special)
      MILLRACE_TRY_VOID(builder.place_special(text, id.get<int64_t>(), true));
    else
      MILLRACE_TRY_VOID(builder.place(text, id.get<int64_t>()));
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> read_vocab_merges(std::string_view vocab_json, std::string_view merges_txt,
                                        std::string_view added_tokens_json, std::string_view pre) {
  if (pre_tokenizer_patterns(pre).empty())
    return Error::unsupported(fmt::format("pre-tokenizer is not known: '{}'", pre));
  const json vocab = parse_json<json>(vocab_json);
  if (vocab.is_discarded()) return Error::corrupt("vocab.json: not valid JSON");
  TokenizerSpec spec;
  spec.kind = "bpe";
  spec.pre = pre;
  spec.add_space_prefix = false;
  SpecBuilder builder(spec);
  MILLRACE_TRY_VOID(place_all(vocab, "vocab.json", false, builder));
  if (!added_tokens_json.empty()) {
    const json added = parse_json<json>(added_tokens_json);
    if (added.is_discarded()) return Error::corrupt("added_tokens.json: not valid JSON");
    MILLRACE_TRY_VOID(place_all(added, "added_tokens.json", true, builder));
  }
  for (size_t line = 0; !merges_txt.empty(); ++line) {
    const size_t end = std::min(merges_txt.find('\n'), merges_txt.size());
    std::string_view merge = merges_txt.substr(0, end);
    merges_txt.remove_prefix(std::min(end + 1, merges_txt.size()));
    if (!merge.empty() && merge.back() == '\r') merge.remove_suffix(1);
    if (merge.empty() || (line == 0 && merge.starts_with("#version"))) continue;
    spec.merges.emplace_back(merge);
  }
  // Without an added_tokens.json, <|endoftext|> is among the ordinary tokens.
  if (const auto id = builder.find("<|endoftext|>")) {
    spec.types[static_cast<size_t>(*id)] = TokenType::control;
    spec.eos = spec.bos = id;
  }
  builder.finish();
  infer_end_of_generation(spec);
  return spec;
}

}  // namespace millrace
