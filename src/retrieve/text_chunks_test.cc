#include "retrieve/text_chunks.h"

#include <gtest/gtest.h>

#include <random>

#include "retrieve/html_text.h"

namespace millrace {
namespace {

std::vector<std::string> texts_of(const ChunkedText& document) {
  std::vector<std::string> out;
  for (const TextChunk& chunk : document.chunks)
    out.push_back(document.text.substr(static_cast<size_t>(chunk.begin), static_cast<size_t>(chunk.end - chunk.begin)));
  return out;
}

ChunkedText chunked(DocumentKind kind, std::string_view text, ChunkOptions options = {.max_bytes = 64}) {
  auto out = chunk_document(kind, text, options);
  EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.error().message);
  return out.ok() ? *out : ChunkedText();
}

TEST(TextChunks, KindsAreThoseOfNames) {
  EXPECT_EQ(document_kind("a/b.MD"), DocumentKind::markdown);
  EXPECT_EQ(document_kind("a.d/README"), DocumentKind::plain);
  EXPECT_EQ(document_kind("x.Html"), DocumentKind::html);
  EXPECT_EQ(document_kind("x.txt"), DocumentKind::plain);
  EXPECT_FALSE(document_kind("x.pdf"));
  EXPECT_FALSE(document_kind("x.png"));
}

TEST(TextChunks, ParagraphsAreJoinedUntilAChunkIsFull) {
  const auto document = chunked(DocumentKind::plain,
                                "One short paragraph.\n\nAnother short one.\n\n"
                                "A third paragraph, with which a chunk would be full.\n");
  EXPECT_EQ(texts_of(document), (std::vector<std::string>{"One short paragraph.\n\nAnother short one.",
                                                          "A third paragraph, with which a chunk would be full."}));
}

TEST(TextChunks, LongParagraphsEndAtSentencesThenBlanksThenCharacters) {
  const auto sentences = texts_of(chunked(
      DocumentKind::plain, "This sentence has a few words. And this one has some more words than the first one had."));
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0], "This sentence has a few words.");
  const std::string umlauts = [] {
    std::string out;
    for (int i = 0; i < 100; ++i) out += "\xC3\xA4";  // no blank at all
    return out;
  }();
  for (const std::string& one : texts_of(chunked(DocumentKind::plain, umlauts))) {
    EXPECT_LE(one.size(), 64u);
    EXPECT_EQ(one.size() % 2, 0u);
    EXPECT_EQ(one.find("\xEF\xBF\xBD"), std::string::npos);
  }
}

TEST(TextChunks, MarkdownSectionsAreBelowTheirHeadings) {
  const auto document = chunked(DocumentKind::markdown,
                                "before\n\n# Install\nRun it.\n## From source\n```\n# no heading\n\nmake\n```\n"
                                "# Use ##\nAsk.\n#hashtag\n");
  std::vector<std::string> headings;
  for (const TextChunk& chunk : document.chunks) headings.push_back(chunk.heading);
  EXPECT_EQ(headings, (std::vector<std::string>{"", "Install", "Install > From source", "Use"}));
  EXPECT_EQ(texts_of(document)[2], "## From source\n```\n# no heading\n\nmake\n```");
  EXPECT_EQ(texts_of(document)[3], "# Use ##\nAsk.\n#hashtag");
}

TEST(TextChunks, HtmlIsTextInSections) {
  const auto document = chunked(
      DocumentKind::html,
      "<html><head><title>t</title><style>p{}</style></head><body><nav>menu</nav><p>First &amp; <b>bold</b>   text."
      "<script>alert('no')</script><h1>Mills</h1><p>Water <i>wheels</i>.<ul><li>one<li>two</ul>"
      "<h2>Races</h2><pre>a\n  b</pre><table><tr><td>x<td>y</tr></table>");
  const auto texts = texts_of(document);
  ASSERT_EQ(texts.size(), 3u);
  EXPECT_EQ(texts[0], "First & bold text.");
  EXPECT_EQ(texts[1], "Mills\n\nWater wheels.\n\none\ntwo");
  EXPECT_EQ(texts[2], "Races\n\na\n  b\n\nx y");
  EXPECT_EQ(document.chunks[1].heading, "Mills");
  EXPECT_EQ(document.chunks[2].heading, "Mills > Races");
}

TEST(TextChunks, HtmlHasLimitsOfDepthAndMemory) {
  const auto nested = [](int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += "<div>";
    return out + "bottom</bold></bold>";
  };
  const auto read = html_text(nested(512));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->text, "bottom\n\n");
  // Formatting tags that each paragraph opens again: the tree has the square of the page's size.
  std::string wide = "<p>";
  for (int i = 0; i < 500; ++i) wide += "<b id=" + std::to_string(i) + ">";
  for (int i = 0; i < 20000; ++i) wide += "</p><p>x";
  std::string many;  // closing tags of other names leave these open
  for (int i = 0; i < 200000; ++i) many += "<div></x>";
  for (const std::string& page : {nested(513), nested(1000000), wide, many}) {
    const auto refused = html_text(page);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  }
  std::string list = "<ul>";  // tags that need no end
  for (int i = 0; i < 5000; ++i) list += "<li>one<p>two<br>";
  EXPECT_TRUE(html_text(list).ok());
}

TEST(TextChunks, OtherBytesAreRefusedOrReplaced) {
  const auto binary = chunk_document(DocumentKind::plain, std::string_view("a\0b", 3), {});
  ASSERT_FALSE(binary.ok());
  EXPECT_EQ(binary.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(texts_of(chunked(DocumentKind::plain, "\xEF\xBB\xBFmark \xFF\xC3 end")),
            (std::vector<std::string>{"mark \xEF\xBF\xBD\xEF\xBF\xBD end"}));
  EXPECT_FALSE(chunk_document(DocumentKind::plain, "x", {.max_bytes = 10}).ok());
  EXPECT_FALSE(chunk_document(DocumentKind::plain, "x", {.max_bytes = 100, .overlap_bytes = 51}).ok());
  EXPECT_TRUE(chunked(DocumentKind::plain, "  \n\n ").chunks.empty());
}

// Chunks of random texts: in order, of at most the size, without a gap that is not blank, and with the stated overlap.
TEST(TextChunks, CoverTheTextOfAnyDocument) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const size_t size = random() % 2000;
    constexpr std::string_view kPieces[] = {"a", "word ", "\n", "\n\n", ". ", "\xC3\xA9", "# ", "```\n", "long_word"};
    while (text.size() < size) text += kPieces[random() % std::size(kPieces)];
    const ChunkOptions options{.max_bytes = 64 + static_cast<int64_t>(random() % 200),
                               .overlap_bytes = round % 2 == 0 ? 0 : 30};
    const auto kind = round % 3 == 0 ? DocumentKind::plain : DocumentKind::markdown;
    const auto document = chunked(kind, text, options);
    int64_t reached = 0, last_begin = -1;
    for (const TextChunk& chunk : document.chunks) {
      EXPECT_LE(chunk.end - chunk.begin, options.max_bytes);
      EXPECT_GT(chunk.end, chunk.begin);
      EXPECT_GT(chunk.begin, last_begin);
      EXPECT_GT(chunk.end, reached);
      EXPECT_GE(chunk.begin, reached - options.overlap_bytes);
      for (int64_t at = reached; at < chunk.begin; ++at)
        EXPECT_NE(std::string(" \t\r\n").find(document.text[static_cast<size_t>(at)]), std::string::npos) << at;
      EXPECT_NE(static_cast<unsigned char>(document.text[static_cast<size_t>(chunk.begin)]) & 0xC0, 0x80);
      reached = std::max(reached, chunk.end);
      last_begin = chunk.begin;
    }
    for (size_t at = static_cast<size_t>(reached); at < document.text.size(); ++at)
      EXPECT_NE(std::string(" \t\r\n").find(document.text[at]), std::string::npos);
  }
}

}  // namespace
}  // namespace millrace
