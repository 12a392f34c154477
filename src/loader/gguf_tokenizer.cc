#include "loader/gguf_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "base/enum_table.h"
#include "text/tokenizer_files.h"

namespace millrace {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.";

std::string full_key(std::string_view name) { return std::string(kPrefix) + std::string(name); }

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Defaults for flags missing from the file, by algorithm and pre-tokenizer.
void set_conventions(TokenizerSpec& spec) {
  if (spec.kind == "spm") {
    spec.add_bos = true;
    spec.bos = 1;
    spec.eos = 2;
    spec.unk = 0;
  } else if (spec.kind == "unigram") {
    spec.add_eos = true;
    spec.eos = 1;
    spec.unk = 2;
    spec.pad = 0;
    spec.add_space_prefix = true;
  } else if (spec.kind == "wordpiece") {
    spec.add_bos = true;
    spec.add_sep = true;
    spec.lowercase = true;
  } else if (spec.kind == "bpe") {
    spec.add_space_prefix = false;
    bool llama3 =
        is_one_of(spec.pre, {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"});
    spec.add_bos = llama3 || spec.pre == "tekken";
    spec.ignore_merges = spec.add_bos || spec.pre == "youtu";
  }
}

class SpecReader {
 public:
  SpecReader(GgufMetadata& metadata, const std::string& file) : metadata_(metadata), file_(file) {}

  Result<TokenizerSpec> read(const std::string& model) {
    spec_.kind = kind_of(model);
    const std::string own_pre = model == "gemma4" ? "gemma4" : spec_.kind == "bpe" ? "default" : "";
    spec_.pre = metadata_.text(full_key("pre")).value_or(own_pre);
    set_conventions(spec_);
    MILLRACE_TRY_VOID(take_arrays());
    MILLRACE_TRY_VOID(read_ids());
    MILLRACE_TRY_VOID(read_flags());
    add_ends_of_turn();
    return std::move(spec_);
  }

 private:
  static std::string kind_of(const std::string& model) {
    if (model == "gpt2" || model == "gemma4") return "bpe";  // Gemma 4's files name no pre-tokenizer
    if (model == "llama") return "spm";
    if (model == "t5") return "unigram";
    if (model == "bert") return "wordpiece";
    return model;
  }

  Error error(std::string_view name, const std::string& what) const {
    return Error::corrupt(fmt::format("{}: metadata key '{}{}': {}", file_, kPrefix, name, what));
  }

  Result<void> take_arrays() {
    size_t count = metadata_.tokens.size();
    if (count > static_cast<size_t>(INT32_MAX)) return error("tokens", fmt::format("holds {} tokens; too many", count));
    if (!metadata_.scores.empty() && metadata_.scores.size() != count) {
      return error("scores", fmt::format("holds {} values for {} tokens", metadata_.scores.size(), count));
    }
    if (!metadata_.token_types.empty() && metadata_.token_types.size() != count) {
      return error("token_type", fmt::format("holds {} values for {} tokens", metadata_.token_types.size(), count));
    }
    spec_.types.reserve(metadata_.token_types.size());
    for (size_t i = 0; i < metadata_.token_types.size(); ++i) {
      int32_t type = metadata_.token_types[i];
      const auto known = type == 0 ? TokenType::normal : find_enumerator<TokenType>(type);
      if (!known) return error("token_type", fmt::format("type of token {} is {}; 1 to 6 are known", i, type));
      spec_.types.push_back(*known);
    }
    spec_.tokens = std::move(metadata_.tokens);
    spec_.scores = std::move(metadata_.scores);
    spec_.merges = std::move(metadata_.merges);
    spec_.precompiled_charsmap = std::move(metadata_.charsmap);
    return {};
  }

  // `strict`: an id outside the vocabulary is an error; otherwise the token counts as absent (converters write the
  // padded size of the embedding there).
  Result<void> read_id(std::string_view name, std::optional<TokenId>& id, bool strict) {
    std::string key = full_key(name);
    if (metadata_.has(key)) {
      std::optional<int64_t> value = metadata_.integer(key);
      if (!value) return error(name, "is not an integer");
      bool none = *value == -1 || *value == int64_t{UINT32_MAX};
      bool inside = *value >= 0 && *value < static_cast<int64_t>(spec_.tokens.size());
      if (!none && !inside && strict) {
        return error(name, fmt::format("id {} is outside the vocabulary of {} tokens", *value, spec_.tokens.size()));
      }
      id = none || !inside ? std::nullopt : std::optional(static_cast<TokenId>(*value));
    }
    if (id && static_cast<size_t>(*id) >= spec_.tokens.size()) id = std::nullopt;  // a default outside the vocabulary
    return {};
  }

  Result<void> read_ids() {
    MILLRACE_TRY_VOID(read_id("bos_token_id", spec_.bos, true));
    MILLRACE_TRY_VOID(read_id("eos_token_id", spec_.eos, true));
    MILLRACE_TRY_VOID(read_id("eot_token_id", spec_.eot, true));
    MILLRACE_TRY_VOID(read_id("eom_token_id", spec_.eom, true));
    MILLRACE_TRY_VOID(read_id("unknown_token_id", spec_.unk, false));
    MILLRACE_TRY_VOID(read_id("padding_token_id", spec_.pad, false));
    MILLRACE_TRY_VOID(read_id("separator_token_id", spec_.sep, false));
    MILLRACE_TRY_VOID(read_id("seperator_token_id", spec_.sep, false));  // [sic]: the spelling in GGUF files
    MILLRACE_TRY_VOID(read_id("cls_token_id", spec_.cls, false));
    MILLRACE_TRY_VOID(read_id("mask_token_id", spec_.mask, false));
    MILLRACE_TRY_VOID(read_id("prefix_token_id", spec_.fim_prefix, false));
    MILLRACE_TRY_VOID(read_id("suffix_token_id", spec_.fim_suffix, false));
    MILLRACE_TRY_VOID(read_id("middle_token_id", spec_.fim_middle, false));
    MILLRACE_TRY_VOID(read_id("fim_pre_token_id", spec_.fim_prefix, false));
    MILLRACE_TRY_VOID(read_id("fim_suf_token_id", spec_.fim_suffix, false));
    MILLRACE_TRY_VOID(read_id("fim_mid_token_id", spec_.fim_middle, false));
    return {};
  }

  Result<void> read_flag(std::string_view name, bool& flag) {
    std::string key = full_key(name);
    if (!metadata_.has(key)) return {};
    std::optional<bool> value = metadata_.boolean(key);
    if (!value) return error(name, "is not a boolean");
    flag = *value;
    return {};
  }

  Result<void> read_flags() {
    MILLRACE_TRY_VOID(read_flag("add_bos_token", spec_.add_bos));
    MILLRACE_TRY_VOID(read_flag("add_eos_token", spec_.add_eos));
    // XLM-RoBERTa's pairs have two separators; the files of older converters do not say so.
    if (spec_.kind == "unigram" && spec_.sep) spec_.add_sep = true;
    MILLRACE_TRY_VOID(read_flag("add_sep_token", spec_.add_sep));
    MILLRACE_TRY_VOID(read_flag("add_space_prefix", spec_.add_space_prefix));
    MILLRACE_TRY_VOID(read_flag("remove_extra_whitespaces", spec_.remove_extra_whitespaces));
    return {};
  }

  // Some converters type end-of-turn tokens as user-defined; only control tokens are recognized by name alone.
  void add_ends_of_turn() {
    infer_end_of_generation(spec_);
    for (size_t i = 0; i < spec_.types.size(); ++i) {
      bool ends = spec_.types[i] == TokenType::user_defined &&
                  is_one_of(spec_.tokens[i], {"<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>"});
      auto id = static_cast<TokenId>(i);
      if (ends && std::find(spec_.eog.begin(), spec_.eog.end(), id) == spec_.eog.end()) spec_.eog.push_back(id);
    }
    std::sort(spec_.eog.begin(), spec_.eog.end());
  }

  GgufMetadata& metadata_;
  const std::string& file_;
  TokenizerSpec spec_;
};

}  // namespace

Result<std::optional<TokenizerSpec>> read_gguf_tokenizer(GgufMetadata& metadata, const std::string& file) {
  std::string key = full_key("model");
  if (!metadata.has(key)) return std::optional<TokenizerSpec>();
  std::optional<std::string> model = metadata.text(key);
  if (!model) return Error::corrupt(fmt::format("{}: metadata key '{}': is not a string", file, key));
  if (*model == "none" || *model == "no_vocab" || metadata.tokens.empty()) return std::optional<TokenizerSpec>();
  MILLRACE_TRY(TokenizerSpec spec, SpecReader(metadata, file).read(*model));
  return std::optional(std::move(spec));
}

}  // namespace millrace
