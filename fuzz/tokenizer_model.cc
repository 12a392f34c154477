// Fuzzes binary and line-based tokenizer files (SentencePiece, tiktoken, llama2.c, RWKV). The first byte selects the
// format; the last bytes are also the text. The piece of a normal llama2.c token equals its text in the file.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer_files.h"

namespace {

void check_llama2c_pieces(std::string_view file, const millrace::Tokenizer& tokenizer) {
  size_t at = 4;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    uint32_t length = 0;
    std::memcpy(&length, file.data() + at + 4, 4);
    std::string text(file.substr(at + 8, length));
    at += 8 + length;
    if (tokenizer.spec().types[static_cast<size_t>(id)] != millrace::TokenType::normal) continue;
    for (size_t mark; (mark = text.find("\xE2\x96\x81")) != std::string::npos;) text.replace(mark, 3, " ");
    if (tokenizer.piece(id) != text) std::abort();
  }
}

}  // namespace

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
  if (data[0] == 'c') check_llama2c_pieces(file, **tokenizer);
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
