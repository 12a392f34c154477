#include "text/grammar/token_trie.h"

#include <algorithm>
#include <numeric>

#include "text/tokenizer.h"
#include "text/tools/reasoning.h"

namespace millrace {

TokenTrie::TokenTrie(const std::vector<std::string>& pieces) {
  std::vector<TokenId> order;
  begin_.push_back(0);
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!pieces[id].empty() && pieces[id].size() <= kMaxTokenBytes) {
      order.push_back(static_cast<TokenId>(id));
      text_ += pieces[id];
    }
    begin_.push_back(text_.size());
  }
  const auto less = [&](TokenId a, TokenId b) {
    const int compared = piece(a).compare(piece(b));  // char_traits compares as unsigned
    return compared != 0 ? compared < 0 : a < b;
  };
  std::sort(order.begin(), order.end(), less);
  nodes_.push_back({0, 0, 0, 0});
  std::vector<uint32_t> path{0};  // nodes from the root to the last one
  std::string_view before;
  for (TokenId token : order) {
    const std::string_view text = piece(token);
    const size_t limit = std::min(before.size(), text.size());
    const auto shared = static_cast<size_t>(
        std::mismatch(text.begin(), text.begin() + static_cast<ptrdiff_t>(limit), before.begin()).first - text.begin());
    while (path.size() > shared + 1) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
    for (size_t i = shared; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {0, static_cast<uint32_t>(tokens_.size()), static_cast<uint8_t>(text[i]), static_cast<uint8_t>(i + 1)});
    }
    tokens_.push_back(token);
    before = text;
  }
  for (uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({0, static_cast<uint32_t>(tokens_.size()), 0, 0});
}

std::vector<std::string> constrained_pieces(const Tokenizer& tokenizer) {
  std::vector<std::string> pieces;
  const TokenizerSpec& spec = tokenizer.spec();
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    const TokenType type = spec.types.empty() ? TokenType::normal : spec.types[static_cast<size_t>(token)];
    const bool text = type == TokenType::normal || type == TokenType::byte || type == TokenType::user_defined;
    std::string piece = tokenizer.is_eog(token) ? std::string() : tokenizer.piece(token);
    const bool plain = text && !tokenizer.is_control(token);
    pieces.push_back(plain || (!piece.empty() && is_marker(piece)) ? std::move(piece) : std::string());
  }
  return pieces;
}

}  // namespace millrace
