// Reads rank files of tiktoken ("base64 rank" per line), the format also of Llama 3's tokenizer.model. They contain no
// merges: the ranks define them (see tokenizers/bpe.cc). They contain no special tokens either; those of the known
// encodings are added here (ids as published, frozen).
#include <fmt/format.h>

#include <charconv>

#include "text/files/base64.h"
#include "text/files/spec_builder.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/pre_tokenizers.h"
#include "text/unicode.h"

namespace millrace {
namespace {

struct Special {
  std::string_view text;
  int64_t id;
};

Result<void> add_llama3_specials(SpecBuilder& builder, int64_t base) {
  const std::string_view named[] = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|finetune_right_pad_id|>",
                                    "<|step_id|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|eom_id|>",
                                    "<|eot_id|>",
                                    "<|python_tag|>"};
  for (int64_t i = 0; i < 256; ++i) {
    const std::string text = i < 11 ? std::string(named[i]) : fmt::format("<|reserved_special_token_{}|>", i - 9);
    MILLRACE_TRY_VOID(builder.place_special(text, base + i, true));
  }
  return {};
}

Result<void> add_specials(std::string_view encoding, SpecBuilder& builder, TokenizerSpec& spec) {
  std::vector<Special> specials;
  if (encoding == "r50k_base" || encoding == "p50k_base") specials = {{"<|endoftext|>", 50256}};
  if (encoding == "p50k_edit") {
    specials = {
        {"<|endoftext|>", 50256}, {"<|fim_prefix|>", 50281}, {"<|fim_middle|>", 50282}, {"<|fim_suffix|>", 50283}};
  }
  if (encoding == "cl100k_base") {
    specials = {{"<|endoftext|>", 100257},
                {"<|fim_prefix|>", 100258},
                {"<|fim_middle|>", 100259},
                {"<|fim_suffix|>", 100260},
                {"<|endofprompt|>", 100276}};
  }
  if (encoding == "o200k_base") specials = {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}};
  for (const Special& special : specials) MILLRACE_TRY_VOID(builder.place_special(special.text, special.id, true));
  const auto ranks = static_cast<int64_t>(spec.tokens.size());
  if (encoding == "whisper") {
    MILLRACE_TRY_VOID(builder.place_special("<|endoftext|>", ranks, true));
    MILLRACE_TRY_VOID(builder.place_special("<|startoftranscript|>", ranks + 1, true));
  }
  if (encoding == "llama-bpe" && ranks == 128000) {
    MILLRACE_TRY_VOID(add_llama3_specials(builder, ranks));
    spec.bos = builder.find("<|begin_of_text|>");
    spec.eos = builder.find("<|end_of_text|>");
    spec.eot = builder.find("<|eot_id|>");
    spec.eom = builder.find("<|eom_id|>");
    spec.add_bos = true;
    return {};
  }
  spec.eos = builder.find("<|endoftext|>");
  spec.fim_prefix = builder.find("<|fim_prefix|>");
  spec.fim_middle = builder.find("<|fim_middle|>");
  spec.fim_suffix = builder.find("<|fim_suffix|>");
  return {};
}

}  // namespace

Result<TokenizerSpec> read_tiktoken(std::string_view bytes, std::string_view pattern) {
  if (pre_tokenizer_patterns(pattern).empty())
    return Error::unsupported(fmt::format("pre-tokenizer is not known: '{}'", pattern));
  TokenizerSpec spec;
  spec.kind = "bpe";
  spec.pre = pattern;
  spec.add_space_prefix = false;
  spec.ignore_merges = true;
  SpecBuilder builder(spec);
  builder.expect(bytes.size() / 16);
  std::vector<uint8_t> token;
  for (size_t line = 1; !bytes.empty(); ++line) {
    const size_t end = std::min(bytes.find('\n'), bytes.size());
    std::string_view text = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    if (text.empty()) continue;
    const size_t space = text.find(' ');
    int64_t rank = -1;
    const bool parsed =
        space != std::string_view::npos && decode_base64(text.substr(0, space), token) && !token.empty() &&
        std::from_chars(text.data() + space + 1, text.data() + text.size(), rank).ptr == text.data() + text.size();
    if (!parsed) return Error::corrupt(fmt::format("tiktoken file: line {} is not 'base64 rank'", line));
    const std::string_view raw(reinterpret_cast<const char*>(token.data()), token.size());
    MILLRACE_TRY_VOID(builder.place(spell_bytes(raw), rank));
  }
  if (spec.tokens.empty()) return Error::corrupt("tiktoken file: the file has no ranks");
  MILLRACE_TRY_VOID(add_specials(pattern, builder, spec));
  builder.finish();
  infer_end_of_generation(spec);
  return spec;
}

}  // namespace millrace
