// StoryCorpus: stories for training. The functions read text parts (plain or .xz), split them into stories, clean the
// stories, remove duplicates and hold out some stories.
//
// The stories of a part are separated by lines `<|endoftext|>`. If a part has no separator, it is split before each
// paragraph that begins like a story ("Once upon a time"). Its first piece is then dropped, because it may begin in the
// middle of a story.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct StoryCorpus {
  std::vector<std::string> train;
  std::vector<std::string> held_out;  // no long paragraph of these stories occurs in `train`
  int64_t parts = 0;
  int64_t doubles = 0;  // duplicate stories that were dropped
  int64_t too_short = 0;
};

// Returns a story in the form that the model learns: trimmed lines, no empty lines, single spaces, straight quotes.
std::string clean_story(const std::string& raw);

// Splits one part into cleaned stories.
std::vector<std::string> split_stories(const std::string& part);

// Combines the stories of several parts, removes duplicates, and holds out one in `held_out_every` stories. The choice
// depends on a hash of the story's text, so it does not change when parts are added.
StoryCorpus make_corpus(const std::vector<std::string>& parts, int held_out_every = 32);

// Reads every *.txt and *.txt.xz in a folder, in order of name.
Result<StoryCorpus> read_corpus(const std::string& folder, int held_out_every = 32);

// Reads a file, and decompresses it if its name ends in .xz. `limit_bytes`: maximum size after decompression.
Result<std::string> read_text_file(const std::string& path, size_t limit_bytes = size_t{1} << 30);

}  // namespace millrace
