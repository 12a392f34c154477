#include "prompt/token_ends.h"

#include "text/tokenizer.h"

namespace millrace {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

// The end of `piece` at `at`; none if it is not there.
std::optional<size_t> end_of(std::string_view text, size_t at, std::string_view piece) {
  const std::string_view rest = text.substr(at);
  if (rest.starts_with(piece)) return at + piece.size();
  if (piece.starts_with(' ') && rest.starts_with(piece.substr(1))) return at + piece.size() - 1;
  return std::nullopt;
}

}  // namespace

std::optional<std::vector<size_t>> token_ends(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                                              std::string_view text) {
  std::vector<size_t> out;
  size_t at = 0;
  bool control_before = false;
  for (const TokenId token : tokens) {
    const std::string piece = tokenizer.piece(token);
    const bool control = tokenizer.is_control(token);
    auto end = end_of(text, at, piece);
    if (!end && (control || control_before)) {  // such tokens may consume the white space beside them
      const size_t next = text.find_first_not_of(kBlank, at);
      if (next != std::string_view::npos) end = end_of(text, next, piece);
    }
    if (!end && !control) return std::nullopt;
    at = end.value_or(at);
    control_before = control;
    out.push_back(at);
  }
  if (text.find_first_not_of(kBlank, at) != std::string_view::npos) return std::nullopt;
  return out;
}

}  // namespace millrace
