#include "models/weight_units/keep_order.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace millrace {
namespace {

// Least recently used.
class LruOrder final : public KeepOrder {
 public:
  explicit LruOrder(size_t units) : last_(units, 0) {}
  void used(size_t unit, bool) override { last_[unit] = ++now_; }
  void loaded(size_t unit) override { last_[unit] = std::max(last_[unit], now_); }
  double worth(size_t unit) const override { return static_cast<double>(last_[unit]); }

 private:
  std::vector<int64_t> last_;
  int64_t now_ = 0;
};

// Least frequently used, the least recent of equal ones first.
class LfuOrder final : public KeepOrder {
 public:
  explicit LfuOrder(size_t units) : count_(units, 0), last_(units, 0) {}
  void used(size_t unit, bool) override {
    ++count_[unit];
    last_[unit] = ++now_;
  }
  double worth(size_t unit) const override {
    return static_cast<double>(count_[unit]) + static_cast<double>(last_[unit]) / static_cast<double>(now_ + 1);
  }

 private:
  std::vector<int64_t> count_, last_;
  int64_t now_ = 0;
};

// Each use counts 1, and half as much `half_life` uses later (LRFU: Lee et al., 2001). Kept as a logarithm at time 0,
// in which worths compare at any time.
class WeighedOrder final : public KeepOrder {
 public:
  WeighedOrder(size_t units, double half_life) : worth_(units, -1e30), half_life_(half_life) {}
  void used(size_t unit, bool) override {
    const double now = static_cast<double>(++now_) / half_life_;
    worth_[unit] = now + std::log2(1 + std::exp2(std::max(-1e3, worth_[unit] - now)));
  }
  double worth(size_t unit) const override { return worth_[unit]; }

 private:
  std::vector<double> worth_;
  double half_life_;
  int64_t now_ = 0;
};

// ARC (Megiddo and Modha, 2003): units used once and units used again, each in the order of use, share the memory as
// the units that left it turn out to be needed. A unit that was read ahead and not used yet counts as used once.
class ArcOrder final : public KeepOrder {
 public:
  ArcOrder(size_t units, int64_t capacity)
      : units_(units), capacity_(static_cast<double>(std::max<int64_t>(1, capacity))) {}

  void used(size_t unit, bool present) override {
    Unit& one = units_[unit];
    if (one.list == kOnceLeft) target_ = std::min(capacity_, target_ + ratio(kAgainLeft, kOnceLeft));
    if (one.list == kAgainLeft) target_ = std::max(0.0, target_ - ratio(kOnceLeft, kAgainLeft));
    if (present)
      move(unit, one.seen ? kAgain : kOnce);
    else
      one.again = one.list == kOnceLeft || one.list == kAgainLeft;
    one.seen = true;
    one.last = ++now_;
  }
  void loaded(size_t unit) override {
    Unit& one = units_[unit];
    move(unit, one.again ? kAgain : kOnce);
    one.last = ++now_;
  }
  void evicted(size_t unit) override {
    Unit& one = units_[unit];
    move(unit, one.list == kAgain ? kAgainLeft : kOnceLeft);
    one.seen = one.again = false;
    const auto most = static_cast<int64_t>(capacity_);
    forget(kOnceLeft, most - sizes_[kOnce]);
    forget(kAgainLeft, 2 * most - sizes_[kOnce] - sizes_[kAgain] - sizes_[kOnceLeft]);
  }
  double worth(size_t unit) const override {
    const bool once_leaves = static_cast<double>(sizes_[kOnce]) > target_;
    const bool spared = (units_[unit].list == kOnce) != once_leaves;
    return static_cast<double>(units_[unit].last) + (spared ? 1e18 : 0);
  }

 private:
  enum List : uint8_t { kNone, kOnce, kAgain, kOnceLeft, kAgainLeft };
  struct Unit {
    List list = kNone;
    bool seen = false, again = false;
    int64_t last = 0;
  };
  double ratio(List a, List b) const {
    return std::max(1.0, static_cast<double>(sizes_[a]) / static_cast<double>(std::max<int64_t>(1, sizes_[b])));
  }
  void move(size_t unit, List to) {
    --sizes_[units_[unit].list];
    ++sizes_[to];
    units_[unit].list = to;
  }
  // Forgets the units that left longest ago, beyond `most`.
  void forget(List list, int64_t most) {
    while (sizes_[list] > std::max<int64_t>(0, most)) {
      size_t oldest = units_.size();
      for (size_t i = 0; i < units_.size(); ++i)
        if (units_[i].list == list && (oldest == units_.size() || units_[i].last < units_[oldest].last)) oldest = i;
      move(oldest, kNone);
    }
  }

  std::vector<Unit> units_;
  double capacity_, target_ = 0;  // of units used once
  int64_t sizes_[5] = {};
  int64_t now_ = 0;
};

}  // namespace

std::unique_ptr<KeepOrder> make_keep_order(std::string_view name, size_t units, int64_t capacity, double half_life) {
  if (name == "lru") return std::make_unique<LruOrder>(units);
  if (name == "lfu") return std::make_unique<LfuOrder>(units);
  if (name == "weighed") return std::make_unique<WeighedOrder>(units, half_life);
  if (name == "arc") return std::make_unique<ArcOrder>(units, capacity);
  return nullptr;
}

}  // namespace millrace
