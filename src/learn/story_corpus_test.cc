#include "learn/story_corpus.h"

#include <gtest/gtest.h>
#include <lzma.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace millrace {
namespace {

std::string story(int i) {
  return "Once upon a time number " + std::to_string(i) + " was a small round ball that liked to roll.\n" +
         "It met a friend with the name " + std::to_string(i * 7919) +
         " and they played in the park all day long together.";
}

std::string part_of(int begin, int end) {
  std::string part;
  for (int i = begin; i < end; ++i) part += story(i) + "\n<|endoftext|>\n";
  return part;
}

TEST(StoryCorpus, CleansSpacingAndQuotes) {
  EXPECT_EQ(clean_story("  He said, \u201cHi!\u201d  \r\n\n\n It\u2019s  late \n"), "He said, \"Hi!\"\nIt's late");
  EXPECT_EQ(clean_story("\u00e2\u20ac\u0153Yes\u00e2\u20ac\u2122"), "\"Yes'");
  EXPECT_EQ(clean_story(" \n\t\n"), "");
}

TEST(StoryCorpus, DropsStoriesThatOccurTwice) {
  // Parts overlap in stories 50..99; one copy has other spacing.
  std::string second = part_of(50, 150);
  second.insert(second.find("small"), "  ");
  const StoryCorpus corpus = make_corpus({part_of(0, 100), second}, 8);
  EXPECT_EQ(corpus.train.size() + corpus.held_out.size(), 150u);
  EXPECT_EQ(corpus.doubles, 50);
}

TEST(StoryCorpus, HeldOutStoriesShareNoParagraphWithTraining) {
  std::string part = part_of(0, 200);
  // A story that starts differently but continues like a held-out one.
  const StoryCorpus before = make_corpus({part}, 8);
  ASSERT_FALSE(before.held_out.empty());
  const std::string& held = before.held_out[0];
  part +=
      "A completely different beginning of a tale that was never told anywhere before today.\nAnd yet another line of "
      "it, long enough to count as a paragraph of its own in the check.\n" +
      held.substr(held.find('\n') + 1);
  const StoryCorpus corpus = make_corpus({part}, 8);
  std::set<std::string> lines;
  for (const std::string& s : corpus.held_out) lines.insert(s.substr(s.find('\n') + 1));
  for (const std::string& s : corpus.train)
    for (const std::string& line : lines) EXPECT_EQ(s.find(line), std::string::npos);
  EXPECT_EQ(corpus.held_out, before.held_out);
}

TEST(StoryCorpus, SplitsPartsWithoutSeparatorsAndDropsCutPieces) {
  const std::string part =
      "tail of a story.\n\n" + story(1) + "\n\nA second paragraph.\n\n" + story(2) + "\n\n" + story(3);
  const std::vector<std::string> stories = split_stories(part);
  ASSERT_EQ(stories.size(), 2u);
  EXPECT_EQ(stories[0], story(1) + "\nA second paragraph.");
  EXPECT_EQ(stories[1], story(2));
}

TEST(StoryCorpus, ReadsXzAndRefusesDamage) {
  const auto folder = std::filesystem::temp_directory_path() / "millrace_story_corpus_test";
  std::filesystem::create_directories(folder);
  const std::string text = part_of(0, 100);
  std::vector<uint8_t> packed(text.size() + 4096);
  size_t used = 0;
  ASSERT_EQ(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, nullptr, reinterpret_cast<const uint8_t*>(text.data()),
                                    text.size(), packed.data(), &used, packed.size()),
            LZMA_OK);
  const std::string path = (folder / "a.txt.xz").string();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(packed.data()), static_cast<std::streamsize>(used));
  EXPECT_EQ(std::move(read_text_file(path)).value(), text);
  EXPECT_EQ(read_text_file(path, 100).error().kind, ErrorKind::resource);
  EXPECT_TRUE(read_corpus(folder.string(), 8).ok());
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(packed.data()), static_cast<std::streamsize>(used / 2));
  EXPECT_EQ(read_text_file(path).error().kind, ErrorKind::corrupt);
  EXPECT_EQ(read_text_file((folder / "none.txt").string()).error().kind, ErrorKind::user);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace millrace
