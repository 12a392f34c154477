#include "sampling/schema.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <variant>

#include "base/json_text.h"
#include "base/ordered_json.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;
using Options = SamplingOptions;
using Number = double Options::*;
using Integer = int64_t Options::*;
using Unsigned = uint64_t Options::*;
using Tokens = std::vector<TokenId> Options::*;
using Strings = std::vector<std::string> Options::*;
using Bias = std::map<TokenId, double> Options::*;

struct Row {
  OptionSpec spec;
  std::variant<Number, Integer, Unsigned, Tokens, Strings, Bias> field;
};

constexpr double kMaxTokens = 2147483647;
constexpr size_t kMaxBreakers = 256;
constexpr size_t kMaxBreakerBytes = 1024;

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
      {{"seed", Type::integer, "0", 0, 18446744073709551615.0,
        "seed of the random draws; a token depends only on the seed and its position"},
       &Options::seed},
      {{"repetition_penalty", Type::number, "1", 0.01, 100,
        "divides positive and multiplies negative logits of recent tokens; 1: off"},
       &Options::repetition_penalty},
      {{"frequency_penalty", Type::number, "0", -100, 100, "subtracted per recent occurrence of a token; 0: off"},
       &Options::frequency_penalty},
      {{"presence_penalty", Type::number, "0", -100, 100, "subtracted once from tokens that occurred recently; 0: off"},
       &Options::presence_penalty},
      {{"penalty_window", Type::integer, "64", -1, kMaxTokens, "tokens the penalties look back; 0: none, -1: all"},
       &Options::penalty_window},
      {{"dry_multiplier", Type::number, "0", 0, 1000, "strength of DRY, which penalises repeated sequences; 0: off"},
       &Options::dry_multiplier},
      {{"dry_base", Type::number, "1.75", 1, 100, "growth of the DRY penalty per token of the repeated sequence"},
       &Options::dry_base},
      {{"dry_allowed_length", Type::integer, "2", 1, kMaxTokens, "shortest repetition that DRY penalises, in tokens"},
       &Options::dry_allowed_length},
      {{"dry_window", Type::integer, "-1", -1, kMaxTokens, "tokens DRY looks back; 0: none, -1: all"},
       &Options::dry_window},
      {{"dry_breakers", Type::text, R"(["\n", ":", "\"", "*"])", 0, 0,
        "JSON array of strings that no repeated sequence crosses"},
       &Options::dry_breakers},
      {{"logit_bias", Type::text, "", 0, 0, "ID:BIAS,ID:BIAS added to the logits of tokens; -inf bans one"},
       &Options::logit_bias},
      {{"banned_tokens", Type::text, "", 0, 0, "ID,ID of tokens that are never sampled"}, &Options::banned_tokens},
      {{"allowed_tokens", Type::text, "", 0, 0, "ID,ID of the only tokens that may be sampled; empty: all"},
       &Options::allowed_tokens},
      {{"top_n_sigma", Type::number, "-1", -1, 1000,
        "keeps logits within n standard deviations of the largest; 0 or less: off"},
       &Options::top_n_sigma},
      {{"top_k", Type::integer, "40", -1, kMaxTokens, "keeps the k most likely tokens; 0 or less: off"},
       &Options::top_k},
      {{"typical_p", Type::number, "1", 0, 1, "keeps the most typical tokens up to this mass; 1: off"},
       &Options::typical_p},
      {{"top_p", Type::number, "0.95", 0, 1, "keeps the most likely tokens up to this mass; 1: off"}, &Options::top_p},
      {{"min_p", Type::number, "0.05", 0, 1, "keeps tokens at least this fraction as likely as the best; 0: off"},
       &Options::min_p},
      {{"xtc_probability", Type::number, "0", 0, 1, "how often XTC drops the top choices; 0: off"},
       &Options::xtc_probability},
      {{"xtc_threshold", Type::number, "0.1", 0, 1, "minimum probability of a top choice; above 0.5: off"},
       &Options::xtc_threshold},
      {{"temperature", Type::number, "0.8", 0, 1000, "divides the logits: higher is more varied; 0: greedy"},
       &Options::temperature},
      {{"dynamic_temperature_range", Type::number, "0", 0, 1000,
        "temperature moves within t - range .. t + range by entropy; 0: off"},
       &Options::dynamic_temperature_range},
      {{"dynamic_temperature_exponent", Type::number, "1", 0, 100,
        "power of the relative entropy in dynamic temperature"},
       &Options::dynamic_temperature_exponent},
      {{"mirostat", Type::integer, "0", 0, 2, "2: mirostat v2 instead of the truncating steps; 0: off"},
       &Options::mirostat},
      {{"mirostat_tau", Type::number, "5", 0, 100, "mirostat's target surprise, in bits"}, &Options::mirostat_tau},
      {{"mirostat_eta", Type::number, "0.1", 0, 10, "learning rate of mirostat"}, &Options::mirostat_eta},
      {{"logprobs", Type::integer, "-1", -1, 1000,
        "log-probabilities of the sampled token and this many best tokens; -1: none"},
       &Options::logprobs},
  };
  return table;
}

Error out_of_bounds(const OptionSpec& spec, const std::string& value) {
  return Error::user(fmt::format("{}: must be between {} and {}, got {}", spec.name, spec.min, spec.max, value));
}
Error wrong_type(const OptionSpec& spec, const char* expected, std::string_view value) {
  return Error::user(fmt::format("{}: expected {}, got '{}'", spec.name, expected, value));
}

template <typename T>
bool parse_whole(std::string_view text, T* out) {
  auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return status == std::errc() && end == text.data() + text.size();
}

template <typename T>
Result<void> check_bounds(const OptionSpec& spec, T value) {
  auto number = static_cast<double>(value);
  if (!(number >= spec.min && number <= spec.max)) return out_of_bounds(spec, fmt::format("{}", value));
  return {};
}

Result<void> check_breakers(const OptionSpec& spec, const std::vector<std::string>& breakers) {
  if (breakers.size() > kMaxBreakers) {
    return Error::user(fmt::format("{}: at most {} strings, got {}", spec.name, kMaxBreakers, breakers.size()));
  }
  for (const auto& breaker : breakers) {
    if (breaker.empty() || breaker.size() > kMaxBreakerBytes) {
      return Error::user(
          fmt::format("{}: each string must have 1 to {} bytes, got {}", spec.name, kMaxBreakerBytes, breaker.size()));
    }
  }
  return {};
}

Result<void> check_token(const OptionSpec& spec, TokenId token, int64_t vocab_size) {
  if (token < 0 || token >= vocab_size) {
    return Error::user(fmt::format("{}: token ids must be between 0 and {} in this vocabulary, got {}", spec.name,
                                   vocab_size - 1, token));
  }
  return {};
}

Result<void> check_bias(const OptionSpec& spec, double bias) {
  if (std::isnan(bias) || bias > 1e6) {
    return Error::user(fmt::format("{}: a bias must be a number up to 1e6 or -inf, got {}", spec.name, bias));
  }
  return {};
}

template <typename T>
Result<void> set_number(const OptionSpec& spec, const char* expected, std::string_view text, T* field) {
  T value{};
  if (!parse_whole(text, &value)) return wrong_type(spec, expected, text);
  MILLRACE_TRY_VOID(check_bounds(spec, value));
  *field = value;
  return {};
}

// Calls item(text) for each comma-separated part; an empty text has none.
template <typename Item>
Result<void> for_each_item(std::string_view text, Item item) {
  while (!text.empty()) {
    size_t comma = text.find(',');
    MILLRACE_TRY_VOID(item(text.substr(0, comma)));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return {};
}

Result<void> set_tokens(const OptionSpec& spec, std::string_view text, std::vector<TokenId>* field) {
  std::vector<TokenId> tokens;
  MILLRACE_TRY_VOID(for_each_item(text, [&](std::string_view item) -> Result<void> {
    TokenId token = 0;
    if (!parse_whole(item, &token) || token < 0) return wrong_type(spec, "token ids like 1,2,3", item);
    tokens.push_back(token);
    return {};
  }));
  *field = std::move(tokens);
  return {};
}

Result<void> set_bias(const OptionSpec& spec, std::string_view text, std::map<TokenId, double>* field) {
  std::map<TokenId, double> biases;
  MILLRACE_TRY_VOID(for_each_item(text, [&](std::string_view item) -> Result<void> {
    TokenId token = 0;
    double bias = 0;
    size_t colon = item.find(':');
    if (colon == std::string_view::npos || !parse_whole(item.substr(0, colon), &token) || token < 0 ||
        !parse_whole(item.substr(colon + 1), &bias)) {
      return wrong_type(spec, "ID:BIAS,ID:BIAS", item);
    }
    biases[token] = bias;
    return check_bias(spec, bias);
  }));
  *field = std::move(biases);
  return {};
}

Result<void> set_strings(const OptionSpec& spec, std::string_view text, std::vector<std::string>* field) {
  auto json = parse_json<nlohmann::json>(text);
  if (!json.is_array()) return wrong_type(spec, "a JSON array of strings", text);
  std::vector<std::string> strings;
  for (const auto& item : json) {
    if (!item.is_string()) return wrong_type(spec, "a JSON array of strings", text);
    strings.push_back(*item.get_ptr<const std::string*>());
  }
  MILLRACE_TRY_VOID(check_breakers(spec, strings));
  *field = std::move(strings);
  return {};
}

struct SetField {
  const OptionSpec& spec;
  Options& options;
  std::string_view text;
  Result<void> operator()(Number f) const { return set_number(spec, "a number", text, &(options.*f)); }
  Result<void> operator()(Integer f) const { return set_number(spec, "an integer", text, &(options.*f)); }
  Result<void> operator()(Unsigned f) const {
    return set_number(spec, "a whole number from 0 to 2^64 - 1", text, &(options.*f));
  }
  Result<void> operator()(Tokens f) const { return set_tokens(spec, text, &(options.*f)); }
  Result<void> operator()(Strings f) const { return set_strings(spec, text, &(options.*f)); }
  Result<void> operator()(Bias f) const { return set_bias(spec, text, &(options.*f)); }
};

struct CheckField {
  const OptionSpec& spec;
  const Options& options;
  int64_t vocab_size;
  Result<void> operator()(Number f) const { return check_bounds(spec, options.*f); }
  Result<void> operator()(Integer f) const { return check_bounds(spec, options.*f); }
  Result<void> operator()(Unsigned) const { return {}; }
  Result<void> operator()(Strings f) const { return check_breakers(spec, options.*f); }
  Result<void> operator()(Tokens f) const {
    for (TokenId token : options.*f) MILLRACE_TRY_VOID(check_token(spec, token, vocab_size));
    return {};
  }
  Result<void> operator()(Bias f) const {
    for (auto [token, bias] : options.*f) {
      MILLRACE_TRY_VOID(check_token(spec, token, vocab_size));
      MILLRACE_TRY_VOID(check_bias(spec, bias));
    }
    return {};
  }
};

}  // namespace

std::span<const OptionSpec> sampling_schema() {
  static const std::vector<OptionSpec> schema = [] {
    std::vector<OptionSpec> specs;
    for (const auto& row : rows()) specs.push_back(row.spec);
    return specs;
  }();
  return schema;
}

std::vector<OptionSpec> sampling_options(std::initializer_list<std::string_view> names) {
  std::vector<OptionSpec> out;
  for (auto name : names) {
    for (const auto& row : rows()) {
      if (row.spec.name == name) out.push_back(row.spec);
    }
  }
  return out;
}

Result<void> set_sampling_option(SamplingOptions& options, std::string_view name, std::string_view value) {
  for (const auto& row : rows()) {
    if (row.spec.name == name) return std::visit(SetField{row.spec, options, value}, row.field);
  }
  return Error::user(fmt::format("{}: unknown sampling option; `millrace techniques` lists them", name));
}

namespace {

struct FieldText {
  const Options& options;

  std::string operator()(Number field) const { return fmt::format("{}", options.*field); }
  std::string operator()(Integer field) const { return fmt::format("{}", options.*field); }
  std::string operator()(Unsigned field) const { return fmt::format("{}", options.*field); }
  std::string operator()(Tokens field) const {
    std::string out;
    for (TokenId token : options.*field) out += (out.empty() ? "" : ",") + std::to_string(token);
    return out;
  }
  std::string operator()(Strings field) const {
    return nlohmann::json(options.*field).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  }
  std::string operator()(Bias field) const {
    std::string out;
    for (const auto& [token, bias] : options.*field) out += fmt::format("{}{}:{}", out.empty() ? "" : ",", token, bias);
    return out;
  }
};

}  // namespace

std::string sampling_option_text(const SamplingOptions& options, std::string_view name) {
  for (const auto& row : rows()) {
    if (row.spec.name == name) return std::visit(FieldText{options}, row.field);
  }
  return "";
}

Result<void> validate(const SamplingOptions& options, int64_t vocab_size) {
  for (const auto& row : rows()) {
    MILLRACE_TRY_VOID(std::visit(CheckField{row.spec, options, vocab_size}, row.field));
  }
  if (options.mirostat == 1) return Error::unsupported("mirostat: version 1 is not supported; use 2");
  return {};
}

}  // namespace millrace
