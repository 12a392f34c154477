// Reads the RWKV "World" vocabulary (rwkv_vocab_v20230424.txt). Lines are: id, a Python literal ('..' is text, b'..'
// bytes), and the number of bytes, which must match. Id 0 is the end-of-document token.
#include <fmt/format.h>

#include <charconv>

#include "text/files/spec_builder.h"
#include "text/tokenizer_files.h"
#include "text/unicode.h"

namespace millrace {
namespace {

// The bytes of a Python str or bytes literal; false if it is not one.
bool unquote(std::string_view literal, std::string& out) {
  out.clear();
  const bool raw = !literal.empty() && literal[0] == 'b';
  if (raw) literal.remove_prefix(1);
  if (literal.size() < 2 || (literal[0] != '\'' && literal[0] != '"') || literal.back() != literal[0]) return false;
  literal = literal.substr(1, literal.size() - 2);
  for (size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\') {
      out += literal[i];
      continue;
    }
    if (++i >= literal.size()) return false;
    const char e = literal[i];
    const size_t digits = e == 'x' ? 2 : e == 'u' ? 4 : e == 'U' ? 8 : 0;
    if (digits > 0) {
      uint32_t value = 0;
      const char* begin = literal.data() + i + 1;
      if (literal.size() - i - 1 < digits || std::from_chars(begin, begin + digits, value, 16).ptr != begin + digits)
        return false;
      if (value > 0x10FFFF) return false;
      if (raw)
        out += static_cast<char>(value);
      else
        append_utf8(out, value);
      i += digits;
    } else {
      const std::string_view from = "nrtabfv0\\'\"", to("\n\r\t\a\b\f\v\0\\'\"", 11);
      const size_t which = from.find(e);
      if (which == std::string_view::npos) return false;
      out += to[which];
    }
  }
  return true;
}

}  // namespace

Result<TokenizerSpec> read_rwkv_vocab(std::string_view text) {
  TokenizerSpec spec;
  spec.kind = "rwkv";
  spec.add_space_prefix = false;
  spec.tokens.emplace_back("<|endoftext|>");
  SpecBuilder builder(spec);
  spec.types[0] = TokenType::control;
  std::string token;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view row = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!row.empty() && row.back() == '\r') row.remove_suffix(1);
    if (row.empty()) continue;
    const size_t first = row.find(' '), last = row.rfind(' ');
    int64_t id = -1, bytes = -1;
    const bool parsed =
        first != std::string_view::npos && last > first &&
        std::from_chars(row.data(), row.data() + first, id).ptr == row.data() + first &&
        std::from_chars(row.data() + last + 1, row.data() + row.size(), bytes).ptr == row.data() + row.size() &&
        unquote(row.substr(first + 1, last - first - 1), token) && static_cast<int64_t>(token.size()) == bytes;
    if (!parsed || token.empty())
      return Error::corrupt(fmt::format("RWKV vocabulary: line {} is not 'id literal bytes'", line));
    MILLRACE_TRY_VOID(builder.place(token, id));
  }
  if (spec.tokens.size() < 2) return Error::corrupt("RWKV vocabulary: the file has no tokens");
  builder.finish();
  spec.eos = 0;
  infer_end_of_generation(spec);
  return spec;
}

}  // namespace millrace
