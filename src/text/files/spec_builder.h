// SpecBuilder: fills a TokenizerSpec, for all JSON readers. It places tokens by id with bounds checks and finds tokens
// by text. The functions below read loosely typed JSON fields without exceptions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace {

// Ids may have gaps (padded vocabularies). The largest id is at most kIdSlack + 4 * entries, so that memory stays
// proportional to the size of the file.
constexpr size_t kIdSlack = 1 << 16;

class SpecBuilder {
 public:
  explicit SpecBuilder(TokenizerSpec& spec);

  // Sets the expected minimum number of tokens, which may be placed in any order.
  void expect(size_t tokens) { expected_ = tokens; }
  // Errors: corrupt (the id is negative, too large, or used by another text).
  Result<void> place(std::string_view text, int64_t id);
  // Places a special token, which is matched before merging. Replaces an earlier type of the token.
  Result<void> place_special(std::string_view text, int64_t id, bool control);
  // Returns an id with this text, or nullopt.
  std::optional<TokenId> find(std::string_view text) const;
  // Fills gaps with empty, unused tokens. Call last.
  void finish();

 private:
  TokenizerSpec* spec_;
  size_t placed_ = 0, expected_ = 0;
  std::unordered_map<std::string, TokenId> ids_;
};

// Returns null if `object` is not an object or lacks the key.
const nlohmann::json* json_find(const nlohmann::json& object, const char* key);
bool json_bool(const nlohmann::json& object, const char* key, bool otherwise);
std::string json_string(const nlohmann::json& object, const char* key, std::string_view otherwise = {});
int64_t json_int(const nlohmann::json& object, const char* key, int64_t otherwise);
// Returns a token's text, which is stored as "text" or {"content": "text"}; "" if absent or null.
std::string json_token(const nlohmann::json& object, const char* key);
// Replaces the flags of the added token `id` by the flags in its JSON object. If "normalized" is absent, it is the
// opposite of "special", as in Hugging Face tokenizers.
void set_added_flags(const nlohmann::json& token, TokenId id, TokenizerSpec& spec);

}  // namespace millrace
