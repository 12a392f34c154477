#include "lab/words.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace millrace::lab {
namespace {

constexpr std::string_view kColorList[] = {"red",   "blue", "green", "yellow", "black",  "white",
                                           "brown", "grey", "pink",  "purple", "orange", "silver"};
constexpr std::string_view kObjectList[] = {"box",   "cup",    "lamp",   "chair", "table",  "key",   "book",   "bell",
                                            "stone", "bottle", "basket", "rope",  "mirror", "clock", "hammer", "ladder",
                                            "plate", "spoon",  "candle", "brush", "pillow", "coin",  "ring",   "drum"};
constexpr std::string_view kAnimalList[] = {"dog",   "cat",    "horse", "cow",    "sheep", "goat",  "duck",
                                            "goose", "fox",    "bear",  "wolf",   "frog",  "mouse", "eagle",
                                            "owl",   "rabbit", "deer",  "donkey", "crow",  "toad"};
constexpr std::string_view kFoodList[] = {"bread", "cheese", "apple", "soup", "honey",  "rice", "pear", "plum",
                                          "cake",  "butter", "onion", "bean", "carrot", "egg",  "corn", "salt"};
constexpr std::string_view kJobList[] = {"baker",  "doctor", "farmer", "teacher", "painter",  "sailor", "tailor",
                                         "miller", "smith",  "singer", "driver",  "gardener", "cook",   "judge"};
constexpr std::string_view kDayList[] = {"Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"};
constexpr std::string_view kAdjectiveList[] = {"old",  "young", "quiet", "happy", "tired",  "small", "large", "clever",
                                               "slow", "fast",  "brave", "lazy",  "hungry", "kind",  "proud", "gentle"};
constexpr std::string_view kVerbList[] = {"walked", "slept",         "waited", "played", "rested",        "sang",
                                          "jumped", "looked around", "ran",    "hid",    "turned around", "sat down"};
constexpr std::string_view kSpotList[] = {
    "near the river", "under the tree",  "behind the house", "by the road",       "in the garden", "on the hill",
    "at the market",  "beside the well", "close to the sea", "in the tall grass", "at the gate",   "by the fire"};
constexpr std::string_view kTimeList[] = {"In the morning", "At noon", "In the evening", "At night", "After the rain",
                                          "Before lunch",   "Later",   "Once more",      "That day", "For a while"};
constexpr std::string_view kStartList[] = {"ba", "do", "fe", "ga", "ha", "ki", "lo", "ma", "ne", "or", "pa", "ri",
                                           "sa", "te", "ul", "va", "wi", "ya", "zo", "mi", "tu", "be", "ca", "jo"};
constexpr std::string_view kMiddleList[] = {"la", "ro", "mi", "ne", "du", "vi", "sha", "ba", "ki", "to", "re", "lo"};
constexpr std::string_view kEndList[] = {"n", "r", "ra", "lin", "dor", "na", "vek", "s", "mo", "th", "ka", "l"};
constexpr std::string_view kToyStartList[] = {"kv", "zl", "mr", "vr", "dz", "gv",
                                              "tl", "zn", "pf", "sv", "zv", "vz"};  // begin no English word
constexpr std::string_view kVowelList[] = {"a", "e", "i", "o", "u"};
constexpr std::string_view kToyEndList[] = {"b", "m", "n", "k", "p", "sh", "x", "d"};

constexpr double kMoreSyllables = 0.4;

}  // namespace

const Words kColors = kColorList, kObjects = kObjectList, kAnimals = kAnimalList, kFoods = kFoodList, kJobs = kJobList,
            kDays = kDayList, kAdjectives = kAdjectiveList;

std::string name_word(LabRandom& random) {
  std::string word(random.pick(Words(kStartList)));
  word += random.pick(Words(kMiddleList));
  if (random.chance(kMoreSyllables)) word += random.pick(Words(kMiddleList));
  word += random.pick(Words(kEndList));
  word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

std::string toy_word(LabRandom& random) {
  std::string word;
  for (int64_t i = 0; i < 1 + (random.chance(kMoreSyllables) ? 1 : 0); ++i) {
    word += random.pick(Words(kToyStartList));
    word += random.pick(Words(kVowelList));
  }
  return word + std::string(random.pick(Words(kToyEndList)));
}

std::string filler_sentence(LabRandom& random) {
  std::string text;
  if (random.chance(0.5)) text = std::string(random.pick(Words(kTimeList))) + " the ";
  if (text.empty()) text = "The ";
  text += random.pick(kAdjectives);
  text += " ";
  text += random.pick(kAnimals);
  text += " ";
  text += random.pick(Words(kVerbList));
  text += " ";
  text += random.pick(Words(kSpotList));
  return text + ".";
}

std::string with_article(std::string_view words) {
  return (std::string_view("aeiou").find(words[0]) == std::string_view::npos ? "a " : "an ") + std::string(words);
}

std::string numbered(int64_t number) { return std::to_string(number); }

std::string capitals(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string enumeration(const std::vector<std::string>& parts) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) out += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
  return out;
}

void add_filler(LabRandom& random, int64_t length, std::string& text) {
  while (std::ssize(text) < length) text += (text.empty() ? "" : " ") + filler_sentence(random);
}

std::string hide_facts(LabRandom& random, const std::vector<std::string>& facts, int64_t length) {
  int64_t rest = length;
  for (const std::string& fact : facts) rest -= std::ssize(fact) + 1;
  std::vector<double> places;
  for (size_t i = 0; i < facts.size(); ++i) places.push_back(random.uniform());
  std::ranges::sort(places);
  std::string text;
  int64_t filled = 0;
  for (size_t i = 0; i <= facts.size(); ++i) {
    const auto until = static_cast<int64_t>((i < facts.size() ? places[i] : 1.0) * static_cast<double>(rest));
    while (filled < until) {
      const std::string sentence = filler_sentence(random);
      filled += std::ssize(sentence) + 1;
      text += (text.empty() ? "" : " ") + sentence;
    }
    if (i < facts.size()) text += (text.empty() ? "" : " ") + facts[i];
  }
  return text;
}

}  // namespace millrace::lab
