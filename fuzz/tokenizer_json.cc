// Fuzzes JSON tokenizer files: reading, creating, encoding and decoding do not crash, and encoded ids are in the
// vocabulary. The input is a file, then (after a NUL byte) a text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/tokenizer_files.h"

namespace {

void use(millrace::Result<millrace::TokenizerSpec> spec, std::string_view text) {
  if (!spec.ok()) return;
  (void)millrace::apply_tokenizer_config(*spec, text);
  const auto tokenizer = millrace::Tokenizer::create(std::move(spec).value());
  if (!tokenizer.ok()) return;
  const auto ids = (*tokenizer)->encode(text);
  for (millrace::TokenId id : ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
  }
  (void)(*tokenizer)->decode(ids, true);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t nul = std::min(input.find('\0'), size);
  const std::string_view file = input.substr(0, nul);
  const std::string_view text = nul < size ? input.substr(nul + 1) : "The 12 mills aren't\n \xC3\xA9 <|end|> \xFF";
  use(millrace::read_tokenizer_json(file), text);
  use(millrace::read_vocab_merges(file, text, {}, "llama-bpe"), text);
  return 0;
}
