// FittedPattern: the part of a pattern that depends on a file, for patterns that were fitted to one model.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "kv/pool.h"

namespace millrace {

class FittedPattern {
 public:
  virtual ~FittedPattern() = default;
  // Errors: user (layers, heads or dims that the file is not about).
  virtual Result<void> check_layers(std::span<const KvLayer> layers) const = 0;
  // 16 hexadecimal digits of the file's contents: keys and values in files belong to it.
  virtual std::string digest() const = 0;
};

}  // namespace millrace
