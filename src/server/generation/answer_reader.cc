#include "server/generation/answer_reader.h"

#include <fmt/format.h>
#include <xxhash.h>

#include "text/tools/tool_dialect.h"

namespace millrace {

using Kind = AnswerPiece::Kind;

namespace {

// Wraps the parser of a dialect that has frames for thinking, and returns thinking as part of the text.
class Joined final : public CallParser {
 public:
  explicit Joined(std::unique_ptr<CallParser> parser) : parser_(std::move(parser)) {}
  void push(std::string_view text, AnswerPieces& out) override {
    AnswerPieces pieces;
    parser_->push(text, pieces);
    join(pieces, out);
  }
  void finish(AnswerPieces& out) override {
    AnswerPieces pieces;
    parser_->finish(pieces);
    join(pieces, out);
  }

 private:
  static void join(const AnswerPieces& pieces, AnswerPieces& out) {
    for (const AnswerPiece& piece : pieces)
      add_piece(out, piece.kind == Kind::reasoning ? Kind::text : piece.kind, piece.text);
  }
  std::unique_ptr<CallParser> parser_;
};

}  // namespace

std::unique_ptr<AnswerReader> AnswerReader::create(const GenerationRequest& params) {
  if (!params.dialect && !(params.marks && params.reasoning.split)) return nullptr;
  auto reader = std::make_unique<AnswerReader>();
  if (params.marks && params.reasoning.split && params.dialect) reader->late_close_.emplace(params.marks->close);
  if (params.marks && params.reasoning.split)
    reader->splitter_.emplace(*params.marks, params.place, params.call_start());
  if (params.dialect)
    reader->parser_ = params.dialect->parser(params.tools.any() ? std::span<const Tool>(params.tools.tools)
                                                                : std::span<const Tool>());
  if (reader->parser_ && !params.reasoning.split && params.dialect->frames)
    reader->parser_ = std::make_unique<Joined>(std::move(reader->parser_));
  return reader;
}

AnswerPieces AnswerReader::read(std::string_view text, bool last) {
  AnswerPieces out;
  std::string rest = splitter_ ? splitter_->push(text, out) : std::string(text);
  if (last && splitter_) rest += splitter_->finish(out);
  if (!parser_) {
    add_piece(out, Kind::text, rest);
    return out;
  }
  parser_->push(rest, out);
  if (last) parser_->finish(out);
  if (late_close_ && splitter_->ended_by_call()) {
    late_close_->filter(out);
    if (last) late_close_->finish(out);
  }
  return out;
}

std::string call_id(std::string_view answer_id, size_t choice, size_t call, bool is_short) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  constexpr size_t kBase = sizeof(kLetters) - 1, kDigits = 10;  // of a half of the digest: 62^10 < 2^64
  const std::string text = fmt::format("{} {} {}", answer_id, choice, call);
  std::string id = is_short ? "" : "call_";
  for (uint64_t part = 0, left = is_short ? 9 : 24; left > 0; ++part) {
    uint64_t digest = XXH3_64bits_withSeed(text.data(), text.size(), part);
    for (size_t i = 0; i < kDigits && left > 0; ++i, --left, digest /= kBase) id += kLetters[digest % kBase];
  }
  return id;
}

void take_pieces(Choice& choice, size_t number, const Delta& delta, const GenerationRequest& params, bool keep_text) {
  for (const AnswerPiece& piece : delta.pieces) {
    if (piece.kind == Kind::text && keep_text) choice.text += piece.text;
    if (piece.kind == Kind::reasoning && keep_text) choice.reasoning += piece.text;
    if (piece.kind == Kind::call)
      choice.calls.push_back(
          {call_id(params.id, number, choice.calls.size(), params.dialect && params.dialect->short_ids), piece.text,
           ""});
    if (piece.kind == Kind::arguments && !choice.calls.empty()) choice.calls.back().arguments += piece.text;
  }
}

}  // namespace millrace
