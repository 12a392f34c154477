#include "text/tokenizers/pre_tokenizers.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/tokenizer_files.h"
#include "text/unicode.h"
#include "text/work_count.h"

namespace millrace {
namespace {

// The published patterns; each has a scanner (known_patterns.inc).
constexpr std::string_view kGpt2 = R"re('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kLlama3 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kQwen2 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kQwen35 =
    R"re((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kO200k =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kTekken =
    R"re([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kDeepseekV3 =
    R"re([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)re";
constexpr std::string_view kDeepseekV3Cjk = R"re([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)re";
constexpr std::string_view kNewline = R"re([\r\n])re";
constexpr std::string_view kSpacedLetters = R"re(\s?\p{L}+)re";
constexpr std::string_view kSpacedPunct = R"re(\s?\p{P}+)re";
constexpr std::string_view kDeepseekLetters = kDeepseekLettersRegex;
constexpr std::string_view kDeepseekPunct =
    R"re(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)re";
constexpr std::string_view kTrailingSpace = R"re(\s+$)re";
constexpr std::string_view kDeepseekCjk = R"re([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)re";
constexpr std::string_view kDigit = R"re(\p{N})re";
constexpr std::string_view kDigitRuns = R"re(\p{N}+)re";
constexpr std::string_view kThreeNumbers = R"re(\p{N}{1,3})re";
constexpr std::string_view kThreeDigits = R"re([0-9][0-9][0-9])re";
constexpr std::string_view kFalconPunct = R"re([\p{P}\$\+<=>\^~\|`]+)re";
constexpr std::string_view kDefaultPunct = R"re([\p{P}\$\+<=>\^~\|]+)re";
constexpr std::string_view kBloom = R"re( ?[^(\s|.,!?…。，、।۔،)]+)re";
constexpr std::string_view kLines = R"re([^\n]+|[\n]+)re";

struct NamedPreTokenizer {
  std::string_view names;  // separated by spaces
  std::vector<std::string_view> patterns;
};

const std::vector<NamedPreTokenizer>& named_pre_tokenizers() {
  static const std::vector<NamedPreTokenizer> kTable = {
      {"default", {kDefaultPunct, kGpt2, kDigitRuns, kThreeDigits}},
      {"gpt-2 phi-2 mpt olmo jais trillion granite-docling r50k_base p50k_base p50k_edit whisper gpt2 roberta-bpe "
       "jina-v1-en jina-v2-code jina-v2-es jina-v2-de jina-es jina-de gigachat a.x-4.0 mellum exaone4",
       {kGpt2}},
      {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe chatglm-bpe glm4 "
       "chatglm cl100k_base cl100k",
       {kLlama3}},
      {"qwen2 stablelm2 hunyuan megrez deepseek-r1-qwen", {kQwen2}},
      {"qwen35", {kQwen35}},
      {"gpt-4o llama4 o200k o200k_base", {kO200k}},
      {"tekken", {kTekken}},
      {"deepseek-llm", {kNewline, kDeepseekLetters, kDeepseekPunct, kTrailingSpace, kDeepseekCjk, kDigitRuns}},
      {"deepseek-coder", {kNewline, kSpacedLetters, kSpacedPunct, kDeepseekCjk, kDigit}},
      {"deepseek-v3 hunyuan-dense", {kThreeNumbers, kDeepseekV3Cjk, kDeepseekV3}},
      {"falcon", {kFalconPunct, kGpt2, kThreeDigits}},
      {"starcoder refact command-r smollm codeshell exaone minerva-7b", {kDigit, kGpt2}},
      {"bloom poro-chat gpt3-finnish", {kBloom}},
      {"viking", {kBloom, kDigit}},
      {"gemma4", {kLines}},
  };
  return kTable;
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

}  // namespace

std::vector<std::string_view> pre_tokenizer_patterns(std::string_view name) {
  if (name.empty()) name = "default";
  for (const NamedPreTokenizer& entry : named_pre_tokenizers()) {
    const auto words = words_of(entry.names);
    if (std::find(words.begin(), words.end(), name) != words.end()) return entry.patterns;
  }
  return {};
}

std::vector<std::string_view> known_pre_tokenizers() {
  std::vector<std::string_view> names;
  for (const NamedPreTokenizer& entry : named_pre_tokenizers()) {
    for (std::string_view name : words_of(entry.names)) names.push_back(name);
  }
  return names;
}

Result<PreTokenizer> PreTokenizer::from_name(std::string_view name) {
  const std::vector<std::string_view> patterns = pre_tokenizer_patterns(name);
  if (patterns.empty()) {
    return Error::unsupported(
        fmt::format("pre-tokenizer is not known: '{}'; convert the model again with a known one, "
                    "such as 'gpt-2', 'llama-bpe' or 'qwen2'",
                    name.substr(0, 80)));
  }
  return from_patterns({patterns.begin(), patterns.end()});
}

Result<PreTokenizer> PreTokenizer::from_patterns(const std::vector<std::string>& patterns) {
  constexpr size_t kMaxStages = 32;
  if (patterns.size() > kMaxStages) {
    return Error::unsupported(
        fmt::format("pre-tokenizer has {} split patterns, at most {}", patterns.size(), kMaxStages));
  }
  PreTokenizer pre;
  for (const std::string& pattern : patterns) {
    Stage stage;
    if (const KnownPattern* known = find_known_pattern(pattern)) {
      stage.scan = known->scan;
      stage.only_at_end = known->only_at_end;
    } else {
      MILLRACE_TRY(Regex regex, Regex::compile(pattern));
      stage.regex = std::move(regex);
    }
    pre.stages_.push_back(std::move(stage));
  }
  return pre;
}

void PreTokenizer::split_piece(const Stage& stage, std::string_view text, uint32_t begin, uint32_t end, int64_t& work,
                               std::vector<uint32_t>& ends) {
  const std::string_view piece = text.substr(begin, end - begin);
  size_t gap = 0;  // start of the text not covered by a match yet
  const auto take = [&](size_t from, size_t to) {
    if (from > gap) ends.push_back(static_cast<uint32_t>(begin + from));
    ends.push_back(static_cast<uint32_t>(begin + to));
    gap = to;
  };
  if (stage.scan == nullptr) {
    size_t pos = stage.regex->find_all(piece, work, take);
    pos = std::max(pos, gap);
    for (; pos < piece.size(); pos = gap) take(pos, scan_whitespace_words(piece, pos));
  } else if (stage.only_at_end) {
    size_t start = piece.size();
    while (start > 0) {
      size_t before = start - 1;
      while (before > 0 && start - before < 4 && (static_cast<uint8_t>(piece[before]) & 0xC0) == 0x80) --before;
      const CharAt at = char_at(piece, before);
      if (before + at.length != start || !(at.bits & kSpace)) break;
      start = before;
    }
    if (start < piece.size()) take(start, piece.size());
  } else {
    for (size_t pos = 0; pos < piece.size();) {
      const size_t stop = stage.scan(piece, pos);
      if (stop > pos) take(pos, stop);
      pos = stop > pos ? stop : pos + char_at(piece, pos).length;
    }
  }
  if (gap < piece.size()) ends.push_back(end);
}

void PreTokenizer::split(std::string_view text, std::vector<uint32_t>& ends, std::vector<uint32_t>& scratch) const {
  ends.clear();
  if (text.empty()) return;
  ends.push_back(static_cast<uint32_t>(text.size()));
  for (const Stage& stage : stages_) {
    scratch.swap(ends);
    ends.clear();
    uint32_t begin = 0;
    int64_t work = Regex::work_for(text.size());
    for (uint32_t end : scratch) {
      split_piece(stage, text, begin, end, work, ends);
      begin = end;
    }
    text_work += static_cast<int64_t>(text.size()) + Regex::work_for(text.size()) - work;
  }
}

}  // namespace millrace
