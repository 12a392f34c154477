// KeepOrder: says which unit of weights leaves memory first. Used by one UnitStore, under its lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace millrace {

class KeepOrder {
 public:
  virtual ~KeepOrder() = default;
  // A pass leases the unit. `present`: it is in memory.
  virtual void used(size_t unit, bool present) = 0;
  virtual void loaded(size_t /*unit*/) {}   // The unit was read into memory.
  virtual void evicted(size_t /*unit*/) {}  // The unit left memory.
  // The unit with the least value leaves first.
  virtual double worth(size_t unit) const = 0;
  // Returns true if a unit that no pass waits for may take the place of `victim`.
  virtual bool may_replace(size_t /*victim*/, size_t /*incoming*/) const { return true; }
};

// The orders for experts: "lru", "lfu", "arc", and "weighed", frequencies that halve every `half_life` uses. `units`:
// number of units; `capacity`: about as many are in memory. Returns null for another name.
std::unique_ptr<KeepOrder> make_keep_order(std::string_view name, size_t units, int64_t capacity, double half_life);

}  // namespace millrace
