// MappingGuard: a mapped file may lose pages while it is in use: another process cuts it off, or the disk fails. The
// system then ends the process that reads such a page (SIGBUS). While a guard lives, the guarded addresses read as
// zeros from that page on instead, and hit() says so: the caller drops what it
// computed from them.
//
// The first guard of the process installs a signal handler, which hands other faults to the handler before it. Thread-
// safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace millrace {

class MappingGuard {
 public:
  // `mapped`: begins at a page. With more than kMax guards at a time, the last ones guard nothing.
  explicit MappingGuard(std::span<const uint8_t> mapped);
  ~MappingGuard();
  MappingGuard(const MappingGuard&) = delete;
  MappingGuard& operator=(const MappingGuard&) = delete;

  // Returns true if a page could not be read. It never becomes readable again at these addresses.
  bool hit() const;

  static constexpr size_t kMax = 64;

 private:
  size_t slot_ = kMax;
};

}  // namespace millrace
