// The reader of llama2.c's tokenizer.bin wrote <0x00> to <0xFF> over ids 3 to 258, whatever the file had there. A
// converted checkpoint whose vocabulary has no byte tokens, or has them elsewhere, answered nonsense, although the
// conversion exited with 0. All vocabularies in the tests had their bytes at these ids; one test even had "?" there and
// expected bytes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "model_runner.h"
#include "models/convert/convert.h"
#include "shared_data.h"
#include "text/tokenizer_files.h"
#include "text/unicode.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<TokenId>;

struct Piece {
  float score = 0;
  std::string text;
};

std::string tokenizer_bin(const std::vector<Piece>& pieces) {
  std::string out(4, '\0');
  for (const Piece& piece : pieces) {
    const auto length = static_cast<int32_t>(piece.text.size());
    out.append(reinterpret_cast<const char*>(&piece.score), 4)
        .append(reinterpret_cast<const char*>(&length), 4)
        .append(piece.text);
  }
  return out;
}

std::vector<Piece> pieces_of(const std::string& bytes) {
  std::vector<Piece> out;
  for (size_t at = 4; at + 8 <= bytes.size();) {
    Piece piece;
    int32_t length = 0;
    std::memcpy(&piece.score, bytes.data() + at, 4);
    std::memcpy(&length, bytes.data() + at + 4, 4);
    piece.text = bytes.substr(at + 8, static_cast<size_t>(length));
    at += 8 + static_cast<size_t>(length);
    out.push_back(std::move(piece));
  }
  return out;
}

std::unique_ptr<Tokenizer> made(const std::vector<Piece>& pieces) {
  auto spec = read_llama2c_tokenizer(tokenizer_bin(pieces), 0);
  EXPECT_TRUE(spec.ok()) << spec.error().message;
  if (!spec.ok()) return nullptr;
  auto tokenizer = Tokenizer::create(std::move(*spec));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

const std::vector<Piece> kNamed = {{0, "<unk>"}, {0, "\n<s>\n"}, {0, "\n</s>\n"}};

// 300 ordinary pieces: the printable characters of ASCII, then pairs of letters.
std::vector<Piece> ordinary() {
  std::vector<Piece> out = kNamed;
  for (char c = ' '; c <= '~'; ++c) out.push_back({-1000, std::string(1, c)});
  for (int i = 0; out.size() < 303; ++i)
    out.push_back({-static_cast<float>(i), {static_cast<char>('a' + i / 26 % 26), static_cast<char>('a' + i % 26)}});
  return out;
}

TEST(Llama2cVocabulary, OrdinaryPiecesKeepTheirText) {
  const auto tokenizer = made(ordinary());
  ASSERT_TRUE(tokenizer);
  const auto letter = [](char c) { return 3 + (c - ' '); };
  // The merge of "ab" is id 3 + 95 + 1; "c" and the space before stay characters.
  EXPECT_EQ(tokenizer->encode("abc"), (Ids{1, letter(' '), 99, letter('c')}));
  for (TokenId id = 3; id < 303; ++id) {
    EXPECT_EQ(tokenizer->piece(id), ordinary()[static_cast<size_t>(id)].text) << id;
    EXPECT_NE(tokenizer->spec().types[static_cast<size_t>(id)], TokenType::byte) << id;
  }
  for (const char* text : {"The quick brown fox, jumps! over <0x41> {lazy} dogs", " ", "a", "zz  ab"})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text), true), text);
}

TEST(Llama2cVocabulary, UnrepresentableTextIsUnknown) {
  const auto tokenizer = made(ordinary());
  ASSERT_TRUE(tokenizer);
  for (const char* text : {"\xE4\xB8\xAD", "\n", "\xFF", "\xC3\xA9"}) {
    const Ids ids = tokenizer->encode(text);
    EXPECT_EQ(ids, (Ids{1, 3, 0})) << text;
  }
}

TEST(Llama2cVocabulary, WithoutAnUnknownTokenEveryByteIsRequired) {
  std::vector<Piece> pieces = ordinary();
  pieces[0].text = "!!";
  const auto spec = read_llama2c_tokenizer(tokenizer_bin(pieces), 0);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().kind, ErrorKind::corrupt);
  EXPECT_NE(spec.error().message.find("<unk>"), std::string::npos) << spec.error().message;
  for (int byte = 0; byte < 256; ++byte) pieces.push_back({0, fmt::format("<0x{:02X}>", byte)});
  const auto tokenizer = made(pieces);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("\n"), (Ids{1, 3, 303 + 10}));
}

TEST(Llama2cVocabulary, ByteTokensAndNamesMayHaveAnyId) {
  std::vector<Piece> pieces = {{-1, "a"}, {-2, "b"}, {-3, "ab"}};
  for (int byte = 255; byte >= 0; --byte) pieces.push_back({0, fmt::format("<0x{:02X}>", byte)});
  for (const Piece& one : kNamed) pieces.push_back(one);
  const auto tokenizer = made(pieces);
  ASSERT_TRUE(tokenizer);
  const auto byte = [](int value) { return 3 + 255 - value; };
  EXPECT_EQ(tokenizer->encode("ab\n"), (Ids{260, byte(' '), 2, byte('\n')}));
  EXPECT_EQ(tokenizer->spec().unk, 259);
  EXPECT_EQ(tokenizer->spec().eos, 261);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab \xFF\xE4\xB8\xAD"), true), "ab \xFF\xE4\xB8\xAD");
}

// The exporters of 2023 wrote the byte 0xE9 as the character U+00E9, and the piece of that character has another id.
TEST(Llama2cVocabulary, BytesWrittenAsCharacters) {
  std::vector<Piece> pieces = kNamed;
  for (uint32_t byte = 0; byte < 256; ++byte) append_utf8(pieces.emplace_back().text, byte);
  pieces.push_back({-5, "a"});
  pieces.push_back({-6, "\xC3\xA9"});
  const auto tokenizer = made(pieces);
  ASSERT_TRUE(tokenizer);
  EXPECT_EQ(tokenizer->encode("a\xC3\xA9\n"), (Ids{1, 3 + ' ', 259, 260, 3 + '\n'}));
  EXPECT_EQ(tokenizer->decode({1, 3 + 0xE4, 3 + 0xB8, 3 + 0xAD}, true), "\xE4\xB8\xAD");
}

// In files with token types, an ordinary token that is spelled like a byte token is not a byte token.
TEST(Llama2cVocabulary, AnOrdinaryTokenSpelledLikeAByteIsText) {
  TokenizerSpec spec;
  spec.kind = "spm";
  spec.tokens = {"<unk>", "<0x41>", "<0x42>", "\xE2\x96\x81"};
  spec.types = {TokenType::unknown, TokenType::user_defined, TokenType::byte, TokenType::normal};
  spec.scores = {0, 0, 0, -1};
  spec.unk = 0;
  auto tokenizer = Tokenizer::create(spec);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->encode("A"), (Ids{3, 0}));
  EXPECT_EQ((*tokenizer)->encode("B"), (Ids{3, 2}));
  EXPECT_EQ((*tokenizer)->piece(1), "<0x41>");
}

double mean_nll(const std::string& model, const std::string& text) {
  auto files = open_model_files(model);
  EXPECT_TRUE(files.ok());
  auto tokenizer = Tokenizer::create(*files->tokenizer);
  EXPECT_TRUE(tokenizer.ok());
  const Ids ids = (*tokenizer)->encode(text);
  EXPECT_EQ((*tokenizer)->decode(ids, true), text);
  auto runner = testing::TestRunner::load(model, {});
  EXPECT_TRUE(runner.ok());
  const std::vector<float> logits = (*runner)->logits(ids);
  const size_t vocab = logits.size() / ids.size();
  double sum = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    double all = 0;
    for (size_t v = 0; v < vocab; ++v) all += std::exp(static_cast<double>(logits[i * vocab + v]));
    sum += std::log(all) - logits[i * vocab + static_cast<size_t>(ids[i + 1])];
  }
  return sum / static_cast<double>(ids.size() - 1);
}

// A trained model, and the same one with its ids in another order: bytes last, pieces first. Both score the text
// equally well.
TEST(Llama2cVocabulary, ReorderedIdsDoNotChangeATrainedModelsQuality) {
  MILLRACE_NEEDS_SHARED("weights/stories260K/stories260K.bin");
  const fs::path weights = testing::shared_data() / "weights/stories260K";
  const fs::path folder = fs::temp_directory_path() / ("llama2c_vocabulary." + std::to_string(getpid()));
  fs::create_directories(folder);
  std::string checkpoint = testing::read_file(weights / "stories260K.bin");
  const std::vector<Piece> pieces = pieces_of(testing::read_file(weights / "tok512.bin"));
  ASSERT_EQ(pieces.size(), 512u);
  constexpr size_t kHead = 7 * 4, kRow = 64 * 4;
  const std::string embedding = checkpoint.substr(kHead, 512 * kRow);
  std::vector<Piece> moved;
  for (size_t id = 0; id < 512; ++id) {
    const size_t from = id < 3 ? id : id < 256 ? id + 256 : id - 253;
    moved.push_back(pieces[from]);
    checkpoint.replace(kHead + id * kRow, kRow, embedding, from * kRow, kRow);
  }
  std::ofstream(folder / "moved.bin", std::ios::binary) << checkpoint;
  std::ofstream(folder / "tok512.bin", std::ios::binary) << tokenizer_bin(moved);
  ThreadPool pool(1);
  const auto convert = [&](const fs::path& from, const char* to) {
    const auto report = convert_model({from, folder / to, "", "", false, {}}, pool);
    EXPECT_TRUE(report.ok()) << report.error().message;
  };
  convert(weights / "stories260K.bin", "plain.gguf");
  convert(folder / "moved.bin", "moved.gguf");
  convert(folder / "plain.gguf", "plain");
  convert(folder / "moved.gguf", "moved");
  const std::string text =
      "Once upon a time, there was a little girl named Lily. She loved to play outside in the park.\nOne day, she saw "
      "a big, red ball.";
  const double plain = mean_nll(folder / "plain.gguf", text);
  EXPECT_LT(plain, 2.5);  // uniform: 6.2
  for (const char* other : {"moved.gguf", "plain", "moved"})
    EXPECT_NEAR(mean_nll(folder / other, text), plain, 1e-4) << other;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace millrace
