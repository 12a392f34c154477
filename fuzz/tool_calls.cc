// Fuzzes answers with tool calls in every dialect: the first byte chooses the dialect, the next two the place of the
// reasoning and the chunk size, the rest is the text. The pieces do not depend on the chunk size, and calls are
// properly opened and closed, with no text inside a call.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/tools/reasoning.h"

namespace {

using namespace millrace;
using Kind = AnswerPiece::Kind;

AnswerPieces joined(const AnswerPieces& pieces) {
  AnswerPieces out;
  for (const AnswerPiece& piece : pieces) add_piece(out, piece.kind, piece.text);
  return out;
}

// Pieces of `text`, fed in chunks of `stride` bytes; 0: in one chunk.
AnswerPieces read(const ToolDialect& dialect, ReasoningPlace place, std::string_view text, size_t stride) {
  static const std::vector<Tool> tools = {
      {"f", "", {{"type", "object"}, {"properties", {{"a", {{"type", "string"}}}, {"b", {{"type", "integer"}}}}}}}};
  ReasoningSplitter splitter(reasoning_marks()[0], place, dialect.start);
  const auto parser = dialect.parser(tools);
  AnswerPieces out;
  if (stride == 0) stride = text.size() + 1;
  for (size_t at = 0; at < text.size(); at += stride) parser->push(splitter.push(text.substr(at, stride), out), out);
  parser->push(splitter.finish(out), out);
  parser->finish(out);
  return joined(out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3 || size > 20'000) return 0;
  const auto dialects = tool_dialects().members();
  const ToolDialect& dialect = *dialects[data[0] % dialects.size()];
  const auto place = static_cast<ReasoningPlace>(data[1] % 3);
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const AnswerPieces whole = read(dialect, place, text, 0), cut = read(dialect, place, text, 1 + data[2] % 16);
  if (whole.size() != cut.size()) std::abort();
  bool in_call = false;
  for (size_t i = 0; i < whole.size(); ++i) {
    if (whole[i].kind != cut[i].kind || whole[i].text != cut[i].text) std::abort();
    const Kind kind = whole[i].kind;
    if (kind == Kind::call && (in_call || whole[i].text.empty())) std::abort();
    if ((kind == Kind::arguments || kind == Kind::call_end) && !in_call) std::abort();
    if (kind == Kind::text && in_call) std::abort();
    if (kind == Kind::call) in_call = true;
    if (kind == Kind::call_end) in_call = false;
  }
  if (in_call) std::abort();
  return 0;
}
