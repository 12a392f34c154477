// Fuzzes what a text costs a tokenizer: normalizers, split patterns, character maps and merges of any file take work in
// proportion to the text. The input is a tokenizer.json, a zero byte, and a piece of text, which is repeated.
#include <algorithm>
#include <string>
#include <string_view>

#include "growth.h"
#include "text/tokenizer_files.h"
#include "text/work_count.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = std::min(input.find('\0'), size);
  std::string piece(input.substr(std::min(nul + 1, size), 64));
  if (piece.empty()) piece = "a";
  auto spec = read_tokenizer_json(input.substr(0, nul));
  if (!spec.ok()) return 0;
  const auto tokenizer = Tokenizer::create(std::move(spec).value());
  if (!tokenizer.ok()) return 0;
  const auto bytes = static_cast<int64_t>(piece.size());
  // Above a split pattern's first units, which do not depend on the text (Regex::work_for()).
  constexpr int64_t kBytes = 1 << 13, kMaxEach = 2048;
  fuzzing::expect_near_linear("tokenizer", kBytes / bytes + 1, bytes, kMaxEach, [&](int64_t times) {
    std::string text;
    for (int64_t i = 0; i < times; ++i) text += piece;
    const int64_t before = text_work;
    (void)(*tokenizer)->encode(text);
    return text_work - before;
  });
  return 0;
}
