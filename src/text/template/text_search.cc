#include "text/template/text_search.h"

#include <algorithm>

namespace millrace::jinja {
namespace {

constexpr size_t kShortNeedle = 16;  // bytes; the library's search takes at most this many comparisons per byte
constexpr auto kNone = std::string_view::npos;

template <bool Backwards>
char at(std::string_view text, size_t i) {
  return Backwards ? text[text.size() - 1 - i] : text[i];
}

}  // namespace

template <bool Backwards>
void TextSearch::prepare() {
  if (prepared_ && backwards_ == Backwards) return;
  budget_.spend_bytes(needle_.size() * 2);
  if (bytes_ == 0) {
    const size_t bytes = needle_.size() * sizeof(uint32_t);
    budget_.take_memory(bytes);
    bytes_ = static_cast<int64_t>(bytes);
  }
  border_.assign(needle_.size(), 0);
  for (size_t i = 1, k = 0; i < needle_.size(); ++i) {
    while (k > 0 && at<Backwards>(needle_, i) != at<Backwards>(needle_, k)) k = border_[k - 1];
    if (at<Backwards>(needle_, i) == at<Backwards>(needle_, k)) ++k;
    border_[i] = static_cast<uint32_t>(k);
  }
  prepared_ = true;
  backwards_ = Backwards;
}

// Returns how many bytes precede the end of the first occurrence, in the direction of the search; kNone if none.
template <bool Backwards>
size_t TextSearch::scan(std::string_view text, size_t from) {
  constexpr size_t kPiece = 1 << 16;  // charged before it is read
  prepare<Backwards>();
  size_t paid = from;
  for (size_t i = from, k = 0; i < text.size(); ++i) {
    if (i == paid) {
      const size_t piece = std::min(kPiece, text.size() - i);
      budget_.spend_bytes(piece);
      paid += piece;
    }
    while (k > 0 && at<Backwards>(text, i) != at<Backwards>(needle_, k)) k = border_[k - 1];
    if (at<Backwards>(text, i) == at<Backwards>(needle_, k)) ++k;
    if (k == needle_.size()) return i + 1;
  }
  return kNone;
}

size_t TextSearch::find(std::string_view text, size_t from) {
  if (from > text.size() || needle_.size() > text.size() - from) {
    budget_.spend(1);
    return kNone;
  }
  if (needle_.size() <= kShortNeedle) {
    const size_t found = text.find(needle_, from);
    budget_.spend_bytes((found == kNone ? text.size() : found + needle_.size()) - from);
    return found;
  }
  const size_t end = scan<false>(text, from);
  return end == kNone ? kNone : end - needle_.size();
}

size_t TextSearch::rfind(std::string_view text) {
  if (needle_.size() > text.size()) {
    budget_.spend(1);
    return kNone;
  }
  if (needle_.size() <= kShortNeedle) {
    const size_t found = text.rfind(needle_);
    budget_.spend_bytes(text.size() - (found == kNone ? 0 : found));
    return found;
  }
  const size_t end = scan<true>(text, 0);
  return end == kNone ? kNone : text.size() - end;
}

}  // namespace millrace::jinja
