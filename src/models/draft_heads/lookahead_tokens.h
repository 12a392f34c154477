// PaSS's look-ahead tokens (Monea, Joulin and Grave, 2023, PaSS: Parallel Speculative Sampling, section 3.1): rows of
// the embedding table that were trained, on a frozen model, to be read behind a stream's last token. Behind the i-th of
// them, from 0 on, the model predicts the token i + 2 places behind the last one.
//
// Files: config.json, which may be empty, and one tensor, lookahead.weight [tokens, width], of rows as the model's
// table has them. The paper's authors have published none.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/arch_spec.h"
#include "models/draft_heads/draft_files.h"

namespace millrace {

class LookaheadTokens {
 public:
  // Errors: those of open_draft_files(); corrupt (the tensor), user (of a model of another width), resource.
  static Result<LookaheadTokens> load(const std::string& path, const ArchSpec& target,
                                      std::shared_ptr<MemoryAccounts> accounts = nullptr);

  int64_t count() const { return std::ssize(values_) / width_; }
  int64_t bytes() const { return 4 * std::ssize(values_); }
  std::span<const float> row(int64_t index) const {
    return std::span(values_).subspan(static_cast<size_t>(index * width_), static_cast<size_t>(width_));
  }

 private:
  int64_t width_ = 1;
  std::vector<float> values_;  // [count, width]
  MemoryHold memory_;
};

}  // namespace millrace
