#include <gtest/gtest.h>

#include "terminal/display_width.h"
#include "terminal/text_table.h"
#include "terminal/word_wrap.h"

namespace millrace {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text)
    if (c == '\n')
      out.emplace_back();
    else
      out.back() += c;
  if (out.back().empty()) out.pop_back();
  return out;
}

size_t widest(const std::string& text) {
  size_t most = 0;
  for (const std::string& line : lines_of(text)) most = std::max(most, display_width(line));
  return most;
}

// The text as it arrives in pieces of `bytes` bytes.
std::string wrapped(const std::string& text, size_t columns, size_t bytes) {
  WordWrap wrap;
  wrap.set_columns(columns);
  std::string out;
  for (size_t at = 0; at < text.size(); at += bytes) out += wrap.add(text.substr(at, bytes));
  return out + wrap.finish();
}

TEST(DisplayWidth, CountsWhatATerminalShows) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("Größe"), 5u);
  EXPECT_EQ(display_width("中文"), 4u);
  EXPECT_EQ(display_width("e\u0301x"), 2u);
  EXPECT_EQ(display_width("🎉"), 2u);
  EXPECT_EQ(display_width("\U0001F468\u200D\U0001F469\u200D\U0001F467"), 2u);  // a family is one character
  EXPECT_EQ(display_width("\U0001F1E9\U0001F1EA"), 2u);                        // a flag
  EXPECT_EQ(display_width("a\xff"
                          "b"),
            3u);  // an invalid byte
}

TEST(DisplayWidth, LinesBreakAtWordsAndInLongOnes) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrapped_lines("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrapped_lines("abcdefgh ij", 3), (Lines{"abc", "def", "gh", "ij"}));
  EXPECT_EQ(wrapped_lines("中文字 x", 5), (Lines{"中文", "字 x"}));
  EXPECT_EQ(wrapped_lines("", 5), (Lines{""}));
  EXPECT_EQ(hanging_text("one two three four five six", 4, 28), "one two three four five\n    six");
  EXPECT_EQ(hanging_text("one two three four five six", 4, 0), "one two three four five six");
}

TEST(WordWrap, BreaksAtWordsWhateverThePieces) {
  const std::string text = "The quick brown fox jumps over the lazy dog.\nIt was 中文字符、也是 and naïve 🎉🎉 twice.\n";
  for (const size_t columns : std::vector<size_t>{12u, 20u, 40u, 80u}) {
    const std::string whole = wrapped(text, columns, text.size());
    EXPECT_LE(widest(whole), columns);
    for (const size_t bytes : std::vector<size_t>{1u, 2u, 3u, 7u})
      EXPECT_EQ(wrapped(text, columns, bytes), whole) << columns << " " << bytes;
  }
  EXPECT_EQ(wrapped("one two three", 7, 4), "one two\nthree");
  EXPECT_EQ(wrapped("中文字，符", 6, 3), "中文\n字，符");  // the comma does not begin a line
  EXPECT_EQ(wrapped(text, 0, 5), text);
}

TEST(WordWrap, ALongWordIsLeftToTheTerminal) {
  EXPECT_EQ(wrapped("a https://example.org/long b", 10, 5), "a\nhttps://example.org/long b");
  EXPECT_EQ(wrapped("abcdefghijkl mnopqrstu", 10, 22), "abcdefghijkl\nmnopqrstu");
}

TEST(WordWrap, CodeBlocksAreNotBroken) {
  const std::string code = "for (int i = 0; i < n; ++i) sum += values[i] * weights[i];\n";
  const std::string text = "Here it is:\n```cpp a b c d e f g h\n" + code + "  ```\nand it adds up all of it\n";
  for (const size_t bytes : std::vector<size_t>{1u, 4u, 200u})
    EXPECT_EQ(wrapped(text, 14, bytes),
              "Here it is:\n```cpp a b c d e f g h\n" + code + "  ```\nand it adds up\nall of it\n");
  EXPECT_EQ(wrapped("```one``` word word\n", 10, 3), "```one```\nword word\n");
}

TextTable example() {
  TextTable table(TableLook::markdown, {{.name = "configuration", .left = true, .wraps = true},
                                        {.name = "perplexity"},
                                        {.name = "tokens/s", .drops = 3},
                                        {.name = "weights, MB", .drops = 2},
                                        {.name = "peak, MB", .drops = 1}});
  table.add({"plain", "10.0 [9.5, 10.5]", "11.0 [10.0, 12.0] 50 %", "4.4", "120"});
  table.add({"四位权重 + kv_format=kivi:bits=2 + evictor=h2o:window=512", "10.1", "12.0", "2.2", "118"});
  return table;
}

TEST(TextTable, FitsTheTerminal) {
  TextTable table = example();
  const TableRoom piped{0, "--json"};
  const std::string all = table.text(piped);
  EXPECT_EQ(lines_of(all).size(), 4u);
  EXPECT_EQ(all.find("Not shown"), std::string::npos);
  const size_t natural = widest(all);
  for (const size_t columns : std::vector<size_t>{60u, 80u, 120u, 200u}) {
    const std::string text = table.text({columns, "--wide or --json"});
    EXPECT_LE(widest(text), columns) << text;
    EXPECT_EQ(columns >= natural, text == all) << columns;
    for (const char* part : {"plain", "10.0 [9.5, 10.5]", "四位权重"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(TextTable, DropsInTheOrderOfTheCaller) {
  TextTable table = example();
  EXPECT_EQ(table.text({120, "--json"}).find("Not shown"), std::string::npos);  // the configuration is broken
  EXPECT_NE(table.text({80, "--json"}).find("\nNot shown in 80 columns: peak, MB; --json shows all.\n"),
            std::string::npos)
      << table.text({80, "--json"});
  EXPECT_NE(table.text({60, "--json"}).find("peak, MB; weights, MB; tokens/s;\n--json"), std::string::npos)
      << table.text({60, "--json"});
}

TEST(TextTable, TheOrderOfDroppingIsATextForTheHelp) {
  EXPECT_EQ(
      drop_order({{.name = "a", .drops = 3}, {.name = "b"}, {.name = "c, MB", .drops = 1}, {.name = "d", .drops = 2}}),
      "c, MB; d; a");
  EXPECT_EQ(drop_order({{.name = "a"}}), "");
}

TEST(TextTable, RowsOneByOne) {
  TextTable table(TableLook::plain,
                  {{.name = "NAME", .left = true, .width = 10}, {.name = "SIZE", .drops = 1, .width = 8}});
  EXPECT_EQ(table.head({0, ""}), "NAME            SIZE\n");
  EXPECT_EQ(table.line({"lab", "4.4 MB"}), "lab           4.4 MB\n");
  EXPECT_EQ(table.dropped_text({0, ""}), "");
  EXPECT_EQ(table.head({15, "--wide"}), "NAME\n");
  EXPECT_EQ(table.line({"lab", "4.4 MB"}), "lab\n");
  EXPECT_EQ(table.dropped_text({40, "--wide"}), "Not shown in 40 columns: SIZE; --wide\nshows all.\n");
}

}  // namespace
}  // namespace millrace
