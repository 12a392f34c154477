// SpecBuilder: what the JSON readers share: placing tokens by id with bounds, looking tokens up by text, and
// reading loosely typed JSON fields without exceptions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace {

// Ids may leave holes (padded vocabularies), but not so many that memory follows a number in a file rather
// than the file: at most kIdSlack + 4 * entries.
constexpr size_t kIdSlack = 1 << 16;

class SpecBuilder {
 public:
  explicit SpecBuilder(TokenizerSpec& spec);

  // At least this many tokens are about to be placed, in any order of ids.
  void expect(size_t tokens) { expected_ = tokens; }
  // Error: corrupt when the id is negative, absurd, or taken by another text.
  Result<void> place(std::string_view text, int64_t id);
  // The same for a token that is split out of the text; replaces an earlier type.
  Result<void> place_special(std::string_view text, int64_t id, bool control);
  // Any id that has this text; nullopt when none has.
  std::optional<TokenId> find(std::string_view text) const;
  // Gives holes an empty, unused token. Call last.
  void finish();

 private:
  TokenizerSpec* spec_;
  size_t placed_ = 0, expected_ = 0;
  std::unordered_map<std::string, TokenId> ids_;
};

// nullptr when `object` is no object or lacks the key.
const nlohmann::json* json_find(const nlohmann::json& object, const char* key);
bool json_bool(const nlohmann::json& object, const char* key, bool otherwise);
std::string json_string(const nlohmann::json& object, const char* key, std::string_view otherwise = {});
int64_t json_int(const nlohmann::json& object, const char* key, int64_t otherwise);
// A token given as "text" or as {"content": "text"}; empty when absent or null.
std::string json_token(const nlohmann::json& object, const char* key);

}  // namespace millrace
