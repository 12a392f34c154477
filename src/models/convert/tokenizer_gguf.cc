// TokenizerSpec -> tokenizer.ggml.* (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "models/convert/tokenizer_writer.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/pre_tokenizers.h"

namespace millrace {
namespace {

constexpr std::string_view kWordMark = "\xE2\x96\x81";  // U+2581

// Names for which GGUF readers keep a word whole if it is itself a token.
bool name_ignores_merges(std::string_view name) {
  constexpr std::string_view kNames[] = {"llama3",  "llama-v3", "llama-bpe", "falcon3", "falcon-h1",
                                         "pixtral", "midm-2.0", "lfm2",      "tekken",  "youtu"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

bool same_split(const std::vector<std::string>& wanted, const std::vector<std::string_view>& known) {
  auto equal = [](std::string_view a, std::string_view b) {
    if (a == b) return true;
    const KnownPattern *x = find_known_pattern(a), *y = find_known_pattern(b);
    return x && y && x->scan == y->scan;
  };
  return std::equal(wanted.begin(), wanted.end(), known.begin(), known.end(), equal);
}

// GGUF names the pre-tokenizer split instead of spelling out the pattern.
Result<std::string> pre_tokenizer_name(const TokenizerSpec& spec) {
  if (spec.pre_patterns.empty()) return spec.pre.empty() ? std::string("default") : spec.pre;
  std::string second_best;
  std::vector<std::string_view> names = {"gpt-2", "llama-bpe", "qwen2", "smollm", "tekken", "gpt-4o"};
  for (std::string_view name : known_pre_tokenizers())
    if (!name.empty() && name != "default") names.push_back(name);
  for (std::string_view name : names) {
    const auto patterns = pre_tokenizer_patterns(name);
    if (patterns.empty() || !same_split(spec.pre_patterns, patterns)) continue;
    if (name_ignores_merges(name) == spec.ignore_merges) return std::string(name);
    if (second_best.empty()) second_best = name;
  }
  if (!second_best.empty()) return second_best;
  return Error::unsupported(fmt::format("tokenizer: GGUF has no name for this pre-tokenizer pattern: '{}'; known: {}",
                                        spec.pre_patterns.front().substr(0, 120),
                                        fmt::join(known_pre_tokenizers(), ", ")));
}

// SentencePiece orders merges by the score of the result; a list of merges expresses the same by rank.
std::vector<float> scores_of_merges(const TokenizerSpec& spec) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < spec.tokens.size(); ++i) ids.emplace(spec.tokens[i], i);
  std::vector<float> scores(spec.tokens.size(), spec.merges.empty() ? 0.0f : -1e9f);
  for (size_t i = 0; i < scores.size() && spec.merges.empty(); ++i) scores[i] = -static_cast<float>(i);
  for (size_t rank = spec.merges.size(); rank-- > 0;) {  // the best rank is written last
    const std::string& merge = spec.merges[rank];
    const size_t cut = merge.find(' ', 1);
    if (cut == std::string::npos) continue;
    auto made = ids.find(merge.substr(0, cut) + merge.substr(cut + 1));
    if (made != ids.end()) scores[made->second] = -static_cast<float>(rank);
  }
  return scores;
}

// GGUF marks word starts in BERT's vocabulary, instead of continuations with ##.
void mark_words(TokenizerSpec& spec) {
  const bool marked = std::ranges::any_of(spec.tokens, [](const std::string& t) { return t.starts_with(kWordMark); });
  if (marked) return;
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    std::string& token = spec.tokens[i];
    if (spec.types[i] != TokenType::normal || token.empty()) continue;
    if (token.starts_with("##") && token.size() > 2)
      token.erase(0, 2);
    else
      token.insert(0, kWordMark);
  }
}

Result<void> fill_vocabulary(TokenizerSpec& spec, int64_t vocab) {
  if (static_cast<int64_t>(spec.tokens.size()) > vocab) {
    return Error::corrupt(
        fmt::format("tokenizer: has {} tokens, the model's embedding has only {} rows", spec.tokens.size(), vocab));
  }
  const size_t own = spec.tokens.size();
  spec.types.resize(own, TokenType::normal);
  spec.tokens.resize(static_cast<size_t>(vocab));
  spec.types.resize(spec.tokens.size(), TokenType::unused);
  for (size_t i = 0; i < spec.tokens.size(); ++i)
    if (spec.tokens[i].empty()) spec.tokens[i] = fmt::format("[PAD{}]", i);
  return {};
}

void set_ids(const TokenizerSpec& spec, GgufWriter& writer) {
  const std::pair<const char*, const std::optional<TokenId>*> ids[] = {{"bos", &spec.bos},
                                                                       {"eos", &spec.eos},
                                                                       {"eot", &spec.eot},
                                                                       {"eom", &spec.eom},
                                                                       {"unknown", &spec.unk},
                                                                       {"padding", &spec.pad},
                                                                       {"seperator", &spec.sep},
                                                                       {"cls", &spec.cls},
                                                                       {"mask", &spec.mask},
                                                                       {"fim_pre", &spec.fim_prefix},
                                                                       {"fim_suf", &spec.fim_suffix},
                                                                       {"fim_mid", &spec.fim_middle}};
  for (const auto& [name, id] : ids)
    if (*id && **id >= 0) writer.set_u32(fmt::format("tokenizer.ggml.{}_token_id", name), static_cast<uint32_t>(**id));
}

void note_losses(const TokenizerSpec& spec, std::vector<std::string>& notes) {
  auto note = [&](bool lost, const char* what) {
    if (lost)
      notes.push_back(fmt::format("tokenizer: GGUF cannot express {}; rare text may be tokenized differently", what));
  };
  note(spec.nfc || spec.nfd || spec.nfkd || spec.nfkc, "that text is normalized first");
  note(!spec.replacements.empty(), "that strings are replaced first");
  const auto strips = [](const AddedTokenFlags& f) { return f.lstrip || f.rstrip || f.single_word; };
  note(std::ranges::any_of(spec.added_flags, strips), "that special tokens absorb white space");
  const bool normalizes = spec.nfc || spec.nfd || spec.nfkc || spec.nfkd || spec.lowercase ||
                          !spec.replacements.empty() || spec.prefix_before_match;
  note(normalizes && std::ranges::any_of(spec.added_flags, &AddedTokenFlags::normalized),
       "that added tokens are matched in the normalized text");
  note(spec.byte_level_space_prefix, "that a space is prepended to the text");
  note(spec.kind == "bpe" && spec.ignore_merges != name_ignores_merges(spec.pre) && !spec.pre_patterns.empty() &&
           spec.ignore_merges,
       "that whole words skip the merges");
}

}  // namespace

Result<void> write_gguf_tokenizer(const TokenizerSpec& given, int64_t vocab, GgufWriter& writer,
                                  std::vector<std::string>& notes) {
  TokenizerSpec spec = given;
  MILLRACE_TRY_VOID(fill_vocabulary(spec, vocab));
  const std::pair<std::string_view, const char*> kinds[] = {
      {"bpe", "gpt2"}, {"spm", "llama"}, {"unigram", "t5"}, {"wordpiece", "bert"}};
  auto kind = std::ranges::find(kinds, std::string_view(spec.kind), &std::pair<std::string_view, const char*>::first);
  if (kind == std::end(kinds))
    return Error::unsupported(fmt::format("tokenizer: kind '{}' cannot be written", spec.kind));
  if (spec.kind == "wordpiece") mark_words(spec);
  std::string pre = "default";
  if (spec.kind == "bpe") {
    MILLRACE_TRY(pre, pre_tokenizer_name(spec));
  }
  if (spec.kind == "spm" && spec.scores.size() != given.tokens.size()) spec.scores = scores_of_merges(spec);
  if (spec.kind == "bpe") spec.merges = derive_merges(given);
  spec.pre = pre;
  note_losses(spec, notes);

  writer.set_string("tokenizer.ggml.model", kind->second);
  writer.set_string("tokenizer.ggml.pre", pre);
  writer.set_strings("tokenizer.ggml.tokens", spec.tokens);
  if (!spec.scores.empty()) {
    spec.scores.resize(spec.tokens.size(), -1e9f);
    writer.set_f32s("tokenizer.ggml.scores", spec.scores);
  }
  std::vector<int32_t> types;
  for (TokenType type : spec.types) types.push_back(static_cast<int32_t>(type));
  writer.set_i32s("tokenizer.ggml.token_type", types);
  if (!spec.merges.empty()) writer.set_strings("tokenizer.ggml.merges", spec.merges);
  if (!spec.precompiled_charsmap.empty())
    writer.set_bytes("tokenizer.ggml.precompiled_charsmap", spec.precompiled_charsmap);
  set_ids(spec, writer);
  writer.set_bool("tokenizer.ggml.add_bos_token", spec.add_bos);
  writer.set_bool("tokenizer.ggml.add_eos_token", spec.add_eos);
  if (spec.kind == "wordpiece")
    writer.set_bool("tokenizer.ggml.add_sep_token", spec.add_sep || spec.add_eos);
  else if (spec.add_sep || (spec.kind == "unigram" && spec.sep))  // readers take two separators if it is not stated
    writer.set_bool("tokenizer.ggml.add_sep_token", spec.add_sep);
  if (spec.kind == "spm" || spec.kind == "unigram") {
    writer.set_bool("tokenizer.ggml.add_space_prefix", spec.add_space_prefix);
    writer.set_bool("tokenizer.ggml.remove_extra_whitespaces", spec.remove_extra_whitespaces);
  }
  return {};
}

}  // namespace millrace
