// The levels of the KV codec kvquant that were fitted to a text, and their file: JSON, as `millrace kv-levels` writes
// it.
//
//   {"file": "millrace KV levels", "model": NAME, "bits": 3, "layers": [{"keys": [-1, ...], "values": [-1, ...]}, ...]}
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "kv/codecs/normal_codes.h"

namespace millrace {

// The levels of one layer: 2^bits ascending numbers within -1 and 1, all exact f16s, then zeros.
struct KvQuantCodes {
  NormalCodes keys{}, values{};
};

struct KvQuantLevels {
  int bits = 0;
  std::vector<KvQuantCodes> layers;

  std::string digest() const;  // 16 hexadecimal digits; "" without layers
};

// Errors: user (not there), corrupt (no such file, or levels that break the rules above).
Result<KvQuantLevels> read_kvquant_levels(const std::string& path);
// Errors: resource.
Result<void> write_kvquant_levels(const std::string& path, const KvQuantLevels& levels, const std::string& model);

}  // namespace millrace
