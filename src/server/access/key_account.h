// KeyAccount: what one API key has used, against its limits. Minutes are buckets that fill evenly: a limit of 60 lets
// 60 come at once and then one a second. Prompt tokens are charged when a request begins, an answer's as they come; a
// bucket may be overdrawn by that, and what is owed is waited for. Times are Unix seconds, from the caller.
// Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "server/access/api_keys.h"
#include "server/api/api_error.h"

namespace millrace {

// For metrics and operators. Counts are since the server started.
struct KeyUsage {
  std::string name;
  bool admin = false;
  int64_t requests = 0;
  int64_t refused = 0;  // by its limits
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t streams = 0;  // now
  KeyLimits limits;
};

class KeyAccount {
 public:
  explicit KeyAccount(ApiKey key) : key_(std::move(key)) {}

  ApiKey key() const;
  void change(ApiKey key);  // the same name; what was used stays used

  // A request has come: its head is here. The error says when to come again.
  std::optional<ApiError> take_request(double now);
  // Its prompts are known: charges them, and opens `answers` streams, which end() closes.
  std::optional<ApiError> begin(int64_t prompt_tokens, int64_t answers, double now);
  void generated(int64_t tokens, double now);
  void end(int64_t answers);
  void give_back(int64_t prompt_tokens, double now);  // of a request that began and came to nothing

  HttpHeaders headers(double now) const;  // x-ratelimit-*, for the limits there are
  KeyUsage usage() const;

 private:
  struct Bucket {
    double used = 0;  // of the limit; falls by limit / 60 a second
    double when = 0;  // of `used`
    double at(int64_t limit, double now) const;
    void take(int64_t limit, double amount, double now);
    // Until `amount` more fit under the limit; an amount above the limit waits for an empty bucket.
    double wait(int64_t limit, double amount, double now) const;
  };
  ApiError too_many(const char* what, int64_t limit, double wait);
  void charge(int64_t tokens, double now);
  std::optional<ApiError> over_quota(int64_t tokens, double now);

  mutable std::mutex mutex_;
  ApiKey key_;
  Bucket requests_, tokens_;
  int64_t day_ = -1, day_tokens_ = 0;  // of this day
  KeyUsage usage_;
};

// The streams of one request, and where their tokens are charged; closed when it goes.
class KeyUse {
 public:
  KeyUse(std::shared_ptr<KeyAccount> account, int64_t prompt_tokens, int64_t answers)
      : account_(std::move(account)), prompt_tokens_(prompt_tokens), answers_(answers) {}
  ~KeyUse() { account_->end(answers_); }
  KeyUse(const KeyUse&) = delete;
  void generated(int64_t tokens) const;
  void give_back() const;  // the engine did not take it

 private:
  std::shared_ptr<KeyAccount> account_;
  int64_t prompt_tokens_, answers_;
};

double unix_seconds();

}  // namespace millrace
