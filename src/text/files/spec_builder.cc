#include "text/files/spec_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"

namespace millrace {

using nlohmann::json;

SpecBuilder::SpecBuilder(TokenizerSpec& spec) : spec_(&spec) {
  spec.types.resize(spec.tokens.size(), TokenType::normal);
  placed_ = spec.tokens.size();
  for (size_t i = 0; i < spec.tokens.size(); ++i) ids_.emplace(spec.tokens[i], static_cast<TokenId>(i));
}

Result<void> SpecBuilder::place(std::string_view text, int64_t id) {
  if (id < 0 || static_cast<uint64_t>(id) > kIdSlack + 4 * std::max(placed_ + 1, expected_)) {
    return Error::corrupt(
        fmt::format("tokenizer: id of token '{}' does not fit a vocabulary of this size: {} after {} tokens",
                    text.substr(0, 60), id, placed_));
  }
  const auto index = static_cast<size_t>(id);
  if (index >= spec_->tokens.size()) {
    spec_->tokens.resize(index + 1);
    spec_->types.resize(index + 1, TokenType::unused);
    if (!spec_->scores.empty()) spec_->scores.resize(index + 1, 0.0f);
  }
  std::string& slot = spec_->tokens[index];
  if (!slot.empty() && slot != text) {
    return Error::corrupt(fmt::format("tokenizer: two tokens have the same id: '{}' and '{}' both are {}",
                                      slot.substr(0, 60), text.substr(0, 60), id));
  }
  slot = text;
  if (spec_->types[index] == TokenType::unused) spec_->types[index] = TokenType::normal;
  ids_.emplace(slot, static_cast<TokenId>(id));
  ++placed_;
  return {};
}

Result<void> SpecBuilder::place_special(std::string_view text, int64_t id, bool control) {
  MILLRACE_TRY_VOID(place(text, id));
  spec_->types[static_cast<size_t>(id)] = control ? TokenType::control : TokenType::user_defined;
  ids_.insert_or_assign(std::string(text), static_cast<TokenId>(id));
  return {};
}

std::optional<TokenId> SpecBuilder::find(std::string_view text) const {
  const auto it = ids_.find(std::string(text));
  if (text.empty() || it == ids_.end()) return std::nullopt;
  return it->second;
}

void SpecBuilder::finish() {
  for (size_t i = 0; i < spec_->tokens.size(); ++i) {
    if (spec_->tokens[i].empty()) spec_->types[i] = TokenType::unused;
  }
}

const json* json_find(const json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

bool json_bool(const json& object, const char* key, bool otherwise) {
  const json* value = json_find(object, key);
  return value && value->is_boolean() ? value->get<bool>() : otherwise;
}

std::string json_string(const json& object, const char* key, std::string_view otherwise) {
  const json* value = json_find(object, key);
  return value && value->is_string() ? value->get_ref<const std::string&>() : std::string(otherwise);
}

int64_t json_int(const json& object, const char* key, int64_t otherwise) {
  const json* value = json_find(object, key);
  if (!value || !value->is_number_integer()) return otherwise;
  if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) return otherwise;
  return value->get<int64_t>();
}

std::string json_token(const json& object, const char* key) {
  const json* value = json_find(object, key);
  if (!value) return {};
  return value->is_string() ? value->get_ref<const std::string&>() : json_string(*value, "content");
}

void set_added_flags(const json& token, TokenId id, TokenizerSpec& spec) {
  AddedTokenFlags flags;
  flags.id = id;
  flags.lstrip = json_bool(token, "lstrip", false);
  flags.rstrip = json_bool(token, "rstrip", false);
  flags.single_word = json_bool(token, "single_word", false);
  flags.normalized = json_bool(token, "normalized", !json_bool(token, "special", false));
  std::erase_if(spec.added_flags, [&](const AddedTokenFlags& f) { return f.id == id; });
  if (flags.lstrip || flags.rstrip || flags.single_word || flags.normalized) spec.added_flags.push_back(flags);
}

}  // namespace millrace
