// SemSA, later MoA (Fu et al., 2024): every head has a window of its own, found by a search before the model is used,
// since some heads look far back and others do not. With sinks; a window is alpha blocks and beta percent of the
// stream's blocks so far, so that it grows with the text:
//
//   windows=4.2+50.8      head 0: 4 blocks, head 1: 2 and half of all, head 2: 8, head 3: 4 again, ...
//
// KV heads count through the layers. Here query heads that share a KV head share its window. `millrace window-search`
// finds windows (evaluate/window_search.h).
#include <charconv>
#include <vector>

#include "attention/patterns/factories.h"
#include "attention/patterns/head_window.h"

namespace millrace {
namespace {

class SemSA final : public AttentionPattern {
 public:
  SemSA(std::vector<HeadWindow> windows, int64_t sinks) : windows_(std::move(windows)), sinks_(sinks) {}

  void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const override {
    const auto head = static_cast<size_t>(at.layer * at.heads + at.head);
    marks.add(0, sinks_);
    marks.add(query_block - windows_[head % windows_.size()].blocks(query_block) + 1, query_block);
  }

 private:
  std::vector<HeadWindow> windows_;
  int64_t sinks_;
};

// "A" or "A+B"; false: neither.
bool parse_window(std::string_view text, HeadWindow& window) {
  const auto number = [](std::string_view digits, int64_t least, int64_t most, int64_t& out) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return error == std::errc() && end == digits.data() + digits.size() && out >= least && out <= most;
  };
  const size_t plus = text.find('+');
  if (!number(text.substr(0, plus), 1, kMaxPatternBlocks, window.alpha)) return false;
  return plus == std::string_view::npos || number(text.substr(plus + 1), 0, 100, window.beta);
}

Result<std::vector<HeadWindow>> parse_windows(std::string_view text) {
  std::vector<HeadWindow> windows;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view one = text.substr(begin, end - begin);
    if (!parse_window(one, windows.emplace_back()))
      return Error::user("windows: must be blocks, 1 to 65536, or BLOCKS+PERCENT, with dots between heads, got '" +
                         std::string(one) + "'");
    begin = end + 1;
  }
  return windows;
}

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_semsa(const OptionValues& options) {
  MILLRACE_TRY(auto windows, parse_windows(options.text("windows")));
  return std::unique_ptr<AttentionPattern>(std::make_unique<SemSA>(std::move(windows), options.integer("sinks")));
}

}  // namespace millrace
