#include "models/draft_heads/lookahead_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

constexpr const char* kLookaheadTensor = "lookahead.weight";
constexpr int64_t kMaxLookaheadTokens = 64;

}  // namespace

Result<LookaheadTokens> LookaheadTokens::load(const std::string& path, const ArchSpec& target,
                                              std::shared_ptr<MemoryAccounts> accounts) {
  MILLRACE_TRY(const auto files, open_draft_files(path));
  const StoredTensor* stored = files->find(kLookaheadTensor);
  if (!stored) return Error::corrupt(fmt::format("{}: tensor {} is missing", files->path, kLookaheadTensor));
  const Tensor& rows = stored->tensor;
  if (!rows.format || rows.rank != 2 || rows.rows() < 1 || rows.rows() > kMaxLookaheadTokens)
    return Error::corrupt(fmt::format("{}: tensor {} must be a matrix of 1 to {} rows of numbers", files->path,
                                      kLookaheadTensor, kMaxLookaheadTokens));
  if (rows.cols() != target.width)
    return Error::user(fmt::format("{}: look-ahead tokens of a model of width {}; this one has width {}", files->path,
                                   rows.cols(), target.width));
  LookaheadTokens made;
  made.width_ = rows.cols();
  MILLRACE_TRY(made.memory_, MemoryHold::take(std::move(accounts), "draft model", 4 * rows.values(),
                                              "choose another drafter, or raise the budget"));
  made.values_.resize(static_cast<size_t>(rows.values()));
  for (int64_t i = 0; i < rows.rows(); ++i)
    rows.format->decode(rows.data + i * rows.format->row_bytes(rows.cols()), made.values_.data() + i * rows.cols(),
                        rows.cols());
  if (!std::ranges::all_of(made.values_, [](float value) { return std::isfinite(value); }))
    return Error::corrupt(fmt::format("{}: tensor {} has values that are not finite", files->path, kLookaheadTensor));
  return made;
}

}  // namespace millrace
