// RWKV "World": greedy longest match over byte strings. Tokens hold raw bytes. Lossless when all 256 single
// bytes are tokens; a byte with which no token begins becomes unk, or is dropped if there is no unk.
#include "base/work_limits.h"
#include "text/tokenizers/base_tokenizer.h"
#include "text/tokenizers/byte_trie.h"

namespace millrace {
namespace {

constexpr size_t kMaxRwkvTokenBytes = 1024;

class RwkvTokenizer final : public BaseTokenizer {
 public:
  explicit RwkvTokenizer(TokenizerSpec spec) : BaseTokenizer(std::move(spec)) {
    for (size_t i = 0; i < spec_.tokens.size(); ++i) {
      const std::string& token = spec_.tokens[i];
      pieces_.push(token);
      const auto id = static_cast<TokenId>(i);
      if (type(id) == TokenType::normal && !token.empty() && token.size() <= kMaxRwkvTokenBytes)
        trie_.insert(token, id);
    }
  }

 protected:
  void encode_text(std::string_view text, TextForm, std::vector<TokenId>& out) const override {
    for (size_t i = 1; !text.empty(); ++i) {
      if (i % kCharactersPerLook == 0 && work_is_over()) return;
      const ByteTrie::Match match = trie_.longest_prefix(text);
      if (match.value >= 0)
        out.push_back(match.value);
      else if (spec_.unk)
        out.push_back(*spec_.unk);
      text.remove_prefix(match.value >= 0 ? match.length : 1);
    }
  }

 private:
  ByteTrie trie_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> create_rwkv_tokenizer(TokenizerSpec spec) {
  return std::unique_ptr<Tokenizer>(std::make_unique<RwkvTokenizer>(std::move(spec)));
}

}  // namespace millrace
