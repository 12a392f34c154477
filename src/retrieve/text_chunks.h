// Divides a document into chunks: the pieces that an index finds. A chunk ends where the document's structure does.
//
//   plain      paragraphs, which blank lines separate
//   markdown   sections by their headings; within a section, paragraphs, of which a fenced block is one
//   html       the text of the page (html_text.h), in sections by h1 to h6; within a section, paragraphs
//
// Paragraphs of one section are joined until a chunk is full. A longer paragraph is divided at ends of sentences, then
// at blanks, and never within a character. A chunk is a range of the document's text: [begin, end) in bytes. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

enum class DocumentKind : uint8_t { plain, markdown, html };

// Returns the kind that a file's name states: .md, .markdown, .html, .htm, .xhtml, or .txt, .text, .rst, .org, .log and
// names without an extension, which are plain. Null: another kind.
std::optional<DocumentKind> document_kind(std::string_view path);
std::string_view document_kind_name(DocumentKind kind);

struct ChunkOptions {
  int64_t max_bytes = 1200;   // size of a chunk
  int64_t overlap_bytes = 0;  // at most, of whole sentences or paragraphs that a chunk repeats of the one before
};
inline constexpr int64_t kMinChunkBytes = 64, kMaxChunkBytes = 1 << 16;

struct TextChunk {
  std::string heading;  // headings above the chunk, "Install > From source"; "": none
  int64_t begin = 0, end = 0;
};

struct ChunkedText {
  std::string text;  // the document: valid UTF-8, for HTML without markup
  std::vector<TextChunk> chunks;
};

inline constexpr int64_t kMaxDocumentBytes = int64_t{16} << 20;

// Invalid UTF-8 is replaced. Errors: user (`options`), resource (more than kMaxDocumentBytes), unsupported (a binary
// file: it has a zero byte), those of html_text().
Result<ChunkedText> chunk_document(DocumentKind kind, std::string_view bytes, const ChunkOptions& options);

}  // namespace millrace
