#include "retrieve/text_chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/enum_table.h"
#include "retrieve/html_text.h"
#include "retrieve/text_sections.h"

namespace millrace {
namespace {

struct ByteRange {
  int64_t begin = 0, end = 0;
};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

bool continues_character(std::string_view text, int64_t at) {
  return at < std::ssize(text) && (static_cast<unsigned char>(text[static_cast<size_t>(at)]) & 0xC0) == 0x80;
}

// Returns the end of a piece of text that begins at `begin` and has at most `most` bytes: after the last sentence, else
// the last blank, else the last character in it.
int64_t piece_end(std::string_view text, int64_t begin, int64_t end, int64_t most) {
  if (end - begin <= most) return end;
  int64_t limit = begin + most, sentence = 0, blank = 0;
  while (limit > begin + 1 && continues_character(text, limit)) --limit;
  for (int64_t at = begin + 1; at < limit; ++at) {
    if (!is_blank(text[static_cast<size_t>(at)])) continue;
    blank = at + 1;
    const char before = text[static_cast<size_t>(at) - 1];
    if (before == '.' || before == '!' || before == '?' || before == '\n') sentence = at + 1;
  }
  // A sentence that ends early would leave a tiny piece.
  if (sentence > begin + most / 4) return sentence;
  return blank > begin + most / 4 ? blank : limit;
}

// Appends the paragraphs of text[begin, end), none of which has more than `most` bytes.
void add_paragraphs(std::string_view text, int64_t begin, int64_t end, int64_t most, std::vector<ByteRange>& out) {
  const auto add = [&](int64_t from, int64_t to) {
    while (from < to) {
      const int64_t cut = piece_end(text, from, to, most);
      out.push_back({from, cut});
      from = cut;
    }
  };
  int64_t start = begin;
  bool fenced = false, blank_before = false;
  for (int64_t line = begin; line < end;) {
    const size_t found = text.find('\n', static_cast<size_t>(line));
    const int64_t next = std::min(end, found == std::string_view::npos ? end : static_cast<int64_t>(found) + 1);
    const std::string_view words = text.substr(static_cast<size_t>(line), static_cast<size_t>(next - line));
    const bool blank = std::ranges::all_of(words, is_blank);
    if (is_fence(words)) fenced = !fenced;
    if (blank_before && !blank && !fenced) {
      add(start, line);
      start = line;
    }
    blank_before = blank;
    line = next;
  }
  add(start, end);
}

// Removes blanks at both ends.
ByteRange stripped(std::string_view text, ByteRange range) {
  while (range.begin < range.end && is_blank(text[static_cast<size_t>(range.begin)])) ++range.begin;
  while (range.end > range.begin && is_blank(text[static_cast<size_t>(range.end) - 1])) --range.end;
  return range;
}

// Joins paragraphs to chunks of at most `options.max_bytes` bytes.
void join(std::string_view text, const std::string& heading, const std::vector<ByteRange>& paragraphs,
          const ChunkOptions& options, std::vector<TextChunk>& out) {
  std::vector<ByteRange> filled;  // without those that are blank
  for (const ByteRange& one : paragraphs)
    if (const ByteRange range = stripped(text, one); range.begin < range.end) filled.push_back(range);
  const auto fits = [&](size_t first, size_t last) {
    return filled[last].end - filled[first].begin <= options.max_bytes;
  };
  for (size_t first = 0; first < filled.size();) {
    size_t last = first;
    while (last + 1 < filled.size() && fits(first, last + 1)) ++last;
    out.push_back({heading, filled[first].begin, filled[last].end});
    if (last + 1 == filled.size()) return;
    size_t next = last + 1;
    while (next > first + 1 && filled[last].end - filled[next - 1].begin <= options.overlap_bytes &&
           fits(next - 1, last + 1))
      --next;
    first = next;
  }
}

Result<void> check(const ChunkOptions& options) {
  if (options.max_bytes < kMinChunkBytes || options.max_bytes > kMaxChunkBytes)
    return Error::user(
        fmt::format("chunk size: must be {} to {} bytes, not {}", kMinChunkBytes, kMaxChunkBytes, options.max_bytes));
  if (options.overlap_bytes < 0 || options.overlap_bytes > options.max_bytes / 2)
    return Error::user(fmt::format("chunk overlap: must be 0 to {} bytes, half of a chunk, not {}",
                                   options.max_bytes / 2, options.overlap_bytes));
  return {};
}

// Returns the length of the valid UTF-8 character at the beginning; 0: none.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const size_t count = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < count) return 0;
  for (size_t at = 1; at < count; ++at)
    if ((byte(at) & 0xC0) != 0x80) return 0;
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return count;
}

std::string valid_utf8(std::string_view bytes) {
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);  // byte order mark
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t count = character_bytes(bytes);
    if (count == 0)
      out += "\xEF\xBF\xBD";
    else
      out.append(bytes.substr(0, count));
    bytes.remove_prefix(std::max<size_t>(count, 1));
  }
  return out;
}

}  // namespace

std::optional<DocumentKind> document_kind(std::string_view path) {
  const size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return DocumentKind::plain;
  std::string extension(name.substr(dot + 1));
  std::ranges::transform(extension, extension.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
  constexpr auto kPlain = std::to_array<std::string_view>({"txt", "text", "rst", "org", "log"});
  constexpr auto kMarkdown = std::to_array<std::string_view>({"md", "markdown"});
  constexpr auto kHtml = std::to_array<std::string_view>({"html", "htm", "xhtml"});
  if (std::ranges::find(kPlain, extension) != kPlain.end()) return DocumentKind::plain;
  if (std::ranges::find(kMarkdown, extension) != kMarkdown.end()) return DocumentKind::markdown;
  if (std::ranges::find(kHtml, extension) != kHtml.end()) return DocumentKind::html;
  return std::nullopt;
}

std::string_view document_kind_name(DocumentKind kind) {
  constexpr EnumNames<DocumentKind> kNames("plain", "markdown", "html");
  return kNames[kind];
}

Result<ChunkedText> chunk_document(DocumentKind kind, std::string_view bytes, const ChunkOptions& options) {
  MILLRACE_TRY_VOID(check(options));
  if (std::ssize(bytes) > kMaxDocumentBytes)
    return Error::resource(
        fmt::format("has {} bytes, more than the limit of {}; divide it", bytes.size(), kMaxDocumentBytes));
  if (bytes.find('\0') != std::string_view::npos)
    return Error::unsupported("is a binary file; text, Markdown and HTML can be indexed");
  ChunkedText out;
  std::vector<TextSection> sections;
  if (kind == DocumentKind::html) {
    MILLRACE_TRY(HtmlText page, html_text(valid_utf8(bytes)));
    out.text = std::move(page.text);
    sections = std::move(page.sections);
  } else {
    out.text = valid_utf8(bytes);
    if (kind == DocumentKind::markdown)
      sections = markdown_sections(out.text);
    else
      sections = {{"", 0, std::ssize(out.text)}};
  }
  for (const TextSection& section : sections) {
    std::vector<ByteRange> paragraphs;
    add_paragraphs(out.text, section.begin, section.end, options.max_bytes, paragraphs);
    join(out.text, section.heading, paragraphs, options, out.chunks);
  }
  return out;
}

}  // namespace millrace
