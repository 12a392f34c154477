// API keys: who may ask, as what, and how much. A keys file is JSON; a key in it may stand as its SHA-256 alone, so
// that the file holds no secret:
//
//   {"keys": [{"name": "alice", "key_sha256": "2bd8...", "role": "user", "weight": 2,
//              "requests_per_minute": 60, "tokens_per_minute": 20000, "tokens_per_day": 1000000, "streams": 4},
//             {"name": "ops", "key": "plain text", "role": "admin"}]}
//
// In memory there are digests only, all of one length: comparing one with every key takes the same time whichever it
// is.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

using KeyDigest = std::array<uint8_t, 32>;  // SHA-256

KeyDigest key_digest(std::string_view key);
bool same_digest(const KeyDigest& left, const KeyDigest& right);  // in constant time

// 0: no such limit.
struct KeyLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;      // of prompts and answers
  int64_t tokens_per_day = 0;         // the same, of a day in UTC
  int64_t tokens_total = 0;           // the same, since the server started
  int64_t streams = 0;                // answers under way at once
  int64_t files = 0, file_bytes = 0;  // kept of it; 0: as the server has it for all
};

struct ApiKey {
  std::string name;  // whose: letters, digits, '.', '_' and '-'
  KeyDigest digest{};
  bool admin = false;  // may change the server and see what others do
  double weight = 1;   // share of the machine, where the policy looks at it
  KeyLimits limits;
  std::string cache_group;  // keys of the same group find each other's prefixes; "": nobody finds this one's
};

// Errors (user): what is wrong, and with which key.
Result<std::vector<ApiKey>> parse_api_keys(std::string_view text, const std::string& source);

struct KeysFile {
  std::vector<ApiKey> keys;
  std::string warning;  // others may read secrets in it; "": all is well
};
Result<KeysFile> read_api_keys(const std::string& path);

// A key given by itself: an administrator's, without limits.
ApiKey plain_api_key(std::string_view key, size_t number);

}  // namespace millrace
