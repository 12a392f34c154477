#include "server/access/key_account.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace millrace {
namespace {

constexpr double kDay = 86400;

int64_t day_of(double now) { return static_cast<int64_t>(std::floor(now / kDay)); }

// "6m0s", "1.5s", "20ms": OpenAI's duration format.
std::string span_text(double seconds) {
  if (seconds < 1) return fmt::format("{}ms", static_cast<int64_t>(std::ceil(seconds * 1e3)));
  if (seconds < 60) return fmt::format("{:g}s", std::ceil(seconds * 1e3) / 1e3);
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  return fmt::format("{}m{}s", whole / 60, whole % 60);
}

}  // namespace

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double KeyAccount::Bucket::at(int64_t limit, double now) const {
  return std::max(0.0, used - std::max(0.0, now - when) * static_cast<double>(limit) / 60);
}

void KeyAccount::Bucket::take(int64_t limit, double amount, double now) {
  used = std::max(0.0, at(limit, now) + amount);
  when = now;
}

double KeyAccount::Bucket::wait(int64_t limit, double amount, double now) const {
  const double room = static_cast<double>(limit) - std::min(amount, static_cast<double>(limit));
  return std::max(0.0, at(limit, now) - room) * 60 / static_cast<double>(limit);
}

ApiKey KeyAccount::key() const {
  std::lock_guard lock(mutex_);
  return key_;
}

void KeyAccount::change(ApiKey key) {
  std::lock_guard lock(mutex_);
  key_ = std::move(key);
}

ApiError KeyAccount::too_many(const char* what, int64_t limit, double wait) {
  ++usage_.refused;
  ApiError error{
      ApiErrorKind::rate_limited,
      fmt::format("rate limit of key '{}' reached: {} {}; try again in {}", key_.name, limit, what, span_text(wait)),
      ""};
  error.retry_seconds = wait;
  return error;
}

std::optional<ApiError> KeyAccount::take_request(double now) {
  std::lock_guard lock(mutex_);
  const int64_t limit = key_.limits.requests_per_minute;
  if (limit > 0) {
    if (const double wait = requests_.wait(limit, 1, now); wait > 0) return too_many("requests a minute", limit, wait);
    requests_.take(limit, 1, now);
  }
  ++usage_.requests;
  return std::nullopt;
}

std::optional<ApiError> KeyAccount::over_quota(int64_t tokens, double now) {
  if (day_ != day_of(now)) {
    day_ = day_of(now);
    day_tokens_ = 0;
  }
  const KeyLimits& limits = key_.limits;
  const int64_t used = usage_.prompt_tokens + usage_.generated_tokens;
  const bool total = limits.tokens_total > 0 && used + tokens > limits.tokens_total;
  if (!total && (limits.tokens_per_day == 0 || day_tokens_ + tokens <= limits.tokens_per_day)) return std::nullopt;
  ++usage_.refused;
  ApiError error{ApiErrorKind::no_quota, "", ""};
  if (total) {
    error.message = fmt::format("quota of key '{}' exceeded: {} of {} tokens are used and this request has {}",
                                key_.name, used, limits.tokens_total, tokens);
  } else {
    error.message = fmt::format("quota of key '{}' exceeded: {} of {} tokens a day are used and this request has {}",
                                key_.name, day_tokens_, limits.tokens_per_day, tokens);
    error.retry_seconds = (static_cast<double>(day_) + 1) * kDay - now;
  }
  return error;
}

std::optional<ApiError> KeyAccount::begin(int64_t prompt_tokens, int64_t answers, double now) {
  std::lock_guard lock(mutex_);
  const KeyLimits& limits = key_.limits;
  if (limits.streams > 0 && usage_.streams + answers > limits.streams) {
    ++usage_.refused;
    ApiError error{ApiErrorKind::rate_limited,
                   fmt::format("key '{}' is limited to {} concurrent answers; it has {} and requested {} more",
                               key_.name, limits.streams, usage_.streams, answers),
                   ""};
    error.retry_seconds = 1;
    return error;
  }
  if (auto refused = over_quota(prompt_tokens, now)) return refused;
  if (limits.tokens_per_minute > 0)
    if (const double wait = tokens_.wait(limits.tokens_per_minute, static_cast<double>(prompt_tokens), now); wait > 0)
      return too_many("tokens a minute", limits.tokens_per_minute, wait);
  usage_.prompt_tokens += prompt_tokens;
  usage_.streams += answers;
  charge(prompt_tokens, now);
  return std::nullopt;
}

void KeyAccount::charge(int64_t tokens, double now) {
  if (key_.limits.tokens_per_minute > 0) tokens_.take(key_.limits.tokens_per_minute, static_cast<double>(tokens), now);
  if (day_ != day_of(now)) {
    day_ = day_of(now);
    day_tokens_ = 0;
  }
  day_tokens_ = std::max<int64_t>(0, day_tokens_ + tokens);
}

void KeyAccount::generated(int64_t tokens, double now) {
  std::lock_guard lock(mutex_);
  usage_.generated_tokens += tokens;
  charge(tokens, now);
}

void KeyAccount::end(int64_t answers) {
  std::lock_guard lock(mutex_);
  usage_.streams -= answers;
}

void KeyAccount::give_back(int64_t prompt_tokens, double now) {
  std::lock_guard lock(mutex_);
  usage_.prompt_tokens -= prompt_tokens;
  charge(-prompt_tokens, now);
}

HttpHeaders KeyAccount::headers(double now) const {
  std::lock_guard lock(mutex_);
  HttpHeaders out;
  const auto add = [&](const char* what, int64_t limit, const Bucket& bucket) {
    if (limit == 0) return;
    const double used = bucket.at(limit, now);
    const double left = std::max(0.0, static_cast<double>(limit) - used);
    out.emplace_back(fmt::format("x-ratelimit-limit-{}", what), std::to_string(limit));
    out.emplace_back(fmt::format("x-ratelimit-remaining-{}", what), std::to_string(static_cast<int64_t>(left)));
    out.emplace_back(fmt::format("x-ratelimit-reset-{}", what), span_text(used * 60 / static_cast<double>(limit)));
  };
  add("requests", key_.limits.requests_per_minute, requests_);
  add("tokens", key_.limits.tokens_per_minute, tokens_);
  return out;
}

KeyUsage KeyAccount::usage() const {
  std::lock_guard lock(mutex_);
  KeyUsage out = usage_;
  out.name = key_.name;
  out.admin = key_.admin;
  out.limits = key_.limits;
  return out;
}

void KeyUse::generated(int64_t tokens) const { account_->generated(tokens, unix_seconds()); }
void KeyUse::give_back() const { account_->give_back(prompt_tokens_, unix_seconds()); }

}  // namespace millrace
