// API keys with their roles and limits, read from a JSON file. A key can be given as its SHA-256, so that the file
// contains no secret:
//
//   {"keys": [{"name": "alice", "key_sha256": "2bd8...", "role": "user", "weight": 2,
//              "requests_per_minute": 60, "tokens_per_minute": 20000, "tokens_per_day": 1000000, "streams": 4},
//             {"name": "ops", "key": "plain text", "role": "admin"}]}
//
// Only digests are held in memory; the text of the file is overwritten once it has been read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/access/key_digest.h"

namespace millrace {

// 0: no limit.
struct KeyLimits {
  int64_t requests_per_minute = 0;
  int64_t tokens_per_minute = 0;      // prompts and answers
  int64_t tokens_per_day = 0;         // prompts and answers per UTC day
  int64_t tokens_total = 0;           // prompts and answers since the server started
  int64_t streams = 0;                // concurrent answers
  int64_t files = 0, file_bytes = 0;  // stored files; 0: the server's default
};

struct ApiKey {
  std::string name;  // letters, digits, '.', '_' and '-'
  KeyDigest digest{};
  bool admin = false;  // may change the server and see other clients' requests
  double weight = 1;   // share of the engine under a weighted policy
  KeyLimits limits;
  std::string cache_group;  // keys of a group share cached prefixes; "": not shared
};

// Errors (user) name the key and the problem.
Result<std::vector<ApiKey>> parse_api_keys(std::string_view text, const std::string& source);

struct KeysFile {
  std::vector<ApiKey> keys;
  std::string warning;  // the file's permissions are too open; "": none
};
Result<KeysFile> read_api_keys(const std::string& path);

// The content of a file with keys, which the caller overwrites (base/secret_memory.h). Errors: corrupt.
inline constexpr size_t kMaxKeysFileBytes = size_t{4} << 20;
Result<std::string> read_secret_file(const std::string& path, size_t most_bytes);

// A key without a file entry: role admin, no limits.
ApiKey plain_api_key(std::string_view key, size_t number);

}  // namespace millrace
