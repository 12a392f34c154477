#include "text/tokenizers/text_index.h"

#include <algorithm>
#include <bit>

namespace millrace {

void TextIndex::reserve(size_t texts) {
  const size_t slots = std::bit_ceil(std::max<size_t>(32, texts) * 2);
  if (slots <= slots_.size()) return;
  const std::vector<Slot> old(std::move(slots_));
  slots_.assign(slots, Slot());
  mask_ = slots - 1;
  used_ = 0;
  for (const Slot& slot : old)
    if (slot.text != kNone) add(slot.text);
}

bool TextIndex::add(int32_t text) {
  if ((used_ + 1) * 2 > slots_.size()) reserve(used_ + 1);
  const std::string_view bytes = (*texts_)[static_cast<size_t>(text)];
  const uint64_t hashed = hash(bytes);
  size_t i = hashed & mask_;
  for (; slots_[i].text != kNone; i = (i + 1) & mask_)
    if (slots_[i].tag == tag_of(hashed) && (*texts_)[static_cast<size_t>(slots_[i].text)] == bytes) return false;
  slots_[i] = {tag_of(hashed), text};
  ++used_;
  return true;
}

}  // namespace millrace
