// ByteTrie: maps byte strings to int32 values, for longest-prefix matching of special tokens and unigram pieces. It is
// built once, then immutable and shared between threads. Children are stored in one open-addressing table with the key
// (node, byte), so memory is proportional to the inserted bytes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/work_count.h"

namespace millrace {

class ByteTrie {
 public:
  ByteTrie() : values_(1, -1), slots_(16, Slot{kFree, 0}) {}

  // Inserts a key that is not empty, with `value` >= 0. Keeps the first value of a repeated key.
  void insert(std::string_view key, int32_t value) {
    uint32_t node = 0;
    for (char c : key) {
      const auto byte = static_cast<uint8_t>(c);
      int64_t next = child(node, byte);
      if (next < 0) {
        next = static_cast<int64_t>(values_.size());
        values_.push_back(-1);
        add_child(node, byte, static_cast<uint32_t>(next));
      }
      node = static_cast<uint32_t>(next);
    }
    if (values_[node] < 0) values_[node] = value;
  }

  // Returns the child of `node` (0 is the root), or -1.
  int64_t child(uint32_t node, uint8_t byte) const {
    if (node == 0) return root_[byte];
    const uint64_t key = uint64_t{node} << 8 | byte;
    for (size_t i = slot_of(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return slots_[i].node;
      if (slots_[i].key == kFree) return -1;
    }
  }
  int32_t value(uint32_t node) const { return values_[node]; }  // -1: no key ends here

  struct Match {
    int32_t value = -1;
    size_t length = 0;
  };
  Match longest_prefix(std::string_view text) const {
    Match best;
    uint32_t node = 0;
    size_t i = 0;
    for (; i < text.size(); ++i) {
      const int64_t next = child(node, static_cast<uint8_t>(text[i]));
      if (next < 0) break;
      node = static_cast<uint32_t>(next);
      if (values_[node] >= 0) best = {values_[node], i + 1};
    }
    text_work += static_cast<int64_t>(i) + 1;
    return best;
  }
  bool empty() const { return values_.size() == 1; }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key;
    uint32_t node;
  };

  size_t slot_of(uint64_t key) const { return (key * 0x9E3779B97F4A7C15ull >> 20) & (slots_.size() - 1); }

  void add_child(uint32_t node, uint8_t byte, uint32_t next) {
    if (node == 0) {
      root_[byte] = next;
      return;
    }
    if (++used_ * 2 > slots_.size()) {
      std::vector<Slot> old(slots_.size() * 2, Slot{kFree, 0});
      old.swap(slots_);
      for (const Slot& slot : old) {
        if (slot.key != kFree) place(slot);
      }
    }
    place({uint64_t{node} << 8 | byte, next});
  }
  void place(Slot slot) {
    size_t i = slot_of(slot.key);
    while (slots_[i].key != kFree) i = (i + 1) & (slots_.size() - 1);
    slots_[i] = slot;
  }

  std::vector<int64_t> root_ = std::vector<int64_t>(256, -1);
  std::vector<int32_t> values_;
  std::vector<Slot> slots_;  // size is a power of two
  size_t used_ = 0;
};

}  // namespace millrace
