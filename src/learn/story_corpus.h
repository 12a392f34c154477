// Stories for training: reads text parts (plain or .xz), splits them into stories, cleans them, removes duplicates and
// holds some stories out. Thread-safety: a value, filled once.
//
// A part contains stories separated by a line `<|endoftext|>`. A part without any separator is split before each
// paragraph that opens like a story ("Once upon a time"), and its first piece is dropped, since it may begin in the
// middle.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct StoryCorpus {
  std::vector<std::string> train;
  std::vector<std::string> held_out;  // no story shares a long paragraph with any in `train`
  int64_t parts = 0;
  int64_t doubles = 0;  // duplicate stories that were dropped
  int64_t too_short = 0;
};

// One text in the form that the model learns: lines trimmed, no empty lines, single spaces, straight quotes.
std::string clean_story(const std::string& raw);

// Splits one part into cleaned stories.
std::vector<std::string> split_stories(const std::string& part);

// Combines the stories of several parts: removes duplicates and holds out one in `held_out_every` (by hash of its text,
// so the choice does not change when parts are added).
StoryCorpus make_corpus(const std::vector<std::string>& parts, int held_out_every = 32);

// Reads every *.txt and *.txt.xz in a folder, in order of name.
Result<StoryCorpus> read_corpus(const std::string& folder, int held_out_every = 32);

// Reads a file, decompressing it if its name ends in .xz. At most `limit_bytes` after decompression.
Result<std::string> read_text_file(const std::string& path, size_t limit_bytes = size_t{1} << 30);

}  // namespace millrace
