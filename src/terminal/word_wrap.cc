#include "terminal/word_wrap.h"

#include <algorithm>
#include <array>
#include <utility>

#include "terminal/display_width.h"

namespace millrace {
namespace {

constexpr size_t kFence = 3;       // marks of a fence
constexpr size_t kTabStop = 8;     // columns
constexpr size_t kLineStart = 64;  // bytes of a line that can close a code block

// Punctuation that does not begin a line.
constexpr std::array<std::string_view, 16> kNotFirst = {"、", "。", "，", "．", "！", "？", "：", "；",
                                                        "）", "」", "』", "】", "》", "〉", "”",  "ー"};

bool may_begin_line(std::string_view cluster) { return std::ranges::find(kNotFirst, cluster) == kNotFirst.end(); }

// "```" or "~~~"; "": the word begins no code block, as "```one```" does not.
std::string fence_of(std::string_view word) {
  for (const std::string_view mark : {"```", "~~~"}) {
    const size_t info = std::min(word.find_first_not_of(mark[0]), word.size());
    if (info >= kFence && word.find('`', info) == std::string_view::npos && word.starts_with(mark))
      return std::string(mark);
  }
  return "";
}

// Returns true if the bytes from `at` on begin a character of UTF-8 and do not complete it.
bool incomplete(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
  return at + bytes > text.size();
}

}  // namespace

std::string WordWrap::add(std::string_view piece) {
  if (columns_ == 0) return finish() + std::string(piece);
  bytes_ += piece;
  size_t at = 0;
  while (at < bytes_.size()) {
    const TextCluster one = cluster_at(bytes_, at);
    const bool ascii = static_cast<unsigned char>(bytes_[at]) < 0x80 && one.bytes == 1;
    if (incomplete(bytes_, at) || (at + one.bytes == bytes_.size() && !ascii))
      break;  // the next piece may continue this character
    take(std::string_view(bytes_).substr(at, one.bytes), one.columns);
    at += one.bytes;
  }
  bytes_.erase(0, at);
  return std::exchange(out_, "");
}

std::string WordWrap::finish() {
  for (size_t at = 0; at < bytes_.size();) {
    const TextCluster one = cluster_at(bytes_, at);
    take(std::string_view(bytes_).substr(at, one.bytes), one.columns);
    at += one.bytes;
  }
  place_word();
  const std::string out = std::exchange(out_, "") + blanks_;
  const size_t columns = columns_;
  *this = WordWrap();
  columns_ = columns;
  return out;
}

bool WordWrap::ends_fence() const {
  const size_t begin = line_.find_first_not_of(' ');
  return begin != std::string::npos && line_.compare(begin, kFence, fence_) == 0;
}

void WordWrap::end_line() {
  place_word();
  out_ += '\n';
  if (!fence_.empty() && ends_fence()) fence_.clear();
  line_.clear();
  blanks_.clear();
  column_ = blank_columns_ = 0;
  first_word_ = true;
  literal_ = !fence_.empty();
}

void WordWrap::take(std::string_view cluster, size_t columns) {
  if (cluster.ends_with('\n')) return end_line();  // "\r\n" is one cluster
  if (literal_) {
    out_ += cluster;
    if (line_.size() < kLineStart) line_ += cluster;
    return;
  }
  if (cluster == " " || cluster == "\t") {
    place_word();
    if (literal_) {  // the word began a code block
      out_ += cluster;
      return;
    }
    blanks_ += cluster;
    blank_columns_ += cluster == " " ? 1 : kTabStop - (column_ + blank_columns_) % kTabStop;
    return;
  }
  const bool wide = columns == 2;
  if (!word_.empty() && (wide || last_wide_) && may_begin_line(cluster)) place_word();
  word_ += cluster;
  word_columns_ += columns;
  last_wide_ = wide;
  if (word_columns_ >= columns_) {
    place_word();
    long_word_ = true;
  }
}

void WordWrap::place_word() {
  if (word_.empty()) {
    long_word_ = false;
    return;
  }
  if (first_word_ && !long_word_) fence_ = fence_of(word_);
  literal_ = !fence_.empty();
  first_word_ = false;
  if (!long_word_ && column_ > 0 && column_ + blank_columns_ + word_columns_ > columns_) {
    out_ += '\n';
    column_ = 0;
  } else {
    out_ += blanks_;
    column_ += blank_columns_;
  }
  out_ += word_;
  column_ += word_columns_;
  if (column_ > columns_) column_ = (column_ - 1) % columns_ + 1;  // the terminal has begun new lines itself
  blanks_.clear();
  word_.clear();
  blank_columns_ = word_columns_ = 0;
  long_word_ = last_wide_ = false;
}

}  // namespace millrace
