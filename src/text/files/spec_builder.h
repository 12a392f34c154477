// SpecBuilder: shared by the JSON readers. Places tokens by id with bounds checks, finds tokens by text, and reads
// loosely typed JSON fields without exceptions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "text/tokenizer.h"

namespace millrace {

// Ids may have gaps (padded vocabularies), but memory must stay proportional to the size of the file: the largest id is
// at most kIdSlack + 4 * entries.
constexpr size_t kIdSlack = 1 << 16;

class SpecBuilder {
 public:
  explicit SpecBuilder(TokenizerSpec& spec);

  // The expected minimum number of tokens, which may be placed in any order.
  void expect(size_t tokens) { expected_ = tokens; }
  // Error: corrupt if the id is negative, too large, or used by another text.
  Result<void> place(std::string_view text, int64_t id);
  // Places a special token, which is matched before merging; replaces an earlier type.
  Result<void> place_special(std::string_view text, int64_t id, bool control);
  // An id with this text, or nullopt.
  std::optional<TokenId> find(std::string_view text) const;
  // Fills gaps with empty, unused tokens. Call last.
  void finish();

 private:
  TokenizerSpec* spec_;
  size_t placed_ = 0, expected_ = 0;
  std::unordered_map<std::string, TokenId> ids_;
};

// nullptr if `object` is not an object or lacks the key.
const nlohmann::json* json_find(const nlohmann::json& object, const char* key);
bool json_bool(const nlohmann::json& object, const char* key, bool otherwise);
std::string json_string(const nlohmann::json& object, const char* key, std::string_view otherwise = {});
int64_t json_int(const nlohmann::json& object, const char* key, int64_t otherwise);
// A token given as "text" or as {"content": "text"}; empty if absent or null.
std::string json_token(const nlohmann::json& object, const char* key);
// Replaces the flags of the added token `id` by those of its JSON object. An absent "normalized" is the opposite of
// "special", as in Hugging Face tokenizers.
void set_added_flags(const nlohmann::json& token, TokenId id, TokenizerSpec& spec);

}  // namespace millrace
