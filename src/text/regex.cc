#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/work_limits.h"
#include "text/unicode.h"

namespace millrace {
namespace {

constexpr size_t kMaxPatternBytes = 16 * 1024;
constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kProbeMatchLimit = 200'000;
constexpr uint32_t kDepthLimit = 10'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackBytes = 4 << 20;
constexpr size_t kMatchesPerLook = 64;  // between calls of work_is_over()
constexpr size_t kWindow = 128;         // bytes in which every start may search
constexpr uint32_t kWindowLimit = 512;  // of steps there
constexpr size_t kStepBytes = 64;       // a step costs a unit for so many bytes that it may read

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeJitStack {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

// PCRE2's \s lacks U+0085, which White_Space (Rust, Oniguruma) has.
std::string with_next_line_as_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char e = pattern[++i];
      if (e == 's')
        out += in_class ? "\\s\\x{85}" : "[\\s\\x{85}]";
      else if (e == 'S' && !in_class)
        out += "[^\\s\\x{85}]";
      else
        (out += c) += e;
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') {  // a leading ] is literal
        out += "\\]";
        ++i;
      }
      continue;
    }
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

// The working memory of searches in one text.
class Search {
 public:
  Search(const pcre2_code* code, std::string_view text)
      : text_(text),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr)) {
    if (!context_) return;
    pcre2_set_depth_limit(context_.get(), kDepthLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }
  bool ok() const { return data_ && context_; }

  // PCRE2's result for text [0, end) from `pos` on. Before the end of the text, what may go on behind `end` is partial.
  int run(const pcre2_code* code, size_t pos, size_t end, uint32_t limit) {
    pcre2_set_match_limit(context_.get(), limit);
    const uint32_t options = PCRE2_NOTEMPTY | (end < text_.size() ? PCRE2_PARTIAL_HARD : 0);
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text_.data()), end, pos, options, data_.get(),
                       context_.get());
  }
  size_t start() const { return pcre2_get_startchar(data_.get()); }
  // Where the match that was searched from `pos` on begins and ends. \K in a look-behind can report ranges outside the
  // text that was searched: those are nullopt, like a reached limit.
  std::optional<std::pair<size_t, size_t>> range(size_t pos) const {
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data_.get());
    if (range[0] < pos || range[1] <= range[0] || range[1] > text_.size()) return std::nullopt;
    return std::pair(range[0], range[1]);
  }
  // Where a window of about `bytes` from `pos` on ends, between two characters.
  size_t end_of(size_t pos, size_t bytes) const {
    if (bytes >= text_.size() - pos) return text_.size();
    size_t end = pos + bytes;
    while (end + 3 > pos + bytes && end > pos + 1 && (static_cast<uint8_t>(text_[end]) & 0xC0) == 0x80) --end;
    return end;
  }
  size_t next_character(size_t pos) const { return pos + decode_utf8(text_, pos).length; }

 private:
  std::string_view text_;
  std::unique_ptr<pcre2_match_data, FreeMatchData> data_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
  std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack_;
};

}  // namespace

struct Regex::Code {
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  using Ptr = std::unique_ptr<pcre2_code, Free>;
  Ptr searching, anchored;  // the second one matches only where it starts

  // Whether the whole text can be searched within the limit.
  bool searches(std::string_view text, uint32_t match_limit) const {
    Search search(searching.get(), text);
    if (!search.ok()) return false;
    for (size_t pos = 0; pos < text.size();) {
      const int result = search.run(searching.get(), pos, text.size(), match_limit);
      if (result == PCRE2_ERROR_NOMATCH) break;
      const auto range = result < 0 ? std::nullopt : search.range(pos);
      if (!range) return false;
      pos = range->second;
    }
    return true;
  }

  // The result of a match that starts at `start`, in windows as long as it needs. Beyond `work`: a reached limit.
  int match_at(Search& search, size_t start, int64_t& work) const {
    size_t bytes = kWindow;
    for (uint32_t limit = kWindowLimit; limit <= kMatchLimit;) {
      const size_t end = search.end_of(start, bytes);
      const auto reads = static_cast<int64_t>(end - start);
      const int64_t steps = limit * (reads / static_cast<int64_t>(kStepBytes) + 1);
      if (reads + steps > work) break;
      const int result = search.run(anchored.get(), start, end, limit);
      work -= reads;
      if (result == PCRE2_ERROR_PARTIAL) {
        bytes *= 4;
      } else if (result == PCRE2_ERROR_MATCHLIMIT) {
        work -= steps;
        limit *= 4;
      } else {
        return result;
      }
    }
    return PCRE2_ERROR_MATCHLIMIT;
  }

  // The first match from `pos` on, which is moved to where the search ended; its result, as from PCRE2.
  int find(Search& search, std::string_view text, size_t& pos, int64_t& work) const {
    while (pos < text.size()) {
      const size_t end = search.end_of(pos, kWindow);
      int result = search.run(searching.get(), pos, end, kWindowLimit);
      if (result == PCRE2_ERROR_NOMATCH) {
        pos = end;
        continue;
      }
      if (result == PCRE2_ERROR_PARTIAL)
        pos = std::max(pos, search.start());
      else if (result == PCRE2_ERROR_MATCHLIMIT)
        work -= int64_t{kWindowLimit} * kWindow;  // of all starts of the window
      else
        return result;
      result = match_at(search, pos, work);
      if (result != PCRE2_ERROR_NOMATCH) return result;
      pos = search.next_character(pos);
    }
    return PCRE2_ERROR_NOMATCH;
  }
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return Error::corrupt(
        fmt::format("split pattern is too long: {} bytes, at most {}", pattern.size(), kMaxPatternBytes));
  }
  const std::string source = with_next_line_as_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  for (Code::Ptr* made : {&code->searching, &code->anchored}) {
    const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
    made->reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                              options | (made == &code->anchored ? PCRE2_ANCHORED : 0), &error, &offset, nullptr));
    if (!*made) {
      PCRE2_UCHAR message[160] = {};
      pcre2_get_error_message(error, message, sizeof message);
      return Error::unsupported(fmt::format("split pattern does not compile: {} at byte {} of '{}'",
                                            reinterpret_cast<char*>(message), offset, source.substr(0, 120)));
    }
    (void)pcre2_jit_compile(made->get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);  // else the interpreter is used
  }
  static const std::string kProbes[] = {std::string(400, 'a') + "!", std::string(400, ' ') + "x",
                                        std::string(400, '1') + "a", std::string(400, '\n') + ".",
                                        std::string(400, '.') + "a", std::string(400, 'A') + "1"};
  for (const std::string& probe : kProbes) {
    if (!code->searches(probe, kProbeMatchLimit)) {
      return Error::unsupported(
          fmt::format("split pattern backtracks too much on a run of {:?}: '{}'", probe[0], pattern.substr(0, 120)));
    }
  }
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

size_t Regex::find_all(std::string_view text, int64_t& work, const std::function<void(size_t, size_t)>& found) const {
  Search search(code_->searching.get(), text);
  if (!search.ok()) return 0;
  size_t matches = 0;
  for (size_t pos = 0; pos < text.size();) {
    if (++matches % kMatchesPerLook == 0 && work_is_over()) return pos;
    const size_t from = pos;
    const int result = code_->find(search, text, pos, work);
    if (result == PCRE2_ERROR_NOMATCH) break;
    const auto range = result < 0 ? std::nullopt : search.range(from);
    if (!range) return pos;
    found(range->first, range->second);
    pos = range->second;
  }
  return text.size();
}

}  // namespace millrace
