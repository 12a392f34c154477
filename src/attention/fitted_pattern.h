// FittedPattern: the interface of patterns that were fitted to one model and read the fit from a file.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "kv/pool.h"

namespace millrace {

class FittedPattern {
 public:
  virtual ~FittedPattern() = default;
  // Errors: user (the model's layers, heads or dims differ from the file's).
  virtual Result<void> check_layers(std::span<const KvLayer> layers) const = 0;
  // Returns a digest of the file's contents, 16 hexadecimal digits. Stored keys and values are valid only for this
  // digest.
  virtual std::string digest() const = 0;
};

}  // namespace millrace
