#include "learn/story_corpus.h"

#include <lzma.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <unordered_set>

namespace millrace {
namespace {

constexpr std::string_view kSeparator = "<|endoftext|>";
constexpr size_t kMinStoryBytes = 120;
constexpr size_t kLongParagraph = 60;  // normalized bytes; shorter ones ("He was happy.") identify no story

bool ends_with(std::string_view s, std::string_view tail) {
  return s.size() >= tail.size() && s.substr(s.size() - tail.size()) == tail;
}

// Curly quotes and dashes have ASCII equivalents in this text; two spellings would waste vocabulary.
std::string straighten(std::string_view s) {
  // The second half: quotes whose UTF-8 was misread as Windows-1252; the longest first.
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kTwins{{{"\u201c", "\""},
                                                                                         {"\u201d", "\""},
                                                                                         {"\u2018", "'"},
                                                                                         {"\u2019", "'"},
                                                                                         {"\u2013", "-"},
                                                                                         {"\u2014", "-"},
                                                                                         {"\u2026", "..."},
                                                                                         {"\u00a0", " "},
                                                                                         {"\u00e2\u20ac\u0153", "\""},
                                                                                         {"\u00e2\u20ac\u009d", "\""},
                                                                                         {"\u00e2\u20ac\u2122", "'"},
                                                                                         {"\u00e2\u20ac\u02dc", "'"},
                                                                                         {"\u00e2\u20ac\u201c", "-"},
                                                                                         {"\u00e2\u20ac\u201d", "-"},
                                                                                         {"\u00e2\u20ac\u0160", ""},
                                                                                         {"\u00e2\u20ac", "\""},
                                                                                         {"\u009d", ""}}};
  std::string out;
  out.reserve(s.size());
  for (size_t i = 0; i < s.size();) {
    bool replaced = false;
    if (static_cast<unsigned char>(s[i]) >= 0x80) {
      for (const auto& [from, to] : kTwins) {
        if (s.substr(i, from.size()) == from) {
          out += to;
          i += from.size();
          replaced = true;
          break;
        }
      }
    }
    if (!replaced) out += s[i++];
  }
  return out;
}

// Letters and digits only, lower case: equal for copies that differ in spacing and quotes.
std::string fingerprint(std::string_view s) {
  std::string out;
  for (unsigned char c : s)
    if (std::isalnum(c)) out += static_cast<char>(std::tolower(c));
  return out;
}

uint64_t fnv1a(std::string_view s) {
  uint64_t h = 1469598103934665603ull;
  for (unsigned char c : s) h = (h ^ c) * 1099511628211ull;
  return h ^ (h >> 29);
}

std::vector<uint64_t> long_paragraphs(const std::string& story) {
  std::vector<uint64_t> out;
  std::istringstream lines(story);
  for (std::string line; std::getline(lines, line);) {
    std::string print = fingerprint(line);
    if (print.size() >= kLongParagraph) out.push_back(fnv1a(print));
  }
  return out;
}

bool opens_story(std::string_view paragraph) {
  for (std::string_view opening :
       {"Once upon a time", "Once there was", "There once was", "Once, there", "One day, a "})
    if (paragraph.substr(0, opening.size()) == opening) return true;
  return false;
}

std::vector<std::string> split_unseparated(const std::string& part) {
  std::vector<std::string> stories;
  std::string current;
  bool partial = true;  // the first piece may begin anywhere
  std::istringstream lines(part);
  for (std::string line; std::getline(lines, line);) {
    if (opens_story(line)) {
      if (!partial) stories.push_back(clean_story(current));
      partial = false;
      current.clear();
    }
    current += line;
    current += '\n';
  }
  return stories;  // the last piece may be truncated: also dropped
}

}  // namespace

std::string clean_story(const std::string& raw) {
  std::string out;
  std::istringstream lines(straighten(raw));
  for (std::string line; std::getline(lines, line);) {
    std::string cleaned;
    for (unsigned char c : line) {
      if (c == ' ' || c == '\t' || c == '\r') {
        if (!cleaned.empty() && cleaned.back() != ' ') cleaned += ' ';
      } else {
        cleaned += static_cast<char>(c);
      }
    }
    while (!cleaned.empty() && cleaned.back() == ' ') cleaned.pop_back();
    if (cleaned.empty()) continue;
    if (!out.empty()) out += '\n';
    out += cleaned;
  }
  return out;
}

std::vector<std::string> split_stories(const std::string& part) {
  if (part.find(kSeparator) == std::string::npos) return split_unseparated(part);
  std::vector<std::string> stories;
  for (size_t begin = 0; begin < part.size();) {
    size_t end = part.find(kSeparator, begin);
    if (end == std::string::npos) end = part.size();
    stories.push_back(clean_story(part.substr(begin, end - begin)));
    begin = end + kSeparator.size();
  }
  return stories;
}

StoryCorpus make_corpus(const std::vector<std::string>& parts, int held_out_every) {
  StoryCorpus corpus;
  corpus.parts = static_cast<int64_t>(parts.size());
  std::unordered_set<uint64_t> whole, seen, held;
  std::vector<std::pair<std::string, std::vector<uint64_t>>> kept;
  for (const std::string& part : parts) {
    const bool separated = part.find(kSeparator) != std::string::npos;
    for (std::string& story : split_stories(part)) {
      if (story.size() < kMinStoryBytes) {
        if (!story.empty()) ++corpus.too_short;
        continue;
      }
      const uint64_t id = fnv1a(fingerprint(story));
      std::vector<uint64_t> paragraphs = long_paragraphs(story);
      const auto known =
          std::count_if(paragraphs.begin(), paragraphs.end(), [&](uint64_t p) { return seen.count(p) > 0; });
      if (!whole.insert(id).second || (known > 0 && 2 * known >= static_cast<int64_t>(paragraphs.size()))) {
        ++corpus.doubles;
        continue;
      }
      seen.insert(paragraphs.begin(), paragraphs.end());
      if (separated && held_out_every > 0 && id % static_cast<uint64_t>(held_out_every) == 0) {
        held.insert(paragraphs.begin(), paragraphs.end());
        corpus.held_out.push_back(std::move(story));
      } else {
        kept.emplace_back(std::move(story), std::move(paragraphs));
      }
    }
  }
  for (auto& [story, paragraphs] : kept) {
    if (std::any_of(paragraphs.begin(), paragraphs.end(), [&](uint64_t p) { return held.count(p) > 0; })) {
      ++corpus.doubles;
    } else {
      corpus.train.push_back(std::move(story));
    }
  }
  return corpus;
}

Result<std::string> read_text_file(const std::string& path, size_t limit_bytes) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error::user("cannot open the text file: " + path);
  std::ostringstream buffer;
  buffer << in.rdbuf();
  std::string packed = buffer.str();
  if (!ends_with(path, ".xz")) return packed;
  lzma_stream stream = LZMA_STREAM_INIT;
  if (lzma_stream_decoder(&stream, uint64_t{512} << 20, LZMA_CONCATENATED) != LZMA_OK)
    return Error::resource("no memory for the xz decoder: " + path);
  std::string text;
  std::vector<char> chunk(1 << 16);
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  lzma_ret code = LZMA_OK;
  while (code == LZMA_OK && text.size() <= limit_bytes) {
    stream.next_out = reinterpret_cast<uint8_t*>(chunk.data());
    stream.avail_out = chunk.size();
    code = lzma_code(&stream, LZMA_FINISH);
    text.append(chunk.data(), chunk.size() - stream.avail_out);
  }
  lzma_end(&stream);
  if (text.size() > limit_bytes) return Error::resource("the unpacked text is over the limit: " + path);
  if (code != LZMA_STREAM_END) return Error::corrupt("the xz file is damaged: " + path);
  return text;
}

Result<StoryCorpus> read_corpus(const std::string& folder, int held_out_every) {
  std::error_code failed;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failed)) {
    const std::string path = entry.path().string();
    if (ends_with(path, ".txt") || ends_with(path, ".txt.xz")) paths.push_back(path);
  }
  if (failed) return Error::user("cannot list the data folder (--data): " + folder);
  if (paths.empty()) return Error::user("no *.txt or *.txt.xz in the data folder (--data): " + folder);
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> parts;
  for (const std::string& path : paths) {
    MILLRACE_TRY(std::string part, read_text_file(path));
    parts.push_back(std::move(part));
  }
  StoryCorpus corpus = make_corpus(parts, held_out_every);
  if (corpus.train.empty() || corpus.held_out.empty())
    return Error::user("too few stories to train on and hold out in the data folder (--data): " + folder);
  return corpus;
}

}  // namespace millrace
