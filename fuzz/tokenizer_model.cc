// Binary and line-based tokenizer files (SentencePiece, tiktoken, llama2.c, RWKV) of any content. The first byte
// picks the format, the last bytes are also the text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view file(reinterpret_cast<const char*>(data) + 1, size - 1);
  (void)millrace::sniff_tokenizer_file(file);
  auto spec = data[0] == 't'   ? millrace::read_tiktoken(file, "o200k_base")
              : data[0] == 'c' ? millrace::read_llama2c_tokenizer(file, 0)
              : data[0] == 'r' ? millrace::read_rwkv_vocab(file)
                               : millrace::read_sentencepiece_model(file);
  if (!spec.ok()) return 0;
  const auto tokenizer = millrace::Tokenizer::create(std::move(spec).value());
  if (!tokenizer.ok()) return 0;
  const std::string_view text = file.substr(file.size() - std::min<size_t>(file.size(), 64));
  const auto ids = (*tokenizer)->encode(text);
  millrace::Detokenizer stream(**tokenizer);
  for (millrace::TokenId id : ids) {
    if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
    (void)stream.push(id);
  }
  (void)stream.flush();
  (void)(*tokenizer)->decode(ids, false);
  return 0;
}
