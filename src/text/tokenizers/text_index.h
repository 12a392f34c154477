// TextIndex: finds the first of many texts that is equal to a given text, in a hash table. The hash of a prefix is
// extended byte by byte, so that looking up every prefix of a text costs one step per prefix. Immutable after building.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizers/packed_strings.h"

namespace millrace {

class TextIndex {
 public:
  static constexpr int32_t kNone = -1;
  static constexpr uint64_t kEmptyHash = 0xCBF29CE484222325ull;  // FNV-1a

  // Extends the hash of a text by a byte.
  static constexpr uint64_t extend(uint64_t hash, char byte) {
    return (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3ull;
  }
  static constexpr uint64_t hash(std::string_view text, uint64_t before = kEmptyHash) {
    for (const char byte : text) before = extend(before, byte);
    return before;
  }

  // `texts` must outlive the index, and must contain a text before it is added.
  explicit TextIndex(const PackedStrings& texts) : texts_(&texts) {}
  void reserve(size_t texts);
  // Adds the text of this number. Returns false if the index already has an equal text.
  bool add(int32_t text);
  // Returns the number of the text, or kNone.
  int32_t find(std::string_view text) const { return find(text, hash(text)); }
  int32_t find(std::string_view text, uint64_t hash) const {
    if (slots_.empty()) return kNone;
    const uint32_t tag = tag_of(hash);
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      const Slot slot = slots_[i];
      if (slot.text == kNone || (slot.tag == tag && (*texts_)[static_cast<size_t>(slot.text)] == text))
        return slot.text;
    }
  }
  void clear() { *this = TextIndex(*texts_); }

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t text = kNone;
  };
  static constexpr uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  const PackedStrings* texts_;
  std::vector<Slot> slots_;  // size is a power of two, at least twice the number of texts
  size_t mask_ = 0;
  size_t used_ = 0;
};

}  // namespace millrace
