#include "base/memory_accounts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace millrace {

MemoryAccount& MemoryAccounts::account(const std::string& name) {
  auto found = std::ranges::find(accounts_, name, &MemoryAccount::name);
  return found != accounts_.end() ? *found : accounts_.emplace_back(MemoryAccount{name, 0, 0});
}

MemoryAccounts::~MemoryAccounts() {
  if (shared_) shared_->give_back(name_, total_locked());
}

int64_t MemoryAccounts::total_locked() const {
  int64_t total = 0;
  for (const MemoryAccount& account : accounts_) total += account.bytes;
  return total;
}

int64_t MemoryAccounts::total() const {
  std::lock_guard lock(mutex_);
  return total_locked();
}

int64_t MemoryAccounts::left() const {
  if (shared_) return shared_->left();
  std::lock_guard lock(mutex_);
  return budget_ > 0 ? std::max<int64_t>(0, budget_ - total_locked()) : INT64_MAX;
}

Result<void> MemoryAccounts::take(const std::string& name, int64_t bytes, const std::string& advice) {
  if (bytes < 0) return Error::internal(fmt::format("{}: negative size {}", name, bytes));
  if (shared_) {
    auto taken = shared_->take(name_, bytes, advice);
    if (!taken.ok()) return Error::resource(fmt::format("{}: {}", name, taken.error().message));
  }
  std::lock_guard lock(mutex_);
  const int64_t left = budget_ > 0 && !shared_ ? std::max<int64_t>(0, budget_ - total_locked()) : INT64_MAX;
  if (bytes > left) {
    std::string others;
    for (const MemoryAccount& other : accounts_)
      if (other.bytes > 0)
        others += fmt::format("{}{} {}", others.empty() ? "" : ", ", other.name, format_bytes(other.bytes));
    return Error::resource(fmt::format("memory: {} needs {}, but only {} of the budget of {} is left; in use: {}; {}",
                                       name, format_bytes(bytes), format_bytes(left), format_bytes(budget_),
                                       others.empty() ? "nothing" : others, advice));
  }
  MemoryAccount& one = account(name);
  one.bytes += bytes;
  one.peak = std::max(one.peak, one.bytes);
  return {};
}

void MemoryAccounts::give_back(const std::string& name, int64_t bytes) {
  if (shared_) shared_->give_back(name_, bytes);
  std::lock_guard lock(mutex_);
  account(name).bytes -= bytes;
}

std::vector<MemoryAccount> MemoryAccounts::list() const {
  std::lock_guard lock(mutex_);
  return accounts_;
}

MemoryHold& MemoryHold::operator=(MemoryHold&& other) noexcept {
  std::swap(accounts_, other.accounts_);
  std::swap(name_, other.name_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Result<MemoryHold> MemoryHold::take(std::shared_ptr<MemoryAccounts> accounts, const std::string& name, int64_t bytes,
                                    const std::string& advice) {
  MemoryHold hold;
  if (!accounts) return hold;
  MILLRACE_TRY_VOID(accounts->take(name, bytes, advice));
  hold.accounts_ = std::move(accounts);
  hold.name_ = name;
  hold.bytes_ = bytes;
  return hold;
}

void MemoryHold::release() {
  if (accounts_) accounts_->give_back(name_, bytes_);
  accounts_.reset();
}

Result<int64_t> parse_bytes(std::string_view text) {
  const Error bad = Error::user(
      fmt::format("size: expected a number with an optional unit, such as 8G or 512MiB, got '{}'", text.substr(0, 64)));
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !(number >= 0)) return bad;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  double scale = 1;
  if (const size_t power =
          unit.empty() ? std::string_view::npos : std::string_view("KMGT").find(static_cast<char>(unit[0] & ~0x20));
      power != std::string_view::npos) {
    const std::string_view rest = unit.substr(1);
    if (!rest.empty() && rest != "iB" && rest != "ib" && rest != "B" && rest != "b") return bad;
    const bool thousands = rest == "B" || rest == "b";
    for (size_t i = 0; i <= power; ++i) scale *= thousands ? 1000 : 1024;
  } else if (!unit.empty() && unit != "B") {
    return bad;
  }
  const double bytes = number * scale;
  if (!(bytes < 0x1p62)) return Error::user(fmt::format("size: '{}' is too large", text.substr(0, 64)));
  return static_cast<int64_t>(bytes);
}

std::string format_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return bytes < 1'000'000           ? fmt::format("{:.1f} kB", value * 1e-3)
         : bytes < 1'000'000'000     ? fmt::format("{:.1f} MB", value * 1e-6)
         : bytes < 1'000'000'000'000 ? fmt::format("{:.2f} GB", value * 1e-9)
                                     : fmt::format("{:.2f} TB", value * 1e-12);
}

}  // namespace millrace
