#include "server/generation/text_work.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr int64_t kFreeTextBytes = int64_t{32} << 10;  // covered by the account of the program
constexpr int64_t kPartOfBudget = 16;                  // of what is left after the weights
constexpr int64_t kBytesPerToken = 8;                  // of text; more than nearly all texts have
constexpr int64_t kMinSharedBytes = int64_t{4} << 20;
constexpr int64_t kMaxReserveBytes = int64_t{512} << 20;
constexpr const char* kPrompts = "prompts";

}  // namespace

Result<TextMemory> TextMemory::reserve(const std::shared_ptr<MemoryAccounts>& model, int64_t context) {
  TextMemory out;
  if (!model || model->budget() == 0) return out;
  const int64_t bytes = model->shares() ? std::clamp(context * kBytesPerToken * kTokenizingBytesPerByte,
                                                     kMinSharedBytes, kMaxReserveBytes)
                                        : std::clamp<int64_t>(model->left() / kPartOfBudget, 1, kMaxReserveBytes);
  MILLRACE_TRY(out.hold, MemoryHold::take(model, kPrompts, bytes, "raise --memory"));
  out.accounts = std::make_shared<MemoryAccounts>(bytes);
  return out;
}

std::optional<ApiError> TextWork::charge(const TextMemory& memory, int64_t bytes) {
  if (!memory.accounts || bytes <= std::max(charged_, kFreeTextBytes)) return std::nullopt;
  const int64_t needed = (bytes - charged_) * kTokenizingBytesPerByte, most = memory.accounts->budget();
  if (bytes * kTokenizingBytesPerByte > most)
    return ApiError{
        ApiErrorKind::too_large,
        fmt::format("the text has {} bytes; the memory budget has room to read {} at a time: shorten it, or raise "
                    "--memory",
                    bytes, most / kTokenizingBytesPerByte),
        ""};
  auto hold = MemoryHold::take(memory.accounts, kPrompts, needed, "");
  if (!hold.ok())
    return ApiError{ApiErrorKind::overloaded,
                    "other requests are being read in the memory for prompts; try again later", ""};
  holds_.push_back(std::move(*hold));
  charged_ = bytes;
  return std::nullopt;
}

ApiError TextWork::explain(const ApiError& error) const {
  const Time now = std::chrono::steady_clock::now();
  if (*cancelled) return {ApiErrorKind::draining, "the server is shutting down", ""};  // or no client reads it
  if (now >= request_until)
    return {ApiErrorKind::time_limit, "timeout: the request timed out while its prompt was being read", "timeout"};
  ApiError out = error;
  if (now >= until && error.kind == ApiErrorKind::overloaded)
    out.kind = ApiErrorKind::bad_request;  // sent again, it would take as long
  return out;
}

}  // namespace millrace
