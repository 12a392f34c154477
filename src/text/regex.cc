#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include "base/work_limits.h"

namespace millrace {
namespace {

constexpr size_t kMaxPatternBytes = 16 * 1024;
constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kProbeMatchLimit = 200'000;
constexpr uint32_t kDepthLimit = 10'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kJitStackBytes = 4 << 20;
constexpr size_t kMatchesPerLook = 64;  // between calls of work_is_over()

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

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }

  size_t find_all(std::string_view text, uint32_t match_limit, const std::function<void(size_t, size_t)>& found) const {
    const std::unique_ptr<pcre2_match_data, FreeMatchData> data(pcre2_match_data_create_from_pattern(code, nullptr));
    const std::unique_ptr<pcre2_match_context, FreeContext> context(pcre2_match_context_create(nullptr));
    const std::unique_ptr<pcre2_jit_stack, FreeJitStack> stack(
        pcre2_jit_stack_create(32 * 1024, kJitStackBytes, nullptr));
    if (!data || !context) return 0;
    pcre2_set_match_limit(context.get(), match_limit);
    pcre2_set_depth_limit(context.get(), kDepthLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    size_t matches = 0;
    for (size_t pos = 0; pos < text.size();) {
      if (++matches % kMatchesPerLook == 0 && work_is_over()) return pos;
      const int count = pcre2_match(code, subject, text.size(), pos, PCRE2_NOTEMPTY, data.get(), context.get());
      if (count == PCRE2_ERROR_NOMATCH) break;
      if (count < 0) return pos;
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
      // \K in a look-behind can report odd ranges; treat it like a reached limit.
      if (range[0] < pos || range[1] <= range[0] || range[1] > text.size()) return pos;
      found(range[0], range[1]);
      pos = range[1];
    }
    return text.size();
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
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                             nullptr);
  if (code->code == nullptr) {
    PCRE2_UCHAR message[160] = {};
    pcre2_get_error_message(error, message, sizeof message);
    return Error::unsupported(fmt::format("split pattern does not compile: {} at byte {} of '{}'",
                                          reinterpret_cast<char*>(message), offset, source.substr(0, 120)));
  }
  (void)pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);  // on failure the interpreter is used
  static const std::string kProbes[] = {std::string(400, 'a') + "!", std::string(400, ' ') + "x",
                                        std::string(400, '1') + "a", std::string(400, '\n') + ".",
                                        std::string(400, '.') + "a", std::string(400, 'A') + "1"};
  for (const std::string& probe : kProbes) {
    if (code->find_all(probe, kProbeMatchLimit, [](size_t, size_t) {}) != probe.size()) {
      return Error::unsupported(
          fmt::format("split pattern backtracks too much on a run of {:?}: '{}'", probe[0], pattern.substr(0, 120)));
    }
  }
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

size_t Regex::find_all(std::string_view text, const std::function<void(size_t, size_t)>& found) const {
  return code_->find_all(text, kMatchLimit, found);
}

}  // namespace millrace
