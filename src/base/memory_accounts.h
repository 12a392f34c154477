// MemoryAccounts: memory use by named account, within a common budget.
//
// Memory is reserved in an account before it is allocated, so that an allocation that does not fit fails with a clear
// error instead of an out-of-memory kill. Each model has its own MemoryAccounts. Several models in one process have
// separate budgets, or share a parent MemoryAccounts, in which each model is one account:
//
//     shared    program 40 MB | first 2.1 GB | second 0.9 GB          of 4 GB
//     first     weights 1.2 GB | KV 0.9 GB
//     second    weights 0.5 GB | KV 0.4 GB
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

struct MemoryAccount {
  std::string name;
  int64_t bytes = 0;
  int64_t peak = 0;
};

class MemoryAccounts {
 public:
  explicit MemoryAccounts(int64_t budget = 0) : budget_(budget) {}  // 0: unlimited
  // Also reserves everything in the account `name` of `shared`; the destructor releases it there.
  MemoryAccounts(std::shared_ptr<MemoryAccounts> shared, std::string name)
      : budget_(shared->budget()), shared_(std::move(shared)), name_(std::move(name)) {}
  ~MemoryAccounts();
  MemoryAccounts(const MemoryAccounts&) = delete;

  int64_t budget() const { return budget_; }  // budget of `shared` if there is one
  bool shares() const { return shared_ != nullptr; }
  int64_t total() const;
  int64_t left() const;  // unreserved bytes of the budget; INT64_MAX if it is unlimited

  // Reserves bytes in account `name`. Errors: resource; the message has the requested bytes, all accounts and `advice`.
  Result<void> take(const std::string& name, int64_t bytes, const std::string& advice);
  void give_back(const std::string& name, int64_t bytes);

  std::vector<MemoryAccount> list() const;  // in the order of their first use

 private:
  MemoryAccount& account(const std::string& name);
  int64_t total_locked() const;

  const int64_t budget_;
  const std::shared_ptr<MemoryAccounts> shared_;
  const std::string name_;  // account in shared_
  mutable std::mutex mutex_;
  std::vector<MemoryAccount> accounts_;
};

// A reservation in MemoryAccounts; the destructor releases it.
class MemoryHold {
 public:
  MemoryHold() = default;
  ~MemoryHold() { release(); }
  MemoryHold(MemoryHold&& other) noexcept { *this = std::move(other); }
  MemoryHold& operator=(MemoryHold&& other) noexcept;

  // Reserves bytes. Does nothing if `accounts` is null.
  static Result<MemoryHold> take(std::shared_ptr<MemoryAccounts> accounts, const std::string& name, int64_t bytes,
                                 const std::string& advice);
  void release();

 private:
  std::shared_ptr<MemoryAccounts> accounts_;
  std::string name_;
  int64_t bytes_ = 0;
};

// Parses "8G", "512M", "1.5GiB", "300MB" or "1000000". K, M, G, T and KiB, MiB, ... are powers of 1024; KB, MB, ... are
// powers of 1000. Errors: user.
Result<int64_t> parse_bytes(std::string_view text);
std::string format_bytes(int64_t bytes);  // "1.50 GB": powers of 1000

}  // namespace millrace
