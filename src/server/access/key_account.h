// KeyAccount: the usage of one API key and its rate limits and quotas. Per-minute limits are token buckets: a limit of
// 60 allows a burst of 60, then one a second. Prompt tokens are charged when a request begins, answer tokens as they
// are generated; that can overdraw a bucket, and later requests wait until the debt is paid. The caller passes the time
// in Unix seconds. Thread-safe.
#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "server/access/api_keys.h"
#include "server/api/api_error.h"

namespace millrace {

// For metrics and operators. Counts since the server started.
struct KeyUsage {
  std::string name;
  bool admin = false;
  int64_t requests = 0;
  int64_t refused = 0;  // rejected by its limits
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t streams = 0;  // running now
  KeyLimits limits;
};

class KeyAccount {
 public:
  explicit KeyAccount(ApiKey key) : key_(std::move(key)) {}

  ApiKey key() const;
  void change(ApiKey key);  // must have the same name; usage is retained

  // Charges one request, when its head has been read. An error says when to retry.
  std::optional<ApiError> take_request(double now);
  // Charges the prompt tokens and opens `answers` streams, which end() closes.
  std::optional<ApiError> begin(int64_t prompt_tokens, int64_t answers, double now);
  void generated(int64_t tokens, double now);
  void end(int64_t answers);
  void give_back(int64_t prompt_tokens, double now);  // refunds a request that the engine rejected

  HttpHeaders headers(double now) const;  // x-ratelimit-* for each limit that is set
  KeyUsage usage() const;

 private:
  struct Bucket {
    double used = 0;  // decreases by limit / 60 per second
    double when = 0;  // when `used` was computed
    double at(int64_t limit, double now) const;
    void take(int64_t limit, double amount, double now);
    // Seconds until `amount` more fits under the limit; an amount above the limit waits for an empty bucket.
    double wait(int64_t limit, double amount, double now) const;
  };
  ApiError too_many(const char* what, int64_t limit, double wait);
  void charge(int64_t tokens, double now);
  std::optional<ApiError> over_quota(int64_t tokens, double now);

  mutable std::mutex mutex_;
  ApiKey key_;
  Bucket requests_, tokens_;
  int64_t day_ = -1, day_tokens_ = 0;  // tokens used on this day
  KeyUsage usage_;
};

// The streams of one request and the account they are charged to; the destructor closes the streams.
class KeyUse {
 public:
  KeyUse(std::shared_ptr<KeyAccount> account, int64_t prompt_tokens, int64_t answers)
      : account_(std::move(account)), prompt_tokens_(prompt_tokens), answers_(answers) {}
  ~KeyUse() { account_->end(answers_); }
  KeyUse(const KeyUse&) = delete;
  void generated(int64_t tokens) const;
  void give_back() const;  // the engine rejected the request

 private:
  std::shared_ptr<KeyAccount> account_;
  int64_t prompt_tokens_, answers_;
};

double unix_seconds();

}  // namespace millrace
